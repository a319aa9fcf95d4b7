//! Certificates as they are read, reduced to the fields that decisions depend on.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use data_encoding::HEXLOWER;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::{X509Name, X509Version};

use super::encoding::{contents, first_fields};
use super::extensions::Extensions;
use super::go_x509::{self, Malformed};
use super::hosts::Host;
use super::moment::written;
use super::reason::Unusable;
use super::weak_key::{Weakness, weakness};

/// A parsed certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    /// The subject's common name, empty where it has none.
    pub common_name: String,
    /// The issuer's common name, empty where it has none.
    pub issuer: String,
    /// First moment of its validity.
    pub not_before: OffsetDateTime,
    /// Last moment of its validity.
    pub not_after: OffsetDateTime,
    /// Alternative names: DNS names and addresses.
    pub hosts: BTreeSet<Host>,
    /// Algorithm and size of the key, for people: `ECDSA P-256`, `RSA 2048`.
    pub key_kind: String,
    /// The subject's name as it is encoded, by which verifiers find an issuer.
    pub subject_name: Vec<u8>,
    /// The issuer's name as it is encoded.
    pub issuer_name: Vec<u8>,
    /// The public key with its algorithm, as it is encoded (RFC 5280 section 4.1.2.7).
    pub key_info: Vec<u8>,
    /// False for X.509 versions 1 and 2, which have no extensions and so no mark of a CA.
    pub(super) is_version_3: bool,
    pub(super) extensions: Extensions,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate")
            .field("common_name", &self.common_name)
            .field("issuer", &self.issuer)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// A certificate of a text that machines cannot read: its position in the text, from 1, and its fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("certificate {0} cannot be used: {1}")]
pub struct NotRead(usize, Malformed);

impl Certificate {
    /// Reads DER, `None` if it is no certificate that machines can read.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Self::parse(der).ok()
    }

    /// Reads DER. A certificate that Go's parser refuses is an error: no machine can use it, so this crate neither
    /// judges, trusts nor serves it.
    pub fn parse(der: &[u8]) -> Result<Self, Malformed> {
        go_x509::check(der)?;
        Self::read(der).ok_or(Malformed::Unread)
    }

    fn read(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let common_name = |name: &X509Name<'_>| {
            let name = name.iter_common_name().next().and_then(|name| name.as_str().ok());
            name.unwrap_or_default().to_owned()
        };
        let validity = parsed.validity();
        let extensions = Extensions::read(&parsed);
        let names = extensions.dns_names.iter().filter_map(|name| name.parse().ok());
        let hosts = names.chain(extensions.addresses.iter().copied().map(Host::Address)).collect();
        Some(Self {
            common_name: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()),
            not_before: written(validity.not_before.to_datetime()),
            not_after: written(validity.not_after.to_datetime()),
            hosts,
            key_kind: key_kind(&parsed),
            subject_name: parsed.subject().as_raw().to_vec(),
            issuer_name: parsed.issuer().as_raw().to_vec(),
            key_info: parsed.public_key().raw.to_vec(),
            is_version_3: parsed.version() == X509Version::V3,
            extensions,
            der: der.to_vec(),
        })
    }

    /// Reads all certificates of a PEM text, in their order, and ignores unreadable ones.
    pub fn read_all(pem: &[u8]) -> Vec<Self> {
        Self::read_each(pem).filter_map(Result::ok).collect()
    }

    /// Reads each certificate of a PEM text, in their order. Blocks that are broken PEM are ignored.
    pub fn read_each(pem: &[u8]) -> impl Iterator<Item = Result<Self, Malformed>> + '_ {
        let blocks = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        blocks.map(|der| Self::parse(&der))
    }

    /// Reads the certificates of a file of trusted CAs, `None` if it has none. The error names the first one that
    /// machines cannot read.
    pub fn read_trusted(pem: &[u8]) -> Result<Option<Vec<Self>>, NotRead> {
        let numbered = (1..).zip(Self::read_each(pem));
        let read = numbered.map(|(place, read)| read.map_err(|fault| NotRead(place, fault)));
        let found: Vec<_> = read.collect::<Result<_, _>>()?;
        Ok((!found.is_empty()).then_some(found))
    }

    /// The certificate as PEM, with a newline at its end.
    pub fn to_pem(&self) -> String {
        certificate_pem(&self.der)
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Weakness of its key, `None` if it has none.
    pub fn weakness(&self) -> Option<Weakness> {
        weakness(&self.key_info)
    }

    /// The DNS names among the alternative names as they are written, wildcards too.
    pub fn dns_names(&self) -> &[String] {
        &self.extensions.dns_names
    }

    /// The key's identifier, empty where there is none (RFC 5280 section 4.2.1.2).
    pub fn key_identifier(&self) -> &[u8] {
        &self.extensions.key_identifier
    }

    /// Returns `true` if its key made `signature` over `message`; `algorithm` is the contents of the algorithm's
    /// sequence. Only algorithms that TLS clients accept are supported, so SHA-1 is not.
    pub fn has_signed(&self, message: &[u8], algorithm: &[u8], signature: &[u8]) -> bool {
        verify(&self.key_info, message, algorithm, signature).is_some()
    }

    /// Returns `true` if both certificates have the same public key, as a renewed certificate and its predecessor do,
    /// or a cross-certificate and the CA's own.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.key_info == other.key_info
    }

    /// Returns `true` if `now` lies within its validity.
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Time of issue. The names of OpenShift's CAs and of this server's contain it in seconds, while their validity can
    /// begin earlier; otherwise the beginning of the validity.
    pub fn made_at(&self) -> OffsetDateTime {
        let reported = self.common_name.rsplit_once('@').and_then(|(_, reported)| {
            let digits = reported.split('-').next()?;
            OffsetDateTime::from_unix_timestamp(digits.parse().ok()?).ok()
        });
        reported.filter(|time| self.is_valid_at(*time)).unwrap_or(self.not_before)
    }

    /// SHA-256 digest of its DER, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(&self.der))
    }

    /// Returns `true` if an administrator's `text` identifies this certificate: the SHA-256 digest of its DER in
    /// hexadecimal digits, with or without colons, or its subject's common name.
    pub fn is_called(&self, text: &str) -> bool {
        let digits = text.replace(':', "").to_ascii_lowercase();
        digits == self.fingerprint() || (!text.is_empty() && text == self.common_name)
    }

    /// Returns `true` if both certificates have the same subject and key, and so are of one CA.
    pub(super) fn is_same_ca(&self, other: &Self) -> bool {
        self.subject_name == other.subject_name && self.has_key_of(other)
    }

    pub(super) fn is_ca(&self) -> bool {
        self.extensions.basic_constraints.as_ref().is_some_and(|found| found.ca)
    }

    /// Reason why a CA with this certificate cannot issue any, regardless of its key.
    pub(super) fn signing_fault(&self) -> Option<Unusable> {
        let extensions = &self.extensions;
        if !self.is_ca() {
            return Some(Unusable::NoCa);
        }
        if extensions.forbids_signing {
            return Some(Unusable::KeyUsage);
        }
        extensions.unknown_critical.clone().map(Unusable::CriticalExtension)
    }

    /// Returns `true` if `ca` issued this certificate: by name, and by a signature of an algorithm that TLS clients
    /// accept.
    #[must_use]
    pub fn is_issued_by(&self, ca: &Self) -> bool {
        self.issuer_name == ca.subject_name && self.is_signed_by(ca)
    }

    /// Returns `true` if the key of `ca` made this certificate's signature, regardless of names, by an algorithm that
    /// TLS clients accept. SHA-1 is not one of them.
    pub(super) fn is_signed_by(&self, ca: &Self) -> bool {
        is_signed(&self.der, &ca.key_info)
    }

    /// Returns `true` for a certificate that its own key signed, as a root is.
    pub(super) fn is_self_signed(&self) -> bool {
        self.is_issued_by(self)
    }

    /// Display name: the subject's common name, or its whole name if it has none.
    pub(super) fn title(&self) -> String {
        title(&self.subject_name, &self.common_name)
    }

    pub(super) fn issuer_title(&self) -> String {
        title(&self.issuer_name, &self.issuer)
    }

    /// Returns `true` if `key` belongs to this certificate.
    #[must_use]
    pub fn matches(&self, key: &KeyPair) -> bool {
        use rcgen::PublicKeyData as _;
        algorithm_and_key(&self.key_info).is_some_and(|(_, own)| own == key.der_bytes())
    }
}

thread_local! {
    /// Verified signatures, by the digest of certificate and key. Verification is nearly all of the work of a plan, and
    /// each plan asks for most signatures many times, and again for those of the plan before.
    static VERIFIED: RefCell<HashMap<[u8; 32], bool>> = RefCell::default();
}

/// Number of signatures that are kept before all are discarded.
const KEPT_SIGNATURES: usize = 10_000;

/// Returns `true` if a key signed a certificate (RFC 5280 section 4.1.1) or a request (RFC 2986 section 4.2), by an
/// algorithm that TLS clients accept. `key_info` is the public key with its algorithm.
pub(super) fn is_signed(der: &[u8], key_info: &[u8]) -> bool {
    let length = der.len().to_le_bytes();
    let digest = Sha256::new().chain_update(length).chain_update(der).chain_update(key_info);
    let digest = digest.finalize().into();
    if let Some(known) = VERIFIED.with_borrow(|verified| verified.get(&digest).copied()) {
        return known;
    }
    let verified = first_fields(der).and_then(|[message, algorithm, signature]| {
        verify(key_info, message, contents(algorithm)?, bits(signature)?)
    });
    VERIFIED.with_borrow_mut(|known| {
        if known.len() >= KEPT_SIGNATURES {
            known.clear();
        }
        known.insert(digest, verified.is_some());
    });
    verified.is_some()
}

/// Verifies a signature by one of the algorithms that TLS clients accept. `algorithm` is the contents of its sequence.
fn verify(key_info: &[u8], message: &[u8], algorithm: &[u8], signature: &[u8]) -> Option<()> {
    let (key_algorithm, key) = algorithm_and_key(key_info)?;
    let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let is_verified = known.all.iter().any(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm
            && known.signature_alg_id().as_ref() == algorithm
            && known.verify_signature(key, message, signature).is_ok()
    });
    is_verified.then_some(())
}

/// Splits a public key into the contents of its algorithm's sequence and the key itself.
fn algorithm_and_key(key_info: &[u8]) -> Option<(&[u8], &[u8])> {
    let [algorithm, key] = first_fields(key_info)?;
    Some((contents(algorithm)?, bits(key)?))
}

/// Octets of a bit string, which begins with the number of unused bits.
fn bits(der: &[u8]) -> Option<&[u8]> {
    contents(der)?.get(1..)
}

fn title(name: &[u8], common_name: &str) -> String {
    if !common_name.is_empty() {
        return common_name.to_owned();
    }
    X509Name::from_der(name).map(|(_, name)| name.to_string()).unwrap_or_default()
}

/// Appends those of `more` that are not in the list yet.
pub(super) fn extend_unique<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Each item once, in their order.
pub(super) fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    extend_unique(&mut list, items);
    list
}

/// Reads the first private key of a PEM text that can sign, in any of its forms (PKCS#1, SEC1, PKCS#8). Other blocks
/// are ignored.
pub fn key_of(pem: &[u8]) -> Option<KeyPair> {
    let mut blocks = PrivateKeyDer::pem_slice_iter(pem).filter_map(Result::ok);
    blocks.find_map(|der| KeyPair::try_from(&der).ok())
}

/// Returns `true` if every PEM block that begins in a text is complete.
pub fn is_whole_pem(text: &[u8]) -> bool {
    let begun = text.windows(11).filter(|window| window == b"-----BEGIN ").count();
    pem::parse_many(text).is_ok_and(|blocks| blocks.len() == begun)
}

/// A certificate's DER as PEM, with a newline at its end.
pub fn certificate_pem(der: &[u8]) -> String {
    pem_text(&Pem::new("CERTIFICATE", der))
}

/// Encodes a PEM block with lines of 64 characters and line feeds, as openssl and Go do (RFC 7468).
pub(super) fn pem_text(block: &Pem) -> String {
    let lines = EncodeConfig::new().set_line_wrap(64).set_line_ending(LineEnding::LF);
    pem::encode_config(block, lines)
}

fn key_kind(certificate: &X509Certificate<'_>) -> String {
    use x509_parser::public_key::PublicKey;
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        Ok(PublicKey::EC(point)) => match point.key_size() {
            256 => "ECDSA P-256".to_owned(),
            384 => "ECDSA P-384".to_owned(),
            // P-521's coordinates have 66 bytes.
            528 => "ECDSA P-521".to_owned(),
            size => format!("EC {size}"),
        },
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::certificate_pem;

    /// Files and Secrets are compared byte for byte before they are written: another wrapping would rewrite every
    /// cluster's certificates.
    #[test]
    fn pem_has_lines_of_64_characters_and_ends_in_one_line_feed() {
        let full = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let cases = [
            (1, "AA==\n".to_owned()),
            (48, format!("{full}\n")),
            (97, format!("{full}\n{full}\nAA==\n")),
        ];
        for (length, body) in cases {
            assert_eq!(
                certificate_pem(&vec![0; length]),
                format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"),
                "{length} bytes"
            );
        }
    }
}
