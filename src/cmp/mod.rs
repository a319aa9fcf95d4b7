//! Enrolment at a certificate authority by CMPv2 (RFC 4210, profiled by RFC 9483): a first certificate for a
//! key of ours, one for somebody's request, and a renewal signed with the certificate that is renewed.
//!
//! ```text
//!  Request ─> Transaction ─> bytes ─> transport ─> bytes ─> Transaction ─> Enrolled
//!             (pure)                  (I/O)                 checks, then believes
//! ```
//!
//! [`message`] has the encoding, [`request`] what is asked for, [`protection`] a password's MAC and signatures,
//! [`status`] the server's refusals in words, and [`transaction`] says what to send next given what came. Nothing
//! of an answer is believed before [`transaction`] has held it against the request: transaction, nonce, sender,
//! protection, and the key and issuer of the certificate. Time, nonces and keys are arguments; only
//! [`transport`], by HTTP (RFC 6712, RFC 9811), does I/O, and [`client`], which goes to and fro between the two.
//!
//! The message crates of RustCrypto carry header, certificate templates and MAC parameters. What they have of
//! statuses, errors and polling is not what the standard has (failure bits by number instead of by position, no
//! sequence around polls, an error message without readable fields), so those few are defined in [`message`].

pub mod client;
pub mod error;
pub mod message;
pub mod name;
pub mod protection;
pub mod request;
pub mod status;
pub mod transaction;
pub mod transport;

pub use client::{Client, EnrolError, Pause};
pub use error::CmpError;
pub use name::DirectoryName;
pub use protection::{Credential, CredentialFault, Password};
pub use request::Request;
pub use transaction::{Enrolled, Random, Settings, Step, Transaction};
pub use transport::{Server, TransportError};
