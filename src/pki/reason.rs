//! Why certificates are made anew, and why they are not.

use super::Host;

/// Why something is made anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// What there is cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The key is missing or another one's.
    #[error("its key is missing or does not belong to it")]
    Key,
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    Expired,
    /// It has been used for as long as it should.
    #[error("it is due for renewal")]
    Renewal,
    /// It lacks a name that machines ask for.
    #[error("it does not name {0}")]
    Host(Host),
    /// Its issuer is not trusted by new machines.
    #[error("its issuer is not in the bundle")]
    Issuer,
    /// There is a newer authority, which those who trust the older ones trust too.
    #[error("there is a newer authority")]
    NewerAuthority,
    /// Somebody asked for it.
    #[error("it was asked for")]
    Asked,
}

impl Reason {
    /// How metrics and events name it.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Key => "key",
            Self::Expired => "expired",
            Self::Renewal => "renewal",
            Self::Host(_) => "host",
            Self::Issuer => "issuer",
            Self::NewerAuthority => "newer-authority",
            Self::Asked => "asked",
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
    /// There is no authority that could sign a serving certificate.
    #[error("no certificate authority can sign: {0}")]
    NoAuthority(Reason),
}
