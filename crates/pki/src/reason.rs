//! Reasons for new certificates, and for failures to issue them.

use super::go_x509::Malformed;
use super::hosts::Host;
use super::weak_key::Weakness;

/// Reasons for a new certificate or another order of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// Nothing is stored.
    #[error("missing")]
    Missing,
    /// The stored text is unreadable.
    #[error("cannot be read")]
    Unreadable,
    /// The stored pair is unusable.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The certificate is not valid at this time.
    #[error("not valid now")]
    Expired,
    /// The certificate reached its renewal time.
    #[error("due for renewal")]
    Renewal,
    /// The certificate lacks a host that machines use.
    #[error("does not name {0}")]
    Host(Host),
    /// A newer CA exists, which machines that trust older ones trust too.
    #[error("a newer CA exists")]
    #[strum(serialize = "newer-authority")]
    NewerCa,
    /// The pair with this name, made outside of this server, has changed.
    #[error("{0} has another certificate")]
    External(String),
    /// The issuer with this name issues the CA.
    #[error("must be issued by {0}")]
    Issuer(String),
    /// An administrator requested it.
    #[error("requested")]
    #[strum(serialize = "asked")]
    Requested,
    /// The certificate is distrusted, or its chain contains a distrusted one.
    #[error("distrusted")]
    Distrusted,
    /// Machines with exported pointer configs find no path to the CAs that they trust.
    #[error("certificates that link it to the CAs of machines were missing")]
    Chain,
    /// A previous pair lets more machines boot.
    #[error("an earlier one is valid again and lets more machines boot")]
    Restored,
    /// The CA that the store names cannot sign at this time, and another one can.
    #[error("another CA than the newest can sign now")]
    Selected,
    /// A rotation was requested just after another, and counts as the same.
    #[error("one was made less than an hour ago, and serves this request too")]
    Joined,
}

impl Reason {
    /// Value of the label in metrics and events: the name of the variant.
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// Reasons why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key or certificate cannot sign, or a name cannot be encoded.
    #[error("cannot issue a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The issued certificate is unreadable.
    #[error("the certificate that was issued cannot be read")]
    Unreadable,
    /// A serving certificate has no host.
    #[error("a serving certificate needs at least one host name")]
    NoHost,
    /// Key generation failed.
    #[error("{0}")]
    NoKey(String),
    /// No CA with a key can sign at this time.
    #[error("no CA with an available key is valid now")]
    NoSigner,
    /// The CA's own constraints exclude a name or usage.
    #[error("the CA's certificate does not allow it to issue certificates for {0}")]
    Constrained(String),
}

/// Reasons why a stored pair cannot be used. It is never overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The pair does not exist.
    #[error("not found")]
    Missing,
    /// The certificate is not valid at this time.
    #[error("not valid now")]
    NotValid,
    /// The file or object is unreadable.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The text is empty.
    #[error("empty")]
    Empty,
    /// A PEM block is broken or cut short.
    #[error("has a PEM block that is broken or cut short")]
    Malformed,
    /// The text has no certificate.
    #[error("has no certificate")]
    NoCertificate,
    /// The text has no key.
    #[error("has no key")]
    NoKey,
    /// The key is encrypted.
    #[error("its key is encrypted: decrypt it with `openssl pkey`")]
    Encrypted,
    /// The key's algorithm cannot sign here.
    #[error("its key cannot be read, or is of a kind that cannot sign here")]
    UnsupportedKey,
    /// The key belongs to another certificate.
    #[error("its key does not belong to its certificate")]
    ForeignKey,
    /// The certificate is not a CA's.
    #[error("its certificate is not a CA certificate: CA:TRUE is missing")]
    NoCa,
    /// The certificate is a CA's instead of a server's.
    #[error("its certificate is a CA certificate, and does not name this server")]
    Ca,
    /// The CA must not sign certificates.
    #[error("its key usage lacks keyCertSign")]
    KeyUsage,
    /// Machines cannot read one of its certificates.
    #[error("machines cannot read its certificate {place}: {malformed}")]
    Refused {
        /// Position in the text, from 1.
        place: usize,
        /// Fault for Go's parser.
        malformed: Malformed,
    },
    /// The key is weak.
    #[error("its key is weak: {0}")]
    Weak(Weakness),
    /// The certificate has a critical extension that clients do not know.
    #[error("its certificate has a critical extension that clients do not understand: {0}")]
    CriticalExtension(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_metrics_stay_when_a_variant_gets_another_name() {
        for (reason, label) in [
            (Reason::Missing, "missing"),
            (Reason::Unreadable, "unreadable"),
            (Reason::Unusable(Unusable::NoKey), "unusable"),
            (Reason::Expired, "expired"),
            (Reason::Renewal, "renewal"),
            (Reason::Host(Host::Name("a".to_owned())), "host"),
            (Reason::NewerCa, "newer-authority"),
            (Reason::External("a".to_owned()), "external"),
            (Reason::Issuer("a".to_owned()), "issuer"),
            (Reason::Requested, "asked"),
            (Reason::Distrusted, "distrusted"),
            (Reason::Chain, "chain"),
            (Reason::Restored, "restored"),
            (Reason::Selected, "selected"),
            (Reason::Joined, "joined"),
        ] {
            assert_eq!(reason.label(), label);
        }
    }
}
