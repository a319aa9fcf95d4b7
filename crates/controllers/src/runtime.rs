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

use common::backoff::Backoff;
use common::schedule::Schedule;
use futures_util::FutureExt as _;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use kubernetes::watch::{Watch, WatchEvent};
use kubernetes::{ControlError, Health, ObjectName, client};
use pki::MAX_STEPS;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::metadata_cache::MetadataCache;

/// Wait after a change, because changes come in bursts.
const QUIET: Duration = Duration::from_millis(50);
/// Interval between looks without a change.
const RESYNC: Duration = Duration::from_secs(600);
/// Minimum wait for a due time, because a clock can be set back.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// Waits after failures: they grow from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub fn backoff() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

pub trait Reconciler {
    /// Subject in the log and in readiness.
    const SUBJECT: &'static str;

    /// Objects that its decisions depend on, and whose changes wake it.
    fn watched(&self) -> Vec<ObjectName>;

    /// Further ones, with caches of their metadata.
    fn cached(&self) -> Vec<(ObjectName, MetadataCache)> {
        Vec::new()
    }

    fn wake(&self) -> Arc<Notify> {
        Arc::new(Notify::new())
    }

    /// Maximum number of looks in a row that each find a step: a plan settles in fewer, unless another client undoes it.
    fn max_steps(&self) -> usize {
        MAX_STEPS
    }

    /// Takes one look: applies the step that is due, and returns the time of the next look without a change.
    #[expect(async_fn_in_trait, reason = "its future is awaited where the type is known")]
    async fn reconcile(&mut self) -> Result<Requeue, ControlError>;
}

/// Time of the next look without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Immediately, after a step or a conflict.
    Now,
    /// After this time at the latest.
    After(Duration),
    /// After the usual interval.
    Resync,
}

impl Requeue {
    /// At `time`, computed at `now`.
    pub fn at(time: OffsetDateTime, now: OffsetDateTime) -> Self {
        let wait = Duration::try_from(time - now).unwrap_or_default();
        Self::After(wait.max(SHORTEST_WAIT))
    }

    /// The earlier of this and `wait`.
    pub(crate) fn or_after(self, wait: Duration) -> Self {
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
pub async fn run_controller<R: Reconciler>(
    mut reconciler: R,
    client: &Client,
    health: &Health,
) -> ControlError {
    let wake = reconciler.wake();
    let mut watches = JoinSet::new();
    let uncached = reconciler.watched().into_iter().map(|object| (object, None));
    let cached = reconciler.cached().into_iter().map(|(object, cache)| (object, Some(cache)));
    for (object, cache) in uncached.chain(cached) {
        let api = client::api(client, &object.namespace, object.kind);
        watches.spawn(follow(api, object, cache, Arc::clone(&wake), health.clone()));
    }
    tokio::select! {
        Some(ended) = watches.join_next() => match ended {
            Err(error) => ControlError::Ended { subject: R::SUBJECT, reason: error.to_string() },
        },
        never = Box::pin(reconcile_for_ever(&mut reconciler, &wake, health)) => match never {},
    }
}

async fn reconcile_for_ever<R: Reconciler>(
    reconciler: &mut R,
    wake: &Arc<Notify>,
    health: &Health,
) -> Infallible {
    let (mut waits, mut schedule) = (backoff(), Schedule::of(Arc::clone(wake)));
    loop {
        let wait = match converge(reconciler).await {
            Ok(requeue) => {
                waits.reset();
                health.recovered(R::SUBJECT);
                requeue.wait()
            }
            Err(error) => {
                health.failed(R::SUBJECT, &error);
                waits.next()
            }
        };
        schedule.wait(wait);
        schedule.due().await;
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

/// Wakes the loop after each change of an object. Only metadata is read.
async fn follow(
    api: Api<PartialObjectMeta<DynamicObject>>,
    object: ObjectName,
    cache: Option<MetadataCache>,
    wake: Arc<Notify>,
    health: Health,
) -> Infallible {
    let only = Some(object.name.as_str()).filter(|name| *name != "*");
    let mut watch = Watch::new(api, only);
    loop {
        match watch.next().await {
            WatchEvent::Seen(event) => {
                if let Some(cache) = &cache {
                    cache.take(&event);
                }
                if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                    health.watch_works(&object);
                }
                if !matches!(event, Event::Init | Event::InitApply(_)) {
                    wake.notify_one();
                }
            }
            WatchEvent::Works => health.watch_works(&object),
            WatchEvent::Failed(failure) => health.watch_failed(&object, &failure),
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
