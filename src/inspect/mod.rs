//! What a machine becomes, why it does not come up, and how both are told to a person: what `inspect`
//! shows.
//!
//! ```text
//!  config ─> Machine ─┬─> text, JSON          what was seen on the way ─> judge ─> Cause
//!                     └─> changes (with another)                                  │
//!                                  Way { steps, cause } <─────────────────────────┘
//! ```
//!
//! All of it is a function of its arguments. Secrets are named here and never put into a text: what
//! is secret leaves this module only by [`Machine::file`], for whoever asks for a file by its path.

mod cause;
mod diff;
mod judge;
mod kind;
mod machine;
mod read;
mod text;
mod way;

pub use cause::Cause;
pub use diff::{Change, ChangeKind, changes, changes_as_text};
pub use judge::{Answered, Trusted, judge_answer, judge_chain};
pub use machine::{
    CertificateEntry, DiskEntry, FileEntry, Machine, Named, SecretEntry, UnitEntry, UserEntry,
};
pub use read::machine;
pub use text::{machine_as_text, way_as_text};
pub use way::{Outcome, Step, Way};
