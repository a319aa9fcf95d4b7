//! Trace of the steps by which a machine gets its config.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};

use super::cause::Cause;

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The step succeeded.
    Fine,
    /// The step has a remark, or was not checked.
    Noted,
    /// The machine gets no further.
    Failed,
}

/// A step of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Name: `name`, `connect`, `TLS`, `answer`, `config`.
    pub name: &'static str,
    /// Result of the step.
    pub outcome: Outcome,
    /// Observations, one line each, not escaped.
    pub seen: Vec<String>,
    /// Duration, if it was measured.
    pub took: Option<Duration>,
}

/// Trace of one fetch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Fetched URL.
    pub url: String,
    /// Steps in their order.
    pub steps: Vec<Step>,
    /// Cause of a failed boot.
    pub cause: Option<Cause>,
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Step", 4)?;
        map.serialize_field("step", self.name)?;
        map.serialize_field("outcome", &self.outcome)?;
        map.serialize_field("seen", &self.seen)?;
        let milliseconds = self.took.map(|took| (took.as_secs_f64() * 1e5).round() / 100.0);
        map.serialize_field("milliseconds", &milliseconds)?;
        map.end()
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Cause", 5)?;
        map.serialize_field("label", self.label())?;
        map.serialize_field("text", &self.to_string())?;
        map.serialize_field("remedy", self.remedy())?;
        map.serialize_field("isRetried", &self.is_retried())?;
        map.serialize_field("recovery", <&str>::from(self.recovery()))?;
        map.end()
    }
}
