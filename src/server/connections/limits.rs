//! Limits of clients' connections.

use std::time::Duration;

use clap::Args;
use clap::builder::{RangedI64ValueParser, TypedValueParser as _};
use common::flags::duration;

/// The limits of a listener's connections. Reaching one closes that connection and no other.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    // From accepting the connection on: a PROXY header and waiting for a turn are part of it.
    /// Time for a TLS handshake: 10s, 500ms, 1m 30s, or a number of seconds
    #[arg(long = "handshake-timeout", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) handshake: Duration,
    // From its first byte on; the first one also has to begin in this time.
    /// Time for a request's head
    #[arg(long = "head-timeout", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) head: Duration,
    /// Time from an answer to the next request on its connection
    #[arg(long = "idle-timeout", value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) idle: Duration,
    /// Time without progress after which a client that does not read its answer is disconnected
    #[arg(long = "stall-timeout", value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) stall: Duration,
    // From closing the listeners on; then busy connections are cut off.
    /// Time for open connections to finish after --shutdown-delay
    #[arg(long = "drain-timeout", value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) drain: Duration,
    /// Largest request head in bytes
    #[arg(long = "max-head-bytes", value_name = "BYTES", default_value = "16384",
        value_parser = RangedI64ValueParser::<usize>::new().range(8192..=1_048_576))]
    pub(crate) head_bytes: usize,
    #[command(flatten)]
    pub(crate) connections: ConnectionLimits,
    /// Maximum number of requests on one connection
    #[arg(long = "max-requests-per-connection", value_name = "N", default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,
    /// Maximum age of a connection; an answer in progress then gets the same time again
    #[arg(long = "max-connection-age", value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(crate) age: Duration,
}

/// Limits of concurrent connections.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of connections; above it, the server closes the connection that was idle longest
    #[arg(long = "max-connections", value_name = "N", default_value = "10000",
        value_parser = RangedI64ValueParser::<usize>::new().range(1..=u32::MAX.into()))]
    pub(crate) all: usize,
    /// Maximum number of connections from one IPv4 address, or one IPv6 network of 64 bits; 0 for no limit,
    /// if all machines come through one load balancer
    #[arg(long = "max-connections-per-source", value_name = "N", default_value = "1000",
        value_parser = RangedI64ValueParser::<usize>::new().range(0..=u32::MAX.into()).map(limit))]
    pub(crate) source: MaybeLimit,
    // In bytes.
    /// Memory in MiB for all connections together, including the kernel's buffers; past it answers wait, and
    /// clients that do not read are disconnected
    #[arg(long = "max-connection-memory", value_name = "MIB", default_value = "48",
        value_parser = RangedI64ValueParser::<u64>::new().range(8..=65_536).map(|mib: u64| mib << 20))]
    pub(crate) bytes: u64,
}

/// A limit that can be off. By this name, clap does not take the flag itself as optional.
type MaybeLimit = Option<usize>;

/// The limit of a flag that takes 0 for none.
fn limit(most: usize) -> MaybeLimit {
    (most != 0).then_some(most)
}

/// Maximum number of files that a server opens apart from the connections of machines.
const OTHER_FILES: u64 = 500;

impl ConnectionLimits {
    /// These limits in a process that may open so many files at once. Without a free one, no connection is accepted, and
    /// none that is idle is closed for it.
    pub(crate) fn within(self, files: u64) -> Self {
        let most = files - (files / 4).min(OTHER_FILES);
        Self { all: self.all.min(usize::try_from(most).unwrap_or(usize::MAX)), ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            age: Duration::from_secs(600),
            requests: 1_000,
            head_bytes: 16 << 10,
            connections: ConnectionLimits { all: 10_000, source: Some(1_000), bytes: 48 << 20 },
            drain: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Limits of a listener for administrators, probes and Prometheus.
    pub(crate) fn of_administrators() -> Self {
        Self {
            connections: ConnectionLimits { all: 256, source: Some(64), bytes: 24 << 20 },
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest_of_the_server() {
        let limits = Limits::default().connections;
        for (files, all) in [(u64::MAX, 10_000), (10_500, 10_000), (4_096, 3_596), (400, 300)] {
            assert_eq!(limits.within(files).all, all, "{files}");
        }
    }
}
