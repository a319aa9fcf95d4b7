//! What came of a request, in the extensions of its answer: for the log, the metrics and the boot ledger.

use std::sync::Arc;

use ignition::SpecVersion;
use model::access::{AccessMode, Verdict};
use model::refusal::RefusalCode;
use prometheus_client::metrics::counter::Counter;

use crate::serving::answers::Answer;

/// What a handler tells of the answer to a request for a config, in the response's extensions.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) pool: String,
    pub(super) version: Option<SpecVersion>,
    pub(super) given: Result<Arc<Answer>, Refused>,
    /// Counts requests of this outcome.
    pub(super) requests: Counter,
}

/// Why a request gets no config.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) code: RefusalCode,
    /// One line for who asked.
    pub(super) reason: String,
}

/// What was decided about a request, in its and its answer's extensions.
#[derive(Debug, Clone)]
pub(super) struct Decided(pub(super) Verdict);

impl Decided {
    /// One word or two for the log; nothing where nothing is restricted.
    pub(super) fn words(&self) -> Option<String> {
        let Verdict { mode, judged } = &self.0;
        match (mode, judged) {
            (AccessMode::Off, Ok(_)) => None,
            (_, Ok(proof)) => Some(proof.to_string()),
            (AccessMode::Audit, Err(refusal)) => Some(format!("would be refused: {refusal}")),
            (_, Err(refusal)) => Some(format!("refused: {refusal}")),
        }
    }
}
