//! Enrolment at a certificate authority by CMPv2 (RFC 4210, profiled by RFC 9483): a first certificate for a new key,
//! one for a PKCS #10 request, and a renewal signed with the certificate that is renewed.
//!
//! ```text
//!  Request ─> Transaction ─> bytes ─> Transport ─> bytes ─> Transaction ─> Enrolled
//!             (pure)                  (the caller's)        checks, then believes
//! ```
//!
//! [`message`] has the encoding, [`request`] the requests, [`protection`] MACs and signatures, [`status`] the server's
//! refusals in words, and [`transaction`] decides on the next message. It accepts an answer only after it has compared
//! it with the request: transaction, nonce, sender, protection, and the key and issuer of the certificate. [`client`]
//! connects a transaction and a [`Transport`]. The crate does no I/O: sending, waiting, the time, nonces and keys are
//! arguments.
//!
//! The message crates of RustCrypto carry header, certificate templates and MAC parameters. Their statuses, errors and
//! polling differ from the standard (failure bits by number instead of by position, no sequence around polls, an error
//! message without readable fields), so [`message`] defines these.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod client;
mod error;
mod message;
mod name;
mod protection;
mod request;
mod status;
#[cfg(test)]
mod test_ca;
mod transaction;

pub use client::{Client, EnrolError, Pause, Transport, TransportError};
pub use error::CmpError;
pub use message::{Message, protected_message, protected_part};
pub use name::DirectoryName;
pub use protection::{Credential, CredentialFault, Password};
pub use request::Request;
pub use transaction::{EnrolledCertificate, MessageInputs, Settings, Step, Transaction};
