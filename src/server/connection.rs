//! One connection: TLS where it is spoken, then HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::routes::Routes;
use super::timeout_stream::{Limits, SharedPhase, TimeoutStream};
use crate::telemetry::HandshakeFailure;

/// Bytes encrypted ahead of what the network takes, for each connection. Twice the library's default
/// saves system calls; beyond it the processor's cache no longer holds them.
const SEND_BUFFER: usize = 128 << 10;

/// What a connection needs to know.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) routes: Arc<Routes>,
    pub(super) limits: Limits,
    /// Cancelled when the server is to stop: what is under way is finished, nothing new begun.
    pub(super) stop: CancellationToken,
}

/// Serves a connection until it ends. With a TLS configuration it begins with a handshake.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    context: Context,
) {
    let phase = SharedPhase::default();
    let stream = TimeoutStream::new(stream, phase.clone(), context.limits);
    let Some(tls) = tls else {
        phase.first_head();
        return http(stream, peer, phase, context).await;
    };
    let accepting =
        TlsAcceptor::from(tls).accept_with(stream, |tls| tls.set_buffer_limit(Some(SEND_BUFFER)));
    match accepting.await {
        Ok(stream) => {
            phase.first_head();
            http(stream, peer, phase, context).await;
        }
        Err(error) => {
            let reason = match error.kind() {
                io::ErrorKind::TimedOut => HandshakeFailure::Timeout,
                io::ErrorKind::InvalidData => HandshakeFailure::Tls,
                _ => HandshakeFailure::Connection,
            };
            context.routes.metrics.handshake_failed(reason);
            tracing::info!(%peer, %error, "TLS handshake failed");
        }
    }
}

async fn http<S>(stream: S, peer: SocketAddr, phase: SharedPhase, context: Context)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Context { routes, limits, stop } = context;
    let service = service_fn(move |request: http::Request<Incoming>| {
        let routes = Arc::clone(&routes);
        let phase = phase.clone();
        async move {
            phase.answer();
            let (parts, _) = request.into_parts();
            Ok::<_, Infallible>(routes.respond(&parts, peer, &phase).await)
        }
    });
    let mut http = http1::Builder::new();
    // `TimeoutStream` keeps the time; hyper's own timer would not tell a head from an idle connection.
    http.header_read_timeout(None).max_buf_size(limits.head_bytes);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
}
