//! One connection: who is behind it where a balancer says so, TLS where it is spoken, then HTTP/1.1.
//!
//! All here is below or beside HTTP, where a tower layer would come too late: a handshake that never
//! ends, a head sent a byte a minute, a client that does not read. What a request gets is the
//! router's.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use model::ledger::{Failed, Ledger};
use model::refusal::RefusalCode;
use rustls::{AlertDescription, ServerConfig};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::activity::{Activity, Phase};
use super::answer;
use super::connection_limiter::{Permit, Source, Transport};
use super::limits::Limits;
use super::proxy_protocol;
use super::send_buffer_limit::{Allowance, SendBufferLimit};
use super::timeout_stream::TimeoutStream;
use super::tracked_body::TrackedBody;
use super::turn_stream::TurnStream;
use super::turns::Turns;
use crate::telemetry::{ConnectionMetrics, LogRateLimiter};

const NO_MEMORY: &str = "too many answers are under way\n";
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Who asks, as the router's handlers and layers find it in a request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Where it asks from.
    pub address: SocketAddr,
    /// By which port it came.
    pub transport: Transport,
}

/// Who connected.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) peer: SocketAddr,
    /// Whether it has to say whom it connects.
    pub(super) is_balancer: bool,
    pub(super) activity: Activity,
    /// Held until the connection ends.
    pub(super) permit: Permit,
}

/// What a connection needs to know.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) metrics: ConnectionMetrics,
    /// Whose handshake is computed next.
    pub(super) turns: Turns,
    pub(super) room: SendBufferLimit,
    pub(super) failures: Arc<LogRateLimiter<Source>>,
    /// Connections of balancers that did not say for whom.
    pub(super) unnamed: Arc<LogRateLimiter<Source>>,
    /// Where it is noted whose handshake failed, if anywhere.
    pub(super) ledger: Option<Ledger>,
    /// Cancelled when the server is to stop: what is under way is finished, nothing new begun.
    pub(super) stop: CancellationToken,
}

/// Serves a connection until it ends. With a TLS configuration it begins with a handshake.
pub(super) async fn serve(
    stream: TcpStream,
    caller: Caller,
    tls: Option<Arc<ServerConfig>>,
    context: Context,
) {
    let Caller { peer, is_balancer, activity, permit } = caller;
    let (room, metrics) = (context.room.clone(), context.metrics.clone());
    let allowance = Arc::new(Allowance::new(room, permit, activity.clone(), metrics));
    let transport = if tls.is_some() { Transport::Tls } else { Transport::Plain };
    if transport == Transport::Plain && !is_balancer {
        activity.begin(Phase::FirstHead, Instant::now());
    }
    let mut stream =
        TimeoutStream::new(stream, activity.clone(), context.limits, Arc::clone(&allowance));
    // Until its client sends something a connection costs next to nothing. Where it never does, reading
    // fails below.
    if stream.readable().await.is_ok() && allowance.begin(transport).await.is_err() {
        return;
    }
    let begun = Begun { stream, peer, is_balancer, activity, allowance };
    Box::pin(begun.serve(tls, context)).await;
}

/// A connection whose client has sent something.
struct Begun {
    stream: TimeoutStream,
    peer: SocketAddr,
    is_balancer: bool,
    activity: Activity,
    allowance: Arc<Allowance>,
}

impl Begun {
    async fn serve(self, tls: Option<Arc<ServerConfig>>, context: Context) {
        let Self { mut stream, peer, is_balancer, activity, allowance } = self;
        let client = if is_balancer {
            let behind = behind(&mut stream, peer, &allowance, &context);
            let Ok(client) = behind.await else { return };
            client
        } else {
            Some(peer)
        };
        let (address, is_own) = (client.unwrap_or(peer), client.is_none());
        let Some(tls) = tls else {
            activity.begin(Phase::FirstHead, Instant::now());
            let peer = Peer { address, transport: Transport::Plain };
            return http(stream, Requester { peer, activity, allowance }, context).await;
        };
        let stream = TurnStream::new(stream, address.into(), context.turns.clone());
        match Box::pin(handshake(stream, tls, allowance.encrypt_ahead())).await {
            Ok(stream) => {
                activity.begin(Phase::FirstHead, Instant::now());
                let peer = Peer { address, transport: Transport::Tls };
                let asked = Requester { peer, activity, allowance };
                Box::pin(http(stream, asked, context)).await;
            }
            Err(error) => handshake_failed(&error, address, is_own, &context),
        }
    }
}

fn handshake_failed(error: &io::Error, peer: SocketAddr, is_own: bool, context: &Context) {
    let failed = failed(error);
    if is_own && failed == Failed::Connection {
        // A balancer has looked whether anybody listens, and is no machine that broke off.
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

/// A connection that is to be closed.
struct NotKept;

/// Who is behind a balancer, which is who the connection's permit is counted for from now on; `None`
/// where the balancer names nobody.
async fn behind<S>(
    stream: &mut S,
    balancer: SocketAddr,
    allowance: &Allowance,
    context: &Context,
) -> Result<Option<SocketAddr>, NotKept>
where
    S: AsyncRead + Unpin,
{
    let client = match proxy_protocol::read(stream).await {
        Ok(None) => return Ok(None),
        Ok(Some(client)) => client,
        Err(error) => {
            context.metrics.proxy_header_failed(error.label());
            if context.unnamed.may_log(balancer.into()) {
                tracing::info!(%balancer, %error, "a balancer did not say whom it connects");
            }
            return Err(NotKept);
        }
    };
    match allowance.permit.pass_to(client.into(), Instant::now()) {
        Ok(shed) => {
            if let Some(shed) = shed {
                context.metrics.shed(shed.label());
            }
            Ok(Some(client))
        }
        // Ignition tries again.
        Err(shed) => {
            context.metrics.shed(shed.label());
            Err(NotKept)
        }
    }
}

/// Why a handshake failed. Clients differ in what they call a certificate that they do not trust: Go,
/// of which Ignition is made, calls it bad whatever is wrong with it.
fn failed(error: &io::Error) -> Failed {
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

/// TLS from its first byte to where HTTP begins.
async fn handshake(
    stream: TurnStream,
    tls: Arc<ServerConfig>,
    ahead: usize,
) -> io::Result<TlsStream<TurnStream>> {
    let accepting =
        TlsAcceptor::from(tls).accept_with(stream, |tls| tls.set_buffer_limit(Some(ahead)));
    let mut stream = accepting.await?;
    stream.get_mut().0.end_handshake();
    Ok(stream)
}

async fn http<S>(stream: S, asked: Requester, context: Context)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (limits, stop, peer) = (context.limits, context.stop.clone(), asked.peer.address);
    let context = Arc::new(context);
    let service = service_fn(move |request| {
        let (asked, context) = (asked.clone(), Arc::clone(&context));
        async move { Ok::<_, Infallible>(asked.answered(request, &context).await) }
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

/// What the requests of a connection have in common.
#[derive(Clone)]
struct Requester {
    peer: Peer,
    activity: Activity,
    allowance: Arc<Allowance>,
}

impl Requester {
    async fn answered(
        self,
        request: Request<Incoming>,
        context: &Context,
    ) -> Response<TrackedBody> {
        let Self { peer, activity, allowance } = self;
        let now = Instant::now();
        activity.begin(Phase::Answer, now);
        let is_last = activity.count_request() >= context.limits.requests
            || now.saturating_duration_since(activity.opened()) >= context.limits.age;
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let Ok(mut response) = context.router.clone().call(request).await;
        // A stream has no size; it goes out in parts, as what is too large to go out at once.
        let is_scarce =
            allowance.answer(size(&response).unwrap_or(u64::MAX)).await.unwrap_or_else(|_| {
                response = answer::refused(RefusalCode::Overloaded, NO_MEMORY.to_owned());
                true
            });
        activity.answer(size(&response).unwrap_or_default());
        let mut response = response.map(|body| TrackedBody::new(body, activity));
        if is_last || is_scarce {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response
    }
}

fn size(response: &Response<Body>) -> Option<u64> {
    http_body::Body::size_hint(response.body()).exact()
}
