//! Accepting connections, within limits, until told to stop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Context};
use super::routes::Routes;
use super::timeout_stream::Limits;

/// Connections that the kernel keeps for us before they are accepted; it has its own maximum.
const BACKLOG: u32 = 4096;
/// After an error that only time heals (no file descriptors left).
const BREATHER: Duration = Duration::from_millis(50);

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// The TLS configuration in force, swapped when the serving pair changes. `None` for the plain
    /// port; empty while there is no serving pair.
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
        // A restart must not wait for the connections of the server before it to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, tls })
    }

    /// The port that was bound.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }
}

/// All addresses of the machine: IPv6 and IPv4 through one socket, or IPv4 where the kernel has no
/// IPv6.
#[must_use]
pub fn any_address() -> IpAddr {
    let has_ipv6 = TcpSocket::new_v6()
        .and_then(|socket| socket.bind((Ipv6Addr::UNSPECIFIED, 0).into()))
        .is_ok();
    if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The server at work.
#[derive(Debug)]
pub struct Serving {
    routes: Arc<Routes>,
    limits: Limits,
    places: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Serving {
    /// A server that listens nowhere yet.
    #[must_use]
    pub fn new(routes: Arc<Routes>, limits: Limits) -> Self {
        Self {
            routes,
            limits,
            places: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Answers on `listener` from now on.
    pub fn listen(&self, listener: Listener) {
        let accepting = Accepting {
            context: Context {
                routes: Arc::clone(&self.routes),
                limits: self.limits,
                stop: self.stop.clone(),
            },
            places: Arc::clone(&self.places),
            tasks: self.tasks.clone(),
        };
        self.tasks.spawn(accepting.run(listener));
    }

    /// Stops accepting, finishes what is under way, and cuts off what takes longer than the limit.
    /// Tells whether everything was finished.
    pub async fn stop(&self) -> bool {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(self.limits.drain, self.tasks.wait()).await.is_ok()
    }
}

struct Accepting {
    context: Context,
    places: Arc<Semaphore>,
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
        loop {
            let (stream, peer) = match listener.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            // Taken after accepting: a listener that nobody connects to holds no place.
            let Some(place) = self.place().await else { return };
            let tls = match &listener.tls {
                None => None,
                Some(tls) => match tls.load_full() {
                    Some(config) => Some(config),
                    // Closing makes Ignition try again, which a handshake error does as well.
                    None => continue,
                },
            };
            self.serve(stream, peer, tls, place);
        }
    }

    /// A place within the limit of connections; `None` if the server is ending.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        self.context.routes.metrics.connections_waited.inc();
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        place: OwnedSemaphorePermit,
    ) {
        // Without it the last part of an answer waits for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let context = self.context.clone();
        self.tasks.spawn(async move {
            let connections = context.routes.metrics.connections.clone();
            connections.inc();
            connection::serve(stream, peer, tls, context).await;
            connections.dec();
            drop(place);
        });
    }
}
