//! State of a connection, as far as its client has to act.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The TLS handshake is in progress.
    Handshake,
    /// The client must begin its first request.
    FirstHead,
    /// The client has the answer, and may send another request.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is complete, and the answer is being made.
    Answer,
    /// The answer is complete, and the client must receive the rest.
    Sending,
    /// The kernel has the whole answer, and may still buffer much of it; the client may send another request.
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

/// Activity of a connection, shared by TLS and HTTP, which set it, the timeouts, and the connection limiter.
#[derive(Debug, Clone)]
pub(crate) struct Activity(Arc<State>);

#[derive(Debug)]
struct State {
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds from `opened` to the beginning of the phase.
    since: AtomicU64,
    requests: AtomicU32,
    answer_bytes: AtomicU64,
    /// Bytes written to the kernel since the handshake.
    written: AtomicU64,
    /// Value of `written` at the beginning of the present answer.
    written_before: AtomicU64,
}

impl Activity {
    pub(crate) fn new(opened: Instant) -> Self {
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

    pub(crate) fn begin(&self, phase: Phase, now: Instant) {
        let since = now.saturating_duration_since(self.0.opened).as_millis();
        // An overflow takes half a billion years.
        self.0.since.store(since.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, bytes: usize) {
        self.0.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes written to the kernel since the handshake.
    pub(crate) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Bytes written of the present answer.
    pub(crate) fn sent(&self) -> u64 {
        self.written().saturating_sub(self.0.written_before.load(Ordering::Relaxed))
    }

    /// Sets the size of the present answer's body.
    pub(crate) fn answer(&self, bytes: u64) {
        self.0.written_before.store(self.written(), Ordering::Relaxed);
        self.0.answer_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Size of the last answer's body.
    pub(crate) fn answer_bytes(&self) -> u64 {
        self.0.answer_bytes.load(Ordering::Relaxed)
    }

    /// Counts a request, and returns the number of requests.
    pub(crate) fn count_request(&self) -> u32 {
        self.0.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }
    pub(crate) fn requests(&self) -> u32 {
        self.0.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn phase(&self) -> Phase {
        // Only `begin` stores the number, so that it is valid.
        Phase::ALL[usize::from(self.0.phase.load(Ordering::Relaxed))]
    }

    pub(crate) fn since(&self) -> Instant {
        self.0.opened + Duration::from_millis(self.0.since.load(Ordering::Relaxed))
    }

    pub(crate) fn opened(&self) -> Instant {
        self.0.opened
    }
}
