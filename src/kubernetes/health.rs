//! Reports the state of controllers by readiness, metrics and log lines.

use std::sync::Arc;

use super::error::{ControlError, api_reason};
use super::seen::{Cause, Failure};
use super::write::{Malformed, ObjectName};
use crate::telemetry::ControllerMetrics;
use crate::telemetry::conditions::{Condition, Status};

/// Sinks for the state of controllers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// Conditions for readiness, one line each.
    pub status: Status,
    pub metrics: Arc<ControllerMetrics>,
}

impl Health {
    pub(crate) fn recovered(&self, subject: &'static str) {
        Condition::ok(subject).report(&self.status.not_ready, |_| {
            tracing::info!(controller = subject, "reconciliation succeeds again");
        });
    }

    pub(crate) fn failed(&self, subject: &'static str, error: &ControlError) {
        let condition = Condition::failed(subject, error.to_string());
        condition.counted_by(&self.metrics.failures).report_failure(
            &self.status.not_ready,
            |error| {
                tracing::error!(
                    controller = subject,
                    error,
                    fix = "correct the object that the error names",
                    "reconciliation failed, retrying"
                );
            },
        );
    }

    /// Reports why the object that configures `thing` cannot be followed; `None` if it can.
    pub(crate) fn can_follow(&self, thing: &'static str, error: Option<&Malformed>) {
        let condition = Condition::new(thing, error.map(ToString::to_string));
        condition.report(&self.status.not_ready, |reason| {
            if let Some(reason) = reason {
                tracing::error!(
                    what = thing,
                    reason,
                    fix = "correct the object that the reason names",
                    "cannot follow the cluster's configuration"
                );
            } else {
                tracing::info!(what = thing, "follows the cluster's configuration again");
            }
        });
    }

    pub(crate) fn watch_works(&self, object: &ObjectName) {
        Condition::ok(object.to_string()).report(&self.status.not_ready, |_| {
            tracing::info!(%object, "watch works again");
        });
    }

    pub(crate) fn watch_failed(&self, object: &ObjectName, failure: &Failure) {
        let Failure { reason, cause } = failure;
        if *cause == Cause::NoSuchKind {
            // A cluster without the kind has no objects of it.
            Condition::ok(object.to_string()).note(&self.status.not_ready);
            tracing::debug!(%object, "the API server does not have this kind");
            return;
        }
        let condition =
            Condition::failed(object.to_string(), format!("cannot be watched: {reason}"));
        let failures = self.metrics.watch_failures(object.kind.name);
        condition.counted_by(&failures).report_failure(&self.status.not_ready, |_| {
            tracing::error!(
                %object,
                kind = object.kind.name,
                reason,
                fix = failure.fix(),
                "cannot watch the object, retrying"
            );
        });
    }

    /// Reports why the Lease is not accessible; `None` if it is.
    pub(crate) fn lease(&self, object: &ObjectName, error: Option<&kube::Error>) {
        let condition = Condition::new(object.to_string(), error.map(api_reason));
        condition.report(&self.status.not_ready, |reason| {
            if let Some(reason) = reason {
                tracing::error!(
                    %object,
                    reason,
                    fix = "grant the service account get, create and update of Leases, and check the API server",
                    "cannot use the Lease, retrying"
                );
            } else {
                tracing::info!(%object, "Lease is usable again");
            }
        });
    }
}
