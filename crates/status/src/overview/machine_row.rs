//! A machine in a row, on the page and on a terminal alike.

use ignition::SpecVersion;
use model::access::Refusal;
use model::ledger::{BootStatus, Machine, Outcome, Requests};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// A machine with its boot status.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MachineLine {
    /// Record of the machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// Boot status by the record.
    #[serde(flatten)]
    pub status: BootStatus,
}

/// Headings of the columns of [`machine_row`].
pub const MACHINE_COLUMNS: [&str; 9] =
    ["ADDRESS", "STATE", "WHY", "POOL", "GOT", "SPEC", "TIMES", "FIRST", "LAST"];

/// A machine, a cell for each of [`MACHINE_COLUMNS`].
pub fn machine_row(line: &MachineLine) -> Vec<String> {
    vec![
        line.machine.address.to_string(),
        line.status.rank.label().to_owned(),
        line.words(),
        line.pool().to_owned(),
        line.got().to_owned(),
        line.spec().to_owned(),
        line.times().to_string(),
        moment(line.machine.first),
        moment(line.machine.last),
    ]
}

/// A time for people, to the second.
pub(super) fn moment(time: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02}Z", time.date(), time.hour(), time.minute(), time.second())
}

impl MachineLine {
    pub(crate) fn pool(&self) -> &str {
        self.machine.requests.as_ref().map_or("", |requests| &requests.pool)
    }

    pub(crate) fn user_agent(&self) -> &str {
        self.machine.requests.as_ref().map_or("", |requests| &requests.user_agent)
    }

    pub(crate) fn is_without_tls(&self) -> bool {
        self.machine.requests.as_ref().is_some_and(|requests| requests.without_tls)
    }

    pub(crate) fn got(&self) -> &str {
        match self.machine.requests.as_ref().map(|requests| &requests.outcome) {
            Some(Outcome::Served { config, .. }) => config,
            Some(Outcome::Refused { .. }) | None => "nothing",
        }
    }

    pub(crate) fn spec(&self) -> &'static str {
        let spec = self.machine.requests.as_ref().and_then(|requests| requests.spec);
        spec.map_or("", SpecVersion::as_str)
    }

    /// Meaning of the state, and the reason why an enforced pool would refuse the machine.
    pub(crate) fn words(&self) -> String {
        let words = &self.status.words;
        match self.would_be_refused() {
            None => words.clone(),
            Some(why) => format!("{words}; with access mode enforce it would be refused: {why}"),
        }
    }

    /// Reason why an enforced pool would refuse a machine that got its config.
    pub(crate) fn would_be_refused(&self) -> Option<String> {
        let Requests { outcome, would_be_refused, .. } = self.machine.requests.as_ref()?;
        let label = would_be_refused.as_deref()?;
        if let Outcome::Refused { .. } = outcome {
            return None;
        }
        let refusal = label.parse().map(|refusal: Refusal| refusal.to_string());
        Some(refusal.unwrap_or_else(|_| label.to_owned()))
    }

    pub(crate) fn times(&self) -> u64 {
        let requests = self.machine.requests.as_ref().map_or(0, |requests| requests.times);
        requests + self.machine.handshakes.as_ref().map_or(0, |handshakes| handshakes.times)
    }
}
