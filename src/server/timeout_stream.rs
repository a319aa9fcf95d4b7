//! How long a connection may keep the server waiting.
//!
//! A client that connects and says nothing, sends its head a byte at a time, or stops reading must
//! not hold a connection for ever: connections are limited, and other machines wait for them.
//! [`TimeoutStream`] sits below TLS and sees every byte, so one place enforces all limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The limits of a connection. Reaching one closes that connection and no other.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From accepting a connection to the end of its TLS handshake. Default 10 s.
    pub handshake: Duration,
    /// From a request head's first byte to its last, and for the first head to begin.
    /// Default 10 s.
    pub head: Duration,
    /// From an answer's end to the next request. Default 60 s.
    pub idle: Duration,
    /// Without a byte taken by a client that an answer is sent to. Default 60 s.
    pub stall: Duration,
    /// The largest request head, in bytes. Default 16 KiB.
    pub head_bytes: usize,
    /// Connections at a time, all ports together; more wait to be accepted. Default 10,000.
    pub connections: usize,
    /// From the order to stop until connections that are still busy are cut off. Default 30 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            head_bytes: 16 << 10,
            connections: 10_000,
            drain: Duration::from_secs(30),
        }
    }
}

/// What a connection is doing, as far as its client has to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// The TLS handshake is under way.
    Handshake,
    /// The client has to begin its first request.
    FirstHead,
    /// The answer is complete; the client may ask again.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is complete; the client has nothing to say until it is answered.
    Answer,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Handshake, Self::FirstHead, Self::Idle, Self::Head, Self::Answer];
}

/// The phase of a connection, shared by the side that knows it (TLS, HTTP) and the side that keeps
/// the time.
#[derive(Debug, Clone, Default)]
pub struct SharedPhase(Arc<AtomicU8>);

impl SharedPhase {
    /// The client has to begin its first request.
    pub fn first_head(&self) {
        self.set(Phase::FirstHead);
    }

    /// A request is complete; the client has nothing to say until it is answered.
    pub fn answer(&self) {
        self.set(Phase::Answer);
    }

    /// The answer is complete; the client may ask again.
    pub fn idle(&self) {
        self.set(Phase::Idle);
    }

    fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Phase {
        // Only `set` stores, so that there is always a phase of this number.
        Phase::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] when its client exceeds a limit.
#[derive(Debug)]
pub struct TimeoutStream<S> {
    stream: S,
    phase: SharedPhase,
    limits: Limits,
    /// When the client last moved a byte, or began what it is at.
    since: Instant,
    /// The phase that `since` was taken in.
    timed: Phase,
    /// Whether bytes for the client wait for it to take them.
    blocked: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    /// Times `stream` from now on.
    pub fn new(stream: S, phase: SharedPhase, limits: Limits) -> Self {
        Self {
            stream,
            phase,
            limits,
            since: Instant::now(),
            timed: Phase::Handshake,
            blocked: false,
            timer: None,
        }
    }

    /// A byte came in.
    fn received(&mut self) {
        match self.phase.get() {
            // The first byte of a head starts its time; later ones do not extend it.
            Phase::FirstHead | Phase::Idle => {
                self.phase.set(Phase::Head);
                self.since = Instant::now();
                self.timed = Phase::Head;
            }
            Phase::Handshake | Phase::Head => {}
            Phase::Answer => self.since = Instant::now(),
        }
    }

    /// Nothing moves: waits until the limit is reached, and then fails.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let phase = self.phase.get();
        if self.timed != phase {
            self.timed = phase;
            self.since = Instant::now();
        }
        let limit = match phase {
            Phase::Handshake => self.limits.handshake,
            _ if self.blocked => self.limits.stall,
            Phase::FirstHead | Phase::Head => self.limits.head,
            Phase::Idle => self.limits.idle,
            // Nothing is expected of the client while its answer is made.
            Phase::Answer => return Poll::Pending,
        };
        let deadline = self.since + limit;
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.deadline() != deadline {
                    timer.as_mut().reset(deadline);
                }
                timer
            }
            None => self.timer.insert(Box::pin(tokio::time::sleep_until(deadline))),
        };
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Poll::Pending,
        }
    }

    fn sent(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Ok(count)) => {
                self.blocked = false;
                if self.phase.get() != Phase::Handshake {
                    self.since = Instant::now();
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.blocked = true;
                self.wait(context).map(Err)
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                self.received();
                Poll::Ready(result)
            }
            Poll::Pending => self.wait(context).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
