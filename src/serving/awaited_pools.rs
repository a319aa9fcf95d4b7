//! Pools that machines ask for before a server has read all of them.
//!
//! Reading a large cluster takes seconds. A machine that asks meanwhile waits for its own pool only, which the source
//! reads ahead of the others.

use std::sync::OnceLock;
use std::time::Duration;

use model::inputs::Inputs;
use model::objects::is_object_name;
use tokio::sync::{Semaphore, mpsc};

use super::pipeline::publish::{Published, Subscription};

/// Maximum wait of a machine. Then it gets 503, and asks again.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of machines that wait at a time; others get 503 at once.
const MAX_WAITING_MACHINES: usize = 256;

/// Requests for pools that are not read yet.
#[derive(Debug)]
pub struct AwaitedPools {
    requests: mpsc::Sender<String>,
    published: Subscription,
    waiting: Semaphore,
    /// Set once all pools were read: from then on nobody waits.
    all_read: OnceLock<()>,
    /// True if tokens can be judged by a part of the pools.
    has_tokens: bool,
}

impl AwaitedPools {
    /// Creates the requests, which end with the inputs in `published`, and their receiver. Without `has_tokens`, machines with
    /// a token wait until all pools are read.
    pub(crate) fn new(published: Subscription, has_tokens: bool) -> (Self, mpsc::Receiver<String>) {
        let (requests, receiver) = mpsc::channel(MAX_WAITING_MACHINES);
        let waiting = Semaphore::new(MAX_WAITING_MACHINES);
        (Self { requests, published, waiting, all_read: OnceLock::new(), has_tokens }, receiver)
    }

    /// Waits until the pool is read, or all are, or for too long. Returns `false` if a machine has a token that cannot be
    /// judged yet: it must not get what machines without one get.
    pub(crate) async fn wait_for(&self, pool: &str, has_token: bool) -> bool {
        let needs_all = has_token && !self.has_tokens;
        let is_read = |now: &Published| self.is_read(now.inputs.as_ref(), pool, needs_all);
        if self.all_read.get().is_some()
            || !is_object_name(pool)
            || is_read(&self.published.borrow())
        {
            return true;
        }
        let Ok(_waiting) = self.waiting.try_acquire() else { return !needs_all };
        let read = async {
            if !needs_all {
                // The source ends with the server.
                self.requests.send(pool.to_owned()).await.ok()?;
            }
            let mut published = self.published.clone();
            published.wait_for(|now| is_read(now)).await.ok().map(drop)
        };
        tokio::time::timeout(TIMEOUT, read).await == Ok(Some(())) || !needs_all
    }

    fn is_read(&self, inputs: Option<&Inputs>, pool: &str, needs_all: bool) -> bool {
        let Some(inputs) = inputs else { return false };
        if !inputs.is_partial {
            self.all_read.get_or_init(|| ());
        }
        !inputs.is_partial || (!needs_all && inputs.pools.contains_key(pool))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::join_all;
    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;
    use crate::serving::answers::tests::of_pools;

    fn served(is_partial: bool, pools: &[&str]) -> Arc<Published> {
        let inputs = Inputs { is_partial, ..of_pools(pools, "one") };
        Arc::new(Published::of(inputs))
    }

    async fn time_of(awaited: &AwaitedPools, pool: &str) -> Duration {
        let started = Instant::now();
        assert!(awaited.wait_for(pool, false).await);
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_waits_for_its_own_pool_and_for_no_other() {
        let (publish, inputs) = watch::channel(Arc::default());
        let (awaited, mut requests) = AwaitedPools::new(inputs, true);
        let read = async {
            assert_eq!(requests.recv().await.unwrap(), "edge");
            tokio::time::sleep(Duration::from_millis(100)).await;
            publish.send_replace(served(true, &["worker"]));
            tokio::time::sleep(Duration::from_millis(100)).await;
            publish.send_replace(served(true, &["edge", "worker"]));
        };
        let (waited, ()) = tokio::join!(time_of(&awaited, "edge"), read);
        assert!((200..300).contains(&waited.as_millis()), "{waited:?}");
        assert_eq!(time_of(&awaited, "worker").await, Duration::ZERO, "it is read");
        assert_eq!(time_of(&awaited, "../worker").await, Duration::ZERO, "no pool has this name");
        assert_eq!(time_of(&awaited, "other").await, TIMEOUT);
        publish.send_replace(served(false, &["edge", "worker"]));
        assert_eq!(time_of(&awaited, "other").await, Duration::ZERO, "all are read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_with_a_token_waits_for_all_where_tokens_need_all() {
        for (has_tokens, expected) in [(true, Duration::ZERO), (false, TIMEOUT)] {
            let (publish, inputs) = watch::channel(served(true, &["worker"]));
            let (awaited, _requests) = AwaitedPools::new(inputs, has_tokens);
            let started = Instant::now();
            assert_eq!(awaited.wait_for("worker", true).await, has_tokens);
            assert_eq!(started.elapsed(), expected);
            assert_eq!(time_of(&awaited, "worker").await, Duration::ZERO, "without a token");
            publish.send_replace(served(false, &["worker"]));
            let started = Instant::now();
            assert!(awaited.wait_for("worker", true).await);
            assert_eq!(started.elapsed(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_machines_wait_than_are_allowed_and_none_longer_if_the_source_hangs() {
        let (_publish, inputs) = watch::channel(Arc::default());
        let (awaited, _requests) = AwaitedPools::new(inputs, true);
        for _ in 0..2 {
            let asked = (0..MAX_WAITING_MACHINES + 100).map(|_| time_of(&awaited, "edge"));
            let waited = join_all(asked).await;
            let (long, short): (Vec<_>, Vec<_>) = waited.into_iter().partition(|it| *it == TIMEOUT);
            assert_eq!(long.len(), MAX_WAITING_MACHINES);
            assert!(short.iter().all(Duration::is_zero), "{short:?}");
        }
    }
}
