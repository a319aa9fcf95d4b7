//! Enrolment at a certificate authority by CMPv2 (RFC 4210, profiled by RFC 9483): a first certificate for a
//! key of ours, one for somebody's request, and a renewal signed with the certificate that is renewed.
//!
//! ```text
//!  Request ─> Transaction ─> bytes ─> Transport ─> bytes ─> Transaction ─> Enrolled
//!             (pure)                  (the caller's)        checks, then believes
//! ```
//!
//! [`message`] has the encoding, [`request`] what is asked for, [`protection`] a password's MAC and signatures,
//! [`status`] the server's refusals in words, and [`transaction`] says what to send next given what came. Nothing
//! of an answer is believed before [`transaction`] has held it against the request: transaction, nonce, sender,
//! protection, and the key and issuer of the certificate. [`client`] goes to and fro between a transaction and a
//! [`Transport`]. Nothing here does I/O: sending, waiting, the time, nonces and keys are arguments.
//!
//! The message crates of RustCrypto carry header, certificate templates and MAC parameters. What they have of
//! statuses, errors and polling is not what the standard has (failure bits by number instead of by position, no
//! sequence around polls, an error message without readable fields), so those few are defined in [`message`].
#![forbid(unsafe_code)]
// Tests make keys.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod client;
pub mod error;
pub mod message;
pub mod name;
pub mod protection;
pub mod request;
pub mod status;
#[cfg(test)]
mod test_ca;
pub mod transaction;

pub use client::{Client, EnrolError, Pause, Transport, TransportError};
pub use error::CmpError;
pub use name::DirectoryName;
pub use protection::{Credential, CredentialFault, Password};
pub use request::Request;
pub use transaction::{Enrolled, Fresh, Settings, Step, Transaction};
