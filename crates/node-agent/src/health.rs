//! Reports the state of a node's files by readiness, metrics and log lines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::escape::and_more;
use model::registry_ca::{Entries, MANAGED_NAMESPACE, MERGED_MAP};
use model::registry_credentials;
use telemetry::NodeCaMetrics;
use telemetry::conditions::Status;
use telemetry::faults;

use super::reconciler::Report;

/// Kind of the ConfigMap in metrics, as in other commands.
const WATCHED: &str = "configmaps";
/// Kind of the Secret with registry credentials in metrics.
pub(super) const SECRETS: &str = "secrets";

/// Sinks for the state of the node's files.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Metrics of the node agent.
    pub metrics: Arc<NodeCaMetrics>,
    /// Conditions with reasons: a faulty path makes the node not ready; a missing ConfigMap keeps the present files.
    pub status: Status,
}

impl Health {
    /// Reports the entries of the Secret with registry credentials, or the reason why the present ones are kept.
    pub(super) fn secret(
        &self,
        place: &str,
        entries: Result<&registry_credentials::Entries, &str>,
    ) {
        let entries = match entries {
            Ok(entries) => entries,
            Err(reason) => {
                let kept = format!("{reason}; the credentials on the node remain");
                faults::NODE_CREDENTIALS.of(place).report(&self.status, Some(&kept));
                return;
            }
        };
        let condition = entries.refused.first().map(|first| {
            let more = and_more(entries.refused.len() - 1);
            format!("{first}{more}; the other entries are used")
        });
        // The log has each entry.
        faults::NODE_CREDENTIALS_PARTLY.of(place).report(&self.status, condition.as_deref());
        self.metrics.credentials.set(count(entries.good.len()));
        self.metrics.credentials_refused.set(count(entries.refused.len()));
    }

    /// Reports that the ConfigMap is followed.
    pub(super) fn watched(&self, map: Result<&Entries, &str>) {
        let condition = map.err().map(|reason| format!("{reason}; the files on the node remain"));
        faults::NODE_REGISTRIES.of(&map_name()).report(&self.status, condition.as_deref());
        self.metrics.stale_since.set(0);
        let Ok(entries) = map else { return };
        self.metrics.registries.set(count(entries.good.len()));
        self.metrics.entries_refused(entries.refused.iter().map(|entry| entry.reason.label()));
    }

    /// Reports why the ConfigMap cannot be watched.
    pub(super) fn unwatched(&self, reason: &str, now: SystemTime) {
        let condition = format!("cannot be watched ({reason}); the files on the node remain");
        faults::NODE_REGISTRIES
            .of(&map_name())
            .counted_by(&self.metrics.watch_failures(WATCHED))
            .report(&self.status, Some(&condition));
        if self.metrics.stale_since.get() == 0 {
            let since = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            self.metrics.stale_since.set(since.try_into().unwrap_or(i64::MAX));
        }
    }

    /// Reports the result of a check of the directory; `known` has the earlier problems.
    pub(super) fn registries_checked(&self, report: &Report, known: &BTreeMap<String, String>) {
        self.metrics.changes.inc_by((report.written.len() + report.removed.len()) as u64);
        self.metrics.problems.set(count(report.problems.len()));
        self.paths_checked(report, known);
    }

    /// Reports the result of a check of the credentials file; `known` has the earlier problems.
    pub(super) fn credentials_checked(&self, report: &Report, known: &BTreeMap<String, String>) {
        let changes = report.written.len() + report.removed.len();
        self.metrics.credential_changes.inc_by(changes as u64);
        self.metrics.credential_problems.set(i64::from(!report.problems.is_empty()));
        self.paths_checked(report, known);
    }

    fn paths_checked(&self, report: &Report, known: &BTreeMap<String, String>) {
        for (path, reason) in &report.problems {
            self.path_checked(path, Some(reason));
        }
        for path in known.keys().filter(|path| !report.problems.contains_key(*path)) {
            self.path_checked(path, None);
        }
    }

    /// Reports the problem of a path; `None` if it has none.
    fn path_checked(&self, path: &str, problem: Option<&str>) {
        faults::NODE_PATH.of(path).report(&self.status, problem);
    }
}

fn count(many: usize) -> i64 {
    many.try_into().unwrap_or(i64::MAX)
}

pub(super) fn map_name() -> String {
    format!("ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP}")
}
