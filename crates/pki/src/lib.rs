//! Certificates of the machine config server: its CA, its serving certificate, and their rotation.
//!
//! ```text
//!  CertificateState ─> view ─> plan ─> Step ─> writes ─> Write ─> a folder, a cluster, a model
//!        ^                               locked out? ─> refused     │
//!        └────────────────────── observed again ────────────────────┘
//! ```
//!
//! [`state`] is the stored state, `view` parses it, [`mod@plan`] decides which step is due, and [`writes`] makes the
//! step's writes, which [`lockout`] judges before they are returned. `ca_store` is the store of CAs, `serving` chooses
//! the leaf and `chain` the certificates after it. `external` handles a pair that is made elsewhere, and `trust` its
//! CAs; `servable` and `go_x509` check that machines can read a chain. `new_ca` makes a CA, or takes one that an
//! external CA issued (`issuer`). [`issue`] issues certificates, [`certificate`] parses them and `moment` their times;
//! `requested` issues certificates for the requests that `signing_request` parses. The crate does no I/O; the time is
//! an argument, and so are new keys, which only [`keys`] generates.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod ca_store;
pub mod certificate;
mod chain;
mod encoding;
mod extensions;
mod external;
mod go_x509;
mod holder;
mod hosts;
pub mod issue;
mod issuer;
mod keys;
mod lockout;
pub mod moment;
mod name_constraints;
mod new_ca;
pub mod plan;
mod reason;
mod requested;
mod servable;
mod serving;
mod signing_request;
mod state;
mod trust;
mod usage;
mod view;
mod warning;
mod weak_key;
mod writes;

pub use certificate::Certificate;
pub use chain::MAX_CHAIN_BYTES;
pub use go_x509::Malformed;
pub use holder::{Lockout, LockoutReason, TrustHolder};
pub use hosts::Host;
pub use keys::KeyAlgorithm;
pub use lockout::{locked_out, untrusted};
pub use plan::{Policy, RENEWAL, Step, VALIDITY};
pub use reason::{IssueError, Reason, Unusable};
pub use requested::{Issued, OwnCa, Requested, excess, issue_requested, signing_fault};
pub use servable::{belongs, load_key, read_chain, sent_chain};
pub use serving::{Generate, issue_pair, signing_ca};
pub use signing_request::{BadRequest, SigningRequest};
pub use state::{
    Answer, CertificateState, External, Issuer, PointerState, PointerTrust, RepairedPointer,
    Request, RotationRequest, StoredPair,
};
pub use usage::{UnknownUsage, Usage};
pub use warning::{CertificateKind, Refusal, Refused, USER_DATA_LIMITS, Warning};
pub use writes::{
    DROPPED_FIX, DROPPED_REASON, MAX_STEPS, NextAction, RequestAction, Write, dry_run, lockouts_of,
    next, pointer_warnings, reported_lockouts, trusted_cas,
};
