//! What is counted of a listener's connections.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a TLS handshake came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// The client spoke no TLS, or none that is allowed here, or did not trust the certificate.
    Tls,
    /// The connection broke.
    Connection,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    reason: HandshakeFailure,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShedLabels {
    reason: &'static str,
}

/// The connections of one or more listeners.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics {
    open: Gauge<i64, AtomicI64>,
    shed: Family<ShedLabels, Counter>,
    handshake_failures: Family<HandshakeLabels, Counter>,
}

/// A connection that is counted as open until this is dropped.
#[derive(Debug)]
pub struct Open(Gauge<i64, AtomicI64>);

impl ConnectionMetrics {
    /// Counts a connection as open.
    #[must_use]
    pub fn opened(&self) -> Open {
        self.open.inc();
        Open(self.open.clone())
    }

    /// Counts a connection that was not kept, because of `reason`.
    pub fn shed(&self, reason: &'static str) {
        self.shed.get_or_create(&ShedLabels { reason }).inc();
    }

    /// Counts a handshake that failed.
    pub fn handshake_failed(&self, reason: HandshakeFailure) {
        self.handshake_failures.get_or_create(&HandshakeLabels { reason }).inc();
    }

    /// Has `registry` write them out.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Connections that are open", self.open.clone());
        registry.register(
            "connections_shed",
            "Connections that were not kept, by reason: the source has as many as it may \
             (source_full), all places are taken (full), another one needed the place of one that waited for \
             its client (idle: between two requests; silent: before the first; unread: to take its answer)",
            self.shed.clone(),
        );
        registry.register(
            "handshake_failures",
            "TLS handshakes that failed, by reason",
            self.handshake_failures.clone(),
        );
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
