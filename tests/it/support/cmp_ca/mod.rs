//! A small CA that speaks CMPv2 over HTTP, and misbehaves on request. It uses the message crates with additions, and
//! none of the code under test; `openssl cmp` as its client proves that it speaks the protocol.

mod answers;
mod encoding;
mod http;
mod pairs;
mod protection;
mod quirk;
mod requests;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustls::ServerConfig;

use self::pairs::{Pair, tls};
pub(crate) use self::quirk::Quirk;

pub(crate) const SECRET: &str = "a password";
pub(crate) const REFERENCE: &str = "4711";
/// Sender of the answers.
pub(crate) const NAME: &str = "CN=issuing";
const NONCE: &[u8] = b"nonce of the CA.";

/// Events that a CA saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A request, by the number of its body; true if it is protected by a password.
    Request {
        kind: u8,
        by_password: bool,
    },
    /// A poll.
    Poll,
    /// A confirmation, and a rejection with its text.
    Confirmed,
    Rejected(String),
    /// A message while the CA was unavailable.
    TurnedAway,
}

/// A transaction that is open.
#[derive(Default)]
struct Open {
    kind: u8,
    first_nonce: Vec<u8>,
    issued: Vec<u8>,
    polls: usize,
}

struct Shared {
    quirk: Mutex<Quirk>,
    root: Pair,
    issuing: Pair,
    unknown_ca: Pair,
    machine: Pair,
    seen: Mutex<Vec<Seen>>,
    /// Open transactions by ID.
    open: Mutex<BTreeMap<Vec<u8>, Open>>,
    /// Serial numbers of the last certificates.
    serials: Mutex<Vec<Vec<u8>>>,
    ended: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

impl Shared {
    fn quirk(&self) -> Quirk {
        *lock(&self.quirk)
    }
}

/// A listening CA, which ends when the value is dropped.
pub(crate) struct CmpCa {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CmpCa {
    pub(crate) fn start(quirk: Quirk) -> Self {
        Self::start_with(quirk, false)
    }

    /// Starts a CA over TLS, with a certificate of its root for localhost.
    pub(crate) fn start_tls() -> Self {
        Self::start_with(Quirk::None, true)
    }

    fn start_with(quirk: Quirk, is_tls: bool) -> Self {
        let root = Pair::new("root", None, true);
        let issuing = Pair::new("issuing", Some(&root), true);
        let unknown = Pair::new("root", None, true);
        let unknown_ca = Pair::new("issuing", Some(&unknown), true);
        let machine = Pair::new("machine", Some(&issuing), false);
        let tls = is_tls.then(|| tls(&root));
        let shared = Arc::new(Shared {
            quirk: Mutex::new(quirk),
            root,
            issuing,
            unknown_ca,
            machine,
            seen: Mutex::default(),
            open: Mutex::default(),
            serials: Mutex::default(),
            ended: AtomicBool::new(false),
            tls,
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                // Some tests are about clients that disconnect.
                let _ = serving.serve(socket);
            }
        }));
        Self { address, shared, thread }
    }

    /// Behaves like this from now on.
    pub(crate) fn behave(&self, quirk: Quirk) {
        *lock(&self.shared.quirk) = quirk;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Root and issuing CA in PEM.
    pub(crate) fn root(&self) -> String {
        pem(&self.shared.root.der)
    }

    pub(crate) fn issuing(&self) -> String {
        pem(&self.shared.issuing.der)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for CmpCa {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pem(der: &[u8]) -> String {
    pki::certificate::certificate_pem(der)
}
