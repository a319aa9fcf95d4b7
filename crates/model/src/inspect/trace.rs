//! The way to a config, step by step, as it was gone.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};

use super::Cause;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should.
    Fine,
    /// It is well for now, or was not looked at.
    Noted,
    /// The machine gets no further.
    Failed,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What was done: `name`, `connect`, `TLS`, `answer`, `config`.
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, one line each, not escaped yet.
    pub seen: Vec<String>,
    /// How long it took, where that was measured.
    pub took: Option<Duration>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// What was asked for.
    pub url: String,
    /// In their order.
    pub steps: Vec<Step>,
    /// Why a machine does not come up this way.
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
        let mut map = serializer.serialize_struct("Cause", 4)?;
        map.serialize_field("label", self.label())?;
        map.serialize_field("text", &self.to_string())?;
        map.serialize_field("remedy", self.remedy())?;
        map.serialize_field("isRetried", &self.is_retried())?;
        map.end()
    }
}
