//! Why certificates are made anew, and why they are not.

use super::{Host, Malformed, Weakness};

/// Why something is made anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// What there is cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// What there is cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    Expired,
    /// It has been used for as long as it should.
    #[error("it is due for renewal")]
    Renewal,
    /// It lacks a name that machines ask for.
    #[error("it does not name {0}")]
    Host(Host),
    /// There is a newer authority, which those who trust the older ones trust too.
    #[error("there is a newer authority")]
    NewerCa,
    /// Somebody else has made it.
    #[error("{0} has another one")]
    External(String),
    /// Somebody else is to issue it.
    #[error("it is to be issued by {0}")]
    Issuer(String),
    /// Somebody asked for it.
    #[error("it was asked for")]
    Asked,
    /// It comes from a CA that is distrusted, or leads to one.
    #[error("it is distrusted")]
    Distrusted,
    /// Machines that were handed out pointer configs find no way to the CAs that they trust.
    #[error("certificates were missing that lead machines to the CAs that they trust")]
    Chain,
    /// An earlier one lets more machines boot.
    #[error("an earlier one is valid again, and lets more machines boot")]
    Restored,
    /// The CA that the store names cannot sign now, and another one can.
    #[error("another one than the newest can sign now")]
    Selected,
    /// A rotation that was asked for just after another.
    #[error("one was made less than an hour ago: it stands for this request too")]
    Joined,
}

impl Reason {
    /// How metrics and events name it.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Unusable(_) => "unusable",
            Self::Expired => "expired",
            Self::Renewal => "renewal",
            Self::Host(_) => "host",
            Self::NewerCa => "newer-authority",
            Self::External(_) => "external",
            Self::Issuer(_) => "issuer",
            Self::Asked => "asked",
            Self::Distrusted => "distrusted",
            Self::Chain => "chain",
            Self::Restored => "restored",
            Self::Selected => "selected",
            Self::Joined => "joined",
        }
    }
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key or certificate cannot be used to sign, or a name not be put into a certificate.
    #[error("cannot issue a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// What was issued cannot be read back.
    #[error("the certificate that was issued cannot be read")]
    Unreadable,
    /// A serving certificate without a name verifies nowhere.
    #[error("a serving certificate needs at least one host name")]
    NoHost,
    /// No key can be made.
    #[error("{0}")]
    NoKey(String),
    /// There is no CA that could sign a serving certificate.
    #[error("no CA with a key at hand is valid now")]
    NoSigner,
    /// The CA's own certificate forbids it.
    #[error("the CA's own certificate does not allow it to vouch for {0}")]
    Constrained(String),
}

/// Why something that is stored cannot be used. It stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is none.
    #[error("it is not there")]
    Missing,
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    NotValid,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// Its text is broken.
    #[error("a PEM block in it is broken or cut short")]
    Malformed,
    /// There is no certificate in it.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// There is no key in it.
    #[error("there is no key in it")]
    NoKey,
    /// The key is encrypted.
    #[error("its key is encrypted: `openssl pkey` decrypts it")]
    Encrypted,
    /// The key is of a kind that cannot sign here.
    #[error("its key cannot be read, or is of a kind that cannot sign here")]
    UnsupportedKey,
    /// The key is another certificate's.
    #[error("its key does not belong to its certificate")]
    ForeignKey,
    /// The certificate is not a CA's.
    #[error("its certificate is no CA's: CA:TRUE is missing")]
    NoCa,
    /// The certificate is a CA's, where one for serving belongs.
    #[error("its certificate is a CA's, and does not name this server")]
    Ca,
    /// The CA may not sign certificates.
    #[error("its key usage lacks keyCertSign")]
    KeyUsage,
    /// Machines cannot read one of its certificates.
    #[error("machines cannot read certificate {place} in it: {malformed}")]
    Refused {
        /// Where it is in the text, from 1 on.
        place: usize,
        /// What is wrong with it.
        malformed: Malformed,
    },
    /// Its key is known to be weak.
    #[error("its key is weak: {0}")]
    Weak(Weakness),
    /// Clients do not understand its certificate.
    #[error("its certificate has a critical extension that clients do not understand: {0}")]
    CriticalExtension(String),
}
