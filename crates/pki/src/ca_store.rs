//! What the store of the signing CA holds, read and written: every CA that this server ever had,
//! with its key, so that whoever trusts one of them can be led to the one that signs.
//!
//! It is one PEM text, in one file or secret, because what has to change together must not fall
//! apart:
//!
//! ```text
//! the CA's key, its certificate                 as any PKI tool writes them
//! other CAs' certificates, each with its key    the newest first
//! cross-certificates                            one CA's name and key, signed by another
//! KEPT SERVING PAIR                             a pair that was replaced and cannot be issued again
//! DISTRUSTED CERTIFICATE                        a CA that is never to be trusted again
//! ```
//!
//! Nothing leaves because of the clock alone, which may be wrong. A key leaves when its CA is distrusted,
//! or has expired and there are [`MAX_EXPIRED_KEYS`] newer ones; what is not understood stays as it is.

use std::sync::Arc;

use pem::Pem;
use rcgen::KeyPair;
use time::OffsetDateTime;
use zeroize::Zeroize as _;

use super::certificate::{is_whole_pem, key_of, pem_text};
use super::issue::Signer;
use super::{Certificate, Malformed, StoredPair, Unusable};

/// CAs from which on a key leaves with its expired CA; those of valid CAs stay, however many there are.
const MAX_EXPIRED_KEYS: usize = 16;
/// Serving pairs from which on one leaves that has expired; valid ones stay.
const MAX_EXPIRED_PAIRS: usize = 16;

const CERTIFICATE: &str = "CERTIFICATE";
const DISTRUSTED: &str = "DISTRUSTED CERTIFICATE";
const PAIR: &str = "KEPT SERVING PAIR";

/// A CA, with its key where that is at hand.
#[derive(Clone)]
pub(super) struct Ca {
    pub(super) certificate: Certificate,
    pub(super) key: Option<Arc<CaKey>>,
}

/// A key, and its text as it was stored: a library that reads every form of a key writes only one.
pub(super) struct CaKey {
    pub(super) pair: KeyPair,
    text: String,
}

impl CaKey {
    pub(super) fn new(pair: KeyPair) -> Self {
        let text = pair.serialize_pem();
        Self { pair, text }
    }
}

impl Drop for CaKey {
    fn drop(&mut self) {
        self.text.zeroize();
        self.pair.zeroize();
    }
}

impl Ca {
    /// The CA as one that signs, `None` if its key is not at hand, or is not for signing.
    pub(super) fn signer(&self) -> Option<Signer<'_>> {
        let key = self.key.as_ref().filter(|_| self.certificate.signing_fault().is_none())?;
        Some(Signer { certificate: &self.certificate, key: &key.pair })
    }
}

/// What a store holds.
#[derive(Clone, Default)]
pub(super) struct CaStore {
    /// The one that the store names as its own, first where it can be read.
    pub(super) cas: Vec<Ca>,
    pub(super) cross_certificates: Vec<Certificate>,
    pub(super) distrusted: Vec<Certificate>,
    /// Serving pairs, each as it was stored, the oldest first.
    pairs: Vec<StoredPair>,
    /// What is not understood.
    others: Vec<String>,
    /// Why the first of those certificates cannot be read that machines cannot read.
    refused: Option<Malformed>,
}

impl CaStore {
    /// Reads a store, and tells why its own CA cannot be used, if it cannot.
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
        // Another one that follows does not take the place of one that cannot be read.
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
        let certificate = || parsed.as_ref().ok().cloned();
        let is_encrypted = block.headers().iter().next().is_some();
        match block.tag() {
            CERTIFICATE if certificate().is_some() => found.extend(certificate()),
            DISTRUSTED if certificate().is_some() => {
                let certificate = certificate();
                let is_new = |it: &Certificate| !self.distrusted.contains(it);
                let new: Vec<_> = certificate.into_iter().filter(is_new).collect();
                self.distrusted.extend(new);
            }
            PAIR => {
                let pair = StoredPair::joined(block.contents());
                if !self.pairs.contains(&pair) {
                    self.pairs.push(pair);
                }
            }
            _ => match key_of(text.as_bytes()).filter(|_| !is_encrypted) {
                Some(_) if keys.iter().any(|key| key.text == text) => {}
                Some(pair) => keys.push(Arc::new(CaKey { pair, text })),
                None if self.others.contains(&text) => {}
                None => self.others.push(text),
            },
        }
    }

    /// Tells CAs' own certificates from those by which others vouch for them.
    fn sort_out(
        &mut self,
        found: Vec<Certificate>,
        keys: &[Arc<CaKey>],
        own: Option<&Certificate>,
    ) {
        let is_own = |certificate: &Certificate| {
            Some(certificate) == own || certificate.subject_name == certificate.issuer_name
        };
        // What somebody else signed is a CA's own certificate only where there is no other.
        let (mut owns, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_own);
        let mut cross_certificates = Vec::new();
        for other in others {
            let is_known = owns.iter().chain(&cross_certificates).any(|it| it.is_same_ca(&other));
            if is_known { cross_certificates.push(other) } else { owns.push(other) }
        }
        for certificate in owns {
            if self.cas.iter().any(|ca| ca.certificate == certificate) {
                continue;
            }
            let key = keys.iter().find(|key| certificate.matches(&key.pair)).cloned();
            self.cas.push(Ca { certificate, key });
        }
        for certificate in cross_certificates {
            if !self.cross_certificates.contains(&certificate) {
                self.cross_certificates.push(certificate);
            }
        }
        self.cas.sort_by_key(|ca| {
            let is_other = Some(&ca.certificate) != own;
            (is_other, std::cmp::Reverse(ca.certificate.made_at()))
        });
        let orphans =
            keys.iter().filter(|key| !self.cas.iter().any(|ca| ca.certificate.matches(&key.pair)));
        self.others.extend(orphans.map(|key| key.text.clone()));
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
    pub(super) fn store(&self, own: &Ca, now: OffsetDateTime) -> StoredPair {
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
        // After the CAs' own: one that somebody else issued is its own certificate because it comes first.
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
            key: own.key.as_ref().map(|key| key.text.clone().into_bytes()).unwrap_or_default(),
            previous: previous.into(),
            unreadable: None,
        }
    }

    /// The CAs that can sign, the newest first.
    pub(super) fn signers(&self) -> Vec<&Ca> {
        let mut signers: Vec<_> = self.cas.iter().filter(|ca| ca.signer().is_some()).collect();
        signers.sort_by_key(|ca| std::cmp::Reverse(ca.certificate.made_at()));
        signers
    }

    /// The newest CA that can sign at this time.
    pub(super) fn signer_at(&self, now: OffsetDateTime) -> Option<&Ca> {
        self.signers().into_iter().find(|ca| ca.certificate.is_valid_at(now))
    }

    /// The certificates that are at the top of a CA's own, as far as they are kept: itself where nobody
    /// else's is above it.
    pub(super) fn anchors<'a>(&'a self, certificate: &'a Certificate) -> Vec<&'a Certificate> {
        let mut anchors = Vec::new();
        let mut way = vec![certificate];
        let mut next = 0;
        while let Some(&below) = way.get(next) {
            let above = self.cas.iter().map(|ca| &ca.certificate);
            let above: Vec<_> =
                above.filter(|it| !it.is_same_ca(below) && below.is_issued_by(it)).collect();
            if above.is_empty() {
                anchors.push(below);
            }
            way.extend(above.into_iter().filter(|it| !way.contains(it)).collect::<Vec<_>>());
            next += 1;
        }
        anchors
    }

    /// The CA that issued a certificate, with a key that can issue another.
    pub(super) fn issuer_of(&self, certificate: &Certificate) -> Option<&Ca> {
        self.signers().into_iter().find(|ca| certificate.is_issued_by(&ca.certificate))
    }

    pub(super) fn is_distrusted(&self, certificate: &Certificate) -> bool {
        self.distrusted.iter().any(|distrusted| distrusted.has_key_of(certificate))
    }

    /// Whether its key or whoever signed it is distrusted.
    pub(super) fn is_tainted(&self, certificate: &Certificate) -> bool {
        self.is_distrusted(certificate)
            || self.distrusted.iter().any(|distrusted| certificate.is_issued_by(distrusted))
    }

    /// Keeps a serving pair that is about to be replaced.
    pub(super) fn keep_pair(&mut self, pair: &StoredPair) {
        self.pairs.retain(|kept| kept.leaf() != pair.leaf());
        self.pairs.push(StoredPair::joined(&pair.text()));
    }

    /// The serving pairs that are kept, the newest first.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &StoredPair> {
        self.pairs.iter().rev()
    }

    /// Takes a CA out: its key, and every certificate that its key has or has signed.
    pub(super) fn distrust(&mut self, certificate: &Certificate) {
        if !self.distrusted.contains(certificate) {
            self.distrusted.push(certificate.clone());
        }
        let distrusted = self.distrusted.clone();
        let is_distrusted = |it: &Certificate| distrusted.iter().any(|other| other.has_key_of(it));
        let is_signed = |it: &Certificate| distrusted.iter().any(|other| it.is_issued_by(other));
        self.cas.retain(|ca| !is_distrusted(&ca.certificate));
        self.cross_certificates.retain(|it| !is_distrusted(it) && !is_signed(it));
    }
}

/// What a store had and another one at `after` has no more, but for CAs that are distrusted: their keys,
/// and serving pairs, each by its subject.
pub(super) fn left_out(before: &StoredPair, after: &StoredPair) -> Vec<String> {
    let (before, _) = CaStore::read(before);
    let (after, _) = CaStore::read(after);
    let has_key = |ca: &Ca| {
        let mut cas = after.cas.iter();
        cas.any(|other| other.key.is_some() && other.certificate.has_key_of(&ca.certificate))
    };
    let keys = before
        .cas
        .iter()
        .filter(|ca| ca.key.is_some() && !has_key(ca) && !after.is_distrusted(&ca.certificate));
    let keys = keys.map(|ca| format!("the key of \"{}\"", ca.certificate.title()));
    let pairs = before.pairs.iter().filter(|pair| !after.pairs.contains(pair));
    let pairs = pairs.filter_map(StoredPair::leaf);
    keys.chain(pairs.map(|leaf| format!("the serving pair \"{}\"", leaf.title()))).collect()
}

impl StoredPair {
    /// All CAs that the store of a signing CA holds or ever held, those that are distrusted too, and
    /// what they signed of each other.
    #[must_use]
    pub fn cas(&self) -> Vec<Certificate> {
        let texts = [&self.certificates, &self.previous];
        let blocks = texts.into_iter().filter_map(|text| blocks(text)).flatten();
        let certificates = blocks.filter(|block| [CERTIFICATE, DISTRUSTED].contains(&block.tag()));
        certificates.filter_map(|block| Certificate::from_der(block.contents())).collect()
    }
}

/// The certificate that a PEM text begins with, but for what is none, if it can be read.
fn first(text: &[u8]) -> Option<Certificate> {
    let block = blocks(text)?.into_iter().find(|block| block.tag() == CERTIFICATE)?;
    Certificate::from_der(block.contents())
}

/// The blocks of a PEM text, `None` if one of them is broken or cut short.
fn blocks(text: &[u8]) -> Option<Vec<Pem>> {
    is_whole_pem(text).then(|| pem::parse_many(text).ok()).flatten()
}
