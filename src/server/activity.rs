//! What a connection is doing, as far as its client has to do something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The TLS handshake is under way.
    Handshake,
    /// The client has to begin its first request.
    FirstHead,
    /// The client has the answer and may ask again.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is complete; the client has nothing to say until it is answered.
    Answer,
    /// The answer is complete; the client has to take what is left of it.
    Sending,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Handshake, Self::FirstHead, Self::Idle, Self::Head, Self::Answer, Self::Sending];
}

/// The activity of a connection, shared by the side that knows it (TLS, HTTP), the side that keeps
/// the time, and the side that gives places away.
#[derive(Debug, Clone)]
pub struct Activity(Arc<State>);

#[derive(Debug)]
struct State {
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds from `opened` to the beginning of the phase.
    since: AtomicU64,
    requests: AtomicU32,
    answer_bytes: AtomicU64,
    /// Milliseconds from `opened` to when the client ceased to take what is written, and
    /// [`TAKING`] while it does.
    blocked: AtomicU64,
}

const TAKING: u64 = u64::MAX;

impl Activity {
    /// Of a connection that was opened at this time.
    #[must_use]
    pub fn new(opened: Instant) -> Self {
        Self(Arc::new(State {
            opened,
            phase: AtomicU8::new(Phase::Handshake as u8),
            since: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            answer_bytes: AtomicU64::new(0),
            blocked: AtomicU64::new(TAKING),
        }))
    }

    /// Notes what the connection is doing from now on.
    pub fn begin(&self, phase: Phase, now: Instant) {
        self.0.since.store(self.milliseconds(now), Ordering::Relaxed);
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Notes that the client takes no more of what is written, or does again.
    pub fn block(&self, since: Option<Instant>) {
        let since = since.map_or(TAKING, |since| self.milliseconds(since));
        self.0.blocked.store(since, Ordering::Relaxed);
    }

    /// Since when the client takes nothing of what is written; `None` while it does.
    #[must_use]
    pub fn blocked(&self) -> Option<Instant> {
        let since = self.0.blocked.load(Ordering::Relaxed);
        (since != TAKING).then(|| self.0.opened + Duration::from_millis(since))
    }

    /// Notes how large the body of the answer is that is sent now.
    pub fn answer(&self, bytes: u64) {
        self.0.answer_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How large the body of the last answer is.
    #[must_use]
    pub fn answer_bytes(&self) -> u64 {
        self.0.answer_bytes.load(Ordering::Relaxed)
    }

    /// Counts a request, and tells how many there have been.
    pub fn count_request(&self) -> u32 {
        self.0.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// How many requests there have been.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// What it is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        // Only `begin` stores, so that there is always a phase of this number.
        Phase::ALL[usize::from(self.0.phase.load(Ordering::Relaxed))]
    }

    /// When it began to.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.0.opened + Duration::from_millis(self.0.since.load(Ordering::Relaxed))
    }

    /// When the connection was opened.
    #[must_use]
    pub fn opened(&self) -> Instant {
        self.0.opened
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.0.opened).as_millis();
        // A connection of half a billion years is as good as one that is a millisecond younger.
        u64::try_from(since).unwrap_or(TAKING).min(TAKING - 1)
    }
}
