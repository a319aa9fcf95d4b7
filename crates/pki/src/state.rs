//! The stored state that plans are made from.

use time::OffsetDateTime;

use super::certificate::Certificate;
use super::holder::{Lockout, TrustHolder};
use super::hosts::Host;
use super::reason::Unusable;
use super::servable::{read_chain, served};

/// A certificate with its key and chain, as stored in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredPair {
    /// The certificate; for a serving pair, the chain that is sent follows.
    pub certificates: Vec<u8>,
    /// The private key in PEM.
    pub key: Vec<u8>,
    /// The rest of a signing CA's store: other CAs and their keys, cross-certificates.
    pub previous: Vec<u8>,
    /// Error from reading it; `None` if it was read.
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
    /// A serving pair in one text with certificates and key.
    pub fn joined(text: &[u8]) -> Self {
        Self { certificates: text.to_vec(), key: text.to_vec(), ..Self::default() }
    }

    /// A pair that exists and is unreadable.
    pub fn unreadable(reason: String) -> Self {
        Self { unreadable: Some(reason), ..Self::default() }
    }

    /// The serving pair as one text, key first.
    pub fn text(&self) -> Vec<u8> {
        if self.key == self.certificates || self.key.is_empty() {
            return self.certificates.clone();
        }
        let line_feed = if self.key.ends_with(b"\n") { &b""[..] } else { b"\n" };
        [&self.key[..], line_feed, &self.certificates].concat()
    }

    /// Returns `true` if the key's certificate is not self-signed.
    pub fn is_issued_by_another(&self) -> bool {
        self.leaf().is_some_and(|own| !own.is_self_signed())
    }

    /// The chain that a server sends with this pair, the leaf first, if the server can serve it and machines can read
    /// it.
    pub fn served_chain(&self) -> Result<Vec<Certificate>, Unusable> {
        match &self.unreadable {
            Some(reason) => Err(Unusable::Unreadable(reason.clone())),
            None => served(&self.certificates, &self.key),
        }
    }

    /// The key's certificate, `None` if it is unreadable.
    pub fn leaf(&self) -> Option<Certificate> {
        read_chain(&self.certificates).ok()?.into_iter().next()
    }
}

/// Trust of a pointer config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerTrust {
    /// Unique name: a file or a Secret.
    pub name: String,
    /// Relation to the bundle.
    pub state: PointerState,
    /// Size in bytes.
    pub bytes: usize,
    /// Hosts that it sends machines to.
    pub hosts: Vec<Host>,
    /// Holders that fetch by it and can be locked out; empty if it verifies no certificate.
    pub holders: Vec<TrustHolder>,
    /// Reasons why no machine boots from it, regardless of the served chain.
    pub faults: Vec<Lockout>,
}

/// Relation of a pointer config to the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointerState {
    /// Its trust is up to date, or not managed by this server.
    Kept,
    /// Trust in this server's CAs is in a place that is not edited.
    OutOfReach,
    /// Its CAs differ from the bundle's; the updated config.
    Stale(RepairedPointer),
    /// Its CAs differ from the bundle's, and writing it was refused. Other steps do not wait for it.
    Refused,
}

/// An updated pointer config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedPointer {
    /// Text that trusts the CAs of the bundle.
    pub text: Vec<u8>,
    /// Holders that fetch by the updated text.
    pub holders: Vec<TrustHolder>,
}

/// An administrator's requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RotationRequest {
    /// A new CA.
    pub ca: bool,
    /// A new serving pair.
    pub serving: bool,
    /// Rotate even if machines are locked out.
    pub force: bool,
    /// Distrust these CAs for good, each by the SHA-256 digest of a certificate, in hexadecimal digits with or without
    /// colons, or by the common name of its subject.
    pub distrust: Vec<String>,
}

/// An external CA that issues this server's CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Display name.
    pub name: String,
    /// True if it issued the CA that the store names as its own.
    pub has_issued: bool,
    /// The last request to it.
    pub request: Option<Request>,
}

/// A request for a CA.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Private key in PEM.
    pub key: Vec<u8>,
    /// Time of the request.
    pub since: OffsetDateTime,
    /// Number of failed requests before it.
    pub before: u32,
    /// Answer of the issuer.
    pub answer: Answer,
}

/// A serving pair that is made outside of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// Display name.
    pub name: String,
    /// The pair, `None` if it does not exist.
    pub pair: Option<StoredPair>,
    /// CAs for machines to trust, in PEM.
    pub trust: Vec<u8>,
}

/// An issuer's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// No decision yet; the issuer's message, which can be empty.
    Pending(String),
    /// The request was refused, for this reason.
    Refused(String),
    /// The certificates were issued, in PEM.
    Issued {
        /// The CA, and the intermediates from it to the roots.
        chain: Vec<u8>,
        /// Roots for machines to trust.
        roots: Vec<u8>,
    },
}

impl std::fmt::Debug for Request {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { since, answer, .. } = self;
        f.debug_struct("Request")
            .field("since", since)
            .field("answer", answer)
            .finish_non_exhaustive()
    }
}

/// Complete input of a plan.
#[derive(Debug, Clone, Default)]
pub struct CertificateState {
    /// Store of the signing CA.
    pub ca: Option<StoredPair>,
    /// Trust bundle of pointer configs, in PEM.
    pub bundle: Option<Vec<u8>>,
    /// Certificate and key that are served.
    pub serving: Option<StoredPair>,
    /// CA of an older installation, whose key is not stored, in PEM.
    pub root_ca: Option<Vec<u8>>,
    /// All known pointer configs.
    pub pointers: Vec<PointerTrust>,
    /// Hosts of the server, the main one first.
    pub hosts: Vec<Host>,
    /// True if machines may use all of `hosts`; otherwise only those in pointer configs.
    pub are_hosts_used: bool,
    /// True if another controller may write the bundle too, in another order.
    pub is_shared: bool,
    /// Requests of administrators.
    pub requested: RotationRequest,
    /// Issuer of this server's CA, unless it is self-signed.
    pub issuer: Option<Issuer>,
    /// Pair that is made outside of this server; nothing is issued if it is set.
    pub external: Option<External>,
}

impl CertificateState {
    /// The certificates of the bundle.
    pub fn trusted(&self) -> Vec<Certificate> {
        Certificate::read_all(self.bundle.as_deref().unwrap_or_default())
    }

    /// CAs that are or were the server's, in the bundle or not.
    pub fn known(&self) -> Vec<Certificate> {
        let stored = self.ca.iter().flat_map(StoredPair::cas);
        let root = self.root_ca.as_deref().unwrap_or_default();
        stored.chain(Certificate::read_all(root)).collect()
    }

    /// Certificates that are served, the leaf first; empty if one of them is unreadable, because no machine boots then.
    pub fn chain(&self) -> Vec<Certificate> {
        let certificates = self.serving.as_ref().map(|pair| &pair.certificates[..]);
        read_chain(certificates.unwrap_or_default()).unwrap_or_default()
    }

    /// The served leaf.
    pub fn served(&self) -> Option<Certificate> {
        self.serving.as_ref().and_then(StoredPair::leaf)
    }
}
