//! Metrics of a node's agent.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::connections::ConnectionMetrics;
use super::encode::{Label, encode};

metrics! {
    /// All metrics of a node's agent.
    #[derive(Debug)]
    pub struct NodeCaMetrics {
        pub registries: Gauge<i64, AtomicI64> = "node_ca_registries":
            "Registries with a CA in the merged ConfigMap",
        pub problems: Gauge<i64, AtomicI64> = "node_ca_problems":
            "Paths on the node that differ from the merged ConfigMap and cannot be repaired",
        pub changes: Counter = "node_ca_changes":
            "Writes and removals of a registry's files on the node",
        refused: Family<Label, Gauge> = "registry_ca_refused":
            "Refused entries of the merged ConfigMap, by reason",
        watch_failures: Family<Label, Counter> = "watch_failures":
            "Failed or forbidden watches, by kind of object",
        pub stale_since: Gauge = "source_stale_since_timestamp_seconds":
            "Time since which the merged ConfigMap cannot be watched, in seconds since 1970; 0 while it is watched",
        pub credentials: Gauge<i64, AtomicI64> = "node_ca_logins":
            "Registries with credentials in the Secret",
        pub credentials_refused: Gauge<i64, AtomicI64> = "node_ca_logins_refused":
            "Refused entries of the Secret with registry credentials",
        pub credential_problems: Gauge<i64, AtomicI64> = "node_ca_login_problems":
            "1 if the node's file of registry credentials differs from the Secret and cannot be repaired",
        pub credential_changes: Counter = "node_ca_login_changes":
            "Registry credentials that were written on the node or removed",
        /// Connections of administrators and Prometheus.
        pub connections: ConnectionMetrics,
    }
}

impl NodeCaMetrics {
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        encode(|registry| self.register(registry))
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.connections.register_administrators(registry);
        self.register_as("", registry);
    }

    /// The counter of failed watches of a kind (in the plural).
    pub fn watch_failures(&self, kind: &'static str) -> Counter {
        self.watch_failures.get_or_create_owned(&[("kind", kind)])
    }

    /// Records the reasons of refused entries of the merged ConfigMap, one for each entry.
    pub fn entries_refused(&self, reasons: impl Iterator<Item = &'static str>) {
        self.refused.clear();
        for reason in reasons {
            self.refused.get_or_create(&[("reason", reason)]).inc();
        }
    }
}
