//! What administrators and Prometheus are told of a node's folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::registry_ca::{Entries, MANAGED_NAMESPACE, MERGED_MAP};
use model::registry_credentials;

use super::credential_keeper::CredentialReport;
use super::reconciler::Report;
use crate::telemetry::NodeCaMetrics;
use crate::telemetry::conditions::{Condition, Status};

/// The config map's kind, as the other commands count it.
const WATCHED: &str = "configmaps";
/// The kind of what holds registry logins.
pub(super) const SECRETS: &str = "secrets";

/// Shared by what keeps the folder and what tells of it.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// What is counted.
    pub metrics: Arc<NodeCaMetrics>,
    /// What is not as it should be, with the reason: a path of the folder is not ready; without the
    /// config map the node keeps what it has.
    pub status: Status,
}

impl Health {
    /// Notes what the secret with registry logins holds, or why the node keeps what it has.
    pub(super) fn secret(
        &self,
        place: &str,
        entries: Result<&registry_credentials::Entries, &str>,
    ) {
        let degraded = &self.status.degraded;
        let entries = match entries {
            Ok(entries) => entries,
            Err(reason) => {
                let kept = format!("{reason}; what is on the node is kept");
                Condition::failed(place.to_owned(), kept).report_failure(degraded, |_| {
                    tracing::error!(place, reason, "what is on the node is kept");
                });
                return;
            }
        };
        let condition = entries.refused.first().map(|first| {
            let more = match entries.refused.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            format!("{first}{more}; all else in it is used")
        });
        // The log has each entry.
        Condition::new(place.to_owned(), condition).note(degraded);
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.metrics.credentials.set(count(entries.good.len()));
        self.metrics.credentials_refused.set(count(entries.refused.len()));
    }

    /// Notes what a look at the file of registry logins has found and done.
    pub(super) fn credentials_looked(&self, path: &str, report: &CredentialReport) {
        self.metrics
            .credential_changes
            .inc_by((report.written.len() + report.removed.len()) as u64);
        self.metrics.credential_problems.set(report.problem.is_some().into());
        self.path_looked(path, report.problem.clone());
    }

    /// Notes that the config map is followed.
    pub(super) fn watched(&self, map: Result<&Entries, &str>) {
        let condition = map.err().map(|reason| format!("{reason}; what is on the node is kept"));
        Condition::new(map_name(), condition).note(&self.status.degraded);
        self.metrics.stale_since.set(0);
        let Ok(entries) = map else { return };
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.metrics.registries.set(count(entries.good.len()));
        self.metrics.entries_refused(entries.refused.iter().map(|entry| entry.reason.label()));
    }

    /// Notes that it is not, and why.
    pub(super) fn unwatched(&self, reason: &str, now: SystemTime) {
        let condition = format!("cannot be watched ({reason}); what is on the node is kept");
        Condition::failed(map_name(), condition)
            .counted_by(&self.metrics.watch_failures(WATCHED))
            .note(&self.status.degraded);
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
        for (path, reason) in &report.problems {
            self.path_looked(path, Some(reason.clone()));
        }
        for path in known.keys().filter(|path| !report.problems.contains_key(*path)) {
            self.path_looked(path, None);
        }
    }

    /// Notes why a path is not as it should be, or with `None` that it is.
    fn path_looked(&self, path: &str, problem: Option<String>) {
        Condition::new(path.to_owned(), problem).report(&self.status.not_ready, |reason| {
            if let Some(reason) = reason {
                tracing::error!(path, reason, "not as it should be");
            } else {
                tracing::info!(path, "in order again");
            }
        });
    }
}

fn map_name() -> String {
    format!("ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP}")
}
