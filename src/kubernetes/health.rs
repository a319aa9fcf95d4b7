//! Readiness, counts and log lines of what works with the API server.

use std::sync::Arc;

use super::error::{ControlError, api_reason};
use super::watch::{Cause, Failure};
use super::write::{Malformed, ObjectName};
use crate::telemetry::ControllerMetrics;
use crate::telemetry::conditions::Status;

/// What an administrator is told about how the controllers get on: log, metrics, readiness.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// What is not in order, one line each.
    pub status: Status,
    /// What is counted.
    pub metrics: Arc<ControllerMetrics>,
}

impl Health {
    pub(crate) fn in_order(&self, keeps: &'static str) {
        if self.status.not_ready.set(keeps, None) {
            tracing::info!("the {keeps} are in order again");
        }
    }

    pub(crate) fn not_in_order(&self, keeps: &'static str, error: &ControlError) {
        self.metrics.failures.inc();
        let error = error.to_string();
        if self.status.not_ready.set(keeps, Some(error.clone())) {
            tracing::error!(error, "the {keeps} are not in order; trying again");
        }
    }

    /// Notes why the object that says what `thing` should be cannot be followed, or with `None`
    /// that it can.
    pub(crate) fn can_follow(&self, thing: &'static str, error: Option<&Malformed>) {
        let reason = error.map(ToString::to_string);
        if !self.status.not_ready.set(thing, reason.clone()) {
            return;
        }
        if let Some(reason) = reason {
            tracing::error!(reason, "the {thing} cannot be as they should");
        } else {
            tracing::info!("the {thing} can be as they should again");
        }
    }

    pub(crate) fn watch_works(&self, object: &ObjectName) {
        if self.status.not_ready.set(object.to_string(), None) {
            tracing::info!(%object, "watched again");
        }
    }

    pub(crate) fn watch_failed(&self, object: &ObjectName, failure: &Failure) {
        let Failure { reason, cause } = failure;
        if *cause == Cause::NoSuchKind {
            // A cluster without the kind has none of its objects.
            self.status.not_ready.set(object.to_string(), None);
            tracing::debug!(%object, "the cluster has no such kind");
            return;
        }
        self.metrics.watch_failed(object.kind);
        let told = format!("it cannot be watched: {reason}");
        if self.status.not_ready.set(object.to_string(), Some(told)) {
            tracing::error!(%object, kind = object.kind, reason, "it cannot be watched; trying again");
        }
    }

    /// Notes why the Lease cannot be had, or with `None` that it can.
    pub(crate) fn lease(&self, object: &ObjectName, error: Option<&kube::Error>) {
        let reason = error.map(api_reason);
        if !self.status.not_ready.set(object.to_string(), reason.clone()) {
            return;
        }
        if let Some(reason) = reason {
            tracing::error!(%object, reason, "cannot get at the Lease; trying again");
        } else {
            tracing::info!(%object, "the Lease can be had again");
        }
    }
}
