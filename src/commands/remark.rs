//! A line of a report with the next step of an administrator, so that every command that prints it has the same one.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::fmt;

use serde::{Serialize, Serializer};

/// A fault or a warning. Its JSON is the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Remark {
    /// File, object or pool that it is about; the text can begin with it.
    pub(in crate::commands) thing: String,
    /// The remark in one line.
    pub(in crate::commands) text: String,
    /// Next step of an administrator, one sentence without a full stop.
    pub(in crate::commands) fix: String,
}

impl Remark {
    pub(in crate::commands) fn new(
        thing: impl Into<String>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { thing: thing.into(), text: text.into(), fix: fix.into() }
    }

    /// A remark that begins with its thing, before a colon.
    pub(in crate::commands) fn of_line(line: &str, fix: impl Into<String>) -> Self {
        Self::new(line.split_once(": ").map_or(line, |(thing, _)| thing), line, fix)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Remark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
