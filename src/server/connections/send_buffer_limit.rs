//! Limits the memory for clients that do not read, in this process and in the kernel.
//!
//! By default the kernel buffers megabytes for each client, so a few hundred clients that never read can exhaust its
//! memory. With a small buffer, a config of 440 KB is sent in parts, and each part wakes the connection's task: a fifth
//! of the cost of a boot. So the first answer of a connection, which is all that a booting machine needs, is sent at
//! once, within a common limit; all other answers use the small buffer. In both cases the memory is counted for the
//! connection's permit, before the answer is sent, until the connection ends.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;
use telemetry::ConnectionMetrics;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::activity::Activity;
use super::connection_limiter::{Permit, Shed, Transport};

/// Maximum size of first answers that are sent at once, in KiB: 37 of 440 KB, 135 compact ones.
const ROOM: usize = 16 << 10;
/// Size up to which all answers of a connection together are not counted.
const SMALL: u64 = 16 << 10;
/// Memory of a connection with and without TLS, once its client has sent something.
const ACTIVE: [u64; 2] = [24 << 10, 20 << 10];
/// Maximum memory of TLS and HTTP for a large, incomplete handshake, or head and TLS record.
const INCOMPLETE: u64 = 64 << 10;
/// Send buffer of a bounded connection; the kernel doubles it for its own data.
const SEND_BUFFER: usize = 32 << 10;
/// Memory of the kernel for the send buffer and received data.
const BOUNDED: u64 = 72 << 10;
/// Receive buffer of each connection, which fits the largest head.
const RECEIVE_BUFFER: usize = 16 << 10;
/// Bytes that are encrypted ahead of the network. Twice the library's default saves system calls; more would exceed the
/// processor's cache.
const AHEAD: u64 = 128 << 10;
/// Bytes that are encrypted ahead when many answers are in progress.
const AHEAD_BOUNDED: u64 = 32 << 10;
/// Maximum wait of a connection or an answer for memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Intervals between attempts: the first and the longest.
const WAITS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(320)];

/// Room for first answers that are sent at once, one semaphore permit for each KiB.
#[derive(Debug, Clone)]
pub(super) struct SendBufferLimit(Arc<Semaphore>);

/// Memory that a connection may use for its client, for the router in the extensions of requests.
#[derive(Debug)]
pub(in crate::server) struct Allowance {
    room: SendBufferLimit,
    pub(super) permit: Permit,
    pub(super) activity: Activity,
    metrics: ConnectionMetrics,
    /// Bytes that are counted for the connection without its answers.
    begun: AtomicU64,
    /// Bytes that are counted for its answers.
    answers: AtomicU64,
    /// Bytes that TLS may encrypt ahead.
    ahead: AtomicU64,
    /// Held until the next answer, or the connection's end, because the kernel may still hold the data.
    at_once: Mutex<Option<OwnedSemaphorePermit>>,
    is_bounded: AtomicBool,
}

/// An answer whose memory was reserved before it was recorded, for the connection in the extensions of the response.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Reserved {
    pub(in crate::server) is_scarce: bool,
}

impl SendBufferLimit {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

impl Allowance {
    pub(super) fn new(
        room: SendBufferLimit,
        permit: Permit,
        activity: Activity,
        metrics: ConnectionMetrics,
    ) -> Self {
        Self {
            room,
            permit,
            activity,
            metrics,
            begun: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            at_once: Mutex::default(),
            is_bounded: AtomicBool::new(false),
        }
    }

    /// Counts the memory of a connection whose client has sent something. Waits for free memory, and fails after the
    /// maximum wait.
    pub(super) async fn reserve_connection(&self, transport: Transport) -> Result<(), Shed> {
        let begun = ACTIVE[usize::from(transport == Transport::Plain)];
        self.count_refused(retry(|now| self.set_memory(begun, 0, now)).await).map(|_| ())
    }

    /// Counts the memory of a larger handshake or head than machines send.
    pub(super) fn reserve_incomplete(&self) -> Result<(), Shed> {
        let begun = self.begun.load(Ordering::Relaxed) + INCOMPLETE;
        let answers = self.answers.load(Ordering::Relaxed);
        self.count_refused(self.set_memory(begun, answers, Instant::now())).map(|_| ())
    }

    /// Number of bytes that may be encrypted ahead.
    pub(super) fn encrypt_ahead(&self) -> usize {
        let has_room = self.room.0.available_permits() > ROOM / 4;
        let ahead = if has_room { AHEAD } else { AHEAD_BOUNDED };
        self.ahead.store(ahead, Ordering::Relaxed);
        usize::try_from(ahead).unwrap_or(usize::MAX)
    }

    /// Waits until an answer of so many bytes may be sent. Returns true if memory is scarce, and fails after the
    /// maximum wait.
    pub(in crate::server) async fn reserve_answer(&self, bytes: u64) -> Result<bool, Shed> {
        if self.activity.written().saturating_add(bytes) <= SMALL {
            return Ok(false);
        }
        self.count_refused(retry(|now| self.try_reserve(bytes, now)).await)
    }

    /// Takes the memory for an answer that is sent at once, or else for one in parts.
    fn try_reserve(&self, bytes: u64, now: Instant) -> Result<bool, Shed> {
        let begun = self.begun.load(Ordering::Relaxed);
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let is_first = self.activity.requests() == 1;
        let permit = is_first.then(|| Arc::clone(&self.room.0).try_acquire_many_owned(kib).ok());
        let mut at_once = lock(&self.at_once);
        if let Some(permit) = permit.flatten()
            && let Ok(is_scarce) = self.set_memory(begun, bytes, now)
        {
            *at_once = Some(permit);
            return Ok(is_scarce);
        }
        self.is_bounded.store(true, Ordering::Relaxed);
        *at_once = None;
        let ahead = self.ahead.load(Ordering::Relaxed);
        self.set_memory(begun, ahead + BOUNDED, now)
    }

    /// Counts the memory, and other connections that are closed for it. Returns true if memory is scarce.
    fn set_memory(&self, begun: u64, answers: u64, now: Instant) -> Result<bool, Shed> {
        let count = |shed: Shed| self.metrics.shed(shed.label());
        let is_scarce = self.permit.set_memory(begun + answers, now, count)?;
        self.begun.store(begun, Ordering::Relaxed);
        self.answers.store(answers, Ordering::Relaxed);
        Ok(is_scarce)
    }

    /// Counts this connection, which is closed: Ignition retries.
    fn count_refused<T>(&self, reserved: Result<T, Shed>) -> Result<T, Shed> {
        reserved.inspect_err(|shed| self.metrics.shed(shed.label()))
    }

    /// Returns `true` if the next writes must be bounded.
    pub(super) fn is_bounded(&self) -> bool {
        self.is_bounded.load(Ordering::Relaxed)
    }

    /// Returns `true` if the kernel can hold so little of the answers that it is not counted.
    pub(super) fn is_small(&self) -> bool {
        self.activity.written() <= SMALL
    }
}

/// Bounds the kernel's receive buffers of a listener's connections.
pub(super) fn set_receive_buffer(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_recv_buffer_size(RECEIVE_BUFFER)
}

/// Bounds the kernel's send buffer for a client.
pub(super) fn set_send_buffer(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_send_buffer_size(SEND_BUFFER)
}

/// Requests memory until it is free, or the maximum wait is over.
async fn retry<T>(mut ask: impl FnMut(Instant) -> Result<T, Shed>) -> Result<T, Shed> {
    let deadline = Instant::now() + TIMEOUT;
    let [mut wait, longest] = WAITS;
    loop {
        let now = Instant::now();
        match ask(now) {
            Err(_) if now < deadline => tokio::time::sleep(wait).await,
            answer => return answer,
        }
        wait = longest.min(2 * wait);
    }
}

/// Returns `true` if the kernel holds bytes that the client has no room for.
pub(super) fn has_unsent(socket: &impl AsFd) -> bool {
    // With a limit of one unsent byte, the socket is writable only if there is none.
    if SockRef::from(socket).set_tcp_notsent_lowat(1).is_err() {
        return false;
    }
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    matches!(poll(&mut polled, PollTimeout::ZERO), Ok(0))
}

/// Discards the kernel's data when the socket is closed.
pub(super) fn discard_on_close(socket: &impl AsFd) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
pub(in crate::server) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::server::connections::activity::Phase;
    use crate::server::connections::connection_limiter::{ConnectionLimiter, Source};
    use crate::server::connections::limits::ConnectionLimits;

    /// Makes allowances of connections that are being answered, with so much memory for all of them.
    pub(in crate::server) fn allowances(bytes: u64) -> impl Fn() -> Allowance {
        let limiter = ConnectionLimiter::new(ConnectionLimits { all: 100, source: None, bytes });
        let room = SendBufferLimit::new();
        move || {
            let activity = Activity::new(Instant::now());
            let permit =
                limiter.acquire(Source::Balancer, Transport::Tls, activity.clone(), Instant::now());
            activity.begin(Phase::Answer, Instant::now());
            activity.count_request();
            let metrics = ConnectionMetrics::default();
            Allowance::new(room.clone(), permit.unwrap().0, activity, metrics)
        }
    }

    #[tokio::test]
    async fn first_answers_go_out_at_once_as_long_as_there_is_room_for_all_of_each() {
        let allowance = allowances(1 << 30);
        let begin = async |bytes| {
            let allowance = allowance();
            allowance.reserve_answer(bytes).await.unwrap();
            allowance
        };
        let mut answers = Vec::new();
        for _ in 0..40 {
            answers.push(begin(442_000).await);
        }
        assert_eq!(answers.iter().filter(|it| !it.is_bounded()).count(), 37);
        // A smaller one fits in where a larger one does not; one beyond all room never does.
        let smaller = begin(100_000).await;
        assert!(!smaller.is_bounded());
        answers.clear();
        assert!(begin(1 << 40).await.is_bounded());
        // A second answer is bounded.
        smaller.activity.count_request();
        smaller.reserve_answer(100_000).await.unwrap();
        assert!(smaller.is_bounded());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_memory_and_in_the_end_its_client_comes_again() {
        let allowance = allowances(150 << 10);
        let (first, second) = (allowance(), allowance());
        first.reserve_answer(100 << 10).await.unwrap();
        assert_eq!(second.reserve_answer(100 << 10).await.unwrap_err(), Shed::Full);
        let later = async {
            tokio::time::sleep(TIMEOUT / 2).await;
            drop(first);
        };
        let (answered, ()) = tokio::join!(second.reserve_answer(100 << 10), later);
        assert!(answered.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_begins_waits_for_memory_too() {
        let allowance = allowances(150 << 10);
        let (first, second) = (allowance(), allowance());
        first.reserve_answer(140 << 10).await.unwrap();
        let later = async {
            tokio::time::sleep(TIMEOUT / 2).await;
            drop(first);
        };
        let (begun, ()) = tokio::join!(second.reserve_connection(Transport::Tls), later);
        assert_eq!(begun, Ok(()));
    }

    #[tokio::test]
    async fn what_is_kept_of_an_incomplete_head_is_counted_beside_answers() {
        let allowance = allowances(200 << 10)();
        allowance.reserve_connection(Transport::Tls).await.unwrap();
        allowance.reserve_incomplete().unwrap();
        allowance.reserve_answer(100 << 10).await.unwrap();
        assert_eq!(allowance.reserve_incomplete(), Err(Shed::Full));
        assert_eq!(allowance.permit.set_memory(201 << 10, Instant::now(), drop), Err(Shed::Full));
    }

    #[test]
    fn the_kernel_tells_whether_it_has_bytes_for_a_client_that_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        set_send_buffer(&socket).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.write_all(b"x").unwrap();
        assert!(!has_unsent(&socket));
        while socket.write(&[0; 4096]).is_ok() {}
        assert!(has_unsent(&socket));
        client.set_nonblocking(true).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(180);
        while has_unsent(&socket) {
            assert!(std::time::Instant::now() < deadline);
            let _ = client.read(&mut [0; 4 << 10]);
        }
    }
}
