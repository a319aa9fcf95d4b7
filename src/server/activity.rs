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
    /// All of the answer is with the kernel, which may hold much of it for the client; then it may ask
    /// again.
    Handed,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Handshake,
        Self::FirstHead,
        Self::Idle,
        Self::Head,
        Self::Answer,
        Self::Sending,
        Self::Handed,
    ];
}

/// The activity of a connection, shared by the side that knows it (TLS, HTTP), the side that keeps
/// the time, and the side that gives permits away.
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
    /// Bytes given to the kernel since the handshake,
    written: AtomicU64,
    /// and how many of them before this answer.
    written_before: AtomicU64,
}

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
            written: AtomicU64::new(0),
            written_before: AtomicU64::new(0),
        }))
    }

    /// Notes what the connection is doing from now on.
    pub fn begin(&self, phase: Phase, now: Instant) {
        self.0.since.store(self.milliseconds(now), Ordering::Relaxed);
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Notes that the kernel took so many bytes.
    pub fn write(&self, bytes: usize) {
        self.0.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes given to the kernel since the handshake.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Those of the answer that is sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.written().saturating_sub(self.0.written_before.load(Ordering::Relaxed))
    }

    /// Notes how large the body of the answer is that is sent now.
    pub fn answer(&self, bytes: u64) {
        self.0.written_before.store(self.written(), Ordering::Relaxed);
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
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}
