//! The machine config server's own certificate authority and serving pair.
//!
//! [`rotation`] decides what has to be made anew, [`issue`] makes it, and [`certificate`] reads what
//! is there. Nothing here does I/O; new keys and the time are arguments.

pub mod certificate;
pub mod hosts;
pub mod issue;
pub mod rotation;

pub use certificate::Certificate;
pub use hosts::Host;
pub use issue::{IssueError, KeyAlgorithm};
pub use rotation::{
    CertificateState, Pointer, Policy, Reason, RotationPlan, Step, StoredPair, plan,
};
