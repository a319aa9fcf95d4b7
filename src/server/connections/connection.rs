//! Handles one connection: a PROXY header from balancers, TLS, then HTTP/1.1.
//!
//! Limits below HTTP are enforced here, where a tower layer would come too late: a handshake that never ends, a head
//! sent a byte a minute, a client that does not read. The router makes the answers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::header::CONNECTION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use model::ledger::{Failed, Ledger};
use model::refusal::{NO_MEMORY, RefusalCode};
use rustls::ServerConfig;
use telemetry::{ConnectionMetrics, LogRateLimiter};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::activity::{Activity, Phase};
use super::connection_limiter::{Source, Transport};
use super::handshake::{classify, handshake};
use super::handshake_queue::HandshakeQueue;
use super::limits::Limits;
use super::proxy_protocol;
use super::send_buffer_limit::{Allowance, Reserved, SendBufferLimit};
use super::timeout_stream::TimeoutStream;
use crate::server::answer::{self, CLOSE};
use crate::server::answer_body::{AnswerBody, End, OnEnd};

/// Peer of a connection, for the router in the extensions of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) peer: SocketAddr,
    /// True if a PROXY header must follow.
    pub(super) is_balancer: bool,
    /// Memory that the connection may use, with the permit that is held until it ends.
    pub(super) allowance: Arc<Allowance>,
}

#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) metrics: ConnectionMetrics,
    pub(super) queue: HandshakeQueue,
    pub(super) room: SendBufferLimit,
    pub(super) failures: Arc<LogRateLimiter<Source>>,
    /// Log of balancers' connections without a PROXY header.
    pub(super) unnamed: Arc<LogRateLimiter<Source>>,
    /// Ledger for failed handshakes, if there is one.
    pub(super) ledger: Option<Ledger>,
    /// Cancelled when the server stops: requests in progress are finished, and no new ones begun.
    pub(super) stop: CancellationToken,
}

/// Serves a connection until it ends, with TLS if a configuration is given.
pub(super) async fn serve(
    stream: TcpStream,
    caller: Caller,
    tls: Option<Arc<ServerConfig>>,
    context: Context,
) {
    let allowance = &caller.allowance;
    let transport = if tls.is_some() { Transport::Tls } else { Transport::Plain };
    if transport == Transport::Plain && !caller.is_balancer {
        allowance.activity.begin(Phase::FirstHead, Instant::now());
    }
    let mut stream = TimeoutStream::new(stream, context.limits, Arc::clone(allowance));
    // A silent connection costs almost nothing. If it stays silent, reading fails below.
    if stream.readable().await.is_ok() && allowance.reserve_connection(transport).await.is_err() {
        return;
    }
    Box::pin(serve_active(stream, caller, tls, context)).await;
}

/// Serves a connection whose client has sent something.
async fn serve_active(
    mut stream: TimeoutStream,
    Caller { peer, is_balancer, allowance }: Caller,
    tls: Option<Arc<ServerConfig>>,
    context: Context,
) {
    let client = if is_balancer {
        let client = client_behind(&mut stream, peer, &allowance, &context).await;
        let Ok(client) = client else { return };
        client
    } else {
        Some(peer)
    };
    let address = client.unwrap_or(peer);
    let Some(tls) = tls else {
        let peer = Peer { address, transport: Transport::Plain };
        return http(stream, Requester { peer, allowance }, context).await;
    };
    let ahead = allowance.encrypt_ahead();
    let accepting = handshake(stream, tls, ahead, address.into(), &context.queue);
    match Box::pin(accepting).await {
        Ok(stream) => {
            let peer = Peer { address, transport: Transport::Tls };
            Box::pin(http(stream, Requester { peer, allowance }, context)).await;
        }
        Err(error) => handshake_failed(&error, address, client.is_none(), &context),
    }
}

fn handshake_failed(error: &io::Error, peer: SocketAddr, is_own: bool, context: &Context) {
    let failed = classify(error);
    if is_own && failed == Failed::Connection {
        // A balancer's health check is no failed machine.
        return;
    }
    context.metrics.handshake_failed(failed);
    if let Some(ledger) = &context.ledger {
        ledger.handshake_failed(peer.ip(), failed, OffsetDateTime::now_utc());
    }
    if context.failures.may_log(peer.into()) {
        tracing::info!(%peer, %error, "TLS handshake failed");
    }
}

/// The client behind a balancer, for which the permit is counted from here on; `None` if the balancer names none. An
/// error closes the connection.
async fn client_behind(
    stream: &mut TimeoutStream,
    balancer: SocketAddr,
    allowance: &Allowance,
    context: &Context,
) -> Result<Option<SocketAddr>, ()> {
    let client = match proxy_protocol::read(stream).await {
        Ok(None) => return Ok(None),
        Ok(Some(client)) => client,
        Err(error) => {
            context.metrics.proxy_header_failed(error.label());
            if context.unnamed.may_log(balancer.into()) {
                tracing::info!(%balancer, %error, "a load balancer sent no client address");
            }
            return Err(());
        }
    };
    match allowance.permit.reassign(client.into(), Instant::now()) {
        Ok(shed) => {
            if let Some(shed) = shed {
                context.metrics.shed(shed.label());
            }
            Ok(Some(client))
        }
        // Ignition retries.
        Err(shed) => {
            context.metrics.shed(shed.label());
            Err(())
        }
    }
}

async fn http<S>(stream: S, requester: Requester, context: Context)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (limits, stop, peer) = (context.limits, context.stop.clone(), requester.peer.address);
    requester.allowance.activity.begin(Phase::FirstHead, Instant::now());
    let context = Arc::new(context);
    let service = service_fn(move |request| {
        let (requester, context) = (requester.clone(), Arc::clone(&context));
        async move { Ok::<_, Infallible>(requester.answer(request, &context).await) }
    });
    let mut http = http1::Builder::new();
    // `TimeoutStream` enforces timeouts; hyper's timer would not distinguish a head from an idle connection.
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

/// Shared state of a connection's requests.
#[derive(Clone)]
struct Requester {
    peer: Peer,
    allowance: Arc<Allowance>,
}

impl Requester {
    async fn answer(
        self,
        request: Request<Incoming>,
        context: &Context,
    ) -> Response<AnswerBody<Body, Activity>> {
        let Self { peer, allowance } = self;
        let activity = allowance.activity.clone();
        let now = Instant::now();
        activity.begin(Phase::Answer, now);
        let is_last = activity.count_request() >= context.limits.requests
            || now.saturating_duration_since(activity.opened()) >= context.limits.age;
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&allowance));
        let Ok(mut response) = context.router.clone().call(request).await;
        let is_scarce = match response.extensions_mut().remove::<Reserved>() {
            Some(Reserved { is_scarce }) => is_scarce,
            // A stream has no size; it goes out in parts, as what is too large to go out at once.
            None => allowance
                .reserve_answer(size(&response).unwrap_or(u64::MAX))
                .await
                .unwrap_or_else(|_| {
                    let line = format!("{NO_MEMORY}\n");
                    response = answer::refused(RefusalCode::Overloaded, line);
                    true
                }),
        };
        activity.answer(size(&response).unwrap_or_default());
        let mut response = response.map(|body| AnswerBody { body, on_end: activity });
        if is_last || is_scarce {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response
    }
}

impl OnEnd for Activity {
    /// The client must receive the rest of the answer.
    fn ended(&self, _: End) {
        self.begin(Phase::Sending, Instant::now());
    }
}

fn size(response: &Response<Body>) -> Option<u64> {
    http_body::Body::size_hint(response.body()).exact()
}
