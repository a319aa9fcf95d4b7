//! The loop that every controller runs in: woken by watches, by its own time, or after a failure.
//!
//! It is not kube's `Controller`, because that reconciles one object at a time, where here all
//! objects together are one state, and because it leaves a watch that fails to the library's log.
//!
//! A watch that does not work makes the controller blind for as long as nothing else wakes it. So it
//! is told at once: a line in the log with the object and the reason, again only when the reason
//! changes, a count by kind, and readiness.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::known::Known;
use crate::backoff::Backoff;
use crate::kubernetes::watch::{Watch, WatchEvent};
use crate::kubernetes::{ControlError, Health, ObjectName, client};

/// Changes come in bursts; what they wake waits for this long.
const QUIET: Duration = Duration::from_millis(50);
/// Without a change everything is looked at so often.
const RESYNC: Duration = Duration::from_secs(600);
/// A time that is due already is waited for so long: a clock may be set back.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The waits after failures.
pub(super) fn backoff() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

/// What keeps something in order.
pub(super) trait Reconciler {
    /// What it keeps, as the log and readiness name it.
    const KEEPS: &'static str;

    /// What its decisions depend on.
    fn watched(&self) -> Vec<Watched>;

    /// What wakes it besides.
    fn wake(&self) -> Arc<Notify> {
        Arc::new(Notify::new())
    }

    /// Brings everything in order, and says when to look again though nothing changes.
    async fn reconcile(&mut self) -> Result<Requeue, ControlError>;
}

/// When to look again though nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    /// At once: somebody else came first.
    Now,
    /// After this long at the latest.
    After(Duration),
    /// At the usual time.
    Resync,
}

impl Requeue {
    /// At `time`, seen at `now`.
    pub(super) fn at(time: OffsetDateTime, now: OffsetDateTime) -> Self {
        let wait = Duration::try_from(time - now).unwrap_or_default();
        Self::After(wait.max(SHORTEST_WAIT))
    }

    /// Or after `wait`, if that is sooner.
    pub(super) fn or_after(self, wait: Duration) -> Self {
        Self::After(self.wait().min(wait))
    }

    fn wait(self) -> Duration {
        match self {
            Self::Now => Duration::ZERO,
            Self::After(wait) => wait.min(RESYNC),
            Self::Resync => RESYNC,
        }
    }
}

/// Runs a controller for ever. What it returns is why it could not.
pub(super) async fn run<R: Reconciler>(
    mut reconciler: R,
    client: &Client,
    health: &Health,
) -> ControlError {
    let wake = reconciler.wake();
    let mut watches = JoinSet::new();
    for watched in reconciler.watched() {
        watches.spawn(watched.follow(client.clone(), Arc::clone(&wake), health.clone()));
    }
    tokio::select! {
        Some(ended) = watches.join_next() => match ended {
            Err(error) => ControlError::Ended { keeps: R::KEEPS, reason: error.to_string() },
        },
        never = reconcile_for_ever(&mut reconciler, &wake, health) => match never {},
    }
}

async fn reconcile_for_ever<R: Reconciler>(
    reconciler: &mut R,
    wake: &Notify,
    health: &Health,
) -> Infallible {
    let mut waits = backoff();
    loop {
        let wait = match reconciler.reconcile().await {
            Ok(requeue) => {
                waits.reset();
                health.in_order(R::KEEPS);
                requeue.wait()
            }
            Err(error) => {
                health.not_in_order(R::KEEPS, &error);
                waits.next()
            }
        };
        // Either will do.
        let _ = tokio::time::timeout(wait, wake.notified()).await;
        tokio::time::sleep(QUIET).await;
        // What came meanwhile is seen now.
        let _ = wake.notified().now_or_never();
    }
}

/// Objects whose changes wake a controller. Only their metadata is asked for.
pub(super) struct Watched {
    object: ObjectName,
    resource: ApiResource,
    known: Option<Known>,
}

impl Watched {
    /// A kind of the core API.
    pub(super) fn core<K: Resource<DynamicType = ()>>(object: ObjectName) -> Self {
        Self { object, resource: ApiResource::erase::<K>(&()), known: None }
    }

    /// A kind that is defined in the cluster.
    pub(super) fn custom(object: ObjectName, resource: ApiResource) -> Self {
        Self { object, resource, known: None }
    }

    /// The same, and their metadata is kept.
    pub(super) fn known_to(self, known: &Known) -> Self {
        Self { known: Some(known.clone()), ..self }
    }

    /// Wakes the loop after each change.
    async fn follow(self, client: Client, wake: Arc<Notify>, health: Health) -> Infallible {
        let Self { object, resource, known } = self;
        let api: Api<PartialObjectMeta<DynamicObject>> =
            client::api(&client, &object.namespace, &resource);
        let only = Some(object.name.as_str()).filter(|name| *name != "*");
        let mut watch = Watch::new(api, only);
        loop {
            let event = watch.next().await;
            if let Some(known) = &known {
                known.take(&event);
            }
            match event {
                WatchEvent::ListBegins | WatchEvent::Listed(_) => {}
                WatchEvent::Synced => wake.notify_one(),
                WatchEvent::Applied(_) | WatchEvent::Deleted(_) => {
                    health.watch_works(&object);
                    wake.notify_one();
                }
                WatchEvent::Works => health.watch_works(&object),
                WatchEvent::Failed(failure) => health.watch_failed(&object, &failure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_waited_for_no_longer_than_a_resync_and_not_too_short() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let at = |seconds| Requeue::at(now + time::Duration::seconds(seconds), now).wait();
        for (seconds, wait) in [(-5, SHORTEST_WAIT), (0, SHORTEST_WAIT), (90, 90 * SHORTEST_WAIT)] {
            assert_eq!(at(seconds), wait);
        }
        assert_eq!(at(1_000_000), RESYNC);
        let soon = Duration::from_millis(10);
        assert_eq!(Requeue::Resync.or_after(soon).wait(), soon);
        assert_eq!(Requeue::After(soon).or_after(RESYNC).wait(), soon);
        assert_eq!(Requeue::Now.wait(), Duration::ZERO);
    }
}
