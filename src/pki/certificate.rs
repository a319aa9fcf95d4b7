//! Certificates as they are read: what a decision depends on.

use core::net::IpAddr;
use std::collections::BTreeSet;

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Host;

/// A certificate, with the fields that matter here read out.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    /// The subject's common name, empty where it has none.
    pub common_name: String,
    /// The issuer's common name, empty where it has none.
    pub issuer: String,
    /// The first moment that it is valid.
    pub not_before: OffsetDateTime,
    /// The last moment that it is valid.
    pub not_after: OffsetDateTime,
    /// The alternative names.
    pub hosts: BTreeSet<Host>,
    /// The public key, without its algorithm.
    public_key: Vec<u8>,
    /// What the key is, as people call it: `ECDSA P-256`, `RSA 2048`.
    pub key_kind: String,
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

impl Certificate {
    /// Reads DER, `None` if it is no certificate.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let common_name = |name: &x509_parser::x509::X509Name<'_>| {
            let name = name.iter_common_name().next().and_then(|name| name.as_str().ok());
            name.unwrap_or_default().to_owned()
        };
        let validity = parsed.validity();
        Some(Self {
            common_name: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
            hosts: hosts(&parsed),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            key_kind: key_kind(&parsed),
            der: der.to_vec(),
        })
    }

    /// Reads all certificates of a PEM text, in their order. What is none is passed over.
    #[must_use]
    pub fn read_all(pem: &[u8]) -> Vec<Self> {
        let blocks = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        blocks.filter_map(|der| Self::from_der(&der)).collect()
    }

    /// The certificate as PEM, with a newline at its end.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// The certificate as DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether `now` lies within its validity.
    #[must_use]
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Whether the holder of `authority`'s key signed this certificate, by that name.
    #[must_use]
    pub fn is_issued_by(&self, authority: &Self) -> bool {
        let (Ok((_, own)), Ok((_, other))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der))
        else {
            return false;
        };
        own.issuer().as_raw() == other.subject().as_raw()
            && own.verify_signature(Some(other.public_key())).is_ok()
    }

    /// Whether `key` is this certificate's.
    #[must_use]
    pub fn matches(&self, key: &KeyPair) -> bool {
        use rcgen::PublicKeyData as _;
        key.der_bytes() == self.public_key
    }
}

/// Reads all private keys of a PEM text, in their order and in any of their forms (PKCS#1, SEC1,
/// PKCS#8), whatever else the text holds. One of a kind that cannot sign here is passed over.
pub fn read_keys(pem: &[u8]) -> impl Iterator<Item = KeyPair> {
    let blocks = PrivateKeyDer::pem_slice_iter(pem).filter_map(Result::ok);
    blocks.filter_map(|der| KeyPair::try_from(&der).ok())
}

/// Reads the first private key of a PEM text, `None` if there is none that can sign.
#[must_use]
pub fn read_key(pem: &[u8]) -> Option<KeyPair> {
    read_keys(pem).next()
}

fn pem(label: &str, der: &[u8]) -> String {
    // Lines of 64 characters that end in a line feed: what openssl and Go write (RFC 7468).
    let lines = EncodeConfig::new().set_line_wrap(64).set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(label, der), lines)
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

fn address(bytes: &[u8]) -> Option<IpAddr> {
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
            size => format!("EC {size}"),
        },
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::pem;

    /// Files and secrets are compared byte for byte before they are written: another wrapping would
    /// rewrite every cluster's certificates.
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
                pem("CERTIFICATE", &vec![0; length]),
                format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"),
                "{length} bytes"
            );
        }
    }
}
