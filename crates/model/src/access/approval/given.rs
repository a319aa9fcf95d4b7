//! Approvals that count, and those that have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;

use super::super::machine::{ClockReading, TOLERANCE, Window};
use super::grants::ApprovalGrants;
use super::subject::Subject;

/// Time of the last approval of each machine that has ended, whatever the clock says later.
pub type Ended = BTreeMap<Subject, OffsetDateTime>;

/// Approvals of all machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals {
    open: BTreeMap<Subject, OpenApproval>,
    ended: Ended,
}

/// An approval that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenApproval {
    /// Time at which it was given.
    pub at: OffsetDateTime,
    /// Its end; by the clock that is never set, which decides.
    pub until: ClockReading,
}

impl Approvals {
    /// No approvals, with those that ended before this process.
    pub fn after(ended: Ended) -> Self {
        Self { open: BTreeMap::new(), ended }
    }

    /// The approvals that `grants` makes of these at `now`.
    ///
    /// When a grant is seen first, the wall clock tells what is left of its window; from then on a clock counts that is
    /// never set. A grant from later than `now` counts as ended, because a clock that is behind tells nothing; so that a
    /// wrong year does not last, it is no reason to ignore an earlier one.
    #[must_use]
    pub fn following(
        &self,
        grants: &ApprovalGrants,
        Window(window): Window,
        now: ClockReading,
    ) -> Self {
        let mut next = Self::default();
        for (subject, &at) in grants {
            let known = self.open.get(subject).copied().filter(|open| open.at == at);
            let is_credible = |ended: OffsetDateTime| ended <= now.wall + TOLERANCE;
            let ended = self.ended.get(subject).copied();
            let is_old = ended.is_some_and(|ended| at == ended || at < ended && is_credible(ended));
            let open = known.or_else(|| {
                let left = left(at, window, now.wall).filter(|_| !is_old)?;
                Some(OpenApproval { at, until: later(now, left) })
            });
            let open = open.filter(|open| now.up < open.until.up);
            let is_known = known.is_some() || !is_old;
            let ended = if open.is_none() && is_known { Some(at) } else { ended };
            next.open.extend(open.map(|open| (subject.clone(), open)));
            next.ended.extend(ended.map(|ended| (subject.clone(), ended)));
        }
        next
    }

    /// True if a machine is approved at a time since the start of the process.
    pub fn is_open(&self, subject: &Subject, up: Duration) -> bool {
        self.open.get(subject).is_some_and(|open| up < open.until.up)
    }

    /// Approvals that count.
    pub fn open(&self) -> impl Iterator<Item = (&Subject, OpenApproval)> {
        self.open.iter().map(|(subject, open)| (subject, *open))
    }

    /// Approvals that were given since `before`.
    pub fn new_since(&self, before: &Self) -> impl Iterator<Item = (&Subject, OpenApproval)> {
        self.open().filter(|(subject, open)| before.open.get(subject) != Some(open))
    }

    /// Approvals that have ended.
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    /// The first end of an approval, since the start of the process.
    pub fn next_end(&self) -> Option<Duration> {
        self.open.values().map(|open| open.until.up).min()
    }
}

/// The time after `left`, or the last one that there is.
fn later(now: ClockReading, left: Duration) -> ClockReading {
    let left_wall = time::Duration::try_from(left).unwrap_or(time::Duration::MAX);
    ClockReading { wall: now.wall.saturating_add(left_wall), up: now.up.saturating_add(left) }
}

/// Rest of the window of a grant at `wall`; `None` if it has passed, or has not begun by far.
fn left(at: OffsetDateTime, window: Duration, wall: OffsetDateTime) -> Option<Duration> {
    let left = match Duration::try_from(wall - at) {
        Ok(passed) => window.checked_sub(passed)?,
        Err(_) if (wall - at).unsigned_abs() <= TOLERANCE => window,
        Err(_) => return None,
    };
    Some(left).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);
    const WINDOW: Window = Window(Duration::from_secs(3_600));

    fn subject() -> Subject {
        Subject::Named("rack-7".into())
    }

    /// Seconds after noon by both clocks.
    fn at(wall: i64, up: u64) -> ClockReading {
        ClockReading { wall: NOON + time::Duration::seconds(wall), up: Duration::from_secs(up) }
    }

    fn granted(seconds: i64) -> ApprovalGrants {
        [(subject(), NOON + time::Duration::seconds(seconds))].into()
    }

    fn is_open(approvals: &Approvals, up: u64) -> bool {
        approvals.is_open(&subject(), Duration::from_secs(up))
    }

    #[test]
    fn a_yes_counts_for_one_window_from_its_time_on() {
        let given = Approvals::default().following(&granted(0), WINDOW, at(600, 50));
        assert!(is_open(&given, 50) && is_open(&given, 3_049) && !is_open(&given, 3_050));
        let [(_, open)] = given.open().collect::<Vec<_>>()[..] else { panic!("{given:?}") };
        assert_eq!(open.until.wall, NOON + time::Duration::HOUR);
        assert_eq!(given.next_end(), Some(Duration::from_secs(3_050)));
        assert_eq!(given.new_since(&Approvals::default()).count(), 1);
        let same = given.following(&granted(0), WINDOW, at(700, 150));
        assert_eq!((same.new_since(&given).count(), &same), (0, &given));
        // It is the last that counts, and another grant opens another window.
        let again = given.following(&granted(1_000), WINDOW, at(1_000, 450));
        assert!(is_open(&again, 4_049) && !is_open(&again, 4_050));
        let gone = given.following(&ApprovalGrants::new(), WINDOW, at(700, 150));
        assert_eq!(gone, Approvals::default(), "a grant that is taken back counts no longer");
        let late = Approvals::default().following(&granted(0), WINDOW, at(3_600, 0));
        assert!(!is_open(&late, 0) && late.ended().contains_key(&subject()));
    }

    #[test]
    fn a_window_can_be_longer_than_time_lasts() {
        let endless = Window(Duration::MAX);
        let given = Approvals::default().following(&granted(0), endless, at(600, 50));
        assert!(is_open(&given, u64::MAX - 1_000) && given.next_end().is_some());
    }

    #[test]
    fn a_clock_that_is_set_changes_no_window_in_the_process() {
        for wall in [-86_400, 86_400] {
            let given = Approvals::default().following(&granted(0), WINDOW, at(0, 0));
            let set = given.following(&granted(0), WINDOW, at(wall, 10));
            assert_eq!(set, given);
            let over = set.following(&granted(0), WINDOW, at(wall, 3_600));
            assert!(!is_open(&over, 3_600));
            let later = over.following(&granted(0), WINDOW, at(10, 3_700));
            assert!(!is_open(&later, 3_700), "it has ended, whatever the clock says");
            // A grant after that counts.
            let again = later.following(&granted(5), WINDOW, at(10, 3_700));
            assert!(is_open(&again, 3_700));
            let older = again.following(&granted(0), WINDOW, at(10, 3_701));
            assert!(!is_open(&older, 3_701));
        }
    }

    #[test]
    fn a_yes_from_the_future_counts_as_ended_but_for_a_few_minutes() {
        let near = Approvals::default().following(&granted(300), WINDOW, at(0, 0));
        assert!(is_open(&near, 3_599) && !is_open(&near, 3_600));
        let far = Approvals::default().following(&granted(301), WINDOW, at(0, 0));
        assert!(!is_open(&far, 0));
        let reached = far.following(&granted(301), WINDOW, at(301, 301));
        assert!(!is_open(&reached, 301));
        let corrected = far.following(&granted(0), WINDOW, at(0, 10));
        assert!(is_open(&corrected, 10));
        let over = corrected.following(&granted(0), WINDOW, at(3_600, 3_610));
        assert!(!is_open(&over.following(&granted(0), WINDOW, at(0, 3_620)), 3_620));
    }

    #[test]
    fn what_has_ended_stays_so_in_the_next_process() {
        let given = Approvals::default().following(&granted(0), WINDOW, at(3_600, 0));
        let next = Approvals::after(given.ended().clone());
        let set_back = next.following(&granted(0), WINDOW, at(0, 0));
        assert!(!is_open(&set_back, 0));
        let without = Approvals::default().following(&granted(0), WINDOW, at(0, 0));
        assert!(is_open(&without, 0));
    }
}
