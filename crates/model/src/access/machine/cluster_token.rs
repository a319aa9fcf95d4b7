//! Token of a machine in a cluster, as one server knows it: its own part of the use, and what is recorded of all.

use core::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use time::serde::rfc3339;
use time::{Duration, OffsetDateTime};

use super::super::token::TokenHash;
use super::in_use::TokenInUse;
use super::status::{MachineState, MachineStatus, RecordedUse};
use super::usage::{Usage, Window};

/// Minimum time between two records that only differ in the last answer. A machine that never takes one whole asks more
/// often.
const BETWEEN_RECORDS: Duration = Duration::minutes(1);

/// Token of a machine in a cluster, with its use since it was armed.
#[derive(Debug, Clone)]
pub struct ClusterToken {
    /// The object as this server has seen it last. If it has no token, it is another one of the same name.
    pub state: Arc<MachineState>,
    /// Hash of the token.
    pub sha256: TokenHash,
    /// Pool that it opens.
    pub pool: String,
    armings: u64,
    /// Token that this one has replaced.
    before: Option<TokenHash>,
    /// Use since it was armed, as this server knows it.
    pub usage: Usage,
    /// Use that the object has.
    recorded: Option<RecordedUse>,
    /// Time of the first use that the object lacks, because the API server was unreachable.
    pub unsaved: Option<OffsetDateTime>,
}

impl ClusterToken {
    /// The token of an object, if it has one.
    pub fn of(state: &Arc<MachineState>) -> Option<Self> {
        let status = state.status.as_ref()?;
        let MachineStatus { pool, token, armings, recorded, .. } = status;
        let mut usage = Usage::default();
        if let Some(recorded) = recorded {
            usage.learn(recorded);
        }
        Some(Self {
            state: Arc::clone(state),
            sha256: (*token)?,
            pool: pool.clone(),
            armings: *armings,
            before: None,
            usage,
            recorded: recorded.clone(),
            unsaved: None,
        })
    }

    /// Takes in a state of the object. Returns what was known of another token that it replaces. A state that is older
    /// changes nothing, because what was read may be ahead of the watch, nor does one without a token. Another object
    /// without one shows that the object of this token is gone.
    pub fn see(&mut self, state: &Arc<MachineState>) -> Option<Self> {
        if Arc::ptr_eq(&self.state, state) {
            return None;
        }
        let Some(seen) = Self::of(state) else {
            if state.uid != self.state.uid {
                (self.state, self.unsaved) = (Arc::clone(state), None);
            }
            return None;
        };
        if seen.sha256 != self.sha256 {
            let before = Some(self.sha256);
            let is_older = self.before == Some(seen.sha256);
            return (!is_older).then(|| std::mem::replace(self, Self { before, ..seen }));
        }
        if seen.armings == self.armings {
            if let Some(recorded) = &seen.recorded {
                self.usage.learn(recorded);
            }
            self.recorded = seen.recorded.or(self.recorded.take());
            self.state = seen.state;
        } else if seen.armings > self.armings {
            *self = Self { before: self.before, ..seen };
        }
        None
    }

    /// Returns `true` if both are the same token since it was armed last.
    pub fn is_same_arming(&self, other: &Self) -> bool {
        (self.sha256, self.armings) == (other.sha256, other.armings)
    }

    /// Returns `true` if other servers must know this use before an answer.
    pub fn is_due(&self, window: Window) -> bool {
        match (&self.recorded, self.usage.record(window)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(now)) => {
                now.first < before.first
                    || !now.addresses.is_subset(&before.addresses)
                    || now.spent && !before.spent
                    || now.last - before.last >= BETWEEN_RECORDS
            }
        }
    }

    /// True if the object says that the token is spent.
    pub fn is_spent(&self) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| recorded.spent)
    }

    /// The use that waits to be written, if one does.
    pub fn unsaved_use(&self, window: Window) -> Option<UnsavedUse> {
        let (since, recorded) = (self.unsaved?, self.usage.record(window)?);
        Some(UnsavedUse { sha256: self.sha256, armings: self.armings, since, recorded })
    }

    /// Takes in a use of this arming that an earlier process left to be written.
    pub fn restore(&mut self, left: &UnsavedUse) {
        self.usage.learn(&left.recorded);
        self.unsaved = Some(self.unsaved.map_or(left.since, |since| since.min(left.since)));
    }

    /// Returns `true` if the object says that the token was used from this address.
    pub fn was_recorded(&self, address: &IpAddr) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| recorded.addresses.contains(address))
    }

    /// Returns `true` if the token was spent at `time` by what other servers have recorded.
    pub fn others_ended_before(&self, time: OffsetDateTime, window: Window) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| {
            let window = Duration::try_from(window.0).unwrap_or(Duration::MAX);
            time - recorded.last >= window
        })
    }
}

impl TokenInUse for ClusterToken {
    fn sha256(&self) -> TokenHash {
        self.sha256
    }

    fn pool(&self) -> &str {
        &self.pool
    }

    fn usage(&self) -> &Usage {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    /// True once the object is gone or being deleted.
    fn is_revoked(&self) -> bool {
        self.state.is_deleted || self.state.token().is_none()
    }
}

/// Use of a token in one arming.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsavedUse {
    /// Hash of the token.
    #[serde(rename = "tokenSHA256")]
    pub sha256: TokenHash,
    /// Number of times that it was made or armed again.
    pub armings: u64,
    /// Time of the first use that the object lacks.
    #[serde(with = "rfc3339")]
    pub since: OffsetDateTime,
    /// The use.
    #[serde(rename = "use")]
    pub recorded: RecordedUse,
}

impl UnsavedUse {
    /// Returns `true` if an object has the token in this arming.
    pub fn is_of(&self, state: &MachineState) -> bool {
        state.status.as_ref().is_some_and(|status| {
            status.token == Some(self.sha256) && status.armings == self.armings
        })
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::super::token::Token;
    use super::super::usage::{ClockReading, Stage};
    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn after(seconds: u64) -> ClockReading {
        let up = std::time::Duration::from_secs(seconds);
        ClockReading { wall: NOON + up, up }
    }

    fn state(token: u8, armings: u64, recorded: Option<RecordedUse>) -> Arc<MachineState> {
        let token = Some(Token::new([token; 32]).hash());
        let pool = "worker".to_owned();
        Arc::new(MachineState {
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            is_deleted: false,
            status: Some(MachineStatus {
                pool,
                token,
                armings,
                recorded,
                ..MachineStatus::default()
            }),
        })
    }

    fn used(seconds: u64) -> Option<RecordedUse> {
        let mut usage = Usage::default();
        usage.begin([192, 0, 2, 1].into(), after(seconds));
        usage.record(Window::default())
    }

    fn stage(known: &ClusterToken) -> Stage {
        known.usage.stage(Window::default(), after(60))
    }

    #[test]
    fn a_newer_arming_replaces_a_use_and_an_older_one_does_not() {
        let mut known = ClusterToken::of(&state(1, 1, used(0))).unwrap();
        assert_eq!(stage(&known), Stage::Taken(NOON));
        assert!(known.see(&state(1, 2, None)).is_none());
        assert_eq!(stage(&known), Stage::Armed);
        // The watch may be behind what was read.
        assert!(known.see(&state(1, 1, used(0))).is_none());
        assert_eq!(stage(&known), Stage::Armed);
        assert!(known.see(&state(1, 2, used(30))).is_none());
        assert_eq!(known.see(&state(1, 2, None)).map(|it| it.armings), None);
        assert!(matches!(stage(&known), Stage::Taken(_)), "an earlier version of it");
    }

    #[test]
    fn another_token_is_learned_and_the_one_before_does_not_come_back() {
        let mut known = ClusterToken::of(&state(1, 1, used(0))).unwrap();
        let replaced = known.see(&state(2, 2, None)).unwrap();
        assert_eq!(replaced.sha256, Token::new([1; 32]).hash());
        assert!(known.see(&state(1, 1, None)).is_none());
        assert_eq!(known.sha256, Token::new([2; 32]).hash());
        // A status that was lost is made again, with its count.
        assert!(known.see(&state(3, 1, None)).is_some());
        let nothing = MachineState { status: None, ..MachineState::clone(&known.state) };
        assert!(known.see(&Arc::new(nothing)).is_none());
        assert_eq!(known.sha256, Token::new([3; 32]).hash());
    }

    #[test]
    fn a_token_ends_once_another_object_has_the_name() {
        let mut known = ClusterToken::of(&state(1, 1, used(0))).unwrap();
        known.unsaved = Some(NOON);
        let made_again = |token: Option<u8>| {
            let mut state = MachineState::clone(&state(token.unwrap_or_default(), 1, None));
            state.uid = "v".to_owned();
            if token.is_none() {
                state.status = Some(MachineStatus::default());
            }
            Arc::new(state)
        };
        let without_token = made_again(None);
        assert!(!known.is_revoked() && known.see(&without_token).is_none());
        assert!(known.is_revoked() && known.unsaved.is_none());
        assert_eq!(
            known.see(&made_again(Some(2))).map(|it| it.sha256),
            ClusterToken::of(&state(1, 1, None)).map(|it| it.sha256)
        );
        assert!(!known.is_revoked());
        assert_eq!(stage(&known), Stage::Armed, "nobody has used the new one");
        // The same object can lose its status.
        let lost = MachineState {
            status: Some(MachineStatus::default()),
            ..MachineState::clone(&known.state)
        };
        assert!(known.see(&Arc::new(lost)).is_none() && !known.is_revoked());
    }

    #[test]
    fn a_use_is_due_once_for_an_address_and_once_a_minute_without_an_end() {
        let window = Window::default();
        let mut known = ClusterToken::of(&state(1, 1, None)).unwrap();
        assert!(!known.is_due(window));
        known.usage.begin([192, 0, 2, 1].into(), after(0));
        assert!(known.is_due(window));
        known.see(&state(1, 1, known.usage.record(window)));
        for seconds in [1, 30, 59] {
            known.usage.begin([192, 0, 2, 1].into(), after(seconds));
            assert!(!known.is_due(window), "{seconds}");
        }
        known.usage.begin([192, 0, 2, 1].into(), after(60));
        assert!(known.is_due(window));
        known.see(&state(1, 1, known.usage.record(window)));
        known.usage.begin([192, 0, 2, 2].into(), after(61));
        assert!(known.is_due(window));
    }
}
