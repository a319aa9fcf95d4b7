//! Reports the state of controllers by readiness, metrics and log lines.

use std::sync::Arc;

use telemetry::ControllerMetrics;
use telemetry::conditions::Status;
use telemetry::faults;

use super::error::{ControlError, api_reason};
use super::seen::{Cause, Failure};
use super::write::{Malformed, ObjectName};

/// Sinks for the state of controllers.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Conditions for readiness, one line each.
    pub status: Status,
    pub metrics: Arc<ControllerMetrics>,
}

impl Health {
    pub fn recovered(&self, subject: &'static str) {
        faults::RECONCILIATION.of(subject).report(&self.status, None);
    }

    pub fn failed(&self, subject: &'static str, error: &ControlError) {
        faults::RECONCILIATION
            .of(subject)
            .counted_by(&self.metrics.failures)
            .report(&self.status, Some(&error.to_string()));
    }

    /// Reports why the object that configures `thing` cannot be followed; `None` if it can.
    pub fn can_follow(&self, thing: &'static str, error: Option<&Malformed>) {
        let reason = error.map(ToString::to_string);
        faults::CONFIGURATION.of(thing).report(&self.status, reason.as_deref());
    }

    pub fn watch_works(&self, object: &ObjectName) {
        faults::OBJECT_UNWATCHED.of(&object.to_string()).report(&self.status, None);
    }

    pub fn watch_failed(&self, object: &ObjectName, failure: &Failure) {
        let name = object.to_string();
        let fault = faults::OBJECT_UNWATCHED.of(&name);
        if failure.cause == Cause::NoSuchKind {
            // A cluster without the kind has no objects of it.
            fault.clear(&self.status);
            tracing::debug!(%object, "the API server does not have this kind");
            return;
        }
        fault
            .with_fix(failure.fix())
            .counted_by(&self.metrics.watch_failures(object.kind.name))
            .report(&self.status, Some(&failure.reason));
    }

    /// Reports why the Lease is not accessible; `None` if it is.
    pub fn lease(&self, object: &ObjectName, error: Option<&kube::Error>) {
        let reason = error.map(api_reason);
        faults::LEASE.of(&object.to_string()).report(&self.status, reason.as_deref());
    }
}
