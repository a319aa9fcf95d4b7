//! Controllers: each takes looks at a cluster in the loop of [`common::reconcile`], woken by its watches.
//!
//! kube's `Controller` is not used, because it reconciles one object at a time, while these controllers treat all
//! objects as one state, and because it reports a failed watch only in the library's log.
//!
//! Without a watch the controller misses changes until something else wakes it. So a failure is reported at once: by a
//! log line with the object and the reason, repeated only when the reason changes, a counter by kind, and readiness.
//!
//! After a look that has applied a step, the next one follows at once, up to a limit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use common::reconcile::{self, QUIET, Requeue, Subject};
use futures_util::FutureExt as _;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use kubernetes::watch::{Watch, WatchEvent};
use kubernetes::{ControlError, Health, ObjectName, client};
use pki::MAX_STEPS;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::metadata_cache::MetadataCache;

/// Interval between looks without a change.
const RESYNC: Duration = Duration::from_secs(600);

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

/// Runs a controller forever. Returns the error that ended it.
pub async fn run_controller<R: Reconciler>(
    reconciler: R,
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
        never = Box::pin(reconcile::run(Woken { reconciler, wake, health }, RESYNC)) => match never {},
    }
}

/// A controller with what wakes it, and what it reports to.
struct Woken<'a, R> {
    reconciler: R,
    wake: Arc<Notify>,
    health: &'a Health,
}

impl<R: Reconciler> Subject for Woken<'_, R> {
    type Error = ControlError;

    async fn look(&mut self) -> Result<Requeue, ControlError> {
        let settled = converge(&mut self.reconciler).await;
        match &settled {
            Ok(_) => self.health.recovered(R::SUBJECT),
            Err(error) => self.health.failed(R::SUBJECT, error),
        }
        settled
    }

    async fn changed(&mut self) {
        self.wake.notified().await;
        tokio::time::sleep(QUIET).await;
        // The next look includes wakeups up to here.
        let _ = self.wake.notified().now_or_never();
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
