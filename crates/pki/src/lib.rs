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
//! `ca_store` is the store of CAs, `chain` says what is sent after a leaf and `serving` which leaf it is.
//! A pair that somebody else makes is `external`, and whom it has machines trust `trust`; `servable` and
//! `go_x509` judge what machines can read. `new_ca` makes a CA, or takes one that is `issuer`'s.
//! [`issue`] issues certificates and [`certificate`] reads them, `moment` their times; `requested` issues
//! them for others, by what `signing_request` reads. Nothing here does I/O; the time is an argument, and so
//! are new keys, which only [`keys`] makes.
#![forbid(unsafe_code)]
// Tests make keys.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod ca_store;
pub mod certificate;
mod chain;
mod encoding;
mod extensions;
mod external;
mod go_x509;
mod holder;
pub mod hosts;
pub mod issue;
mod issuer;
pub mod keys;
pub mod lockout;
pub mod moment;
mod name_constraints;
mod new_ca;
pub mod plan;
mod policy;
mod reason;
mod requested;
mod servable;
mod serving;
mod signing_request;
pub mod state;
mod trust;
mod usage;
mod view;
pub mod warning;
mod weak_key;
pub mod writes;

pub use certificate::Certificate;
pub use chain::MAX_CHAIN_BYTES;
pub use go_x509::Malformed;
pub use holder::{Holder, Lockout, LockoutReason};
pub use hosts::Host;
pub use issuer::Unfit;
pub use keys::KeyAlgorithm;
pub use lockout::{locked_out, untrusted};
pub use plan::Step;
pub use policy::{Policy, RENEWAL, VALIDITY};
pub use reason::{IssueError, Reason, Unusable};
pub use requested::{Issued, OwnCa, OwnCaFault, Requested, excess, issue_requested, signing_fault};
pub use servable::{belongs, load_key, read_chain, sent_chain};
pub use serving::{Generate, issue_pair, signing_ca};
pub use signing_request::{BadRequest, SigningRequest};
pub use state::{
    Answer, Asked, CertificateState, External, Issuer, PointerState, PointerTrust, RepairedPointer,
    Request, StoredPair,
};
pub use usage::{UnknownUsage, Usage};
pub use warning::{CertificateKind, Refusal, Refused, USER_DATA_LIMITS, Warning};
pub use weak_key::{Weakness, weakness};
pub use writes::{
    Asking, LEFT_OUT, MAX_STEPS, Next, Write, dry_run, lockouts_of, next, pointer_warnings,
    reported_lockouts, trusted_by_somebody,
};
