//! Describes the machine that a config makes, and the cause if it does not come up: the output of `inspect`.
//!
//! ```text
//!  config ─> Machine ─┬─> text, JSON          what was seen on the way ─> judge ─> Cause
//!                     └─> changes (with another)                                  │
//!                                  Way { steps, cause } <─────────────────────────┘
//! ```
//!
//! The crate does no I/O. Secrets are named and never printed: all foreign text passes through [`redacted`] before it
//! is formatted as text or JSON. Only [`Machine::file`] returns secrets, in one file by its path.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod cause;
mod diff;
mod judge;
mod kernel_arguments;
mod kind;
mod machine;
mod read;
mod sections;
mod text;
mod trace;

pub use cause::{Cause, date};
pub use diff::{Change, ChangeKind, changes, changes_as_text};
pub use judge::{Clocks, Judgement, SLACK, ServerAnswer, ServerEvidence, cause_of, judge};
pub use kernel_arguments::KernelArguments;
pub use machine::{
    CertificateEntry, DiskEntry, FileEntry, Machine, NamedEntry, UnitEntry, UserEntry,
};
pub use read::machine;
pub use sections::{Section, facts, sections};
pub use text::{bytes, machine_as_text, trace_as_text, warnings_as_text};
pub use trace::{Outcome, Step, Trace};

use secrets::redacted;
use serde::Serialize;
use serde_json::Value;

/// Converts a value to JSON, and redacts secrets in all its texts.
///
/// # Errors
/// The value has no JSON form.
pub fn as_json(shown: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(shown)?;
    redact_all(&mut value);
    Ok(value)
}

fn redact_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(shown) = redacted(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_all),
        Value::Object(members) => members.values_mut().for_each(redact_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
