//! How long a connection has kept the server waiting, in the eyes of one that is full.

use std::time::Duration;

use tokio::time::Instant;

use crate::server::activity::{Activity, Phase};

/// So long anybody may take for a handshake or a head, and be behind with an answer: longer than what a
/// lost packet or a busy machine takes.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// Bytes a second that a machine takes at least: on a line of 1 Mbit/s it shares with one other.
const SLOWEST: u64 = 64 << 10;

/// Why a connection is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shed {
    /// It waited for its client's next request longest, and another one came.
    Idle,
    /// It waited for its client's first request longest, and another one came.
    Silent,
    /// Its client took its answer slower than any machine, and another one came.
    Unread,
    /// Its source has as many as it may, and none that waits for its client.
    SourceFull,
    /// All permits or all memory are taken, and none waits for its client.
    Full,
}

impl Shed {
    /// How the metric names it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::SourceFull => "source_full",
            Self::Full => "full",
            Self::Idle => "idle",
            Self::Silent => "silent",
            Self::Unread => "unread",
        }
    }
}

/// Since when a connection waits for its client, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) since: Instant,
    pub(super) why: Shed,
}

impl Turn {
    /// `None` while the client waits for the server. What is sent to it is time that it has: it waits
    /// since it would have taken all that if it were as slow as a machine may be.
    ///
    /// For one connection `since` only grows.
    pub(super) fn of(activity: &Activity, now: Instant) -> Option<Self> {
        let since = activity.since();
        let taking =
            |bytes: u64| since + Duration::from_millis(bytes.saturating_mul(1_000) / SLOWEST);
        let (since, why) = match activity.phase() {
            Phase::Idle => (since, Shed::Idle),
            Phase::Handshake | Phase::FirstHead | Phase::Head => (since, Shed::Silent),
            Phase::Answer => return None,
            Phase::Sending => (taking(activity.sent()), Shed::Unread),
            Phase::Handed => (taking(activity.answer_bytes()), Shed::Idle),
        };
        Some(Self { since: since.min(now), why })
    }

    /// Whether the connection may be ended for another one.
    pub(super) fn is_over(self, activity: &Activity, now: Instant) -> bool {
        activity.phase() == Phase::Idle || now.saturating_duration_since(self.since) >= GRACE
    }
}
