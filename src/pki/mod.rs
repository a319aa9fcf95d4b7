//! The machine config server's own certificate authority and serving pair.
//!
//! ```text
//!  CertificateState ─> plan ─> Step ─> writes ─> Write ─> a folder, a cluster, the tests' model
//!        ^                                                        │
//!        └────────────────── observed again ──────────────────────┘
//! ```
//!
//! [`state`] is what a decision depends on, [`mod@plan`] decides what has to be made anew, and
//! [`writes`] makes it: the same writes wherever they are applied. [`issue`] issues certificates
//! and [`certificate`] reads them; [`lockout`] says which machines could not boot with them. Nothing here does I/O; the time is an argument, and so are new
//! keys, which only [`keys`] makes.

mod authority;
pub mod certificate;
mod extensions;
pub mod hosts;
pub mod issue;
pub mod keys;
pub mod lockout;
mod name_constraints;
pub mod plan;
mod policy;
mod reason;
pub mod state;
pub mod writes;

pub use certificate::Certificate;
pub use hosts::Host;
pub use keys::KeyAlgorithm;
pub use lockout::{Holder, Lockout, LockoutReason, locked_out};
pub use plan::{RotationPlan, Step, plan};
pub use policy::{Policy, RENEWAL, VALIDITY};
pub use reason::{IssueError, Reason};
pub use state::{Asked, CertificateState, Pointer, PointerState, StoredPair};
pub use writes::{MOST_STEPS, Next, Write, next};
