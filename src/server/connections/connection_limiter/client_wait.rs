//! Measures how long a connection waits for its client.

use std::time::Duration;

use tokio::time::Instant;

use crate::server::connections::activity::{Activity, Phase};

/// Time that every client may take for a handshake or a head, and be behind with an answer: longer than a lost packet
/// or a busy machine delays it.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// Minimum speed of a machine in bytes a second: half a line of 1 Mbit/s.
const SLOWEST: u64 = 64 << 10;

/// Reasons for closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shed {
    /// The connection waited longest for its client's next request.
    Idle,
    /// The connection waited longest for its client's first request.
    Silent,
    /// The client received the answer slower than any machine.
    Unread,
    /// The source has its maximum, and no connection that waits for its client.
    SourceFull,
    /// All permits or all memory are in use, and no connection waits for its client.
    Full,
}

impl Shed {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::SourceFull => "source_full",
            Self::Full => "full",
            Self::Idle => "idle",
            Self::Silent => "silent",
            Self::Unread => "unread",
        }
    }
}

/// Time since which a connection waits for its client, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientWait {
    pub(super) since: Instant,
    pub(super) why: Shed,
}

impl ClientWait {
    /// Computes the wait, `None` while the client waits for the server. An answer gives the client time: the wait
    /// begins when the slowest machine would have received it.
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

    /// Returns `true` if the connection may be closed for another one.
    pub(super) fn is_over(self, activity: &Activity, now: Instant) -> bool {
        activity.phase() == Phase::Idle || now.saturating_duration_since(self.since) >= GRACE
    }
}
