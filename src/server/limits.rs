//! What clients may do, and for how long.

use std::time::Duration;

/// The limits of a listener's connections. Reaching one closes that connection and no other.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From accepting a connection to the end of its TLS handshake. Default 10 s.
    pub handshake: Duration,
    /// From a request head's first byte to its last, and for the first head to begin.
    /// Default 10 s.
    pub head: Duration,
    /// From an answer's end to the next request. Default 60 s.
    pub idle: Duration,
    /// Without a byte taken by a client that an answer is sent to. Default 60 s.
    pub stall: Duration,
    /// How old a connection gets: the next answer is its last, and one that is under way may take
    /// as long again. Default 10 min.
    pub age: Duration,
    /// Requests on one connection. Default 1,000.
    pub requests: u32,
    /// The largest request head, in bytes. Default 16 KiB.
    pub head_bytes: usize,
    /// Who may be connected.
    pub connections: ConnectionLimits,
    /// From the last accepted connection until those that are still busy are cut off. Default 30 s.
    pub drain: Duration,
}

/// How many may be connected at a time.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// All listeners together. Default 10,000.
    pub all: usize,
    /// One source: an IPv4 address, or an IPv6 network of 64 bits. `None` where all machines come
    /// through one balancer. Default 1,000.
    pub source: Option<usize>,
    /// Bytes that all connections together may take, in this process and for what the kernel holds for
    /// their clients. Default 48 MiB.
    pub bytes: u64,
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
    /// Those of a listener that only administrators, probes and Prometheus reach.
    #[must_use]
    pub fn of_administrators() -> Self {
        Self {
            connections: ConnectionLimits { all: 256, source: Some(64), bytes: 24 << 20 },
            ..Self::default()
        }
    }
}
