//! Reasons why an enrolment yields no certificate.

use pki::{BadRequest, LockoutReason};

use super::name::DirectoryName;
use super::status::Report;

/// A failed enrolment.
#[derive(Debug, thiserror::Error)]
pub enum CmpError {
    /// A value of the request has no DER encoding.
    #[error("the request cannot be encoded: {0}")]
    Encoding(der::Error),
    /// A PKCS #10 request that is none, or whose own signature is not its key's.
    #[error("the certificate request cannot be used: {0}")]
    Csr(BadRequest),
    /// A key that no signature can be made with.
    #[error("the key cannot sign a message: {0}")]
    Signing(String),
    /// The answer is no DER encoding of a message.
    #[error("the answer is not a CMP message: {0}")]
    Unreadable(der::Error),
    /// The transaction ID differs from the request's.
    #[error("the answer is for another transaction")]
    WrongTransaction,
    /// The recipient nonce is not that of the last message.
    #[error("the answer is to another message: it does not repeat the nonce")]
    WrongNonce,
    /// The protection is missing or invalid.
    #[error(
        "the answer is not trusted: {fault}{}",
        .claims.as_ref().map(|report| format!("; it claims: {report}")).unwrap_or_default()
    )]
    Unproven {
        /// Fault of the protection.
        fault: Box<ProtectionFault>,
        /// The failure that the unprotected message reports. Anyone may have written it.
        claims: Option<Box<Report>>,
    },
    /// The server refuses the request.
    #[error("the server refuses: {0}")]
    Refused(Box<Report>),
    /// The body's tag is not that of an answer to the request.
    #[error("the answer is of another kind than requested: number {0}")]
    Unexpected(u8),
    /// The answer has another number of certificates, or another request ID.
    #[error("the answer is not for exactly the requested certificate")]
    OtherRequest,
    /// The status is accepted, and the certificate missing or encrypted.
    #[error("the server accepts, but sends no certificate, or an encrypted one")]
    NoCertificate,
    /// The certificate is not for the key.
    #[error("the issued certificate is for another key")]
    WrongKey,
    /// The certificate does not lead to a trusted CA.
    #[error("the issued certificate is not trusted: {0}")]
    Untrusted(LockoutReason),
    /// The certificate's signature algorithm names no hash for the confirmation (RFC 4210 section 5.3.18).
    #[error("the issued certificate has a signature algorithm without a hash for its confirmation")]
    NoHash,
    /// A message was given to a transaction that has ended.
    #[error("the transaction is over")]
    Over,
}

impl From<der::Error> for CmpError {
    fn from(error: der::Error) -> Self {
        Self::Encoding(error)
    }
}

/// Reasons why a message's protection is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionFault {
    #[error("the message is not protected")]
    Missing,
    /// The algorithm is not supported; its object identifier.
    #[error("the protection of the message is not supported ({0})")]
    Unknown(String),
    #[error("the message is protected with SHA-1, which needs --allow-sha1 (allowSHA1)")]
    Sha1,
    #[error("the password is hashed {0} times, which is not within 100 and 100000")]
    Iterations(u64),
    #[error("the message was protected with another password, or changed")]
    WrongMac,
    #[error("the message is protected with a password, and the request was not")]
    NoPassword,
    #[error(
        "the message is signed, and --trusted (trustedRef) is not set: it names the trusted CAs"
    )]
    NobodyTrusted,
    /// A certificate of the same CA does not prove that the signer is the server.
    #[error(
        "the message is signed by {0}: confirm this sender with --recipient or --expect-sender (expectSender)"
    )]
    NobodyExpected(String),
    #[error(
        "the message is from {found}, not from {expected}; --expect-sender (expectSender) sets the expected sender"
    )]
    WrongSender { found: String, expected: DirectoryName },
    /// The certificate of the signer is missing, or its key did not make the signature.
    #[error("no certificate of {0} in the message has the key that signed it")]
    WrongSignature(String),
    #[error("the certificate of {0} must not be used for signatures")]
    KeyUsage(String),
    #[error("the signer is not trusted: {0}")]
    Untrusted(LockoutReason),
}
