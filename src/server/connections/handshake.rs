//! Computes the TLS handshake of a connection in turns.
//!
//! Received bytes cause computation, so none is read before the connection's turn: a ClientHello, a second one after a
//! HelloRetryRequest, a client's last message. The turn ends when there is nothing more to read, or nothing more can be
//! sent; a write that has to wait continues in another turn.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use model::ledger::Failed;
use rustls::{AlertDescription, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connection_limiter::Source;
use super::handshake_queue::{HandshakePermit, HandshakeQueue};
use super::timeout_stream::TimeoutStream;

/// Handles TLS from its first byte to the beginning of HTTP. At most `ahead` bytes are encrypted ahead of the network.
pub(super) async fn handshake(
    stream: TimeoutStream,
    tls: Arc<ServerConfig>,
    ahead: usize,
    source: Source,
    queue: &HandshakeQueue,
) -> io::Result<TlsStream<TimeoutStream>> {
    let mut pending = Some(queue.arrive());
    let mut accepting =
        TlsAcceptor::from(tls).accept_with(stream, |tls| tls.set_buffer_limit(Some(ahead)));
    loop {
        // The stream is here until the handshake has ended.
        let stream = accepting.get_mut().ok_or(io::ErrorKind::ConnectionAborted)?;
        let _permit = next_permit(stream, source, queue).await?;
        // Later, bytes before the end can contain the reason why the client left.
        if pending.take().is_some() && stream.has_left() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let once = poll_fn(|context| Poll::Ready(Pin::new(&mut accepting).poll(context)));
        if let Poll::Ready(accepted) = once.await {
            return accepted;
        }
    }
}

/// Waits until something can be read, or written if that was not possible before, and then for a permit.
async fn next_permit(
    stream: &mut TimeoutStream,
    source: Source,
    queue: &HandshakeQueue,
) -> io::Result<HandshakePermit> {
    poll_fn(|context| stream.poll_progress(context)).await?;
    if let Some(permit) = queue.try_acquire() {
        return Ok(permit);
    }
    tokio::select! {
        biased;
        permit = queue.clone().wait(source) => permit.ok_or(io::ErrorKind::ConnectionAborted.into()),
        // Waiting for others does not extend the time of a handshake.
        error = poll_fn(|context| stream.poll_deadline(context)) => Err(error),
    }
}

/// Classifies a failed handshake. Clients differ in the alert for an untrusted certificate: Go, and so Ignition, always
/// sends `bad_certificate`.
pub(super) fn classify(error: &io::Error) -> Failed {
    use AlertDescription as Alert;
    let tls = error.get_ref().and_then(|error| error.downcast_ref());
    match (tls, error.kind()) {
        (
            Some(rustls::Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnknownCA
                | Alert::CertificateUnknown
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::UnsupportedCertificate,
            )),
            _,
        ) => Failed::Untrusted,
        (_, io::ErrorKind::TimedOut) => Failed::Timeout,
        (_, io::ErrorKind::InvalidData) => Failed::Tls,
        _ => Failed::Connection,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::server::ResolvesServerCertUsingSni;
    use telemetry::ConnectionMetrics;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::server::connections::activity::Activity;
    use crate::server::connections::connection_limiter::{ConnectionLimiter, Transport};
    use crate::server::connections::limits::Limits;
    use crate::server::connections::send_buffer_limit::{Allowance, SendBufferLimit};
    use crate::serving::tls::policy::TlsPolicy;

    /// A client that is connected, and what the server has of it.
    async fn connected() -> (TcpStream, TimeoutStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let (limits, now) = (Limits::default(), Instant::now());
        let activity = Activity::new(now);
        let limiter = ConnectionLimiter::new(limits.connections);
        let (permit, _) =
            limiter.acquire(peer.into(), Transport::Tls, activity.clone(), now).unwrap();
        let metrics = ConnectionMetrics::default();
        let allowance = Allowance::new(SendBufferLimit::new(), permit, activity, metrics);
        (client, TimeoutStream::new(stream, limits, Arc::new(allowance)))
    }

    /// A TLS configuration without a certificate.
    fn tls() -> Arc<ServerConfig> {
        let (policy, _) = TlsPolicy::new("", &[]).unwrap();
        let config = ServerConfig::builder_with_provider(policy.provider)
            .with_protocol_versions(policy.versions)
            .unwrap()
            .with_no_client_auth();
        Arc::new(config.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())))
    }

    /// Error of a handshake in its turn, with a client that sent something other than TLS and then stayed, or left.
    async fn failed_with_its_permit(leaves: bool) -> io::Error {
        let queue = HandshakeQueue::new(1);
        let others = queue.try_acquire().unwrap();
        let (mut client, stream) = connected().await;
        client.write_all(b"hello").await.unwrap();
        let accepting = handshake(stream, tls(), 0, Source::Balancer, &queue);
        let meanwhile = async {
            let client = (!leaves).then_some(client);
            // With the events of others, the runtime has those of this connection.
            for _ in 0..8 {
                connected().await;
            }
            drop(others);
            client
        };
        let (accepted, _client) = tokio::join!(accepting, meanwhile);
        accepted.unwrap_err()
    }

    #[tokio::test]
    async fn nothing_is_computed_for_a_client_that_has_left_before_its_permit() {
        let failed = |leaves| timeout(Duration::from_secs(180), failed_with_its_permit(leaves));
        assert_eq!(failed(false).await.unwrap().kind(), io::ErrorKind::InvalidData);
        assert_eq!(failed(true).await.unwrap().kind(), io::ErrorKind::ConnectionReset);
    }
}
