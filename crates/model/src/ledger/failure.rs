//! First boots that failed after the config was fetched, as machines report them.
//!
//! The form is that of machine-config-daemon. Anyone at the machine's address can send such a report, so it is shown as
//! the words of the machine, and decides nothing.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::escape::{NAME, cut_for_json as cut};

/// Maximum lengths in bytes of JSON.
const STAGE: usize = 64;
const MAX_IMAGE: usize = 256;
const MAX_MESSAGE: usize = 512;

/// Body of a report.
#[derive(Debug, Clone, Deserialize)]
pub struct FailureReport {
    /// Pool of the machine.
    pub pool: String,
    /// Name that the machine gives itself.
    #[serde(rename = "nodeID", default)]
    pub node: String,
    /// Step of the first boot that failed.
    pub stage: String,
    /// Operating system image that it should change to, if the step has one.
    #[serde(rename = "imageURL", default)]
    pub image: String,
    /// Error of the step.
    #[serde(rename = "errorMessage", default)]
    pub message: String,
}

/// Last failure that a machine has reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BootFailure {
    /// Pool in the report.
    pub pool: String,
    /// Name that the machine gives itself.
    pub node: String,
    /// Step of the first boot that failed.
    pub stage: String,
    /// Operating system image in the report.
    pub image: String,
    /// Error in the report.
    pub message: String,
    /// Number of reports.
    pub times: u64,
    /// Time of the last report.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

impl BootFailure {
    pub(super) fn new(report: &FailureReport, times: u64, last: OffsetDateTime) -> Self {
        let FailureReport { pool, node, stage, image, message } = report;
        Self {
            pool: cut(pool, NAME).into_owned(),
            node: cut(node, NAME).into_owned(),
            stage: cut(stage, STAGE).into_owned(),
            image: cut(image, MAX_IMAGE).into_owned(),
            message: cut(message, MAX_MESSAGE).into_owned(),
            times,
            last,
        }
    }

    /// The same with bounded texts: a record of another server or of a file.
    pub(super) fn bounded(self) -> Self {
        let Self { pool, node, stage, image, message, times, last } = self;
        Self::new(&FailureReport { pool, node, stage, image, message }, times, last)
    }

    /// Words for the state of a machine that failed.
    pub fn words(&self) -> String {
        let Self { stage, message, .. } = self;
        format!("reports that its first boot failed at stage {stage:?}: {message}")
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_report_needs_a_pool_and_a_stage_and_is_cut() {
        for bad in ["", "[]", "{}", r#"{"pool": "worker"}"#, r#"{"pool": 1, "stage": "a"}"#] {
            assert!(serde_json::from_str::<FailureReport>(bad).is_err(), "{bad}");
        }
        let long = "x".repeat(9_000);
        let body = format!(
            r#"{{"pool": "{long}", "stage": "{long}", "errorMessage": "{long}", "more": 1}}"#
        );
        let report = serde_json::from_str::<FailureReport>(&body).unwrap();
        let failure = BootFailure::new(&report, 1, datetime!(2026-11-21 12:00 UTC));
        assert!(failure.message.len() <= MAX_MESSAGE + "…".len() && failure.node.is_empty());
        assert!(failure.pool.len() + failure.stage.len() < 1_000, "{failure:?}");
        assert_eq!(failure.clone().bounded(), failure);
    }
}
