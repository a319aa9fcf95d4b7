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

use futures_util::{FutureExt as _, StreamExt as _, pin_mut};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::kubernetes::{ControlError, Health, ObjectName};

/// Changes come in bursts; what they wake waits for this long.
const QUIET: Duration = Duration::from_millis(50);
/// Without a change everything is looked at so often.
const RESYNC: Duration = Duration::from_secs(600);
/// A time that is due already is waited for so long: a clock may be set back.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that was listed and says nothing for so long works. Its start has no answer of its own.
const STARTED: Duration = Duration::from_secs(1);

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
}

impl Watched {
    /// A kind of the core API.
    pub(super) fn core<K: Resource<DynamicType = ()>>(object: ObjectName) -> Self {
        Self { object, resource: ApiResource::erase::<K>(&()) }
    }

    /// A kind that is defined in the cluster.
    pub(super) fn custom(object: ObjectName, resource: ApiResource) -> Self {
        Self { object, resource }
    }

    fn api(&self, client: Client) -> Api<PartialObjectMeta<DynamicObject>> {
        match self.object.namespace.as_str() {
            "" => Api::all_with(client, &self.resource),
            namespace => Api::namespaced_with(client, namespace, &self.resource),
        }
    }

    /// Wakes the loop after each change. A watch that failed begins anew, so that it is known to
    /// work once it has listed everything again.
    async fn follow(self, client: Client, wake: Arc<Notify>, health: Health) -> Infallible {
        let mut waits = backoff();
        loop {
            let (worked, error) = self.follow_once(client.clone(), &wake, &health).await;
            if worked {
                waits.reset();
            }
            health.watch_failed(&self.object, &error);
            tokio::time::sleep(waits.next()).await;
        }
    }

    /// Follows until something fails. Tells whether it worked before.
    async fn follow_once(
        &self,
        client: Client,
        wake: &Notify,
        health: &Health,
    ) -> (bool, watcher::Error) {
        let mut config = watcher::Config::default();
        if self.object.name != "*" {
            config = config.fields(&format!("metadata.name={}", self.object.name));
        }
        let events = watcher(self.api(client), config);
        pin_mut!(events);
        let (mut listed, mut works) = (false, false);
        loop {
            let wait = if listed && !works { STARTED } else { Duration::MAX };
            match tokio::time::timeout(wait, events.next()).await {
                Err(_) => works = true,
                Ok(Some(Ok(Event::Init | Event::InitApply(_)))) => continue,
                Ok(Some(Ok(Event::InitDone))) => {
                    listed = true;
                    wake.notify_one();
                }
                Ok(Some(Ok(Event::Apply(_) | Event::Delete(_)))) => {
                    works = true;
                    wake.notify_one();
                }
                // Too old a version to go on from: the library lists anew by itself.
                Ok(Some(Err(watcher::Error::WatchError(status)))) if status.code == 410 => {}
                Ok(Some(Err(error))) => return (works, error),
                Ok(None) => return (works, watcher::Error::NoResourceVersion),
            }
            if works {
                health.watch_works(&self.object);
            }
        }
    }
}

/// A kind of a group, in one of its versions.
pub(super) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
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
