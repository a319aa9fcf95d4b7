//! When a reconciler looks again.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Wait after a failure that can pass without a change: a full disk may have room later.
const RETRY: Duration = Duration::from_secs(5);
/// Interval at which the clocks are compared, and the difference from which on a clock counts as set.
const COMPARED: Duration = Duration::from_secs(10);

/// A change, or a time at which something is due without one.
#[derive(Debug)]
pub struct Schedule {
    changed: Arc<Notify>,
    /// Time of the last look, by wall clock and monotonic clock.
    looked_at: (OffsetDateTime, Instant),
    /// Time from then to the next look without a change; `None` if nothing becomes due.
    wait: Option<Duration>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::of(Arc::default())
    }
}

impl Schedule {
    /// Creates a schedule on which nothing becomes due until `changed` is notified.
    pub fn of(changed: Arc<Notify>) -> Self {
        Self { changed, looked_at: (OffsetDateTime::now_utc(), Instant::now()), wait: None }
    }

    /// Sets the time from now to the next look without a change.
    pub fn wait(&mut self, wait: impl Into<Option<Duration>>) {
        self.looked_at = (OffsetDateTime::now_utc(), Instant::now());
        self.wait = wait.into();
    }

    /// The same, if it is earlier than what is set.
    pub fn wait_at_most(&mut self, wait: Duration) {
        let left = self.wait.map(|wait| wait.saturating_sub(self.looked_at.1.elapsed()));
        self.wait(left.map_or(wait, |left| left.min(wait)));
    }

    /// Looks again soon, because something failed.
    pub fn retry(&mut self) {
        self.wait_at_most(RETRY);
    }

    /// Waits for a change, or the time of the next look, or until the clock was set: then other things may be due. It is
    /// cancel safe.
    pub async fn due(&self) {
        let Some(wait) = self.wait else { return self.changed.notified().await };
        while let Some(left) = wait.checked_sub(self.looked_at.1.elapsed()) {
            tokio::select! {
                () = self.changed.notified() => return,
                () = tokio::time::sleep(left.min(COMPARED)) => {}
            }
            if self.set_by() > COMPARED {
                return;
            }
        }
    }

    /// Time by which the wall clock was set since the last look.
    fn set_by(&self) -> Duration {
        let (wall, monotonic) = self.looked_at;
        (OffsetDateTime::now_utc() - (wall + monotonic.elapsed())).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waited(schedule: &Schedule) -> Duration {
        let started = Instant::now();
        schedule.due().await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_due_at_its_time_after_a_change_and_once_a_clock_was_set() {
        let changed = Arc::new(Notify::new());
        let mut schedule = Schedule::of(Arc::clone(&changed));
        let long = Duration::from_secs(3600);
        assert!(tokio::time::timeout(long, schedule.due()).await.is_err(), "nothing is due");
        changed.notify_one();
        assert_eq!(waited(&schedule).await, Duration::ZERO);

        let wait = Duration::from_secs(4);
        schedule.wait(long);
        schedule.wait_at_most(wait);
        schedule.wait_at_most(long);
        assert!((wait..2 * wait).contains(&waited(&schedule).await));
        assert_eq!(waited(&schedule).await, Duration::ZERO, "it stays due until the next look");

        // Here, only the monotonic clock goes on.
        schedule.wait(long);
        assert!((COMPARED..3 * COMPARED).contains(&waited(&schedule).await));
    }
}
