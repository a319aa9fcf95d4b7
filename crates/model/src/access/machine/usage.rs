//! Use of a machine's token: when it was first used, from where, and if it is still open.

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::serde::rfc3339;

use super::status::RecordedUse;

/// Difference between clocks that counts as correct.
pub(in crate::access) const TOLERANCE: Duration = Duration::from_secs(300);
/// Minimum time from the first answer on after which a token is spent even if no answer was delivered in full. It is no shorter
/// than the window.
const LONGEST_DELIVERY: Duration = Duration::from_secs(24 * 3_600);
/// Maximum number of addresses that are remembered for a token.
pub const MAX_ADDRESSES: usize = 8;

/// Time for which a token stays open after an answer was delivered in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub Duration);

impl Default for Window {
    fn default() -> Self {
        Self(Duration::from_secs(3_600))
    }
}

/// A time by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Time of the wall clock, which can be set.
    pub wall: OffsetDateTime,
    /// Time since the start of the process by a clock that is never set.
    pub up: Duration,
}

/// Use of a token since it was armed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Beginning of the first answer.
    #[serde(skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    begun: Option<OffsetDateTime>,
    /// Beginning of the last answer until one was delivered in full.
    #[serde(skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    last: Option<OffsetDateTime>,
    /// Time at which an answer was first delivered in full.
    #[serde(skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    taken: Option<OffsetDateTime>,
    /// True if the token was found spent, whatever the clock says later.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    is_spent: bool,
    /// Addresses that got an answer, [`MAX_ADDRESSES`] at most.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    addresses: BTreeSet<IpAddr>,
    /// Times of `begun` and `taken` by the clock that is never set, if this process saw them.
    #[serde(skip)]
    begun_up: Option<Duration>,
    #[serde(skip)]
    taken_up: Option<Duration>,
}

/// Stage of a token, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No answer has begun.
    Armed,
    /// An answer has begun, and none was delivered in full.
    Begun,
    /// An answer was delivered in full at this time, and the window is open.
    Taken(OffsetDateTime),
    /// The token opens nothing.
    Spent,
}

/// Use of a token by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// An answer begins for this address.
    Begin(IpAddr, ClockReading),
    /// The token was found spent.
    Spend(ClockReading),
}

/// Effect of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageChange {
    /// True if the usage has changed and must be stored before the answer.
    pub is_changed: bool,
    /// True if the token was used from another address before, and from this one for the first time.
    pub is_newly_shared: bool,
}

impl Usage {
    /// The usage as a new process finds it: an answer that the earlier one began may have been delivered in full.
    #[must_use]
    pub fn found(mut self) -> Self {
        self.taken = self.taken.or(self.last);
        self
    }

    /// Stage of the token at `now`.
    pub fn stage(&self, window: Window, now: ClockReading) -> Stage {
        let Window(window) = window;
        match (self.begun, self.taken) {
            _ if self.is_spent => Stage::Spent,
            (_, Some(taken)) if has_passed(taken, self.taken_up, window, now) => Stage::Spent,
            (_, Some(taken)) => Stage::Taken(taken),
            (Some(begun), None) => {
                let longest = window.max(LONGEST_DELIVERY);
                let is_over = has_passed(begun, self.begun_up, longest, now);
                if is_over { Stage::Spent } else { Stage::Begun }
            }
            (None, None) => Stage::Armed,
        }
    }

    /// The use that a request from `address` makes of the token.
    pub fn next(&self, address: IpAddr, window: Window, now: ClockReading) -> Use {
        match self.stage(window, now) {
            Stage::Spent => Use::Spend(now),
            Stage::Armed | Stage::Begun | Stage::Taken(_) => Use::Begin(address, now),
        }
    }

    /// Records a use.
    pub fn add(&mut self, used: Use) -> UsageChange {
        match used {
            Use::Begin(address, now) => self.begin(address, now),
            Use::Spend(_) => UsageChange { is_changed: self.spend(), is_newly_shared: false },
        }
    }

    /// Records that an answer begins for `address`.
    pub fn begin(&mut self, address: IpAddr, now: ClockReading) -> UsageChange {
        let is_open = self.taken.is_none();
        if is_open {
            if self.begun.is_none() {
                (self.begun, self.begun_up) = (Some(now.wall), Some(now.up));
            }
            self.last = Some(now.wall);
        }
        let is_new = self.add_address(address);
        let is_newly_shared = is_new && self.addresses.len() > 1;
        UsageChange { is_changed: is_open || is_new, is_newly_shared }
    }

    /// Remembers an address if there is room. Returns true if it is new.
    fn add_address(&mut self, address: IpAddr) -> bool {
        self.addresses.len() < MAX_ADDRESSES && self.addresses.insert(address.to_canonical())
    }

    /// Records that an answer was delivered in full that began at the time `began` of this process. Returns true if it is the
    /// first one. An answer that began before the token was armed again is none of this usage.
    pub fn take(&mut self, began: Duration, now: ClockReading) -> bool {
        let is_of_this = self.begun_up.is_none_or(|first| began >= first);
        let is_first = self.taken.is_none() && self.begun.is_some() && is_of_this;
        if is_first {
            (self.taken, self.taken_up) = (Some(now.wall), Some(now.up));
        }
        is_first
    }

    /// Records that the token is spent. Returns true if that is new.
    pub fn spend(&mut self) -> bool {
        !std::mem::replace(&mut self.is_spent, true)
    }

    /// The use for other servers, with the end of the window by this one's clock; `None` before the first answer. Until an
    /// answer was delivered in full, the last one counts as that: its server can die before it reports that.
    pub fn record(&self, window: Window) -> Option<RecordedUse> {
        let last = self.taken.or(self.last)?;
        Some(RecordedUse {
            first: self.begun.unwrap_or(last),
            last,
            until: last.checked_add(time::Duration::try_from(window.0).ok()?),
            spent: self.is_spent,
            addresses: self.addresses.clone(),
        })
    }

    /// Adds what another server, or this one earlier, has recorded.
    pub fn learn(&mut self, recorded: &RecordedUse) {
        let RecordedUse { first, last, spent, addresses, .. } = recorded;
        self.is_spent |= spent;
        for address in addresses {
            self.add_address(*address);
        }
        let is_own = [self.last, self.taken].contains(&Some(*last));
        if self.begun.is_none_or(|begun| *first < begun) {
            (self.begun, self.begun_up) = (Some(*first), None);
        }
        if is_own {
            return;
        }
        self.last = self.last.or(Some(*last));
        if self.taken.is_none_or(|taken| *last < taken) {
            (self.taken, self.taken_up) = (Some(*last), None);
        }
    }

    /// Time at which an answer was first delivered in full.
    pub fn taken(&self) -> Option<OffsetDateTime> {
        self.taken
    }

    /// Last time at which the token opened a config, as far as it is known.
    pub(super) fn last_use(&self) -> Option<OffsetDateTime> {
        self.taken.or(self.last).or(self.begun)
    }

    /// Addresses that got an answer.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }
}

/// Returns `true` if `limit` has passed since a time. If an earlier process saw that, only the wall clock tells, and one
/// that is behind tells nothing: then it counts as passed.
fn has_passed(
    at: OffsetDateTime,
    up: Option<Duration>,
    limit: Duration,
    now: ClockReading,
) -> bool {
    match (up, Duration::try_from(now.wall - at)) {
        (Some(up), _) => now.up.saturating_sub(up) >= limit,
        (None, Ok(passed)) => passed >= limit,
        (None, Err(_)) => (now.wall - at).unsigned_abs() > TOLERANCE,
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
    const HOUR: Duration = Duration::from_secs(3_600);
    const WINDOW: Window = Window(HOUR);

    /// Seconds after noon, with a right clock.
    fn after(seconds: u64) -> ClockReading {
        let up = Duration::from_secs(seconds);
        ClockReading { wall: NOON + up, up }
    }

    fn up(seconds: u64) -> Duration {
        after(seconds).up
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// The usage as another process reads it.
    fn stored(usage: &Usage) -> Usage {
        serde_json::from_str(&serde_json::to_string(usage).unwrap()).unwrap()
    }

    #[test]
    fn the_first_answer_that_is_delivered_in_full_opens_a_window_and_then_the_token_is_spent() {
        let mut usage = Usage::default();
        assert_eq!(usage.stage(WINDOW, after(0)), Stage::Armed);
        // It can wait for its first boot for long.
        assert_eq!(usage.stage(WINDOW, after(99_999_999)), Stage::Armed);
        assert_eq!(
            usage.begin(address(1), after(10)),
            UsageChange { is_changed: true, is_newly_shared: false }
        );
        assert_eq!(usage.stage(WINDOW, after(10)), Stage::Begun);
        assert!(usage.take(up(10), after(20)));
        let taken = Stage::Taken(NOON + Duration::from_secs(20));
        assert_eq!(usage.stage(WINDOW, after(20)), taken);
        // Further answers do not extend it.
        usage.begin(address(1), after(3_000));
        assert!(!usage.take(up(3_000), after(3_001)));
        assert_eq!(usage.stage(WINDOW, after(3_619)), taken);
        assert_eq!(usage.stage(WINDOW, after(3_620)), Stage::Spent);
        assert!(usage.spend() && !usage.spend());
        assert_eq!(usage.stage(WINDOW, after(0)), Stage::Spent);
    }

    #[test]
    fn an_answer_from_before_the_token_was_armed_again_takes_nothing_of_the_new_arming() {
        let mut usage = Usage::default();
        usage.begin(address(1), after(10));
        // Armed again, and asked again, while the first answer is on its way.
        let mut armed = Usage::default();
        assert!(!armed.take(up(10), after(20)));
        armed.begin(address(1), after(30));
        assert!(!armed.take(up(10), after(40)));
        assert_eq!(armed.stage(WINDOW, after(40)), Stage::Begun);
        assert!(armed.take(up(30), after(50)));
    }

    #[test]
    fn answers_that_are_never_delivered_in_full_are_bounded() {
        let mut usage = Usage::default();
        for seconds in (0..86_400).step_by(600) {
            usage.begin(address(1), after(seconds));
            assert_eq!(usage.stage(WINDOW, after(seconds)), Stage::Begun);
        }
        assert_eq!(usage.stage(WINDOW, after(86_399)), Stage::Begun);
        assert_eq!(usage.stage(WINDOW, after(86_400)), Stage::Spent);
        let long = Window(30 * LONGEST_DELIVERY);
        assert_eq!(usage.stage(long, after(86_400)), Stage::Begun, "no shorter than the window");
    }

    #[test]
    fn what_a_process_that_died_had_begun_counts_as_taken() {
        let mut usage = Usage::default();
        usage.begin(address(1), after(0));
        usage.begin(address(1), after(600));
        let found = stored(&usage).found();
        let at = |seconds| found.stage(WINDOW, after(seconds));
        assert_eq!(at(700), Stage::Taken(NOON + Duration::from_secs(600)));
        assert_eq!(at(4_199), Stage::Taken(NOON + Duration::from_secs(600)));
        assert_eq!(at(4_200), Stage::Spent);
        assert_eq!(Usage::default().found(), Usage::default());
    }

    #[test]
    fn a_clock_that_is_set_does_not_extend_a_window() {
        let mut usage = Usage::default();
        usage.begin(address(1), after(0));
        usage.take(up(0), after(0));
        let at = |usage: &Usage, wall: i64, up: u64| {
            let wall = NOON + time::Duration::seconds(wall);
            let stage = usage.stage(WINDOW, ClockReading { wall, up: Duration::from_secs(up) });
            stage != Stage::Spent
        };
        // This process has a clock that nobody sets.
        assert!(at(&usage, -86_400, 3_599) && !at(&usage, -86_400, 3_600));
        assert!(at(&usage, 99_999_999, 10), "nor does it close one");
        // The next one has not.
        let found = stored(&usage).found();
        assert!(at(&found, 0, 0) && at(&found, 3_599, 0) && !at(&found, 3_600, 0));
        assert!(at(&found, -300, 0) && !at(&found, -301, 0) && !at(&found, -86_400, 0));
        assert!(!at(&found, 99_999_999, 0));
    }

    #[test]
    fn servers_agree_on_what_one_of_them_has_recorded() {
        let recorded = |usage: &Usage| usage.record(WINDOW).unwrap();
        let mut first = Usage::default();
        assert_eq!(first.record(WINDOW), None);
        first.begin(address(1), after(0));
        // Another server counts the answer as taken, because the first one may die.
        let mut second = Usage::default();
        second.learn(&recorded(&first));
        assert_eq!(second.stage(WINDOW, after(10)), Stage::Taken(NOON));
        assert_eq!(second.stage(WINDOW, after(3_600)), Stage::Spent);
        // The one that gives it knows better, until it was taken.
        let before = first.clone();
        first.learn(&recorded(&before));
        assert_eq!(first, before);
        assert_eq!(first.stage(WINDOW, after(3_600)), Stage::Begun);
        first.begin(address(1), after(600));
        assert_eq!(recorded(&first).last, NOON + Duration::from_secs(600));
        // An answer of the second one within the window does not extend it.
        assert!(!second.begin(address(1), after(1_200)).is_changed);
        assert!(second.begin(address(2), after(1_200)).is_newly_shared);
        assert_eq!(recorded(&second).last, NOON);
        first.learn(&recorded(&second));
        assert_eq!(first.addresses().len(), 2);
        assert_eq!(first.stage(WINDOW, after(3_600)), Stage::Spent);
    }

    #[test]
    fn two_servers_that_could_not_tell_each_other_end_at_the_earlier_window() {
        let (mut first, mut second) = (Usage::default(), Usage::default());
        first.begin(address(1), after(0));
        first.take(up(0), after(1));
        second.begin(address(1), after(1_000));
        second.take(up(1_000), after(1_001));
        let of_first = first.record(WINDOW).unwrap();
        second.learn(&of_first);
        assert_eq!(second.stage(WINDOW, after(3_600)), Stage::Taken(of_first.last));
        assert_eq!(second.stage(WINDOW, after(3_601)), Stage::Spent);
        assert_eq!(second.record(WINDOW).unwrap().first, NOON);
        first.learn(&second.record(WINDOW).unwrap());
        assert_eq!(first.record(WINDOW).unwrap(), of_first);
        second.spend();
        first.learn(&second.record(WINDOW).unwrap());
        assert_eq!(first.stage(WINDOW, after(2)), Stage::Spent);
    }

    #[test]
    fn each_further_address_is_reported_once_up_to_a_bound() {
        let mut usage = Usage::default();
        let mut told = Vec::new();
        for last in [1, 1, 2, 1, 2, 3] {
            told.push(usage.begin(address(last), after(0)).is_newly_shared);
        }
        assert_eq!(told, [false, false, true, false, false, true]);
        for last in 4..100 {
            usage.begin(address(last), after(0));
        }
        assert_eq!(usage.addresses().len(), MAX_ADDRESSES);
        usage.take(up(0), after(0));
        assert_eq!(
            usage.begin(address(1), after(1)),
            UsageChange { is_changed: false, is_newly_shared: false }
        );
        let mapped = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into();
        let mut other = Usage::default();
        other.begin(address(1), after(0));
        assert!(!other.begin(mapped, after(0)).is_newly_shared, "an address has one form");
    }
}
