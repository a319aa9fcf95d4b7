//! How long a connection may keep the server waiting.
//!
//! A client that connects and says nothing, sends its head a byte at a time, or stops reading must
//! not hold a connection for ever: connections are limited, and other machines wait for them.
//! [`TimeoutStream`] sits below TLS and sees every byte, so one place enforces all limits.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::activity::{Activity, Phase};
use super::limits::Limits;
use super::send_room::FirstAnswer;

/// A stream that fails with [`io::ErrorKind::TimedOut`] when its client exceeds a limit.
#[derive(Debug)]
pub(super) struct TimeoutStream<S> {
    stream: S,
    activity: Activity,
    limits: Limits,
    /// When the client last moved a byte, or began what it is at.
    since: Instant,
    /// The phase that `since` was taken in.
    timed: Phase,
    timer: Option<Pin<Box<Sleep>>>,
    first: FirstAnswer,
}

impl<S> TimeoutStream<S> {
    /// Times `stream` from now on.
    pub(super) fn new(stream: S, activity: Activity, limits: Limits, first: FirstAnswer) -> Self {
        Self {
            stream,
            since: activity.opened(),
            activity,
            limits,
            timed: Phase::Handshake,
            timer: None,
            first,
        }
    }

    /// A byte came in.
    fn received(&mut self) {
        match self.activity.phase() {
            // The first byte of a head starts its time; later ones do not extend it.
            Phase::FirstHead | Phase::Idle => {
                self.since = Instant::now();
                self.activity.begin(Phase::Head, self.since);
                self.timed = Phase::Head;
            }
            Phase::Handshake | Phase::Head => {}
            Phase::Answer | Phase::Sending => self.since = Instant::now(),
        }
    }

    /// Nothing moves: waits until the limit is reached, and then fails.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let phase = self.activity.phase();
        if self.timed != phase {
            self.timed = phase;
            self.since = Instant::now();
        }
        let limit = match phase {
            Phase::Handshake => self.limits.handshake,
            _ if self.activity.blocked().is_some() => self.limits.stall,
            Phase::FirstHead | Phase::Head => self.limits.head,
            Phase::Idle => self.limits.idle,
            // Nothing is expected of the client while its answer is made, and written.
            Phase::Answer | Phase::Sending => return Poll::Pending,
        };
        let oldest = self.activity.opened() + 2 * self.limits.age;
        let deadline = (self.since + limit).min(oldest);
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
                self.activity.block(None);
                if self.activity.phase() != Phase::Handshake {
                    self.since = Instant::now();
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if self.activity.blocked().is_none() {
                    self.activity.block(Some(Instant::now()));
                }
                self.wait(context).map(Err)
            }
        }
    }
}

impl TimeoutStream<TcpStream> {
    /// Waits, as long as a read would, until there is something to read.
    pub(super) fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.poll_read_ready(context) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => self.wait(context).map(Err),
        }
    }

    /// Waits for something that is not the client's to do; an error is that its time is up nevertheless.
    pub(super) fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.wait(context)
    }

    /// Whether the client has ended the connection, as far as that was seen.
    pub(super) fn has_left(&self) -> bool {
        let ready = self.stream.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(Ready::is_read_closed))
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

impl<S: AsFd> TimeoutStream<S> {
    /// Something is to be written.
    fn sending(&mut self) -> io::Result<()> {
        match self.activity.requests() {
            0 => Ok(()),
            1 => self.first.begin(&self.stream, self.activity.answer_bytes()),
            _ => self.first.end(&self.stream),
        }
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sending()?;
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sending()?;
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when everything was written that there is.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.activity.phase() == Phase::Sending {
            self.activity.begin(Phase::Idle, Instant::now());
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
