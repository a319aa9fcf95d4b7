//! One way to watch objects of a cluster: a list, then every change, for ever.
//!
//! Lists, resumption, expired versions and stalled connections are kube's work. Here are what an error means, and the
//! wait before the next try. kube's own `WatchStreamExt::backoff` is not used: it resumes after an error, and nothing
//! says that the watch works again. A watch that failed here begins with a list, whose end says so.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::reason;
use crate::backoff::Backoff;

/// How long the API server is asked to keep a watch open. What breaks a connection without telling
/// either side goes unnoticed no longer than this.
const WATCH_SECONDS: u32 = 60;
/// Objects a page of a list: bounds the memory that a list takes.
const PAGE: u32 = 50;
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A watch that was listed and says nothing for so long works. Its start has no answer of its own.
const STARTED: Duration = Duration::from_secs(1);

/// News of the objects that are watched.
#[derive(Debug)]
pub(crate) enum WatchEvent<K> {
    /// A list begins; it replaces all that was known.
    ListBegins,
    /// An object of the list.
    Listed(K),
    /// The list has ended: all objects are known.
    Synced,
    /// An object is new or other than before.
    Applied(K),
    Deleted(K),
    /// Nothing has changed since the list, and the API server lets changes be watched.
    Works,
    /// The watch has failed, and begins anew after a wait.
    Failed(Failure),
}

/// Why a watch does not work now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The API server's message, or why it was not reached. One line.
    pub(crate) reason: String,
    pub(crate) cause: Cause,
}

/// What a failure says of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The API server does not know the kind.
    NoSuchKind,
    /// This process has not the right.
    Forbidden,
    /// The API server is in trouble, or was not reached.
    Other,
}

impl Failure {
    fn of(error: &watcher::Error) -> Self {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => Some(status),
            _ => None,
        };
        let message = status.map(|status| &status.message).filter(|message| !message.is_empty());
        Self {
            reason: message.map_or_else(|| reason(error), |message| message.replace('\n', " ")),
            cause: match status.map(|status| status.code) {
                Some(404) => Cause::NoSuchKind,
                Some(403) => Cause::Forbidden,
                _ => Cause::Other,
            },
        }
    }
}

/// A watch of objects. Nothing is asked of the API server before the first [`next`](Self::next).
pub(crate) struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    stage: Stage,
    waits: Backoff,
}

enum Stage {
    Listing,
    /// Listed, and works unless something fails before this time.
    Listed(Instant),
    Works,
    /// Failed, and begins anew at this time.
    Failed(Instant),
}

impl<K> Watch<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Watches the objects of `api`, or the one of the name `only`.
    pub(crate) fn new(api: Api<K>, only: Option<&str>) -> Self {
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
        if let Some(name) = only {
            config = config.fields(&format!("metadata.name={name}"));
        }
        Self {
            events: watcher(api.clone(), config.clone()).boxed(),
            api,
            config,
            stage: Stage::Listing,
            waits: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        }
    }

    /// Waits for the next event; they have no end. May be dropped and called again: no event is lost by that.
    pub(crate) async fn next(&mut self) -> WatchEvent<K> {
        loop {
            let event = match self.stage {
                Stage::Failed(until) => {
                    sleep_until(until).await;
                    self.stage = Stage::Listing;
                    continue;
                }
                Stage::Listed(until) => {
                    if let Ok(event) = timeout_at(until, self.events.next()).await {
                        event
                    } else {
                        self.works();
                        return WatchEvent::Works;
                    }
                }
                Stage::Listing | Stage::Works => self.events.next().await,
            };
            // kube's stream has no end.
            match event.unwrap_or(Err(watcher::Error::NoResourceVersion)) {
                Ok(event) => return self.take(event),
                Err(error) if self.is_resumed(&error) => {}
                Err(error) => return WatchEvent::Failed(self.fail(&error)),
            }
        }
    }

    fn take(&mut self, event: Event<K>) -> WatchEvent<K> {
        match event {
            Event::Init => {
                self.stage = Stage::Listing;
                WatchEvent::ListBegins
            }
            Event::InitApply(object) => WatchEvent::Listed(object),
            Event::InitDone => {
                self.stage = Stage::Listed(Instant::now() + STARTED);
                WatchEvent::Synced
            }
            Event::Apply(object) => {
                self.works();
                WatchEvent::Applied(object)
            }
            Event::Delete(object) => {
                self.works();
                WatchEvent::Deleted(object)
            }
        }
    }

    fn works(&mut self) {
        self.stage = Stage::Works;
        self.waits.reset();
    }

    /// Whether kube lists anew by itself, because the version to go on from is too old. A watch that has not worked
    /// since its list is not resumed: it would do nothing but list.
    fn is_resumed(&self, error: &watcher::Error) -> bool {
        let is_gone = matches!(error, watcher::Error::WatchError(status) if status.code == 410);
        is_gone && matches!(self.stage, Stage::Works)
    }

    fn fail(&mut self, error: &watcher::Error) -> Failure {
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        self.stage = Stage::Failed(Instant::now() + self.waits.next());
        Failure::of(error)
    }
}

/// A watch of one object.
pub(crate) struct ObjectWatch<K> {
    watch: Watch<K>,
    listed: Option<K>,
}

/// What is seen of one object.
#[derive(Debug)]
pub(crate) enum ObjectSeen<K> {
    Present(K),
    Absent,
    /// It cannot be watched; trying again goes on.
    Failed(Failure),
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    pub(crate) fn new(api: Api<K>, name: &str) -> Self {
        Self { watch: Watch::new(api, Some(name)), listed: None }
    }

    /// Waits for the object as it is, for each change of it, and for what keeps it from being seen. May be dropped
    /// and called again: no change is lost by that.
    pub(crate) async fn next(&mut self) -> ObjectSeen<K> {
        loop {
            match self.watch.next().await {
                WatchEvent::ListBegins => self.listed = None,
                WatchEvent::Listed(object) => self.listed = Some(object),
                WatchEvent::Synced => {
                    return self.listed.take().map_or(ObjectSeen::Absent, ObjectSeen::Present);
                }
                WatchEvent::Applied(object) => return ObjectSeen::Present(object),
                WatchEvent::Deleted(_) => return ObjectSeen::Absent,
                WatchEvent::Works => {}
                WatchEvent::Failed(failure) => return ObjectSeen::Failed(failure),
            }
        }
    }
}

#[cfg(test)]
mod tests;
