//! Metrics of a listener's connections.

use std::sync::atomic::AtomicI64;

use model::ledger::Failed;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::encode::Label;

metrics! {
    /// The connections of one or more listeners.
    #[derive(Debug, Clone)]
    pub struct ConnectionMetrics {
        open: Gauge<i64, AtomicI64> = "connections":
            "Open connections",
        shed: Family<Label, Counter> = "connections_shed":
            "Connections that were closed or refused, by reason: the source has its maximum (source_full), \
            all places or all memory are in use (full), another connection needed the place of one that \
            waited for its client (idle: between two requests; silent: before the first request; unread: \
            the client read its answer more slowly than machines do)",
        handshake_failures: Family<Label, Counter> = "handshake_failures":
            "Failed TLS handshakes, by reason: the client does not trust the certificate (Untrusted), \
            offers no allowed version or cipher suite (Tls), takes too long (Timeout), closes the \
            connection (Connection)",
        proxy_header_failures: Family<Label, Counter> = "proxy_header_failures":
            "Connections of load balancers that were closed without a valid PROXY header, by reason: other \
            data arrived (absent), the header is invalid (malformed, too_long), it did not arrive in time \
            (timeout) or the connection ended before (connection)",
    }
}

/// Guard that counts a connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Gauge<i64, AtomicI64>);

impl ConnectionMetrics {
    pub fn opened(&self) -> OpenConnection {
        self.open.inc();
        OpenConnection(self.open.clone())
    }

    pub fn shed(&self, reason: &'static str) {
        self.shed.get_or_create(&[("reason", reason)]).inc();
    }

    pub fn handshake_failed(&self, failed: Failed) {
        self.handshake_failures.get_or_create(&[("reason", failed.label())]).inc();
    }

    /// Counts a balancer's connection without a valid PROXY header.
    pub fn proxy_header_failed(&self, reason: &'static str) {
        self.proxy_header_failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Registers the metrics as those of administrators.
    pub(super) fn register_administrators(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("administrators");
        self.register_as("Of administrators: ", registry);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
