//! What administrators and Prometheus are told of a node's folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{SystemTime, UNIX_EPOCH};

use model::registry_ca::{Entries, MANAGED_NAMESPACE, MERGED_MAP};
use model::registry_credentials;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::login_keeper::LoginReport;
use super::reconciler::Report;
use crate::telemetry::ConnectionMetrics;
use crate::telemetry::conditions::Status;

/// The config map's kind, as the other commands count it.
const WATCHED: &str = "configmaps";
/// The kind of what holds registry logins.
const SECRETS: &str = "secrets";

/// Shared by what keeps the folder and what tells of it.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// What is counted.
    pub metrics: Arc<NodeCaMetrics>,
    /// What is not as it should be, with the reason: a path of the folder is not ready; without the
    /// config map the node keeps what it has.
    pub status: Status,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    kind: &'static str,
}

/// All metrics of a node's agent.
#[derive(Debug, Default)]
pub struct NodeCaMetrics {
    /// Connections of administrators and Prometheus.
    pub connections: ConnectionMetrics,
    registries: Gauge<i64, AtomicI64>,
    problems: Gauge<i64, AtomicI64>,
    changes: Counter,
    refused: Family<Refusal, Gauge>,
    watch_failures: Family<Watched, Counter>,
    stale_since: Gauge,
    logins: Gauge<i64, AtomicI64>,
    logins_refused: Gauge<i64, AtomicI64>,
    login_problems: Gauge<i64, AtomicI64>,
    login_changes: Counter,
}

impl NodeCaMetrics {
    /// All metrics as text.
    ///
    /// # Errors
    /// None that a `String` can cause.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("mcs");
        self.connections.register(registry.sub_registry_with_prefix("administrators"));
        registry.register(
            "node_ca_registries",
            "Registries whose authorities the merged config map has for this node",
            self.registries.clone(),
        );
        registry.register(
            "node_ca_problems",
            "Paths on the node that are not as the merged config map says, and are not mended",
            self.problems.clone(),
        );
        registry.register(
            "node_ca_changes",
            "Registries whose files on the node were written or removed",
            self.changes.clone(),
        );
        registry.register(
            "registry_ca_refused",
            "Entries of the merged config map that are refused now, by reason",
            self.refused.clone(),
        );
        registry.register(
            "watch_failures",
            "Watches that failed or were forbidden, by the kind of their objects",
            self.watch_failures.clone(),
        );
        registry.register(
            "source_stale_since_timestamp_seconds",
            "Since when the merged config map cannot be followed, in seconds since 1970; 0 while it is",
            self.stale_since.clone(),
        );
        registry.register(
            "node_ca_logins",
            "Registries whose logins the secret has for this node",
            self.logins.clone(),
        );
        registry.register(
            "node_ca_logins_refused",
            "Entries of the secret with registry logins that are refused now",
            self.logins_refused.clone(),
        );
        registry.register(
            "node_ca_login_problems",
            "Whether the node's file of registry logins is not as the secret says, and is not mended",
            self.login_problems.clone(),
        );
        registry.register(
            "node_ca_login_changes",
            "Registry logins that were written on the node or taken out",
            self.login_changes.clone(),
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl NodeCaMetrics {
    /// Counts a failed watch of the secret with registry logins.
    pub(super) fn secret_unwatched(&self) {
        self.watch_failures.get_or_create(&Watched { kind: SECRETS }).inc();
    }
}

impl Health {
    /// Notes what the secret with registry logins holds, or why the node keeps what it has.
    pub(super) fn secret(
        &self,
        place: &str,
        entries: Result<&registry_credentials::Entries, &str>,
    ) {
        let condition = match entries {
            Ok(entries) => entries.refused.first().map(|first| {
                let more = match entries.refused.len() - 1 {
                    0 => String::new(),
                    more => format!(" (and {more} more)"),
                };
                format!("{first}{more}; all else in it is used")
            }),
            Err(reason) => Some(format!("{reason}; what is on the node is kept")),
        };
        self.status.degraded.set(place.to_owned(), condition);
        let Ok(entries) = entries else { return };
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.metrics.logins.set(count(entries.good.len()));
        self.metrics.logins_refused.set(count(entries.refused.len()));
    }

    /// Notes what a look at the file of registry logins has found and done.
    pub(super) fn logins_looked(&self, path: &str, report: &LoginReport) {
        self.metrics.login_changes.inc_by((report.written.len() + report.removed.len()) as u64);
        self.metrics.login_problems.set(report.problem.is_some().into());
        self.status.not_ready.set(path.to_owned(), report.problem.clone());
    }

    /// Notes that the config map is followed.
    pub(super) fn watched(&self, map: Result<&Entries, &str>) {
        let condition = map.err().map(|reason| format!("{reason}; what is on the node is kept"));
        self.status.degraded.set(map_name(), condition);
        self.metrics.stale_since.set(0);
        let Ok(entries) = map else { return };
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.metrics.registries.set(count(entries.good.len()));
        self.metrics.refused.clear();
        for entry in &entries.refused {
            self.metrics.refused.get_or_create(&Refusal { reason: entry.reason.label() }).inc();
        }
    }

    /// Notes that it is not, and why.
    pub(super) fn unwatched(&self, reason: &str, now: SystemTime) {
        self.metrics.watch_failures.get_or_create(&Watched { kind: WATCHED }).inc();
        let condition = format!("cannot be watched ({reason}); what is on the node is kept");
        self.status.degraded.set(map_name(), Some(condition));
        if self.metrics.stale_since.get() == 0 {
            let since = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            self.metrics.stale_since.set(since.try_into().unwrap_or(i64::MAX));
        }
    }

    /// Notes what a look at the folder has found and done; `known` is what was not in order before it.
    pub(super) fn looked(&self, report: &Report, known: &BTreeMap<String, String>) {
        self.metrics.changes.inc_by((report.written.len() + report.removed.len()) as u64);
        let problems = i64::try_from(report.problems.len()).unwrap_or(i64::MAX);
        self.metrics.problems.set(problems);
        for path in known.keys().filter(|path| !report.problems.contains_key(*path)) {
            self.status.not_ready.set(path.clone(), None);
        }
        for (path, reason) in &report.problems {
            self.status.not_ready.set(path.clone(), Some(reason.clone()));
        }
    }
}

fn map_name() -> String {
    format!("ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP}")
}
