//! Machines that fetch configs, and the reasons why a served chain locks them out.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::certificate::Certificate;
use super::hosts::Host;

/// Number of candidates after which Go gives up.
pub(super) const MAX_CANDIDATES: usize = 100;

/// Go's maximum size of a handshake message in bytes, less 1 KiB for the message's other contents.
pub(super) const MAX_HANDSHAKE_BYTES: usize = 65_536 - 1024;

/// A machine that fetches configs, or the pointer config that many machines share: trusted CAs and used hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustHolder {
    /// Display name for administrators.
    pub name: String,
    /// Trusted CAs.
    pub trusted: Vec<Certificate>,
    /// All hosts that it fetches from. If it is empty, only its trust is judged.
    pub hosts: Vec<Host>,
}

impl TrustHolder {
    /// A machine that trusts one CA alone.
    pub fn of_one(ca: &Certificate) -> Self {
        let kind = if ca.is_ca() { "" } else { "the serving certificate " };
        let name = format!("a pointer config that trusts only {kind}\"{}\"", ca.title());
        Self { name, trusted: vec![ca.clone()], hosts: Vec::new() }
    }

    /// The lockout of this holder, if there is a reason for one.
    pub(super) fn lockout(&self, reason: Option<LockoutReason>) -> Option<Lockout> {
        Some(Lockout { holder: self.name.clone(), reason: reason? })
    }
}

/// A holder that could not boot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{holder} cannot boot a machine: {reason}")]
pub struct Lockout {
    /// Name of the holder, [`TrustHolder::name`].
    pub holder: String,
    /// Reason for the lockout.
    pub reason: LockoutReason,
}

/// Reasons why a machine refuses the served chain. Certificates are named by their subjects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockoutReason {
    /// A fault of the pointer config itself.
    #[error("{0}")]
    Pointer(String),
    /// No certificate is served.
    #[error("no certificate is served")]
    NothingServed,
    /// The handshake message with the certificates is longer than clients accept.
    #[error(
        "the served chain has {bytes} bytes, more than the safe maximum of {MAX_HANDSHAKE_BYTES}"
    )]
    TooLarge {
        /// Size in a handshake, in bytes.
        bytes: usize,
    },
    /// The leaf lacks a host.
    #[error("the serving certificate does not name {0}")]
    Host(Host),
    /// None of the trusted CAs is valid.
    #[error("no CA that it trusts is valid now")]
    NoValidCa,
    /// The issuer of a certificate is neither sent nor trusted.
    #[error("\"{issuer}\" issued \"{certificate}\" and is neither sent nor trusted")]
    IssuerMissing {
        /// Name of the missing issuer.
        issuer: String,
        /// Subject of the last certificate on the path.
        certificate: String,
    },
    /// The path ends at a self-signed certificate that is not trusted.
    #[error("it does not trust \"{0}\"")]
    Untrusted(String),
    /// The client gives up because too many candidates lead nowhere.
    #[error("too many certificates: a client gives up after {MAX_CANDIDATES} wrong ones")]
    TooManyCandidates,
    /// A certificate has expired.
    #[error("\"{certificate}\" expired at {}", date(*.at))]
    Expired {
        /// Subject of the certificate.
        certificate: String,
        /// Last moment of its validity.
        at: OffsetDateTime,
    },
    /// A certificate is not valid yet.
    #[error("\"{certificate}\" is not valid before {}: check the clock", date(*.at))]
    NotYetValid {
        /// Subject of the certificate.
        certificate: String,
        /// First moment of its validity.
        at: OffsetDateTime,
    },
    /// A certificate signed another, and is not a CA.
    #[error("\"{0}\" is not a CA: its certificate lacks CA:TRUE")]
    NoCa(String),
    /// A CA's key must not sign certificates.
    #[error("\"{0}\" cannot sign certificates: its key usage lacks keyCertSign")]
    KeyUsage(String),
    /// More CAs follow than a CA allows.
    #[error("\"{certificate}\" allows {most} CAs below it (pathlen), and there are {present}")]
    PathLength {
        /// Subject of the CA.
        certificate: String,
        /// Maximum number of CAs below it, without the leaf.
        most: u32,
        /// Number of CAs below it.
        present: usize,
    },
    /// A CA's name constraints exclude a name.
    #[error(
        "\"{certificate}\" cannot issue certificates for {name}: its name constraints exclude it"
    )]
    NameConstraints {
        /// Subject of the CA.
        certificate: String,
        /// Excluded name of a certificate below it.
        name: String,
    },
    /// A certificate is not for TLS servers.
    #[error("\"{0}\" is not for TLS servers: its extended key usage lacks serverAuth")]
    ExtendedKeyUsage(String),
    /// A certificate requires certificate policies below it.
    #[error(
        "\"{0}\" requires certificate policies (policyConstraints), which are not checked here"
    )]
    Policies(String),
    /// A certificate has a critical extension that clients do not know.
    #[error(
        "\"{certificate}\" has a critical extension that clients do not understand: {extension}"
    )]
    CriticalExtension {
        /// Subject of the certificate.
        certificate: String,
        /// Object identifier of the extension.
        extension: String,
    },
}

/// Formats a time for messages.
pub(super) fn date(time: OffsetDateTime) -> String {
    // RFC 3339 has no years beyond 9999.
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
