//! Where a source reports to.

use std::sync::Arc;

use crate::telemetry::Metrics;
use crate::telemetry::conditions::Status;

/// What a source tells beside the inputs.
#[derive(Debug, Clone)]
pub struct Reporting {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is not as it should be, with the reason.
    pub status: Status,
}
