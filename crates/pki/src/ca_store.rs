//! Reads and writes the store of the signing CA. It keeps every CA that this server ever had, with its key, so that a
//! machine that trusts one of them can build a path to the CA that signs.
//!
//! The store is one PEM text, in one file or Secret, so that its parts change together:
//!
//! ```text
//! the CA's key, its certificate                 as any PKI tool writes them
//! other CAs' certificates, each with its key    the newest first
//! cross-certificates                            one CA's name and key, signed by another
//! KEPT SERVING PAIR                             a pair that was replaced and cannot be issued again
//! DISTRUSTED CERTIFICATE                        a CA that is never to be trusted again
//! ```
//!
//! The clock may be wrong, so expiry alone removes nothing. A key is removed when its CA is distrusted, or has expired
//! and there are [`MAX_EXPIRED_KEYS`] newer ones. Blocks of unknown kinds are kept unchanged.

use std::sync::Arc;

use pem::Pem;
use rcgen::KeyPair;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::certificate::{Certificate, extend_unique, is_whole_pem, key_of, pem_text};
use super::go_x509::Malformed;
use super::issue::Signer;
use super::reason::{IssueError, Unusable};
use super::state::StoredPair;

/// Number of keys from which on an expired CA loses its key. CAs that are valid keep theirs.
const MAX_EXPIRED_KEYS: usize = 16;
/// Number of serving pairs from which on an expired one is removed. Valid ones stay.
const MAX_EXPIRED_PAIRS: usize = 16;

const CERTIFICATE: &str = "CERTIFICATE";
const DISTRUSTED: &str = "DISTRUSTED CERTIFICATE";
const PAIR: &str = "KEPT SERVING PAIR";

/// A CA, with its key if the store has it.
#[derive(Clone)]
pub(super) struct Ca {
    pub(super) certificate: Certificate,
    pub(super) key: Option<Arc<CaKey>>,
}

/// A key, and its text as it was stored: the library reads every form of a key and writes only one.
pub(super) struct CaKey {
    pub(super) pair: Zeroizing<KeyPair>,
    text: Zeroizing<String>,
}

impl CaKey {
    pub(super) fn new(pair: KeyPair) -> Self {
        let text = pair.serialize_pem().into();
        Self { pair: pair.into(), text }
    }
}

impl Ca {
    /// The CA as a signer, unless its key is missing, or must not sign certificates.
    pub(super) fn signer(&self) -> Result<Signer<'_>, IssueError> {
        let key = self.key.as_ref().filter(|_| self.certificate.signing_fault().is_none());
        let key = &key.ok_or(IssueError::NoSigner)?.pair;
        Ok(Signer { certificate: &self.certificate, key })
    }
}

/// The contents of a store, parsed.
#[derive(Clone, Default)]
pub(super) struct CaStore {
    /// All CAs. The one that the store names as its own is first, if it can be read.
    pub(super) cas: Vec<Ca>,
    pub(super) cross_certificates: Vec<Certificate>,
    pub(super) distrusted: Vec<Certificate>,
    /// Serving pairs as they were stored, the oldest first.
    pairs: Vec<StoredPair>,
    /// Blocks of unknown kinds, kept unchanged.
    others: Vec<String>,
    /// Fault of the first certificate that machines cannot read.
    refused: Option<Malformed>,
}

impl CaStore {
    /// Reads a store, and returns with it why its own CA cannot be used, if it cannot.
    pub(super) fn read(stored: &StoredPair) -> (Self, Option<Unusable>) {
        let StoredPair { certificates, key, previous, unreadable } = stored;
        if let Some(reason) = unreadable {
            return (Self::default(), Some(Unusable::Unreadable(reason.clone())));
        }
        let mut read = Self::default();
        let mut keys: Vec<Arc<CaKey>> = Vec::new();
        let mut found: Vec<Certificate> = Vec::new();
        let mut fault = None;
        for text in [certificates, key, previous] {
            let Some(blocks) = blocks(text) else {
                fault = Some(Unusable::Malformed);
                continue;
            };
            for block in blocks {
                read.take(&block, &mut found, &mut keys);
            }
        }
        // If the store's own CA cannot be read, a certificate that follows does not replace it.
        let own = first(certificates);
        read.sort_out(found, &keys, own.as_ref());
        if fault.is_none() {
            let is_empty = [certificates, key].iter().all(|text| text.trim_ascii().is_empty());
            fault = if is_empty { Some(Unusable::Empty) } else { read.own_fault(own.as_ref()) };
        }
        (read, fault)
    }

    fn take(&mut self, block: &Pem, found: &mut Vec<Certificate>, keys: &mut Vec<Arc<CaKey>>) {
        let text = pem_text(block);
        let parsed = Certificate::parse(block.contents());
        if let (CERTIFICATE, Err(malformed)) = (block.tag(), &parsed) {
            self.refused.get_or_insert_with(|| malformed.clone());
        }
        let is_encrypted = block.headers().iter().next().is_some();
        match (block.tag(), parsed) {
            (CERTIFICATE, Ok(certificate)) => found.push(certificate),
            (DISTRUSTED, Ok(certificate)) => extend_unique(&mut self.distrusted, [certificate]),
            (PAIR, _) => extend_unique(&mut self.pairs, [StoredPair::joined(block.contents())]),
            _ => match key_of(text.as_bytes()).filter(|_| !is_encrypted) {
                Some(_) if keys.iter().any(|key| *key.text == text) => {}
                Some(pair) => {
                    keys.push(Arc::new(CaKey { pair: pair.into(), text: text.into() }));
                }
                None => extend_unique(&mut self.others, [text]),
            },
        }
    }

    /// Separates CAs' own certificates from cross-certificates.
    fn sort_out(
        &mut self,
        found: Vec<Certificate>,
        keys: &[Arc<CaKey>],
        own: Option<&Certificate>,
    ) {
        let is_own = |certificate: &Certificate| {
            Some(certificate) == own || certificate.subject_name == certificate.issuer_name
        };
        // A certificate that another CA signed is a CA's own only if the CA has no other.
        let (mut owns, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_own);
        let mut cross_certificates = Vec::new();
        for other in others {
            let is_known = owns.iter().chain(&cross_certificates).any(|it| it.is_same_ca(&other));
            if is_known { cross_certificates.push(other) } else { owns.push(other) }
        }
        for certificate in owns {
            if !self.has(&certificate) {
                let key = keys.iter().find(|key| certificate.matches(&key.pair)).cloned();
                self.cas.push(Ca { certificate, key });
            }
        }
        extend_unique(&mut self.cross_certificates, cross_certificates);
        self.cas.sort_by_key(|ca| {
            let is_other = Some(&ca.certificate) != own;
            (is_other, std::cmp::Reverse(ca.certificate.made_at()))
        });
        let is_orphan = |key: &&Arc<CaKey>| !self.certificates().any(|ca| ca.matches(&key.pair));
        let orphans = keys.iter().filter(is_orphan).map(|key| key.text.to_string());
        self.others.extend(orphans.collect::<Vec<_>>());
    }

    fn own_fault(&self, own: Option<&Certificate>) -> Option<Unusable> {
        let is_encrypted = |text: &String| text.contains("ENCRYPTED");
        let Some(own) = own else {
            if let Some(malformed) = self.refused.clone() {
                return Some(Unusable::Refused { place: 1, malformed });
            }
            let is_encrypted = self.others.iter().any(is_encrypted);
            return Some(if is_encrypted { Unusable::Encrypted } else { Unusable::NoCertificate });
        };
        if let Some(fault) = own.signing_fault() {
            return Some(fault);
        }
        let has_key = self.cas.first().is_some_and(|ca| ca.key.is_some());
        let is_key = |text: &String| text.contains("PRIVATE KEY");
        match self.others.iter().find(|text| is_key(text)) {
            _ if has_key => None,
            Some(text) if is_encrypted(text) => Some(Unusable::Encrypted),
            Some(text) if key_of(text.as_bytes()).is_some() => Some(Unusable::ForeignKey),
            Some(_) => Some(Unusable::UnsupportedKey),
            None if self.cas.iter().any(|ca| ca.key.is_some()) => Some(Unusable::ForeignKey),
            None => Some(Unusable::NoKey),
        }
    }

    /// The store's text at `now`, with `own` as the CA that it names first.
    pub(super) fn encode(&self, own: &Ca, now: OffsetDateTime) -> StoredPair {
        let mut others: Vec<_> =
            self.cas.iter().filter(|ca| ca.certificate != own.certificate).collect();
        others.sort_by_key(|ca| std::cmp::Reverse(ca.certificate.made_at()));
        let mut previous = String::new();
        let mut keys = usize::from(own.key.is_some());
        for ca in others {
            previous += &ca.certificate.to_pem();
            let is_kept = keys < MAX_EXPIRED_KEYS || now <= ca.certificate.not_after;
            if let Some(key) = ca.key.as_ref().filter(|_| is_kept) {
                previous += &key.text;
                keys += 1;
            }
        }
        // Cross-certificates come after the CAs' own: the first certificate of a CA is read as its own.
        previous.extend(self.cross_certificates.iter().map(Certificate::to_pem));
        let excess = self.pairs.len().saturating_sub(MAX_EXPIRED_PAIRS);
        let is_valid = |pair: &StoredPair| pair.leaf().is_some_and(|leaf| now <= leaf.not_after);
        let pairs = self.pairs.iter().enumerate();
        for (_, pair) in pairs.filter(|(index, pair)| *index >= excess || is_valid(pair)) {
            previous += &pem_text(&Pem::new(PAIR, pair.text()));
        }
        for certificate in &self.distrusted {
            previous += &pem_text(&Pem::new(DISTRUSTED, certificate.der()));
        }
        for other in &self.others {
            previous += other;
        }
        StoredPair {
            certificates: own.certificate.to_pem().into(),
            key: own.key.as_ref().map(|key| key.text.as_bytes().to_vec()).unwrap_or_default(),
            previous: previous.into(),
            unreadable: None,
        }
    }

    pub(super) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.cas.iter().map(|ca| &ca.certificate)
    }

    pub(super) fn has(&self, certificate: &Certificate) -> bool {
        self.certificates().any(|own| own == certificate)
    }

    /// The CAs that can sign, the newest first.
    pub(super) fn signers(&self) -> Vec<&Ca> {
        let mut signers: Vec<_> = self.cas.iter().filter(|ca| ca.signer().is_ok()).collect();
        signers.sort_by_key(|ca| std::cmp::Reverse(ca.certificate.made_at()));
        signers
    }

    /// The CAs that can sign at this time, the newest first.
    pub(super) fn signers_at(&self, now: OffsetDateTime) -> Vec<&Ca> {
        let mut signers = self.signers();
        signers.retain(|ca| ca.certificate.is_valid_at(now));
        signers
    }

    /// The newest CA that can sign at this time.
    pub(super) fn signer_at(&self, now: OffsetDateTime) -> Option<&Ca> {
        self.signers_at(now).into_iter().next()
    }

    /// The topmost known certificates above a CA; the certificate itself if no known CA issued it.
    pub(super) fn anchors<'a>(&'a self, certificate: &'a Certificate) -> Vec<&'a Certificate> {
        let mut anchors = Vec::new();
        let mut path = vec![certificate];
        let mut next = 0;
        while let Some(&below) = path.get(next) {
            let is_above = |it: &&Certificate| !it.is_same_ca(below) && below.is_issued_by(it);
            let above: Vec<_> = self.certificates().filter(is_above).collect();
            if above.is_empty() {
                anchors.push(below);
            }
            extend_unique(&mut path, above);
            next += 1;
        }
        anchors
    }

    /// The CA that issued a certificate, if its key can issue another.
    pub(super) fn issuer_of(&self, certificate: &Certificate) -> Option<&Ca> {
        self.signers().into_iter().find(|ca| certificate.is_issued_by(&ca.certificate))
    }

    pub(super) fn is_distrusted(&self, certificate: &Certificate) -> bool {
        self.distrusted.iter().any(|distrusted| distrusted.has_key_of(certificate))
    }

    /// Returns `true` if the certificate's key or its issuer is distrusted.
    pub(super) fn is_tainted(&self, certificate: &Certificate) -> bool {
        self.is_distrusted(certificate)
            || self.distrusted.iter().any(|distrusted| certificate.is_issued_by(distrusted))
    }

    /// Stores a serving pair that is about to be replaced.
    pub(super) fn insert_pair(&mut self, pair: &StoredPair) {
        self.pairs.retain(|kept| kept.leaf() != pair.leaf());
        self.pairs.push(StoredPair::joined(&pair.text()));
    }

    /// The stored serving pairs, the newest first.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &StoredPair> {
        self.pairs.iter().rev()
    }

    /// Distrusts a CA: removes its key, and every certificate for its key or signed by it.
    pub(super) fn distrust(&mut self, certificate: &Certificate) {
        extend_unique(&mut self.distrusted, [certificate.clone()]);
        let distrusted = self.distrusted.clone();
        let is_distrusted = |it: &Certificate| distrusted.iter().any(|other| other.has_key_of(it));
        let is_signed = |it: &Certificate| distrusted.iter().any(|other| it.is_issued_by(other));
        self.cas.retain(|ca| !is_distrusted(&ca.certificate));
        self.cross_certificates.retain(|it| !is_distrusted(it) && !is_signed(it));
    }
}

/// Subjects of the keys and serving pairs that `before` has and `after` lacks, except those of distrusted CAs.
pub(super) fn dropped(before: &StoredPair, after: &StoredPair) -> Vec<String> {
    let (before, _) = CaStore::read(before);
    let (after, _) = CaStore::read(after);
    let has_key = |ca: &Ca| {
        let mut cas = after.cas.iter();
        cas.any(|other| other.key.is_some() && other.certificate.has_key_of(&ca.certificate))
    };
    let is_lost =
        |ca: &&Ca| ca.key.is_some() && !has_key(ca) && !after.is_distrusted(&ca.certificate);
    let keys = before.cas.iter().filter(is_lost);
    let keys = keys.map(|ca| format!("the key of \"{}\"", ca.certificate.title()));
    let pairs = before.pairs.iter().filter(|pair| !after.pairs.contains(pair));
    let pairs = pairs.filter_map(StoredPair::leaf);
    keys.chain(pairs.map(|leaf| format!("the serving certificate \"{}\"", leaf.title()))).collect()
}

impl StoredPair {
    /// All CAs that the store of a signing CA holds or ever held, distrusted ones and cross-certificates included.
    pub fn cas(&self) -> Vec<Certificate> {
        let texts = [&self.certificates, &self.previous];
        let blocks = texts.into_iter().filter_map(|text| blocks(text)).flatten();
        let certificates = blocks.filter(|block| [CERTIFICATE, DISTRUSTED].contains(&block.tag()));
        certificates.filter_map(|block| Certificate::from_der(block.contents())).collect()
    }
}

/// The first certificate of a PEM text, if it can be read.
fn first(text: &[u8]) -> Option<Certificate> {
    let block = blocks(text)?.into_iter().find(|block| block.tag() == CERTIFICATE)?;
    Certificate::from_der(block.contents())
}

/// The blocks of a PEM text, `None` if one of them is broken or cut short.
fn blocks(text: &[u8]) -> Option<Vec<Pem>> {
    is_whole_pem(text).then(|| pem::parse_many(text).ok()).flatten()
}
