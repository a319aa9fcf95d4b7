//! Schedules the handshake of a connection.
//!
//! [`TurnStream`] is below TLS. Received bytes cause computation, so none is read before the connection's turn: a
//! ClientHello, a second one after a HelloRetryRequest, a client's last message. The turn ends when there is nothing
//! more to read, or nothing more can be sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_limiter::Source;
use super::timeout_stream::TimeoutStream;
use super::turns::{Arrival, Turn, Turns};

/// A stream that is read only in its turns until the handshake is done.
pub(super) struct TurnStream {
    stream: TimeoutStream,
    source: Source,
    turns: Turns,
    stage: Stage,
    /// Arrival, until the first turn.
    arrival: Option<Arrival>,
}

enum Stage {
    /// Nothing was received.
    Quiet,
    /// Bytes were received.
    Waiting(Pin<Box<dyn Future<Output = Option<Turn>> + Send>>),
    /// The connection has its turn.
    Computing(#[expect(dead_code, reason = "it is held")] Turn),
    /// The handshake is done.
    Done,
}

impl TurnStream {
    pub(super) fn new(stream: TimeoutStream, source: Source, turns: Turns) -> Self {
        let arrival = Some(turns.arrive());
        Self { stream, source, turns, stage: Stage::Quiet, arrival }
    }

    /// Ends the scheduling after the handshake.
    pub(super) fn end_handshake(&mut self) {
        self.stage = Stage::Done;
        self.arrival = None;
    }

    /// Waits for bytes, and then for the turn.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let turn = loop {
            match &mut self.stage {
                Stage::Computing(_) | Stage::Done => return Poll::Ready(Ok(())),
                Stage::Quiet => {
                    ready!(self.stream.poll_readable(context))?;
                    if let Some(turn) = self.turns.take() {
                        break turn;
                    }
                    self.stage = Stage::Waiting(Box::pin(self.turns.clone().wait(self.source)));
                }
                Stage::Waiting(turn) => match turn.as_mut().poll(context) {
                    Poll::Ready(turn) => break turn.ok_or(io::ErrorKind::ConnectionAborted)?,
                    // Waiting for others does not extend the time of a handshake.
                    Poll::Pending => return self.stream.poll_deadline(context).map(Err),
                },
            }
        };
        self.stage = Stage::Computing(turn);
        // Later, bytes before the end can contain the reason why the client left.
        if self.arrival.take().is_some() && self.stream.has_left() {
            self.stage = Stage::Quiet;
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the turn if nothing more can be done at present.
    fn after<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() && matches!(self.stage, Stage::Computing(_)) {
            self.stage = Stage::Quiet;
        }
        result
    }
}

impl AsyncRead for TurnStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(context))?;
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.after(result)
    }
}

impl AsyncWrite for TurnStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.after(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.after(result)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::server::activity::Activity;
    use crate::server::connection_limiter::{ConnectionLimiter, Transport};
    use crate::server::limits::Limits;
    use crate::server::send_buffer_limit::{Allowance, SendBufferLimit};
    use crate::telemetry::ConnectionMetrics;

    /// A client that is connected, and what the server has of it.
    async fn connected(turns: Turns) -> (TcpStream, TurnStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let (limits, now) = (Limits::default(), Instant::now());
        let activity = Activity::new(now);
        let limiter = ConnectionLimiter::new(limits.connections);
        let (permit, _) = limiter.take(peer.into(), Transport::Tls, activity.clone(), now).unwrap();
        let metrics = ConnectionMetrics::default();
        let allowance = Allowance::new(SendBufferLimit::new(), permit, activity.clone(), metrics);
        let stream = TimeoutStream::new(stream, activity, limits, Arc::new(allowance));
        (client, TurnStream::new(stream, peer.into(), turns))
    }

    /// Result of a read in its turn, from a client that sent something and then stayed, or left.
    async fn read_at_its_turn(leaves: bool) -> io::Result<usize> {
        let turns = Turns::new(1);
        let others = turns.take().unwrap();
        let (mut client, mut stream) = connected(turns).await;
        client.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 16];
        while !matches!(stream.stage, Stage::Waiting(_)) {
            assert!(stream.read(&mut buffer).now_or_never().is_none());
            yield_now().await;
        }
        let client = (!leaves).then_some(client);
        while leaves && !stream.stream.has_left() {
            yield_now().await;
        }
        drop(others);
        let read = stream.read(&mut buffer).await;
        drop(client);
        read
    }

    #[tokio::test]
    async fn nothing_is_computed_for_a_client_that_has_left_before_its_turn() {
        let read = |leaves| timeout(Duration::from_secs(10), read_at_its_turn(leaves));
        assert_eq!(read(false).await.unwrap().unwrap(), 5);
        let error = read(true).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
