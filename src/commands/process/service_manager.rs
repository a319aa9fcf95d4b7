//! Tells a service manager such as systemd when the process is ready, alive and stopping: `Type=notify` of a unit.
//!
//! The protocol is sd_notify(3): datagrams to the socket that the environment names. Without that name, nothing is sent.
//! The crate sd-notify is not used: it does not reach abstract sockets, which a manager can name as well.
//!
//! Files are followed as they change, so that there is no reload to report.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Reports to the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Ports are open and first inputs are read.
    Ready,
    /// A signal to stop has arrived.
    Stopping,
    /// The runtime still runs tasks.
    Alive,
}

impl Report {
    fn line(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
            Self::Alive => b"WATCHDOG=1",
        }
    }

    /// Sends the report if there is a service manager. A failure must not keep machines from booting: it is logged.
    pub(crate) fn send(self) {
        let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
        if let Err(error) = send(&socket, self.line()) {
            tracing::warn!(
                socket = %socket.display(),
                %error,
                fix = "let the service reach the socket: AF_UNIX in RestrictAddressFamilies=, and NotifyAccess=main",
                "cannot report to the service manager"
            );
        }
    }
}

fn send(socket: &OsStr, line: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let datagram = UnixDatagram::unbound()?;
    // A manager that does not read must not stop this process.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(line, &address).map(drop)
}

/// Reports the process as alive, twice in each of the manager's intervals, forever. Without an interval, nothing wakes.
pub(crate) async fn feed_watchdog() {
    let Some(period) = watchdog_period() else { return std::future::pending().await };
    let mut due = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    loop {
        due.tick().await;
        Report::Alive.send();
    }
}

/// Interval after which the manager takes a silent process for dead, if it watches this one.
fn watchdog_period() -> Option<Duration> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_other = number("WATCHDOG_PID").is_some_and(|id| id != u64::from(std::process::id()));
    let period = number("WATCHDOG_USEC").filter(|micros| *micros > 0 && !is_other)?;
    Some(Duration::from_micros(period))
}
