//! The machine config server's own certificate authority and serving pair.
//!
//! ```text
//!  CertificateState ─> view ─> plan ─> Step ─> writes ─> Write ─> a folder, a cluster, a model
//!        ^                               locked out? ─> refused     │
//!        └────────────────────── observed again ────────────────────┘
//! ```
//!
//! [`state`] is what is stored, `view` reads it, [`mod@plan`] says what is due, and [`writes`] makes
//! it, judged by [`lockout`] before it is handed out: the same writes wherever they are applied.
//! `kept` is the store of CAs, `chain` says what is sent after a leaf and `serving` which leaf it is.
//! [`issue`] issues certificates and [`certificate`] reads them. Nothing here does I/O; the time is an
//! argument, and so are new keys, which only [`keys`] makes.

pub mod attention;
pub mod certificate;
mod chain;
mod encoding;
mod extensions;
mod holder;
pub mod hosts;
pub mod issue;
mod kept;
pub mod keys;
pub mod lockout;
mod name_constraints;
pub mod plan;
mod policy;
mod reason;
mod serving;
pub mod state;
mod view;
pub mod writes;

pub use attention::{Attention, Made, Refusal, Refused};
pub use certificate::Certificate;
pub use chain::MOST_BYTES;
pub use holder::{Holder, Lockout, LockoutReason};
pub use hosts::Host;
pub use kept::MOST_KEYS;
pub use keys::KeyAlgorithm;
pub use lockout::locked_out;
pub use plan::Step;
pub use policy::{Policy, RENEWAL, VALIDITY};
pub use reason::{IssueError, Reason, Unusable};
pub use serving::{Generate, issue_pair, signing_ca};
pub use state::{Asked, CertificateState, MendedPointer, Pointer, PointerState, StoredPair};
pub use writes::{
    MOST_STEPS, Next, Write, foresee, lockouts_of, next, told_lockouts, trusted_by_somebody,
};
