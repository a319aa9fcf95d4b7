//! What there is, as far as a decision about it goes.

use time::OffsetDateTime;

use super::servable::served;
use super::{Certificate, Holder, Host, Lockout, Unusable, read_chain};

/// A certificate with its key and what goes with it, as it is stored: PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredPair {
    /// The certificate. For a serving pair, the certificates that are sent with it follow.
    pub certificates: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
    /// For a signing CA, what else its store holds: other CAs and their keys, cross-certificates.
    pub previous: Vec<u8>,
    /// Why it cannot be read, where there is something that cannot.
    pub unreadable: Option<String>,
}

impl std::fmt::Debug for StoredPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredPair")
            .field("certificates", &Certificate::read_all(&self.certificates))
            .finish_non_exhaustive()
    }
}

impl StoredPair {
    /// A serving pair that is one text, certificates and key.
    #[must_use]
    pub fn joined(text: &[u8]) -> Self {
        Self { certificates: text.to_vec(), key: text.to_vec(), ..Self::default() }
    }

    /// Something that is there and cannot be read.
    #[must_use]
    pub fn unreadable(reason: String) -> Self {
        Self { unreadable: Some(reason), ..Self::default() }
    }

    /// A serving pair as one text, its key first.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        if self.key == self.certificates || self.key.is_empty() {
            return self.certificates.clone();
        }
        let line_feed = if self.key.ends_with(b"\n") { &b""[..] } else { b"\n" };
        [&self.key[..], line_feed, &self.certificates].concat()
    }

    /// Whether the certificate that the key belongs to is a CA's that did not issue itself.
    #[must_use]
    pub fn is_issued_by_another(&self) -> bool {
        self.leaf().is_some_and(|own| !own.is_issued_by(&own))
    }

    /// The chain that a server sends by this pair, the leaf first, if it can serve it and machines can read it.
    pub fn served_chain(&self) -> Result<Vec<Certificate>, Unusable> {
        match &self.unreadable {
            Some(reason) => Err(Unusable::Unreadable(reason.clone())),
            None => served(&self.certificates, &self.key),
        }
    }

    /// The certificate that the key belongs to, `None` where it cannot be read.
    #[must_use]
    pub fn leaf(&self) -> Option<Certificate> {
        read_chain(&self.certificates).ok()?.into_iter().next()
    }
}

/// A pointer config, as far as certificates go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerTrust {
    /// What names it among the others: a file, or a secret.
    pub name: String,
    /// How it stands to the bundle.
    pub state: PointerState,
    /// Its size.
    pub bytes: usize,
    /// The hosts that it sends machines to.
    pub hosts: Vec<Host>,
    /// Those who fetch by it and may be locked out, none if no certificate matters to it.
    pub holders: Vec<Holder>,
    /// Why no machine boots from it, whatever is served.
    pub faults: Vec<Lockout>,
}

/// How a pointer config stands to the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointerState {
    /// It trusts what it should, or is none of ours: it stays as it is.
    Kept,
    /// It trusts this server's authorities where they are not replaced.
    OutOfReach,
    /// It trusts other authorities than those of the bundle.
    Stale(RepairedPointer),
    /// It trusts other authorities, and writing it was refused: the rest does not wait for it.
    Refused,
}

/// A pointer config as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedPointer {
    /// Its text, which trusts the authorities of the bundle.
    pub text: Vec<u8>,
    /// Those who fetch by it then.
    pub holders: Vec<Holder>,
}

/// What somebody asks for beside what is due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// A new authority.
    pub ca: bool,
    /// A new serving pair.
    pub serving: bool,
    /// To do it even if machines are locked out.
    pub force: bool,
    /// Never to trust these CAs again: the SHA-256 digest of a certificate, in hexadecimal digits
    /// with or without colons, or the common name of its subject.
    pub distrust: Vec<String>,
}

/// Somebody else's CA, which issues this server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// What people call it.
    pub name: String,
    /// Whether it issued the CA that the store names as its own.
    pub has_issued: bool,
    /// What it was asked for last.
    pub request: Option<Request>,
}

/// A CA that was asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Its key, PEM.
    pub key: Vec<u8>,
    /// When it was asked for.
    pub since: OffsetDateTime,
    /// How many before it were for naught.
    pub before: u32,
    /// What came of it.
    pub answer: Answer,
}

/// A serving pair that somebody else makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// What people call it.
    pub name: String,
    /// The pair, `None` where it is not there.
    pub pair: Option<StoredPair>,
    /// The CAs that machines are to trust, PEM.
    pub trust: Vec<u8>,
}

/// What an issuer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet but for what it waits for, empty where it does not tell.
    Pending(String),
    /// No, and why.
    Refused(String),
    /// Certificates, PEM.
    Issued {
        /// The CA, and what leads from it to the roots.
        chain: Vec<u8>,
        /// Those that machines are to trust.
        roots: Vec<u8>,
    },
}

impl std::fmt::Debug for Request {
    /// Without its key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { since, answer, .. } = self;
        f.debug_struct("Request")
            .field("since", since)
            .field("answer", answer)
            .finish_non_exhaustive()
    }
}

/// Everything that a plan depends on.
#[derive(Debug, Clone, Default)]
pub struct CertificateState {
    /// The signing authority.
    pub ca: Option<StoredPair>,
    /// The bundle of authorities that pointer configs trust, PEM.
    pub bundle: Option<Vec<u8>>,
    /// The serving pair.
    pub serving: Option<StoredPair>,
    /// An older installation's authority, whose key was never kept, PEM.
    pub root_ca: Option<Vec<u8>>,
    /// The pointer configs.
    pub pointers: Vec<PointerTrust>,
    /// The names that machines may reach the server by, the main one first.
    pub hosts: Vec<Host>,
    /// Whether machines may ask for every one of them; else only for those in pointer configs.
    pub are_hosts_used: bool,
    /// Whether another controller may keep the bundle too, in an order of its own.
    pub is_shared: bool,
    /// What somebody asked for.
    pub asked: Asked,
    /// Who issues CAs, if they do not issue themselves.
    pub issuer: Option<Issuer>,
    /// The pair that somebody else makes, if nothing is to be issued here.
    pub external: Option<External>,
}

impl CertificateState {
    /// The certificates of the bundle.
    #[must_use]
    pub fn trusted(&self) -> Vec<Certificate> {
        Certificate::read_all(self.bundle.as_deref().unwrap_or_default())
    }

    /// Authorities that are or were the server's, whether they are in the bundle or not.
    #[must_use]
    pub fn known(&self) -> Vec<Certificate> {
        let stored = self.ca.iter().flat_map(StoredPair::cas);
        let root = self.root_ca.as_deref().unwrap_or_default();
        stored.chain(Certificate::read_all(root)).collect()
    }

    /// All certificates that are served, the leaf first; none where one of them cannot be read, because no machine boots
    /// then.
    #[must_use]
    pub fn chain(&self) -> Vec<Certificate> {
        let certificates = self.serving.as_ref().map(|pair| &pair.certificates[..]);
        read_chain(certificates.unwrap_or_default()).unwrap_or_default()
    }

    /// The certificate that is served.
    #[must_use]
    pub fn served(&self) -> Option<Certificate> {
        self.serving.as_ref().and_then(StoredPair::leaf)
    }
}
