//! Accepts connections within limits, until the server stops.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use model::ledger::Ledger;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::connection::{self, Caller, Context};
use super::connection_limiter::{ConnectionLimiter, Source, Transport};
use super::limits::Limits;
use super::proxy_protocol::{Balancers, canonical};
use super::send_buffer_limit::{self, SendBufferLimit};
use super::turns::Turns;
use crate::telemetry::{ConnectionMetrics, LogRateLimiter};

/// Number of connections that the kernel queues before they are accepted; it has its own maximum.
const BACKLOG: u32 = 4096;
/// Pause after an error that passes with time, such as no free file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// TLS configuration in force, swapped when the serving certificate changes. `None` for the plain port; empty
    /// without a serving certificate.
    tls: Option<Arc<ArcSwapOption<ServerConfig>>>,
}

impl Listener {
    /// Binds `address`; port 0 takes any free port. Must be called within a runtime.
    pub fn bind(
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
        send_buffer_limit::bound_received(&socket)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, tls })
    }

    /// Bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Bound port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }
}

/// All addresses of the machine: IPv6 and IPv4 through one socket, or IPv4 if the kernel has no IPv6.
#[must_use]
pub fn any_address() -> IpAddr {
    let has_ipv6 = TcpSocket::new_v6()
        .and_then(|socket| socket.bind((Ipv6Addr::UNSPECIFIED, 0).into()))
        .is_ok();
    if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    context: Context,
    limiter: ConnectionLimiter,
    balancers: Balancers,
    tasks: TaskTracker,
}

/// Number of concurrent handshakes.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Serving {
    /// Creates a server without listeners.
    #[must_use]
    pub fn new(router: Router, limits: Limits, metrics: ConnectionMetrics) -> Self {
        Self {
            context: Context {
                router,
                limits,
                metrics,
                turns: Turns::new(processors()),
                room: SendBufferLimit::new(),
                failures: Arc::new(LogRateLimiter::new("TLS handshakes that failed")),
                unnamed: Arc::new(LogRateLimiter::new("balancers' connections without a client")),
                ledger: None,
                stop: CancellationToken::new(),
            },
            limiter: ConnectionLimiter::new(limits.connections),
            balancers: Balancers::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Records failed handshakes in `ledger`.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.context.ledger = Some(ledger);
        self
    }

    /// Expects PROXY headers from these balancers.
    #[must_use]
    pub fn with_balancers(mut self, balancers: Balancers) -> Self {
        self.balancers = balancers;
        self
    }

    /// Serves on `listener` from here on.
    pub fn listen(&self, listener: Listener) {
        let accepting = Accepting {
            context: self.context.clone(),
            limiter: self.limiter.clone(),
            balancers: self.balancers.clone(),
            tasks: self.tasks.clone(),
        };
        self.tasks.spawn(accepting.run(listener));
    }

    /// Stops accepting, finishes requests in progress, and cuts them off at the limit. Returns true if all were
    /// finished.
    pub async fn stop(&self) -> bool {
        self.context.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(self.context.limits.drain, self.tasks.wait()).await.is_ok()
    }
}

struct Accepting {
    context: Context,
    limiter: ConnectionLimiter,
    balancers: Balancers,
    tasks: TaskTracker,
}

impl Accepting {
    async fn run(self, listener: Listener) {
        let stop = self.context.stop.clone();
        // Returning closes the socket, so that a client is refused rather than left waiting.
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept(&listener) => {}
        }
    }

    async fn accept(&self, listener: &Listener) {
        let transport = if listener.tls.is_some() { Transport::Tls } else { Transport::Plain };
        loop {
            let (stream, peer) = match listener.socket.accept().await {
                Ok((stream, peer)) => (stream, canonical(peer)),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        fix = "raise the limit that the error names, or lower --max-connections",
                        "cannot accept a connection"
                    );
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let tls = match &listener.tls {
                None => None,
                Some(tls) => match tls.load_full() {
                    Some(config) => Some(config),
                    // Closing makes Ignition retry, as a handshake error does.
                    None => continue,
                },
            };
            let now = Instant::now();
            let activity = Activity::new(now);
            let is_balancer = self.balancers.contain(peer.ip());
            let source = if is_balancer { Source::Balancer } else { peer.into() };
            match self.limiter.take(source, transport, activity.clone(), now) {
                Ok((permit, shed)) => {
                    if let Some(shed) = shed {
                        self.context.metrics.shed(shed.label());
                    }
                    self.serve(stream, Caller { peer, is_balancer, activity, permit }, tls);
                }
                // Ignition retries.
                Err(shed) => self.context.metrics.shed(shed.label()),
            }
        }
    }

    fn serve(&self, stream: TcpStream, caller: Caller, tls: Option<Arc<ServerConfig>>) {
        let context = self.context.clone();
        let id = caller.permit.id();
        let task = self.tasks.spawn(async move {
            let _open = context.metrics.opened();
            connection::serve(stream, caller, tls, context).await;
        });
        self.limiter.served_by(id, task.abort_handle());
    }
}
