//! Certificates as they are read, reduced to the fields that decisions depend on.

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::ops::Range;

use data_encoding::HEXLOWER;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::asn1_rs::Any;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::{X509Name, X509Version};

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
    /// The public key, without its algorithm.
    public_key: Vec<u8>,
    /// Algorithm and size of the key, for people: `ECDSA P-256`, `RSA 2048`.
    pub key_kind: String,
    /// The subject's name as it is encoded, by which verifiers find an issuer.
    pub(super) subject_name: Vec<u8>,
    /// The issuer's name as it is encoded.
    pub(super) issuer_name: Vec<u8>,
    /// The public key with its algorithm, as it is encoded.
    pub(super) key_info: Vec<u8>,
    /// False for X.509 versions 1 and 2, which have no extensions and so no mark of a CA.
    pub(super) is_version_3: bool,
    pub(super) extensions: Extensions,
    signature: Signature,
}

/// A certificate's signature (RFC 5280 section 4.1.1), parsed once because it is verified often.
#[derive(Clone, PartialEq, Eq)]
struct Signature {
    /// Range of the signed part in the DER.
    message: Range<usize>,
    /// Contents of the algorithm's sequence.
    algorithm: Vec<u8>,
    value: Vec<u8>,
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

/// A certificate of a text that machines cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("certificate {place} cannot be used: {reason}")]
pub struct NotRead {
    /// Position in the text, from 1.
    pub place: usize,
    /// Fault of the certificate.
    pub reason: Malformed,
}

impl Certificate {
    /// Reads DER, `None` if it is no certificate that machines can read.
    #[must_use]
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
        Some(Self {
            common_name: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()),
            not_before: written(validity.not_before.to_datetime()),
            not_after: written(validity.not_after.to_datetime()),
            hosts: hosts(&parsed),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            key_kind: key_kind(&parsed),
            subject_name: parsed.subject().as_raw().to_vec(),
            issuer_name: parsed.issuer().as_raw().to_vec(),
            key_info: parsed.public_key().raw.to_vec(),
            is_version_3: parsed.version() == X509Version::V3,
            extensions: Extensions::read(&parsed),
            signature: Signature::read(der, &parsed)?,
            der: der.to_vec(),
        })
    }

    /// Reads all certificates of a PEM text, in their order, and ignores unreadable ones.
    #[must_use]
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
        let read = numbered.map(|(place, read)| read.map_err(|reason| NotRead { place, reason }));
        let found: Vec<_> = read.collect::<Result<_, _>>()?;
        Ok((!found.is_empty()).then_some(found))
    }

    /// The certificate as PEM, with a newline at its end.
    #[must_use]
    pub fn to_pem(&self) -> String {
        certificate_pem(&self.der)
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The public key with its algorithm, as it is encoded (RFC 5280 section 4.1.2.7).
    #[must_use]
    pub fn public_key_info(&self) -> &[u8] {
        &self.key_info
    }

    /// Weakness of its key, `None` if it has none.
    #[must_use]
    pub fn weakness(&self) -> Option<Weakness> {
        weakness(&self.key_info)
    }

    /// The subject's name, as it is encoded.
    #[must_use]
    pub fn subject_name(&self) -> &[u8] {
        &self.subject_name
    }

    /// The issuer's name, as it is encoded.
    #[must_use]
    pub fn issuer_name(&self) -> &[u8] {
        &self.issuer_name
    }

    /// The DNS names among the alternative names as they are written, wildcards too.
    #[must_use]
    pub fn dns_names(&self) -> &[String] {
        &self.extensions.dns_names
    }

    /// The key's identifier, empty where there is none (RFC 5280 section 4.2.1.2).
    #[must_use]
    pub fn key_identifier(&self) -> &[u8] {
        &self.extensions.key_identifier
    }

    /// Returns `true` if its key made `signature` over `message`; `algorithm` is the contents of the algorithm's
    /// sequence. Only algorithms that TLS clients accept are supported, so SHA-1 is not.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], algorithm: &[u8], signature: &[u8]) -> bool {
        is_signature(signature, message, algorithm, &self.key_info, &self.public_key)
    }

    /// Returns `true` if both certificates have the same public key, as a renewed certificate and its predecessor do,
    /// or a cross-certificate and the CA's own.
    #[must_use]
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.key_info == other.key_info
    }

    /// Returns `true` if `now` lies within its validity.
    #[must_use]
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Time of issue. The names of OpenShift's CAs and of this server's contain it in seconds, while their validity can
    /// begin earlier; otherwise the beginning of the validity.
    #[must_use]
    pub fn made_at(&self) -> OffsetDateTime {
        let reported = self.common_name.rsplit_once('@').and_then(|(_, reported)| {
            let digits = reported.split('-').next()?;
            OffsetDateTime::from_unix_timestamp(digits.parse().ok()?).ok()
        });
        reported.filter(|time| self.is_valid_at(*time)).unwrap_or(self.not_before)
    }

    /// SHA-256 digest of its DER, in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(&self.der))
    }

    /// Returns `true` if an administrator's `text` identifies this certificate: the SHA-256 digest of its DER in
    /// hexadecimal digits, with or without colons, or its subject's common name.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        let digits = text.replace(':', "").to_ascii_lowercase();
        digits == self.fingerprint() || (!text.is_empty() && text == self.common_name)
    }

    /// Returns `true` if both certificates have the same subject and key, and so are of one CA.
    pub(super) fn is_same_ca(&self, other: &Self) -> bool {
        self.subject_name == other.subject_name && self.has_key_of(other)
    }

    /// Returns `true` if the certificate says that it is a CA's.
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

    /// Returns `true` if `authority` issued this certificate: by name, and by a signature of an algorithm that TLS
    /// clients accept.
    #[must_use]
    pub fn is_issued_by(&self, ca: &Self) -> bool {
        self.issuer_name == ca.subject_name && self.is_signed_by(ca)
    }

    /// Returns `true` if the key of `authority` made this certificate's signature, regardless of names, by an algorithm
    /// that TLS clients accept. SHA-1 is not one of them.
    #[must_use]
    pub(super) fn is_signed_by(&self, ca: &Self) -> bool {
        let Signature { message, algorithm, value } = &self.signature;
        ca.has_signed(&self.der[message.clone()], algorithm, value)
    }

    /// Display name of the subject: its common name, or its whole name if it has none.
    pub(super) fn title(&self) -> String {
        title(&self.subject_name, &self.common_name)
    }

    /// Display name of the issuer.
    pub(super) fn issuer_title(&self) -> String {
        title(&self.issuer_name, &self.issuer)
    }

    /// Returns `true` if `key` belongs to this certificate.
    #[must_use]
    pub fn matches(&self, key: &KeyPair) -> bool {
        use rcgen::PublicKeyData as _;
        key.der_bytes() == self.public_key
    }
}

impl Signature {
    fn read(der: &[u8], parsed: &X509Certificate<'_>) -> Option<Self> {
        let (_, all) = Any::from_der(der).ok()?;
        let (rest, _) = Any::from_der(all.data).ok()?;
        // The caller has parsed the whole DER, so that the contents end with it.
        let begin = der.len().checked_sub(all.data.len())?;
        let message = begin..begin + (all.data.len() - rest.len());
        let (_, algorithm) = Any::from_der(rest).ok()?;
        let value = parsed.signature_value.data.to_vec();
        Some(Self { message, algorithm: algorithm.data.to_vec(), value })
    }
}

/// Returns `true` if a key made this signature of a message, by an algorithm that TLS clients accept: not SHA-1.
/// `algorithm` is the contents of its sequence; `key_info` is the public key with its algorithm, `key` without.
pub(super) fn is_signature(
    value: &[u8],
    message: &[u8],
    algorithm: &[u8],
    key_info: &[u8],
    key: &[u8],
) -> bool {
    let Some(key_algorithm) = first_contents(key_info) else { return false };
    let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    known.all.iter().any(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm
            && known.signature_alg_id().as_ref() == algorithm
            && known.verify_signature(key, message, value).is_ok()
    })
}

/// Contents of the first element of a sequence.
fn first_contents(der: &[u8]) -> Option<&[u8]> {
    let (_, all) = Any::from_der(der).ok()?;
    Some(Any::from_der(all.data).ok()?.1.data)
}

fn title(name: &[u8], common_name: &str) -> String {
    if !common_name.is_empty() {
        return common_name.to_owned();
    }
    X509Name::from_der(name).map(|(_, name)| name.to_string()).unwrap_or_default()
}

/// Reads the first private key of a PEM text that can sign, in any of its forms (PKCS#1, SEC1, PKCS#8). Other blocks
/// are ignored.
#[must_use]
pub fn key_of(pem: &[u8]) -> Option<KeyPair> {
    let mut blocks = PrivateKeyDer::pem_slice_iter(pem).filter_map(Result::ok);
    blocks.find_map(|der| KeyPair::try_from(&der).ok())
}

/// Returns `true` if every PEM block that begins in a text is complete.
#[must_use]
pub fn is_whole_pem(text: &[u8]) -> bool {
    let begun = text.windows(11).filter(|window| window == b"-----BEGIN ").count();
    pem::parse_many(text).is_ok_and(|blocks| blocks.len() == begun)
}

/// A certificate's DER as PEM, with a newline at its end.
#[must_use]
pub fn certificate_pem(der: &[u8]) -> String {
    pem_text(&Pem::new("CERTIFICATE", der))
}

/// Encodes a PEM block with lines of 64 characters and line feeds, as openssl and Go do (RFC 7468).
pub(super) fn pem_text(block: &Pem) -> String {
    let lines = EncodeConfig::new().set_line_wrap(64).set_line_ending(LineEnding::LF);
    pem::encode_config(block, lines)
}

fn hosts(certificate: &X509Certificate<'_>) -> BTreeSet<Host> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.as_slice());
    names
        .unwrap_or_default()
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => name.parse().ok(),
            GeneralName::IPAddress(bytes) => address(bytes).map(Host::Address),
            _ => None,
        })
        .collect()
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
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
