//! What there is, as far as a decision about it goes.

use super::{Certificate, Host};

/// A certificate with its key and what goes with it, as it is stored: PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredPair {
    /// The certificate. For a serving pair, the cross-signed authorities follow it.
    pub certificates: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
    /// For an authority: its name and key as older ones signed them, and the older ones'
    /// certificates and keys.
    pub previous: Vec<u8>,
}

impl std::fmt::Debug for StoredPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredPair")
            .field("certificates", &Certificate::read_all(&self.certificates))
            .finish_non_exhaustive()
    }
}

impl StoredPair {
    /// The certificate that the key belongs to, `None` where it cannot be read.
    #[must_use]
    pub fn leaf(&self) -> Option<Certificate> {
        Certificate::read_all(&self.certificates).into_iter().next()
    }
}

/// A pointer config, as far as certificates go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// What names it among the others: a file, or a secret.
    pub name: String,
    /// How it stands to the bundle.
    pub state: PointerState,
    /// The hosts that it sends machines to.
    pub hosts: Vec<Host>,
}

/// How a pointer config stands to the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointerState {
    /// It trusts what it should, or is none of ours: it stays as it is.
    Kept,
    /// It trusts other authorities. This is the text that trusts those of the bundle.
    Stale(Vec<u8>),
    /// It trusts other authorities, and writing it was refused: the rest does not wait for it.
    Refused,
}

/// What somebody asks for beside what is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// A new authority.
    pub authority: bool,
    /// A new serving pair.
    pub serving: bool,
}

/// Everything that a plan depends on.
#[derive(Debug, Clone, Default)]
pub struct CertificateState {
    /// The signing authority.
    pub authority: Option<StoredPair>,
    /// The bundle of authorities that pointer configs trust, PEM.
    pub bundle: Option<Vec<u8>>,
    /// The serving pair.
    pub serving: Option<StoredPair>,
    /// An older installation's authority, whose key was never kept, PEM.
    pub root_authority: Option<Vec<u8>>,
    /// The pointer configs.
    pub pointers: Vec<Pointer>,
    /// The names that machines may reach the server by, the main one first.
    pub hosts: Vec<Host>,
    /// What somebody asked for.
    pub asked: Asked,
}

impl CertificateState {
    /// The certificates of the bundle.
    #[must_use]
    pub fn trusted(&self) -> Vec<Certificate> {
        Certificate::read_all(self.bundle.as_deref().unwrap_or_default())
    }

    /// All certificates that are served, the leaf first.
    #[must_use]
    pub fn chain(&self) -> Vec<Certificate> {
        let certificates = self.serving.as_ref().map(|pair| &pair.certificates[..]);
        Certificate::read_all(certificates.unwrap_or_default())
    }

    /// The certificate that is served.
    #[must_use]
    pub fn served(&self) -> Option<Certificate> {
        self.serving.as_ref().and_then(StoredPair::leaf)
    }
}
