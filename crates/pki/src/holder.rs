//! Who fetches configs, and why what is served may keep them from it.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Certificate, Host};

/// Candidates that Go looks at before it gives up.
pub(super) const MAX_CANDIDATES: usize = 100;

/// Go's bound on a handshake message, less 1 KiB for what else may go into it.
pub(super) const MAX_HANDSHAKE_BYTES: usize = 65_536 - 1024;

/// Somebody who trusts some CAs and fetches configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// What an administrator knows it by.
    pub name: String,
    /// The CAs that it trusts.
    pub trusted: Vec<Certificate>,
    /// The hosts that it fetches from, all of them. Without any, only its trust is judged.
    pub hosts: Vec<Host>,
}

impl Holder {
    /// A machine that trusts one CA alone.
    #[must_use]
    pub fn of_one(ca: &Certificate) -> Self {
        Self {
            name: format!("a pointer config that trusts \"{}\" alone", ca.title()),
            trusted: vec![ca.clone()],
            hosts: Vec::new(),
        }
    }
}

/// One that could not boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{holder} could not boot a machine: {reason}")]
pub struct Lockout {
    /// The [`Holder::name`].
    pub holder: String,
    /// Why not.
    pub reason: LockoutReason,
}

/// Why a machine does not accept what is served. Certificates are told by their subjects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockoutReason {
    /// It is in the pointer config itself.
    #[error("{0}")]
    Pointer(String),
    /// There is no chain.
    #[error("no certificate is served")]
    NothingServed,
    /// The message with the certificates is longer than clients accept.
    #[error(
        "the chain that is served takes {bytes} bytes, more than the {MAX_HANDSHAKE_BYTES} that are safe"
    )]
    TooLarge {
        /// What it comes to in a handshake.
        bytes: usize,
    },
    /// The leaf lacks a name.
    #[error("the serving certificate does not name {0}")]
    Host(Host),
    /// None of its CAs is valid.
    #[error("none of the CAs that it trusts is valid now")]
    NoValidCa,
    /// Nothing that is sent or trusted issued a certificate.
    #[error(
        "\"{issuer}\" issued \"{certificate}\" and is neither sent nor among the CAs that it trusts"
    )]
    IssuerMissing {
        /// Whose certificate is missing.
        issuer: String,
        /// The last certificate of the way.
        certificate: String,
    },
    /// The way ends at a self-signed certificate.
    #[error("\"{0}\" is not among the CAs that it trusts")]
    Untrusted(String),
    /// Too many ways lead nowhere.
    #[error(
        "a client gives up among so many certificates, after {MAX_CANDIDATES} that lead nowhere"
    )]
    TooManyCandidates,
    /// Its time is over.
    #[error("\"{certificate}\" expired at {}", date(*.at))]
    Expired {
        /// Whose.
        certificate: String,
        /// Its last moment.
        at: OffsetDateTime,
    },
    /// Its time has not come.
    #[error("\"{certificate}\" is not valid before {}: is the clock right?", date(*.at))]
    NotYetValid {
        /// Whose.
        certificate: String,
        /// Its first moment.
        at: OffsetDateTime,
    },
    /// A certificate signed another and is no CA's.
    #[error("\"{0}\" is no CA: its certificate lacks CA:TRUE")]
    NoCa(String),
    /// A CA's key may not sign certificates.
    #[error("\"{0}\" may not sign certificates: its key usage lacks keyCertSign")]
    KeyUsage(String),
    /// More certificates follow than a CA allows.
    #[error("\"{certificate}\" allows {most} CAs below it (pathlen), and there are {present}")]
    PathLength {
        /// The CA.
        certificate: String,
        /// As many as may follow, the leaf not counted.
        most: u32,
        /// As many as do.
        present: usize,
    },
    /// A CA may not vouch for a name.
    #[error("\"{certificate}\" may not vouch for {name}, by its name constraints")]
    NameConstraints {
        /// The CA.
        certificate: String,
        /// The name, of whichever certificate below.
        name: String,
    },
    /// A certificate is not for serving.
    #[error("\"{0}\" is not for TLS servers: its extended key usage lacks serverAuth")]
    ExtendedKeyUsage(String),
    /// A certificate demands policies of the way below it.
    #[error(
        "\"{0}\" demands certificate policies of what it vouches for (policyConstraints), and whether the way has them \
         is not looked at"
    )]
    Policies(String),
    /// A certificate has a critical extension that clients do not understand.
    #[error(
        "\"{certificate}\" has a critical extension that clients do not understand: {extension}"
    )]
    CriticalExtension {
        /// Whose.
        certificate: String,
        /// The extension's object identifier.
        extension: String,
    },
}

/// A date as messages have it.
pub(super) fn date(time: OffsetDateTime) -> String {
    // A year that RFC 3339 cannot write is still told.
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
