//! Accepts connections within limits, until the server stops.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use common::parallel::processors;
use model::ledger::Ledger;
use rustls::ServerConfig;
use telemetry::{ConnectionMetrics, LogRateLimiter};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::connection::{self, Caller, Context};
use super::connection_limiter::{ConnectionLimiter, Source, Transport};
use super::handshake_queue::HandshakeQueue;
use super::limits::Limits;
use super::proxy_protocol::{Balancers, canonical};
use super::send_buffer_limit::{self, Allowance, SendBufferLimit};

/// Number of connections that the kernel queues before they are accepted; it has its own maximum.
const BACKLOG: u32 = 4096;
/// Pause after an error that passes with time, such as no free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Time after which a failure to accept connections is logged again.
const LOGGED_AGAIN: Duration = Duration::from_secs(60);

/// A bound port.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    /// TLS configuration in force, swapped when the serving certificate changes. `None` for the plain port; empty
    /// without a serving certificate.
    tls: Option<Arc<ArcSwapOption<ServerConfig>>>,
}

impl Listener {
    /// Binds `address`; port 0 takes any free port. Must be called within a runtime.
    pub(crate) fn bind(
        address: SocketAddr,
        tls: Option<Arc<ArcSwapOption<ServerConfig>>>,
    ) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // A restart must not wait for timeouts of the previous server's connections.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit these options. Without the first, the last part of an answer waits for the
        // client's acknowledgement.
        socket.set_nodelay(true)?;
        send_buffer_limit::set_receive_buffer(&socket)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, tls })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// All addresses of the machine: IPv6 and IPv4 through one socket, or IPv4 if the kernel has no IPv6.
pub(crate) fn any_address() -> IpAddr {
    let has_ipv6 = TcpSocket::new_v6()
        .and_then(|socket| socket.bind((Ipv6Addr::UNSPECIFIED, 0).into()))
        .is_ok();
    if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// A running server.
#[derive(Debug, Clone)]
pub(crate) struct Serving {
    context: Context,
    limiter: ConnectionLimiter,
    balancers: Balancers,
    tasks: TaskTracker,
}

impl Serving {
    /// Creates a server without listeners. It expects PROXY headers from `balancers`, and records failed handshakes in
    /// `ledger`.
    pub(crate) fn new(
        router: Router,
        limits: Limits,
        metrics: ConnectionMetrics,
        ledger: Option<Ledger>,
        balancers: Balancers,
    ) -> Self {
        Self {
            context: Context {
                router,
                limits,
                metrics,
                // As many handshakes at once.
                queue: HandshakeQueue::new(processors()),
                room: SendBufferLimit::new(),
                failures: Arc::new(LogRateLimiter::new("TLS handshakes that failed")),
                unnamed: Arc::new(LogRateLimiter::new("balancers' connections without a client")),
                ledger,
                stop: CancellationToken::new(),
            },
            limiter: ConnectionLimiter::new(limits.connections),
            balancers,
            tasks: TaskTracker::new(),
        }
    }

    /// Serves on `listener` from here on.
    pub(crate) fn listen(&self, listener: Listener) {
        let server = self.clone();
        self.tasks.spawn(async move {
            // Returning closes the socket, so that a client is refused rather than left waiting.
            tokio::select! {
                () = server.context.stop.cancelled() => {}
                () = server.accept(&listener) => {}
            }
        });
    }

    /// Stops accepting, finishes requests in progress, and cuts them off at the limit. Returns true if all were
    /// finished.
    pub(crate) async fn stop(&self) -> bool {
        self.context.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(self.context.limits.drain, self.tasks.wait()).await.is_ok()
    }

    async fn accept(&self, listener: &Listener) {
        let transport = if listener.tls.is_some() { Transport::Tls } else { Transport::Plain };
        let Context { room, metrics, .. } = &self.context;
        let mut logged: Option<Instant> = None;
        loop {
            let (stream, peer) = match listener.socket.accept().await {
                Ok((stream, peer)) => (stream, canonical(peer)),
                Err(error) => {
                    let now = Instant::now();
                    if logged.is_none_or(|at| now - at >= LOGGED_AGAIN) {
                        logged = Some(now);
                        tracing::warn!(
                            %error,
                            fix = "raise the limit that the error names, or lower --max-connections",
                            "cannot accept a connection"
                        );
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let tls = listener.tls.as_ref().map(|tls| tls.load_full());
            // Closing makes Ignition retry, as a handshake error does.
            if let Some(None) = tls {
                continue;
            }
            let now = Instant::now();
            let activity = Activity::new(now);
            let is_balancer = self.balancers.contains(peer.ip());
            let source = if is_balancer { Source::Balancer } else { peer.into() };
            match self.limiter.acquire(source, transport, activity.clone(), now) {
                Ok((permit, shed)) => {
                    if let Some(shed) = shed {
                        metrics.shed(shed.label());
                    }
                    let (room, metrics) = (room.clone(), metrics.clone());
                    let allowance = Arc::new(Allowance::new(room, permit, activity, metrics));
                    let caller = Caller { peer, is_balancer, allowance };
                    self.serve(stream, caller, tls.flatten());
                }
                // Ignition retries.
                Err(shed) => metrics.shed(shed.label()),
            }
        }
    }

    fn serve(&self, stream: TcpStream, caller: Caller, tls: Option<Arc<ServerConfig>>) {
        let context = self.context.clone();
        let id = caller.allowance.permit.id;
        let task = self.tasks.spawn(async move {
            let _open = context.metrics.opened();
            connection::serve(stream, caller, tls, context).await;
        });
        self.limiter.set_task(id, task.abort_handle());
    }
}
