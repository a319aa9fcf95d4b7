//! Presence of objects that a directory no longer has: what files say at one instant is no evidence of what an
//! administrator meant.
//!
//! | seen of its file | presence | configs | what it opens |
//! | --- | --- | --- | --- |
//! | valid, with the object | present | as it says | as it says |
//! | invalid, half written, unreadable | present, reported | as it last said | as it last said |
//! | emptied; a link that leads nowhere; lost with its directory | missing, reported | as it last said | waits |
//! | removed alone, or valid without the object | removed | without it | nothing |
//! | any of these, with most machines or pools in one look | missing, reported | as it last said | waits |
//!
//! A missing object is present again once it is back, and removed after an hour. It is not present for a moment on newer
//! evidence, nor after a restart, because what it opens must wait. What cannot be undone is done for removed objects only.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Time for which a lost object stays present: git and some editors remove a file before they write it again.
pub const RETURNS_WITHIN: Duration = Duration::from_millis(400);
/// Time after which a missing object is removed.
pub const MISSING_FOR: Duration = Duration::from_secs(3600);

/// Evidence of how an object was lost.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Its file was read, valid and without it.
    ReadWithout,
    /// Its file was removed from a directory that is the same.
    Unlinked,
    /// Its file has become empty.
    Emptied,
    /// Its file is a link that leads nowhere.
    Dangling,
    /// Its directory is gone, or another one has its place.
    WithDirectory,
}

impl Loss {
    /// Returns `true` if it is what an administrator does to remove an object.
    pub fn is_removal(self) -> bool {
        matches!(self, Self::ReadWithout | Self::Unlinked)
    }
}

/// Objects that are counted together: losing most of a kind is an accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum Kind {
    /// Machines with a name.
    Machine,
    /// Pools, and configs without a manifest.
    Pool,
    /// All others, which are not counted.
    Other,
}

/// A lost object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Objects that it is counted with.
    pub kind: Kind,
    /// The evidence.
    pub loss: Loss,
    /// Time of the first look without it, since any fixed time.
    pub since: Duration,
    /// True if it was present until then, in this process.
    pub was_present: bool,
    /// True if it was lost with most of its kind.
    pub is_with_most: bool,
    /// True if an administrator said that it is removed.
    pub is_confirmed: bool,
}

/// Meaning of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// As before: it may be back in a moment.
    Present,
    /// Configs stay as they were, and what it opens waits.
    Missing,
    /// It is gone.
    Removed,
}

impl Lost {
    /// Creates an object that is lost since `now`.
    pub fn new(kind: Kind, loss: Loss, now: Duration) -> Self {
        let (is_with_most, is_confirmed) = (false, false);
        Self { kind, loss, since: now, was_present: true, is_with_most, is_confirmed }
    }

    /// Creates an object that an earlier process has seen, and that this one misses since `now`.
    pub fn found(kind: Kind, loss: Loss, now: Duration) -> Self {
        Self { was_present: false, ..Self::new(kind, loss, now) }
    }

    /// Notes that an administrator said that it is removed.
    pub fn confirm(&mut self) {
        self.is_confirmed = true;
    }

    /// Notes newer evidence.
    pub fn seen(&mut self, loss: Loss, now: Duration) {
        // What is evidence once stays so: a directory can go after the file.
        if self.loss != loss && !self.loss.is_removal() {
            self.was_present &= self.is_recent(now);
            (self.loss, self.since) = (loss, now);
        }
    }

    /// Returns `true` if it may be back in a moment.
    pub fn is_recent(&self, now: Duration) -> bool {
        self.age(now) < RETURNS_WITHIN
    }

    /// Returns `true` if an administrator has removed it, so that it is removed in a moment at the latest.
    pub fn is_meant(&self) -> bool {
        self.is_confirmed || self.loss.is_removal() && !self.is_with_most
    }

    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// Presence of the object after [`note_majorities`].
    pub fn presence(&self, now: Duration) -> Presence {
        match self.age(now) {
            _ if self.is_confirmed => Presence::Removed,
            _ if self.is_recent(now) && self.was_present => Presence::Present,
            _ if self.is_recent(now) => Presence::Missing,
            age if age >= MISSING_FOR => Presence::Removed,
            _ if self.is_meant() => Presence::Removed,
            _ => Presence::Missing,
        }
    }

    /// Time until its presence changes, if nothing else does.
    pub fn due_in(&self, now: Duration) -> Duration {
        let age = self.age(now);
        let at = if age < RETURNS_WITHIN { RETURNS_WITHIN } else { MISSING_FOR };
        at.saturating_sub(age)
    }
}

/// Time until objects are removed that a process has not seen since its start, `uptime` ago; zero once they are, `None` if
/// it lacks none.
pub fn unseen_due_in(is_any_unseen: bool, uptime: Duration) -> Option<Duration> {
    is_any_unseen.then(|| MISSING_FOR.saturating_sub(uptime))
}

/// Marks objects that were removed with most of their kind: with more than half of all machines, or of all pools.
/// `present` counts the objects of a kind that are still there.
pub fn note_majorities<'a>(
    lost: impl IntoIterator<Item = &'a mut Lost>,
    present: impl Fn(Kind) -> usize,
) {
    let mut lost: Vec<_> = lost.into_iter().collect();
    for kind in [Kind::Machine, Kind::Pool] {
        let all = present(kind) + lost.iter().filter(|it| it.kind == kind).count();
        let is_removed = |it: &Lost| it.kind == kind && it.loss.is_removal() && !it.is_with_most;
        let removed = lost.iter().filter(|it| is_removed(it)).count();
        if 2 * removed > all {
            lost.iter_mut().filter(|it| is_removed(it)).for_each(|it| it.is_with_most = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);
    const SOON: Duration = Duration::from_secs(1001);

    fn judged(mut lost: Vec<Lost>, present: usize, now: Duration) -> Vec<Presence> {
        note_majorities(&mut lost, |_| present);
        lost.iter().map(|it| it.presence(now)).collect()
    }

    #[test]
    fn only_evidence_removes_before_the_hour_is_over() {
        for &loss in Loss::VARIANTS {
            for kind in [Kind::Machine, Kind::Pool, Kind::Other] {
                let presence = |now| judged(vec![Lost::new(kind, loss, START)], 1, now)[0];
                assert_eq!(presence(START), Presence::Present, "{loss:?}");
                let is_removed = matches!(loss, Loss::ReadWithout | Loss::Unlinked);
                let expected = if is_removed { Presence::Removed } else { Presence::Missing };
                assert_eq!(presence(SOON), expected, "{loss:?}");
                assert_eq!(presence(START + MISSING_FOR), Presence::Removed, "{loss:?}");
                // A clock that was behind gives nobody away.
                assert_eq!(presence(Duration::ZERO), Presence::Present, "{loss:?}");
            }
        }
    }

    #[test]
    fn what_this_process_has_not_seen_waits_from_the_start() {
        for &loss in Loss::VARIANTS {
            let lost = Lost::found(Kind::Machine, loss, START);
            let presence = |now| judged(vec![lost.clone()], 1, now)[0];
            assert_eq!(presence(START), Presence::Missing, "{loss:?}");
            let later = judged(vec![Lost::new(Kind::Machine, loss, START)], 1, SOON)[0];
            assert_eq!(presence(SOON), later, "{loss:?}");
        }
    }

    #[test]
    fn evidence_that_changes_in_a_moment_is_of_one_write() {
        let mut lost = Lost::new(Kind::Machine, Loss::Emptied, START);
        let now = START + RETURNS_WITHIN / 2;
        lost.seen(Loss::Unlinked, now);
        assert_eq!(lost.presence(now + RETURNS_WITHIN / 2), Presence::Present);
        assert_eq!(lost.presence(now + RETURNS_WITHIN), Presence::Removed);
    }

    #[test]
    fn what_an_administrator_confirms_is_removed_at_once() {
        for &loss in Loss::VARIANTS {
            let mut lost = Lost::new(Kind::Machine, loss, START);
            lost.confirm();
            assert_eq!(judged(vec![lost], 0, START), [Presence::Removed], "{loss:?}");
        }
    }

    #[test]
    fn machines_or_pools_that_are_lost_with_most_of_them_are_missing() {
        for (kind, lost, present, expected) in [
            (Kind::Machine, 1, 1, Presence::Removed),
            (Kind::Machine, 2, 1, Presence::Missing),
            (Kind::Machine, 1, 0, Presence::Missing),
            (Kind::Pool, 5, 5, Presence::Removed),
            (Kind::Pool, 6, 5, Presence::Missing),
            (Kind::Other, 9, 0, Presence::Removed),
        ] {
            let all = vec![Lost::new(kind, Loss::Unlinked, START); lost];
            assert_eq!(
                judged(all, present, SOON),
                vec![expected; lost],
                "{kind:?} {lost} {present}"
            );
        }
    }

    #[test]
    fn those_that_go_later_do_not_undo_what_was_noted() {
        let mut lost = vec![Lost::new(Kind::Machine, Loss::Unlinked, START); 3];
        note_majorities(&mut lost, |_| 2);
        lost.push(Lost::new(Kind::Machine, Loss::Unlinked, SOON));
        note_majorities(&mut lost, |_| 1);
        let now = SOON + RETURNS_WITHIN;
        let presence: Vec<_> = lost.iter().map(|it| it.presence(now)).collect();
        assert_eq!(presence[..3], [Presence::Missing; 3]);
        assert_eq!(presence[3], Presence::Removed);
    }

    #[test]
    fn newer_evidence_counts_from_when_it_was_seen() {
        let mut lost = Lost::new(Kind::Machine, Loss::Emptied, START);
        let later = START + MISSING_FOR / 2;
        lost.seen(Loss::Emptied, later);
        assert_eq!(lost.since, START);
        lost.seen(Loss::Unlinked, later);
        assert_eq!(lost.presence(later), Presence::Missing, "it is not back");
        lost.seen(Loss::WithDirectory, later + RETURNS_WITHIN);
        assert_eq!(lost.presence(later + RETURNS_WITHIN), Presence::Removed);
        assert_eq!(lost.due_in(later), RETURNS_WITHIN);
    }

    #[test]
    fn what_is_missing_is_due_when_it_has_been_so_for_an_hour() {
        let [second, almost] = [1, 3599].map(Duration::from_secs);
        let hour = MISSING_FOR;
        let mut lost = [Lost::new(Kind::Machine, Loss::Unlinked, START)];
        note_majorities(&mut lost, |_| 0);
        for (now, due) in [
            (START, RETURNS_WITHIN),
            (SOON, almost),
            (START + almost, second),
            (START + hour, Duration::ZERO),
            (START + 2 * hour, Duration::ZERO),
        ] {
            assert_eq!(lost[0].due_in(now), due, "{now:?}");
            // It is looked at no sooner than it changes, and not after it has.
            let is_removed = lost[0].presence(now) == Presence::Removed;
            assert_eq!(is_removed, due.is_zero(), "{now:?}");
        }
        for (uptime, due) in [
            (Duration::ZERO, hour),
            (almost, second),
            (hour, Duration::ZERO),
            (2 * hour, Duration::ZERO),
        ] {
            assert_eq!(unseen_due_in(true, uptime), Some(due), "{uptime:?}");
            assert_eq!(unseen_due_in(false, uptime), None, "nothing wakes");
        }
    }
}
