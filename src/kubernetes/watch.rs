//! Watches objects of a cluster: a list, then every change, forever.
//!
//! kube does lists, resumption, expired versions and stalled connections. This module classifies errors, and waits
//! before retries. kube's `WatchStreamExt::backoff` is not used: it resumes after an error without a sign that the
//! watch works again. A failed watch of this module starts again with a list, whose end is that sign.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::reason;
use crate::backoff::Backoff;

/// Time for which the API server keeps a watch open, and so the maximum time for which a silently broken connection is
/// not noticed.
const WATCH_SECONDS: u32 = 60;
/// Number of objects in a page of a list, which bounds its memory.
const PAGE: u32 = 50;
/// Waits after failures: they grow from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Silence after a list that means that the watch works. Its start has no answer.
const STARTED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum WatchEvent<K> {
    /// A list begins, which replaces all known objects.
    ListBegins,
    /// An object of the list.
    Listed(K),
    /// The list is complete: all objects are known.
    Synced,
    /// An object is new or changed.
    Applied(K),
    Deleted(K),
    /// Nothing has changed since the list, and the watch works.
    Works,
    /// The watch failed, and restarts after a wait.
    Failed(Failure),
}

/// Reason why a watch fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The API server's message, or the reason why it is unreachable, in one line.
    pub(crate) reason: String,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The API server does not have the kind.
    NoSuchKind,
    /// This process lacks the permission.
    Forbidden,
    /// The API server is in trouble, or unreachable.
    Other,
}

impl Failure {
    /// The next step of an administrator, for log lines.
    pub(crate) fn fix(&self) -> &'static str {
        match self.cause {
            Cause::NoSuchKind => "install the CustomResourceDefinition of this kind",
            Cause::Forbidden => "grant the service account list and watch of this kind",
            Cause::Other => "check the API server and the network to it",
        }
    }

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

/// A watch of objects. It sends no request before the first [`next`](Self::next).
pub(crate) struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    stage: Stage,
    waits: Backoff,
}

enum Stage {
    Listing,
    /// Listed; it works unless it fails before this time.
    Listed(Instant),
    Works,
    /// Failed; it restarts at this time.
    Failed(Instant),
}

impl<K> Watch<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Watches the objects of `api`, or only the one with this name.
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

    /// Waits for the next event; there is always one. It is cancel safe: no event is lost.
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
            // kube's stream does not end.
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

    /// Returns `true` if kube lists again by itself, because the version is too old. A watch that has not worked since
    /// its list is not resumed: it would only list.
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

pub(crate) struct ObjectWatch<K> {
    watch: Watch<K>,
    listed: Option<K>,
}

#[derive(Debug)]
pub(crate) enum ObjectSeen<K> {
    Present(K),
    Absent,
    /// The object cannot be watched; retries continue.
    Failed(Failure),
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    pub(crate) fn new(api: Api<K>, name: &str) -> Self {
        Self { watch: Watch::new(api, Some(name)), listed: None }
    }

    /// Waits for the object's present state, for each change, and for failures. It is cancel safe: no change is lost.
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
