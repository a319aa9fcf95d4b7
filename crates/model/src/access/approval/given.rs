//! Approvals that count, and those that have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;

use super::super::machine::{BoundApproval, ClockReading, TOLERANCE, Window};
use super::approved_object::{ApprovedObject, BoundApprovals};
use super::grants::ApprovalGrants;
use super::subject::Subject;

/// Time of the last approval of each machine that has ended, whatever the clock says later.
pub type Ended = BTreeMap<Subject, OffsetDateTime>;

/// Approvals of all machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals {
    open: BTreeMap<Subject, OpenApproval>,
    /// Objects that approvals of machines with one are for.
    bound: BoundApprovals,
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
    /// No approvals, with those that ended before this process, and what others were for.
    pub fn after(ended: Ended, bound: BoundApprovals) -> Self {
        Self { open: BTreeMap::new(), bound, ended }
    }

    /// Takes over what those of `grants` are for that this process has not seen with their object.
    pub fn bind(&mut self, recorded: BoundApprovals, grants: &ApprovalGrants) {
        for (subject, bound) in recorded {
            let is_known = self.bound.get(&subject).is_some_and(|known| known.at == bound.at);
            if !is_known && grants.get(&subject) == Some(&bound.at) {
                self.bound.insert(subject, bound);
            }
        }
    }

    /// The approvals that `grants` makes of these at `now`, with the `objects` that there are.
    ///
    /// A grant is for the object with which it was seen first, and ends when that changes or is removed. One that is not
    /// there may come back, because its file can be unreadable for a moment: what it was for is known until its window is
    /// over, so that it does not count for an object that is made again.
    ///
    /// When a grant is seen first, the wall clock tells what is left of its window; from then on a clock counts that is
    /// never set. A grant from later than `now` counts as ended, because a clock that is behind tells nothing; so that a
    /// wrong year does not last, it is no reason to ignore an earlier one.
    #[must_use]
    pub fn following(
        &self,
        grants: &ApprovalGrants,
        objects: impl Fn(&Subject) -> ApprovedObject,
        Window(window): Window,
        now: ClockReading,
    ) -> Self {
        let mut next = Self::default();
        for (subject, &at) in grants {
            let known = self.open.get(subject).copied().filter(|open| open.at == at);
            let bound = self.bound.get(subject).filter(|bound| bound.at == at);
            let (is_other, identity) = match objects(subject) {
                ApprovedObject::Removed => (true, None),
                // One that is not bound yet is for what the object changes to.
                ApprovedObject::Changing => (bound.is_some(), None),
                ApprovedObject::Unknown => (false, bound.map(|it| it.identity.clone())),
                ApprovedObject::Present(now) => {
                    (bound.is_some_and(|it| it.identity != now), Some(now))
                }
            };
            let is_credible = |ended: OffsetDateTime| ended <= now.wall + TOLERANCE;
            let ended = self.ended.get(subject).copied();
            let is_old = ended.is_some_and(|ended| at == ended || at < ended && is_credible(ended));
            let open = known.or_else(|| {
                let left = left(at, window, now.wall).filter(|_| !is_old)?;
                Some(OpenApproval { at, until: later(now, left) })
            });
            let open = open.filter(|open| now.up < open.until.up && !is_other);
            let is_known = known.is_some() || !is_old;
            let ended = if open.is_none() && is_known { Some(at) } else { ended };
            let bound = identity.filter(|_| open.is_some());
            let bound = bound.map(|identity| BoundApproval { at, identity });
            next.bound.extend(bound.map(|bound| (subject.clone(), bound)));
            next.open.extend(open.map(|open| (subject.clone(), open)));
            next.ended.extend(ended.map(|ended| (subject.clone(), ended)));
        }
        let is_absent = |subject: &Subject, at: OffsetDateTime| {
            !grants.contains_key(subject) && left(at, window, now.wall).is_some()
        };
        for (subject, bound) in self.bound.iter().filter(|(it, bound)| is_absent(it, bound.at)) {
            if objects(subject) == ApprovedObject::Removed {
                next.ended.insert(subject.clone(), bound.at);
            } else {
                next.bound.insert(subject.clone(), bound.clone());
            }
        }
        let ended = self.ended.iter().filter(|(subject, at)| is_absent(subject, **at));
        next.ended.extend(ended.map(|(subject, at)| (subject.clone(), *at)));
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

    /// Objects that the approvals that count are for.
    pub fn bound(&self) -> &BoundApprovals {
        &self.bound
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

    use super::super::super::machine::Identity;
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

    fn following(
        given: &Approvals,
        grants: &ApprovalGrants,
        window: Window,
        now: ClockReading,
    ) -> Approvals {
        given.following(grants, |_| ApprovedObject::Unknown, window, now)
    }

    fn is_open(approvals: &Approvals, up: u64) -> bool {
        approvals.is_open(&subject(), Duration::from_secs(up))
    }

    #[test]
    fn a_grant_counts_for_one_window_from_its_time_on() {
        let given = following(&Approvals::default(), &granted(0), WINDOW, at(600, 50));
        assert!(is_open(&given, 50) && is_open(&given, 3_049) && !is_open(&given, 3_050));
        let [(_, open)] = given.open().collect::<Vec<_>>()[..] else { panic!("{given:?}") };
        assert_eq!(open.until.wall, NOON + time::Duration::HOUR);
        assert_eq!(given.next_end(), Some(Duration::from_secs(3_050)));
        assert_eq!(given.new_since(&Approvals::default()).count(), 1);
        let same = following(&given, &granted(0), WINDOW, at(700, 150));
        assert_eq!((same.new_since(&given).count(), &same), (0, &given));
        // It is the last that counts, and another grant opens another window.
        let again = following(&given, &granted(1_000), WINDOW, at(1_000, 450));
        assert!(is_open(&again, 4_049) && !is_open(&again, 4_050));
        let gone = following(&given, &ApprovalGrants::new(), WINDOW, at(700, 150));
        assert!(!is_open(&gone, 150), "a grant that is taken back counts no longer");
        let back = following(&gone, &granted(0), WINDOW, at(800, 250));
        assert!(is_open(&back, 250), "its file could not be read for a moment");
        let late = following(&Approvals::default(), &granted(0), WINDOW, at(3_600, 0));
        assert!(!is_open(&late, 0) && late.ended().contains_key(&subject()));
    }

    #[test]
    fn a_window_can_be_longer_than_time_lasts() {
        let endless = Window(Duration::MAX);
        let given = following(&Approvals::default(), &granted(0), endless, at(600, 50));
        assert!(is_open(&given, u64::MAX - 1_000) && given.next_end().is_some());
    }

    #[test]
    fn a_clock_that_is_set_changes_no_window_in_the_process() {
        for wall in [-86_400, 86_400] {
            let given = following(&Approvals::default(), &granted(0), WINDOW, at(0, 0));
            let set = following(&given, &granted(0), WINDOW, at(wall, 10));
            assert_eq!(set, given);
            let over = following(&set, &granted(0), WINDOW, at(wall, 3_600));
            assert!(!is_open(&over, 3_600));
            let later = following(&over, &granted(0), WINDOW, at(10, 3_700));
            assert!(!is_open(&later, 3_700), "it has ended, whatever the clock says");
            // A grant after that counts.
            let again = following(&later, &granted(5), WINDOW, at(10, 3_700));
            assert!(is_open(&again, 3_700));
            let older = following(&again, &granted(0), WINDOW, at(10, 3_701));
            assert!(!is_open(&older, 3_701));
        }
    }

    #[test]
    fn a_grant_from_the_future_counts_as_ended_but_for_a_few_minutes() {
        let near = following(&Approvals::default(), &granted(300), WINDOW, at(0, 0));
        assert!(is_open(&near, 3_599) && !is_open(&near, 3_600));
        let far = following(&Approvals::default(), &granted(301), WINDOW, at(0, 0));
        assert!(!is_open(&far, 0));
        let reached = following(&far, &granted(301), WINDOW, at(301, 301));
        assert!(!is_open(&reached, 301));
        let corrected = following(&far, &granted(0), WINDOW, at(0, 10));
        assert!(is_open(&corrected, 10));
        let over = following(&corrected, &granted(0), WINDOW, at(3_600, 3_610));
        assert!(!is_open(&following(&over, &granted(0), WINDOW, at(0, 3_620)), 3_620));
    }

    #[test]
    fn what_has_ended_stays_so_in_the_next_process() {
        let given = following(&Approvals::default(), &granted(0), WINDOW, at(3_600, 0));
        let next = Approvals::after(given.ended().clone(), BoundApprovals::new());
        let set_back = following(&next, &granted(0), WINDOW, at(0, 0));
        assert!(!is_open(&set_back, 0));
        let without = following(&Approvals::default(), &granted(0), WINDOW, at(0, 0));
        assert!(is_open(&without, 0));
    }

    #[test]
    fn what_was_recorded_counts_where_the_process_has_seen_nothing() {
        let identity = |text: &str| serde_json::from_value::<Identity>(text.into()).unwrap();
        let recorded = |seconds, text| {
            let at = NOON + time::Duration::seconds(seconds);
            BoundApprovals::from([(subject(), BoundApproval { at, identity: identity(text) })])
        };
        let see = |known: &Approvals, recorded, text| {
            let mut known = known.clone();
            known.bind(recorded, &granted(0));
            let object = ApprovedObject::Present(identity(text));
            known.following(&granted(0), |_| object.clone(), WINDOW, at(10, 10))
        };
        let new = Approvals::default();
        assert!(is_open(&see(&new, recorded(0, "1"), "1"), 10));
        assert!(!is_open(&see(&new, recorded(0, "1"), "2"), 10));
        assert!(is_open(&see(&new, recorded(-1, "1"), "2"), 10), "one of another grant");
        // What this process has seen comes first.
        let seen = see(&new, BoundApprovals::new(), "2");
        for seconds in [0, -1] {
            assert!(is_open(&see(&seen, recorded(seconds, "1"), "2"), 10));
            let changed = see(&seen, recorded(seconds, "1"), "3");
            assert!(!is_open(&changed, 10), "what is recorded of {seconds} displaces nothing");
        }
    }

    #[test]
    fn a_grant_that_is_not_there_for_a_moment_is_for_the_same_object_and_for_no_other() {
        use ApprovedObject::{Present, Removed, Unknown};
        let [first, other] = ["1", "2"]
            .map(|text| Present(serde_json::from_value(serde_json::Value::from(text)).unwrap()));
        let see = |given: &Approvals, grants: &ApprovalGrants, object: &ApprovedObject, seconds| {
            given.following(grants, |_| object.clone(), WINDOW, seconds)
        };
        let (granted, none) = (granted(0), ApprovalGrants::new());
        let bound = see(&Approvals::default(), &granted, &first, at(10, 10));
        for (meanwhile, then, is_again_open) in [
            (&Unknown, &first, true),
            (&first, &first, true),
            (&Unknown, &other, false),
            (&first, &other, false),
            (&Removed, &first, false),
            (&Removed, &other, false),
        ] {
            let absent = see(&bound, &none, meanwhile, at(20, 20));
            assert!(!is_open(&absent, 20));
            // It is missing for more than one look.
            let absent = see(&absent, &none, &Unknown, at(30, 30));
            let back = see(&absent, &granted, then, at(40, 40));
            assert_eq!(is_open(&back, 40), is_again_open, "{meanwhile:?} {then:?}");
            let over = see(&absent, &none, &Unknown, at(3_600, 3_600));
            assert_eq!(over, Approvals::default(), "nothing is known of it for ever");
        }
    }

    #[test]
    fn a_grant_is_for_the_object_that_it_was_first_seen_with() {
        use ApprovedObject::{Changing, Present, Removed, Unknown};
        let [first, other] = ["1", "2"]
            .map(|text| Present(serde_json::from_value(serde_json::Value::from(text)).unwrap()));
        let see = |given: &Approvals, object: &ApprovedObject| {
            given.following(&granted(0), |_| object.clone(), WINDOW, at(10, 10))
        };
        let bound = see(&Approvals::default(), &first);
        assert!(is_open(&bound, 10));
        // Seen before its object, it is for the one that is seen then.
        assert_eq!(see(&see(&Approvals::default(), &Unknown), &first), bound);
        assert_eq!(see(&see(&Approvals::default(), &Changing), &first), bound);
        assert_eq!(see(&see(&bound, &Unknown), &first), bound, "what is missing has not changed");
        for changed in [&other, &Removed, &Changing] {
            let ended = see(&bound, changed);
            assert!(!is_open(&ended, 10), "{changed:?}");
            assert!(!is_open(&see(&ended, &first), 10), "{changed:?}: not for one that is back");
            // The next process knows what it was for.
            let next = Approvals::after(Ended::new(), bound.bound().clone());
            assert!(!is_open(&see(&next, changed), 10), "{changed:?}");
            assert!(is_open(&see(&next, &first), 10));
        }
    }
}
