//! Why there is no certificate.

use pki::{BadRequest, LockoutReason};

use super::name::DirectoryName;
use super::status::Report;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CmpError {
    /// What is asked for cannot be written down.
    #[error("the request cannot be encoded: {0}")]
    Encoding(der::Error),
    /// A PKCS #10 request that is none, or whose own signature is not its key's.
    #[error("the certificate request cannot be used: {0}")]
    Csr(BadRequest),
    /// A key that no signature can be made with.
    #[error("the key cannot sign a message: {0}")]
    Signing(String),
    /// What came is no message.
    #[error("the answer is no CMP message: {0}")]
    Unreadable(der::Error),
    /// It belongs to something else.
    #[error("the answer is for another transaction")]
    WrongTransaction,
    /// It answers something else.
    #[error("the answer is to another message: it does not repeat our nonce")]
    WrongNonce,
    /// Its protection is missing or does not hold; with what it says nevertheless.
    #[error("the answer is not believed: {fault}{}", claim(.claims.as_deref()))]
    Unproven {
        /// Why not.
        fault: Box<ProtectionFault>,
        /// What it says went wrong, which anybody may have written.
        claims: Option<Box<Report>>,
    },
    /// The server says no.
    #[error("the server refuses: {0}")]
    Refused(Box<Report>),
    /// The server says something else than an answer.
    #[error("the answer is of another kind than was asked for: number {0}")]
    Unexpected(u8),
    /// An answer to more, less or something else than was asked for.
    #[error("the answer is not one for the one certificate that was asked for")]
    OtherRequest,
    /// Accepted, without a certificate.
    #[error("the server accepts, but sends no certificate, or one that only a decryption shows")]
    NoCertificate,
    /// The certificate is not for the key.
    #[error("the certificate that came is for another key")]
    WrongKey,
    /// The certificate does not come from whom it should.
    #[error("the certificate that came is not trusted: {0}")]
    Untrusted(LockoutReason),
    /// How a certificate is confirmed follows from its signature.
    #[error("the certificate that came is signed in a way that says no hash to confirm it by")]
    NoHash,
    /// More was said after the end.
    #[error("the transaction is over")]
    Over,
}

/// Why a message's protection shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionFault {
    /// It has none.
    #[error("it is not protected")]
    Missing,
    /// A way of protecting that is not known here.
    #[error("it is protected in a way that is not known here ({0})")]
    Unknown(String),
    /// By an algorithm that nobody should use.
    #[error("it is protected by SHA-1, which only --allow-sha1 (allowSHA1) accepts")]
    Sha1,
    /// So many rounds take too long, or so few are worth nothing.
    #[error("its password is hashed {0} times, which is none of 100 to 100000")]
    Iterations(u64),
    /// The password is another one, or the message was changed.
    #[error("its protection was made with another password, or it was changed")]
    WrongMac,
    /// Nobody gave a password.
    #[error("it is protected by a password, and the request was not")]
    NoPassword,
    /// Nobody said whose signatures count.
    #[error("it is signed, and no --trusted (trustedRef) says by whom it may be")]
    NobodyTrusted,
    /// Nobody said who answers: not everybody with a certificate may.
    #[error(
        "it is signed by {0}, and neither --recipient nor --expect-sender (expectSender) says who answers"
    )]
    NobodyExpected(String),
    /// It is from someone else.
    #[error(
        "it is from {found}, not from {expected}; --expect-sender (expectSender) names whom it is to be from"
    )]
    WrongSender {
        /// Who it says it is from.
        found: String,
        /// Whom it should be from.
        expected: DirectoryName,
    },
    /// The certificate for it is not there, or its key did not sign it.
    #[error("none of the certificates of {0} that are there has the key that signed it")]
    WrongSignature(String),
    /// A certificate that is not for signatures.
    #[error("the certificate of {0} may not be used for signatures")]
    KeyUsage(String),
    /// The signer is not trusted.
    #[error("whoever signed it is not trusted: {0}")]
    Untrusted(LockoutReason),
}

fn claim(claims: Option<&Report>) -> String {
    claims.map(|report| format!("; it claims: {report}")).unwrap_or_default()
}
