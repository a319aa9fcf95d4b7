//! A proxy that can be cut or slow, for network faults on request.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    Open,
    /// Connections are accepted and stay open, and no bytes arrive.
    Silent,
    /// Connections are closed at once.
    Cut,
    /// The proxy ends.
    Gone,
}

/// A proxy of one server.
pub(crate) struct Proxy {
    address: SocketAddr,
    way: Arc<AtomicU8>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    started: Instant,
    /// Each connection's last byte of the client, in milliseconds since the start; [`FROZEN`] for one that is silent.
    clients: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

const FROZEN: u64 = u64::MAX;

impl Proxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        Self::start(server, None)
    }

    /// Starts a proxy that forwards so many bytes a second in each direction of each connection.
    pub(crate) fn slow(server: SocketAddr, bytes_a_second: u32) -> Self {
        Self::start(server, Some(bytes_a_second))
    }

    fn start(server: SocketAddr, bytes_a_second: Option<u32>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let way = Arc::new(AtomicU8::new(Way::Open as u8));
        let (connections, clients) = <(Arc<Mutex<Vec<TcpStream>>>, Arc<Mutex<Vec<_>>>)>::default();
        let proxy = Self {
            address,
            way: Arc::clone(&way),
            connections: Arc::clone(&connections),
            started: Instant::now(),
            clients: Arc::clone(&clients),
        };
        let started = proxy.started;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = way.load(Ordering::SeqCst);
                if state == Way::Gone as u8 {
                    return;
                }
                let server = TcpStream::connect(server);
                let (Ok(server), false) = (server, state == Way::Cut as u8) else { continue };
                let mut held = connections.lock().unwrap_or_else(PoisonError::into_inner);
                held.extend([&client, &server].map(|c| c.try_clone().expect("a second handle")));
                drop(held);
                let sent = Arc::new(AtomicU64::new(millis(started)));
                clients.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&sent));
                for (from, to, is_client) in [(&client, &server, true), (&server, &client, false)] {
                    let from = from.try_clone().expect("a second handle");
                    let to = to.try_clone().expect("a second handle");
                    let (way, sent) = (Arc::clone(&way), Arc::clone(&sent));
                    std::thread::spawn(move || {
                        let is_silent = || {
                            way.load(Ordering::SeqCst) == Way::Silent as u8
                                || sent.load(Ordering::SeqCst) == FROZEN
                        };
                        let note = || {
                            if is_client {
                                sent.store(millis(started), Ordering::SeqCst);
                            }
                        };
                        // Both sides see the end.
                        let _ = hand_on((&from, &to), is_silent, note, bytes_a_second);
                        let _ = from.shutdown(Shutdown::Both);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        proxy
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
        if matches!(way, Way::Cut | Way::Gone) {
            let mut held = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            for connection in held.drain(..) {
                // It may have ended already.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Proxy {
    /// Silences connections whose clients have sent nothing for a time, such as watches, and returns the number of silent
    /// ones. Others and new ones stay open.
    pub(crate) fn freeze_quiet(&self, quiet: Duration) -> usize {
        let now = millis(self.started);
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let is_frozen = |sent: &&Arc<AtomicU64>| {
            let last = sent.load(Ordering::SeqCst);
            if last != FROZEN && u128::from(now.saturating_sub(last)) >= quiet.as_millis() {
                sent.store(FROZEN, Ordering::SeqCst);
            }
            sent.load(Ordering::SeqCst) == FROZEN
        };
        clients.iter().filter(is_frozen).count()
    }
}

fn millis(started: Instant) -> u64 {
    started.elapsed().as_millis().try_into().expect("a test is shorter")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Way::Gone);
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn hand_on(
    (mut from, mut to): (&TcpStream, &TcpStream),
    is_silent: impl Fn() -> bool,
    note: impl Fn(),
    bytes_a_second: Option<u32>,
) -> io::Result<()> {
    // A slow connection forwards small pieces.
    let mut buffer = vec![0; if bytes_a_second.is_some() { 1 << 11 } else { 1 << 16 }];
    from.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut free_at = Instant::now();
    loop {
        if is_silent() {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                note();
                if let Some(rate) = bytes_a_second {
                    let length = u32::try_from(length).map_err(io::Error::other)?;
                    let takes = Duration::from_secs_f64(f64::from(length) / f64::from(rate));
                    free_at = free_at.max(Instant::now()) + takes;
                    std::thread::sleep(free_at.saturating_duration_since(Instant::now()));
                }
                to.write_all(&buffer[..length])?;
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}
