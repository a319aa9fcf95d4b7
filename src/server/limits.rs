//! Limits of clients' connections.

use std::time::Duration;

/// The limits of a listener's connections. Reaching one closes that connection and no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Time from accepting a connection to the end of its TLS handshake. Default 10 s.
    pub(crate) handshake: Duration,
    /// Time from a request head's first byte to its last, and for the first head to begin. Default 10 s.
    pub(crate) head: Duration,
    /// Time from an answer's end to the next request. Default 60 s.
    pub(crate) idle: Duration,
    /// Time without progress of a client that receives an answer. Default 60 s.
    pub(crate) stall: Duration,
    /// Age after which the next answer is the last; one in progress may take as long again. Default 10 min.
    pub(crate) age: Duration,
    /// Maximum number of requests on one connection. Default 1,000.
    pub(crate) requests: u32,
    /// Maximum size of a request head, in bytes. Default 16 KiB.
    pub(crate) head_bytes: usize,
    /// Limits of concurrent connections.
    pub(crate) connections: ConnectionLimits,
    /// Time from the last accepted connection until busy ones are cut off. Default 30 s.
    pub(crate) drain: Duration,
}

/// Limits of concurrent connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Maximum number on all listeners. Default 10,000.
    pub(crate) all: usize,
    /// Maximum number of one source: an IPv4 address, or an IPv6 network of 64 bits. `None` if all machines come
    /// through one balancer. Default 1,000.
    pub(crate) source: Option<usize>,
    /// Maximum memory of all connections in bytes, in this process and in the kernel. Default 48 MiB.
    pub(crate) bytes: u64,
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
