//! Watches objects of a cluster: a list, then every change, forever.
//!
//! kube does lists, resumption, expired versions and stalled connections. This module classifies errors, and waits
//! before retries. kube's `WatchStreamExt::backoff` is not used: it resumes after an error without a sign that the
//! watch works again. A failed watch of this module starts again with a list, whose end is that sign.

use std::time::Duration;

use common::backoff::Backoff;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::reason;
use super::seen::{Cause, Failure, ObjectSeen};

/// Time for which the API server keeps a watch open, and so the maximum time for which a silently broken connection is
/// not noticed.
const WATCH_SECONDS: u32 = 60;
/// Number of objects in a page of a list, which bounds its memory.
const PAGE: u32 = 50;
/// The same of a list of metadata, which is small.
const METADATA_PAGE: u32 = 500;
/// Waits after failures: they grow from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Silence after a list that means that the watch works. Its start has no answer.
const STARTED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum WatchEvent<K> {
    /// A part of a list, which replaces all known objects, or a change of an object.
    Seen(Event<K>),
    /// Nothing has changed since the list, and the watch works.
    Works,
    /// The watch failed, and restarts after a wait.
    Failed(Failure),
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

/// A watch of objects. It sends no request before the first [`next`](Self::next).
pub struct Watch<K> {
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
    pub fn new(api: Api<K>, only: Option<&str>) -> Self {
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

    /// Watches only the objects of which this field selector is true.
    #[must_use]
    pub fn with_fields(mut self, fields: &str) -> Self {
        self.config = self.config.fields(fields);
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        self
    }

    /// Lists in the large pages of objects with nothing but metadata.
    #[must_use]
    pub fn of_metadata(mut self) -> Self {
        self.config = self.config.page_size(METADATA_PAGE);
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        self
    }

    /// Waits for the next event; there is always one. It is cancel safe: no event is lost.
    pub async fn next(&mut self) -> WatchEvent<K> {
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
                Ok(event) => {
                    self.note(&event);
                    return WatchEvent::Seen(event);
                }
                Err(error) if self.is_resumed(&error) => {}
                Err(error) => return WatchEvent::Failed(self.fail(&error)),
            }
        }
    }

    fn note(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.stage = Stage::Listing,
            Event::InitApply(_) => {}
            Event::InitDone => self.stage = Stage::Listed(Instant::now() + STARTED),
            Event::Apply(_) | Event::Delete(_) => self.works(),
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

pub struct ObjectWatch<K> {
    watch: Watch<K>,
    listed: Option<K>,
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    pub fn new(api: Api<K>, name: &str) -> Self {
        Self { watch: Watch::new(api, Some(name)), listed: None }
    }

    /// Waits for the object's present state, for each change, and for failures. It is cancel safe: no change is lost.
    pub async fn next(&mut self) -> ObjectSeen<K> {
        loop {
            match self.watch.next().await {
                WatchEvent::Seen(Event::Init) => self.listed = None,
                WatchEvent::Seen(Event::InitApply(object)) => self.listed = Some(object),
                WatchEvent::Seen(Event::InitDone) => {
                    return self.listed.take().map_or(ObjectSeen::Absent, ObjectSeen::Present);
                }
                WatchEvent::Seen(Event::Apply(object)) => return ObjectSeen::Present(object),
                WatchEvent::Seen(Event::Delete(_)) => return ObjectSeen::Absent,
                WatchEvent::Works => {}
                WatchEvent::Failed(failure) => return ObjectSeen::Failed(failure),
            }
        }
    }
}

#[cfg(test)]
mod tests;
