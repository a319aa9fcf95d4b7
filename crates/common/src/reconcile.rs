//! The loop of controllers, and of a directory's certificates: a look at once, after each change, when something is due, and
//! after a failure.
//!
//! A look plans for what is stored, never for what the last look should have left there.

use std::convert::Infallible;
use std::time::Duration;

use time::OffsetDateTime;

use super::backoff::Backoff;
use super::schedule::Schedule;

/// Minimum wait without a change. Controllers also wait this long after one, because changes come in bursts.
pub const QUIET: Duration = Duration::from_millis(50);
/// Minimum wait for a due time, because a clock can be set back.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// Waits after failures: they grow from the first to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

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
    #[must_use]
    pub fn or_after(self, wait: Duration) -> Self {
        match self {
            Self::Now => self,
            Self::After(own) => Self::After(own.min(wait)),
            Self::Resync => Self::After(wait),
        }
    }

    fn wait(self, resync: Duration) -> Duration {
        match self {
            Self::Now => QUIET,
            Self::After(wait) => wait.clamp(QUIET, resync),
            Self::Resync => resync,
        }
    }
}

/// Objects of a cluster, or files of a directory, that are reconciled.
#[expect(async_fn_in_trait, reason = "its futures are awaited where the type is known")]
pub trait Subject {
    type Error;

    /// Applies what is due, and returns the time of the next look without a change.
    async fn look(&mut self) -> Result<Requeue, Self::Error>;

    /// Waits for a change. It must be cancel safe.
    async fn changed(&mut self);
}

/// Takes looks at a subject forever, without a change after `resync` at the latest.
pub async fn run(mut subject: impl Subject, resync: Duration) -> Infallible {
    let (mut retries, mut schedule) = (retries(), Schedule::default());
    loop {
        let wait = match subject.look().await {
            Ok(requeue) => {
                retries.reset();
                requeue.wait(resync)
            }
            Err(_) => retries.next(),
        };
        schedule.wait(wait);
        tokio::select! {
            () = schedule.due() => {}
            () = subject.changed() => {}
        }
    }
}

/// Waits after failures.
pub fn retries() -> Backoff {
    Backoff::new(FIRST_RETRY, LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;

    const RESYNC: Duration = Duration::from_secs(600);

    #[test]
    fn a_time_is_waited_for_no_longer_than_a_resync_and_not_too_short() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let at = |seconds| Requeue::at(now + time::Duration::seconds(seconds), now).wait(RESYNC);
        for (seconds, wait) in [(-5, SHORTEST_WAIT), (0, SHORTEST_WAIT), (90, 90 * SHORTEST_WAIT)] {
            assert_eq!(at(seconds), wait);
        }
        assert_eq!(at(1_000_000), RESYNC);
        let soon = Duration::from_millis(100);
        assert_eq!(Requeue::Resync.or_after(soon), Requeue::After(soon));
        assert_eq!(Requeue::After(soon).or_after(RESYNC), Requeue::After(soon));
        assert_eq!(Requeue::Now.or_after(RESYNC), Requeue::Now);
        assert_eq!(Requeue::After(Duration::ZERO).wait(RESYNC), QUIET);
    }

    struct Planned<'a> {
        results: std::vec::IntoIter<Result<Requeue, ()>>,
        looks: &'a Mutex<Vec<Instant>>,
        changed: Notify,
    }

    impl Subject for Planned<'_> {
        type Error = ();

        async fn look(&mut self) -> Result<Requeue, ()> {
            self.looks.lock().unwrap().push(Instant::now());
            self.results.next().unwrap_or(Ok(Requeue::Resync))
        }

        async fn changed(&mut self) {
            self.changed.notified().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_follows_a_change_a_due_time_and_a_failure() {
        let results =
            vec![Ok(Requeue::Resync), Ok(Requeue::After(SHORTEST_WAIT)), Err(()), Err(())];
        let (looks, changed) = (Mutex::default(), Notify::new());
        changed.notify_one();
        let subject = Planned { results: results.into_iter(), looks: &looks, changed };
        // The wall clock does not follow: from some seconds on, it counts as set.
        let end = Duration::from_secs(9);
        assert!(tokio::time::timeout(end, run(subject, RESYNC)).await.is_err());
        let looks = looks.into_inner().unwrap();
        let [first, changed, due, failed, again] = looks[..] else { panic!("{looks:?}") };
        assert_eq!(first, changed);
        assert!((SHORTEST_WAIT..2 * SHORTEST_WAIT).contains(&(due - changed)), "{looks:?}");
        assert!((FIRST_RETRY..3 * FIRST_RETRY).contains(&(failed - due)), "{looks:?}");
        assert!((2 * FIRST_RETRY..5 * FIRST_RETRY).contains(&(again - failed)), "{looks:?}");
    }
}
