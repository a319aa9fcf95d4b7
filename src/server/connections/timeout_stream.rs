//! Timeouts of a connection.
//!
//! A client that stays silent, sends its head byte by byte, or stops reading must not hold a connection forever:
//! connections are limited, and other machines need them. [`TimeoutStream`] is below TLS and sees every byte, so it
//! enforces all limits.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::activity::Phase;
use super::limits::Limits;
use super::send_buffer_limit::{self, Allowance};

/// Size of a handshake or a head in bytes that no machine exceeds.
const LARGE: usize = 4 << 10;

/// A stream that fails with [`io::ErrorKind::TimedOut`] when its client exceeds a limit.
///
/// If it ends before its client has received an answer, the kernel discards the rest.
#[derive(Debug)]
pub(super) struct TimeoutStream {
    stream: TcpStream,
    limits: Limits,
    /// Time of the client's last byte, or of the beginning of its phase.
    since: Instant,
    /// Phase in which `since` was set.
    timed: Phase,
    timer: Option<Pin<Box<Sleep>>>,
    /// True if the client receives no more data.
    is_blocked: bool,
    allowance: Arc<Allowance>,
    /// Bytes of the handshake, or of the head and following data; `None` after there were too many.
    received: Option<usize>,
    is_bounded: bool,
    /// True if nothing more is sent, and the client has room for everything.
    is_drained: bool,
}

impl TimeoutStream {
    pub(super) fn new(stream: TcpStream, limits: Limits, allowance: Arc<Allowance>) -> Self {
        Self {
            stream,
            since: allowance.activity.opened(),
            limits,
            timed: Phase::Handshake,
            timer: None,
            is_blocked: false,
            allowance,
            received: Some(0),
            is_bounded: false,
            is_drained: false,
        }
    }

    /// Waits for the first byte, without reading it. The runtime guesses that a new connection is readable, so the
    /// socket is peeked.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        let mut first = [0];
        poll_fn(|context| match self.stream.poll_peek(context, &mut ReadBuf::new(&mut first)) {
            Poll::Ready(result) => Poll::Ready(result.map(|_| ())),
            Poll::Pending => self.poll_deadline(context).map(Err),
        })
        .await
    }

    /// Waits until the client has room for all of the kernel's data.
    fn poll_drained(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.allowance.is_small() {
            ready!(self.stream.poll_write_ready(context))?;
            let looked = self.stream.try_io(Interest::WRITABLE, || {
                // The socket becomes writable when the data is gone.
                if send_buffer_limit::has_unsent(&self.stream) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(())
            });
            if looked.is_ok() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn count_received(&mut self, bytes: usize) -> io::Result<()> {
        match self.allowance.activity.phase() {
            // The first byte of a head starts its time; later ones do not extend it.
            Phase::FirstHead | Phase::Idle | Phase::Handed => {
                self.since = Instant::now();
                self.allowance.activity.begin(Phase::Head, self.since);
                self.timed = Phase::Head;
                self.received = self.received.map(|_| 0);
            }
            Phase::Handshake | Phase::Head => {}
            Phase::Answer | Phase::Sending => self.since = Instant::now(),
        }
        self.received = self.received.map(|received| received + bytes);
        if self.received.is_some_and(|received| received > LARGE) {
            self.received = None;
            self.allowance.reserve_incomplete().map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        Ok(())
    }

    /// Waits until the limit is reached, and then fails.
    pub(super) fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let phase = self.allowance.activity.phase();
        if self.timed != phase {
            self.timed = phase;
            self.since = Instant::now();
        }
        let limit = match phase {
            Phase::Handshake => self.limits.handshake,
            _ if self.is_blocked => self.limits.stall,
            Phase::FirstHead | Phase::Head => self.limits.head,
            Phase::Idle | Phase::Handed => self.limits.idle,
            // The client need not act while its answer is made and written.
            Phase::Answer | Phase::Sending => return Poll::Pending,
        };
        let oldest = self.allowance.activity.opened() + 2 * self.limits.age;
        let deadline = (self.since + limit).min(oldest);
        self.poll_until(deadline, context).map(|()| io::ErrorKind::TimedOut.into())
    }

    fn poll_until(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.deadline() != deadline {
                    timer.as_mut().reset(deadline);
                }
                timer
            }
            None => self.timer.insert(Box::pin(tokio::time::sleep_until(deadline))),
        };
        timer.as_mut().poll(context)
    }

    fn count_sent(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Ok(count)) => {
                self.is_blocked = false;
                if self.allowance.activity.phase() != Phase::Handshake {
                    self.allowance.activity.write(count);
                    self.since = Instant::now();
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.is_blocked = true;
                self.poll_deadline(context).map(Err)
            }
        }
    }

    fn prepare_write(&mut self) -> io::Result<()> {
        if !self.is_bounded && self.allowance.is_bounded() {
            send_buffer_limit::set_send_buffer(&self.stream)?;
            self.is_bounded = true;
        }
        Ok(())
    }

    /// Waits until something can be read, or written if that was not possible before, with the limits of a read.
    pub(super) fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = if self.is_blocked {
            self.stream.poll_write_ready(context)
        } else {
            self.stream.poll_read_ready(context)
        };
        if ready.is_pending() { self.poll_deadline(context).map(Err) } else { ready }
    }

    /// Returns `true` if the client has ended the connection, as far as it is known.
    pub(super) fn has_left(&self) -> bool {
        let ready = self.stream.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.is_ok_and(Ready::is_read_closed))
    }
}

impl Drop for TimeoutStream {
    fn drop(&mut self) {
        let is_drained = self.is_drained || self.allowance.is_small();
        if self.allowance.activity.phase() == Phase::Sending
            || !is_drained && send_buffer_limit::has_unsent(&self.stream)
        {
            send_buffer_limit::discard_on_close(&self.stream);
        }
    }
}

impl AsyncRead for TimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                let bytes = buffer.filled().len() - before;
                if bytes > 0 {
                    self.count_received(bytes)?;
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_deadline(context).map(Err),
        }
    }
}

impl AsyncWrite for TimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.prepare_write()?;
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_sent(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.prepare_write()?;
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count_sent(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when all data was written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        if self.allowance.activity.phase() == Phase::Sending {
            let now = Instant::now();
            if self.allowance.is_small() {
                self.allowance.activity.begin(Phase::Idle, now);
                self.allowance.permit.idle(now);
            } else {
                self.allowance.activity.begin(Phase::Handed, now);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the client has room for the remaining data, which counts for this connection; after a close the
    /// kernel would hold it for minutes. The kernel reports it only for a connection that is not shut down.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_drained {
            if let Poll::Ready(taken) = self.poll_drained(context) {
                taken?;
                self.is_drained = true;
            } else {
                let deadline = self.since + self.limits.idle;
                ready!(self.poll_until(deadline, context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
