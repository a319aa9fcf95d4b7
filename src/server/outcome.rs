//! Outcome of a request, in the extensions of its answer, for the log, the metrics and the boot ledger.

use std::sync::Arc;

use ignition::SpecVersion;
use model::access::{AccessMode, BrokenRule, Verdict};
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

/// Access verdict, in the extensions of a request and of its answer.
#[derive(Debug, Clone)]
pub(super) struct AccessVerdict(pub(super) Verdict);

impl AccessVerdict {
    /// Verdict in one or two words for the log; `None` if nothing is restricted.
    pub(super) fn words(&self) -> Option<String> {
        let Verdict { mode, judged, broken_rule, .. } = &self.0;
        let held = broken_rule.and_then(BrokenRule::refusal);
        if let (Some(refusal), None) = (held, self.0.access_refusal()) {
            return Some(format!("held: {refusal}"));
        }
        match (mode, judged) {
            (AccessMode::Off, Ok(_)) => None,
            (_, Ok(proof)) => Some(proof.to_string()),
            (AccessMode::Audit, Err(refusal)) => Some(format!("would be refused: {refusal}")),
            (_, Err(refusal)) => Some(format!("refused: {refusal}")),
        }
    }
}
