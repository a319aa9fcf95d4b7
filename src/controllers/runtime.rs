//! The loop of every controller: woken by watches, by a due time, or after a failure.
//!
//! kube's `Controller` is not used, because it reconciles one object at a time, while these controllers treat all
//! objects as one state, and because it reports a failed watch only in the library's log.
//!
//! Without a watch the controller misses changes until something else wakes it. So a failure is reported at once: by a
//! log line with the object and the reason, repeated only when the reason changes, a counter by kind, and readiness.
//!
//! A look applies one step at most. While there is one, the next look follows at once: a plan is made of what is
//! stored, never of what the last step should have left there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use pki::MAX_STEPS;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::metadata_cache::MetadataCache;
use crate::backoff::Backoff;
use crate::kubernetes::watch::{Watch, WatchEvent};
use crate::kubernetes::{ControlError, Health, ObjectName, client};

/// Wait after a change, because changes come in bursts.
const QUIET: Duration = Duration::from_millis(50);
/// Interval between looks without a change.
const RESYNC: Duration = Duration::from_secs(600);
/// Minimum wait for a due time, because a clock can be set back.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// Waits after failures: they grow from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Creates the waits after failures.
pub(super) fn backoff() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

/// A controller that runs in the loop.
pub(super) trait Reconciler {
    /// Subject in the log and in readiness.
    const SUBJECT: &'static str;

    /// Objects that its decisions depend on.
    fn watched(&self) -> Vec<Watched>;

    fn wake(&self) -> Arc<Notify> {
        Arc::new(Notify::new())
    }

    /// Maximum number of looks in a row that each find a step: a plan settles in fewer, unless another client undoes it.
    fn max_steps(&self) -> usize {
        MAX_STEPS
    }

    /// Takes one look: applies the step that is due, and returns the time of the next look without a change.
    async fn reconcile(&mut self) -> Result<Requeue, ControlError>;
}

/// Time of the next look without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    /// Immediately, after a step or a conflict.
    Now,
    /// After this time at the latest.
    After(Duration),
    /// After the usual interval.
    Resync,
}

impl Requeue {
    /// At `time`, computed at `now`.
    pub(super) fn at(time: OffsetDateTime, now: OffsetDateTime) -> Self {
        let wait = Duration::try_from(time - now).unwrap_or_default();
        Self::After(wait.max(SHORTEST_WAIT))
    }

    /// The earlier of this and `wait`.
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

/// Runs a controller forever. Returns the error that ended it.
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
            Err(error) => ControlError::Ended { subject: R::SUBJECT, reason: error.to_string() },
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
        let wait = match converge(reconciler).await {
            Ok(requeue) => {
                waits.reset();
                health.in_order(R::SUBJECT);
                requeue.wait()
            }
            Err(error) => {
                health.not_in_order(R::SUBJECT, &error);
                waits.next()
            }
        };
        // A wakeup or the end of the wait.
        let _ = tokio::time::timeout(wait, wake.notified()).await;
        tokio::time::sleep(QUIET).await;
        // This look includes wakeups up to here.
        let _ = wake.notified().now_or_never();
    }
}

/// Takes looks until one finds no step, and returns the time of the next one.
async fn converge<R: Reconciler>(reconciler: &mut R) -> Result<Requeue, ControlError> {
    let mut steps = 0;
    loop {
        let requeue = reconciler.reconcile().await?;
        if requeue != Requeue::Now {
            return Ok(requeue);
        }
        steps += 1;
        if steps > reconciler.max_steps() {
            return Err(ControlError::Endless);
        }
    }
}

/// Objects whose changes wake a controller. Only their metadata is read.
pub(super) struct Watched {
    object: ObjectName,
    resource: ApiResource,
    known: Option<MetadataCache>,
}

impl Watched {
    /// Watches objects of a core kind.
    pub(super) fn core<K: Resource<DynamicType = ()>>(object: ObjectName) -> Self {
        Self { object, resource: ApiResource::erase::<K>(&()), known: None }
    }

    /// Watches objects of a custom resource.
    pub(super) fn custom(object: ObjectName, resource: ApiResource) -> Self {
        Self { object, resource, known: None }
    }

    /// The same, and their metadata is kept.
    pub(super) fn cached_in(self, known: &MetadataCache) -> Self {
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
