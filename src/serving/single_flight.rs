//! Shares one result among concurrent callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

/// Runs a computation on demand, one at a time. Callers during one run share the next, so that no caller gets a result
/// from before its call.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    begun: AtomicU64,
    /// Last result with its number, while a caller holds it.
    last: Mutex<(u64, Weak<T>)>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new((0, Weak::new())) }
    }
}

impl<T> SingleFlight<T> {
    /// The result of `make`, or of another caller's run that began after this call.
    pub(crate) async fn get(&self, make: impl AsyncFnOnce() -> T) -> Arc<T> {
        self.get_unless(|_| false, make).await
    }

    /// The same, or an earlier result that is still held and that `is_enough` accepts.
    pub(crate) async fn get_unless(
        &self,
        is_enough: impl FnOnce(&T) -> bool,
        make: impl AsyncFnOnce() -> T,
    ) -> Arc<T> {
        let before = self.begun.load(Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if let Some(earlier) = last.1.upgrade()
            && (last.0 > before || is_enough(&earlier))
        {
            return earlier;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let latest = Arc::new(make().await);
        *last = (number, Arc::downgrade(&latest));
        latest
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_while_one_is_made_share_the_next() {
        let (latest, go) = (Arc::new(SingleFlight::default()), Arc::new(Semaphore::new(0)));
        let count = Arc::new(AtomicU64::new(0));
        let mut requests = JoinSet::new();
        for number in 0..100 {
            let (of_task, go, count) = (Arc::clone(&latest), Arc::clone(&go), Arc::clone(&count));
            requests.spawn(async move {
                let make = async || {
                    go.acquire().await.unwrap().forget();
                    count.fetch_add(1, Ordering::Relaxed) + 1
                };
                (number, of_task.get(make).await)
            });
            // The first run begins before the second call.
            while latest.begun.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        go.add_permits(1_000);
        for (number, got) in requests.join_all().await {
            assert_eq!(*got, if number == 0 { 1 } else { 2 }, "{number}");
        }
        // The result is dropped, and no caller gets an old one.
        assert_eq!(*latest.get(async || 3).await, 3);
        let kept = latest.get(async || 4).await;
        assert_eq!(*latest.get(async || 5).await, 5);
        let kept = (kept, latest.get(async || 6).await);
        assert_eq!(*latest.get_unless(|it| *it == 6, async || 7).await, 6);
        assert_eq!(*kept.0 + *kept.1, 10);
    }

    #[tokio::test]
    async fn one_who_leaves_while_it_is_made_leaves_it_to_the_next() {
        let latest = Arc::new(SingleFlight::default());
        let of_first = Arc::clone(&latest);
        let first = tokio::spawn(async move {
            *of_first.get(async || std::future::pending::<u64>().await).await
        });
        while latest.begun.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert!(first.await.is_err());
        assert_eq!(*latest.get(async || 2).await, 2);
    }
}
