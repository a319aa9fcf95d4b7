//! How much of a pool is restricted.

use std::fmt;
use std::str::FromStr;

/// Annotation of a pool with its access mode; on a secret with user data, `off` says that no machine is
/// made from it.
pub const ACCESS_ANNOTATION: &str = "machineconfiguration.openshift.io/access";

/// How much of a pool's access is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessMode {
    /// Everybody who reaches the server gets the config.
    #[default]
    Off,
    /// The same, but it is told who would be refused.
    Audit,
    /// Nobody gets the config who does not prove that he may have it.
    Enforce,
}

impl AccessMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Audit, Self::Enforce];

    /// As flags and annotations have it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for AccessMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.label() == text);
        found.ok_or_else(|| "expected off, audit or enforce".to_owned())
    }
}

/// Why a pool is neither open nor enforced: a token that is known opens it, everything else gets 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// Nothing is known of its pointer configs.
    #[error(
        "whether its pointer configs carry tokens is not known; the controller reports it, where it \
         runs with --access"
    )]
    NotKnown,
    /// It was enforced or may have been, and the records do not say so any more.
    #[error(
        "it was enforced or may have been, and the records of tokens do not say so any more: were they lost, or \
         restored from a backup? Annotate the pool with audit, then with enforce"
    )]
    Contested,
    /// What the pool says of its access is not understood, and nothing is known of it from before.
    #[error("its mode of access is not known")]
    Unclear,
    /// One mode follows another at this moment.
    #[error("its mode of access changes")]
    Changing,
}
