//! Sinks for reports of a source.

use std::sync::Arc;

use crate::telemetry::conditions::Status;
use crate::telemetry::metrics::Metrics;

/// Sinks for reports of a source, other than its inputs.
#[derive(Debug, Clone)]
pub struct Reporting {
    pub metrics: Arc<Metrics>,
    /// Conditions with reasons.
    pub status: Status,
}
