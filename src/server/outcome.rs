//! Outcome of a request, in the extensions of its answer, for the log, the metrics and the boot ledger.

use std::sync::Arc;

use ignition::SpecVersion;
use model::refusal::RefusalCode;
use prometheus_client::metrics::counter::Counter;

use crate::serving::answers::Answer;

/// Outcome of a request for a config, set by the handler.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) pool: String,
    pub(super) version: Option<SpecVersion>,
    pub(super) given: Result<Arc<Answer>, Refused>,
    /// Counter of requests with this outcome.
    pub(super) requests: Counter,
}

/// Reason why a request gets no config.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) code: RefusalCode,
    /// One line for the client.
    pub(super) reason: String,
    /// The reason for administrators, if it says more.
    pub(super) detail: Option<String>,
}

impl Refused {
    /// Creates a reason that everyone gets.
    pub(super) fn new(code: RefusalCode, reason: String) -> Self {
        Self { code, reason, detail: None }
    }
}
