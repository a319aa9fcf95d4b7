//! Parses certificate signing requests (PKCS #10, RFC 2986).
//!
//! No requested property is ignored: unknown ones are listed, so that the caller can refuse the request.

use core::net::IpAddr;
use std::collections::BTreeSet;

use x509_parser::asn1_rs::{FromDer as _, Tag};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::certificate::is_signed;
use super::hosts::address;
use super::usage::Usage;
use super::weak_key::{Weakness, weakness};

/// Short names of the subject's attributes that are compared with alternative names.
pub(super) const COMMON_NAME: &str = "CN";
pub(super) const E_MAIL: &str = "Email";

/// A request whose sender has proved to have the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// The subject's attributes, each with the type's short name: `CN`, `O`.
    pub subject: Vec<(String, String)>,
    /// Alternative names: DNS names as written.
    pub dns_names: Vec<String>,
    /// Alternative names: IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Alternative names: URIs.
    pub uris: Vec<String>,
    /// Requested properties that are unknown or never signed, in words.
    pub others: Vec<String>,
    /// Requested uses of the key.
    pub usages: BTreeSet<Usage>,
    /// Value of the CA flag in the basic constraints, if requested.
    pub is_ca: Option<bool>,
    /// The subject's name, as it is encoded.
    pub subject_name: Vec<u8>,
    /// The public key with its algorithm, as it is encoded.
    pub key_info: Vec<u8>,
    /// The whole request in DER.
    pub der: Vec<u8>,
}

/// Reasons why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The text is not exactly one PEM block of a request.
    #[error("not the PEM text of one certificate request")]
    NoPem,
    /// The DER is no PKCS #10 request.
    #[error("not a certificate request (PKCS #10)")]
    Malformed,
    /// The signature is not by the request's own key, or by an algorithm that is not accepted.
    #[error(
        "its signature is not from its key, or is of a refused kind: RSA with less than 2048 bits, SHA-1"
    )]
    Signature,
    /// The key is weak.
    #[error("its key is weak: {0}")]
    Weak(Weakness),
}

impl SigningRequest {
    /// Reads a request in PEM, and checks that its sender has the key.
    pub fn from_pem(text: &[u8]) -> Result<Self, BadRequest> {
        let blocks = pem::parse_many(text).map_err(|_| BadRequest::NoPem)?;
        match &blocks[..] {
            [block]
                if ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"].contains(&block.tag()) =>
            {
                Self::from_der(block.contents())
            }
            _ => Err(BadRequest::NoPem),
        }
    }

    /// Reads a request in DER, and checks that its sender has the key.
    pub fn from_der(der: &[u8]) -> Result<Self, BadRequest> {
        let (rest, parsed) =
            X509CertificationRequest::from_der(der).map_err(|_| BadRequest::Malformed)?;
        if !rest.is_empty() {
            return Err(BadRequest::Malformed);
        }
        let info = &parsed.certification_request_info;
        let mut read = Self {
            subject_name: info.subject.as_raw().to_vec(),
            key_info: info.subject_pki.raw.to_vec(),
            der: der.to_vec(),
            ..Self::default()
        };
        read.take_subject(&info.subject);
        let mut lists = 0;
        for attribute in info.iter_attributes() {
            match attribute.parsed_attribute() {
                ParsedCriAttribute::ExtensionRequest(requested) => {
                    lists += 1;
                    requested.extensions.iter().for_each(|extension| read.take(extension));
                }
                ParsedCriAttribute::ChallengePassword(_) => {}
                ParsedCriAttribute::UnsupportedAttribute => {
                    read.others.push(format!("the attribute {}", attribute.oid.to_id_string()));
                }
            }
        }
        if lists > 1 {
            read.others.push("a second list of extensions".to_owned());
        }
        if !is_signed(der, &read.key_info) {
            return Err(BadRequest::Signature);
        }
        weakness(&read.key_info).map_or(Ok(read), |weakness| Err(BadRequest::Weak(weakness)))
    }

    fn take_subject(&mut self, subject: &X509Name<'_>) {
        for attribute in subject.iter_attributes() {
            let kind = oid2abbrev(attribute.attr_type(), oid_registry());
            let kind = kind.map_or_else(|_| attribute.attr_type().to_id_string(), str::to_owned);
            match attribute.as_str() {
                Ok(value) => self.subject.push((kind, value.to_owned())),
                Err(_) => self.others.push(format!("{kind} in its subject, which cannot be read")),
            }
        }
    }

    /// Records the subject's common names and e-mail addresses, in any string type.
    pub(super) fn take_subject_names(&mut self, subject: &X509Name<'_>) {
        for attribute in subject.iter_attributes() {
            let kind = oid2abbrev(attribute.attr_type(), oid_registry());
            let Ok(kind @ (COMMON_NAME | E_MAIL)) = kind else { continue };
            match text(attribute) {
                Some(value) if value.is_empty() => {}
                Some(value) => self.subject.push((kind.to_owned(), value)),
                None => self.others.push(format!("{kind} in its subject, which cannot be read")),
            }
        }
    }

    fn take(&mut self, extension: &X509Extension<'_>) {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                names.general_names.iter().for_each(|name| self.take_name(name));
            }
            ParsedExtension::KeyUsage(usage) => self.usages.extend(Usage::of_key_usage(usage)),
            ParsedExtension::ExtendedKeyUsage(_) => match Usage::of_extended(extension.value) {
                Ok(usages) => self.usages.extend(usages),
                Err(unknown) => self.others.push(format!("the extended key usage {unknown}")),
            },
            ParsedExtension::BasicConstraints(constraints) => self.is_ca = Some(constraints.ca),
            // The issued certificate gets a new one.
            ParsedExtension::SubjectKeyIdentifier(_) => {}
            _ => self.others.push(format!("the extension {}", extension.oid.to_id_string())),
        }
    }

    pub(super) fn take_name(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => match address(bytes) {
                Some(address) => self.addresses.push(address),
                None => self.others.push("an invalid address".to_owned()),
            },
            GeneralName::RFC822Name(name) => self.others.push(mail_address(name)),
            _ => self.others.push("an alternative name of another kind".to_owned()),
        }
    }
}

/// Describes an e-mail address in messages.
pub(super) fn mail_address(address: &str) -> String {
    format!("the e-mail address {address}")
}

/// Decodes a value of any string type (RFC 5280 section 4.1.2.4).
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let (value, bytes) = (attribute.attr_value(), attribute.as_slice());
    match value.tag() {
        // The library takes half a character at the end for one.
        Tag::BmpString if !bytes.len().is_multiple_of(2) => None,
        Tag::BmpString => Some(value.as_bmpstring().ok()?.string()),
        Tag::UniversalString => Some(value.as_universalstring().ok()?.string()),
        // Parsers disagree about non-ASCII characters in these types.
        Tag::TeletexString | Tag::VisibleString => {
            let text = core::str::from_utf8(bytes).ok()?;
            text.is_ascii().then(|| text.to_owned())
        }
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair, KeyUsagePurpose, SanType};

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "a.example.com");
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params
    }

    fn der(params: &CertificateParams) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().der().to_vec()
    }

    #[test]
    fn all_that_is_asked_for_is_read() {
        let mut params = params();
        params.subject_alt_names.push(SanType::IpAddress("192.0.2.1".parse().unwrap()));
        params.subject_alt_names.push(SanType::URI("spiffe://x/y".try_into().unwrap()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, IPSEC_USER.clone()];
        let read = SigningRequest::from_der(&der(&params)).unwrap();
        let text = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
        assert_eq!(read.subject, [text("CN", "a.example.com"), text("O", "Example")]);
        assert_eq!(read.dns_names, ["a.example.com"]);
        assert_eq!(read.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(read.uris, ["spiffe://x/y"]);
        let usages: Vec<String> = read.usages.iter().map(Usage::to_string).collect();
        assert_eq!(usages, ["digital signature", "ipsec user", "server auth"]);
        assert_eq!((read.is_ca, read.others.len()), (None, 0));
    }

    static IPSEC_USER: std::sync::LazyLock<rcgen::ExtendedKeyUsagePurpose> =
        std::sync::LazyLock::new(|| {
            rcgen::ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7])
        });

    #[test]
    fn what_is_not_understood_is_named() {
        let mut params = params();
        params.subject_alt_names.push(SanType::Rfc822Name("a@example.com".try_into().unwrap()));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::Other(vec![1, 2, 3])];
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])];
        let read = SigningRequest::from_der(&der(&params)).unwrap();
        let mut others = read.others;
        others.sort();
        assert_eq!(
            others,
            [
                "the e-mail address a@example.com",
                "the extended key usage 1.2.3",
                "the extension 1.2.3.4",
            ]
        );
    }

    #[test]
    fn a_request_that_is_broken_or_another_key_s_is_refused() {
        let good = der(&params());
        assert!(SigningRequest::from_der(&good).is_ok());
        let error = |der: &[u8]| SigningRequest::from_der(der).unwrap_err();
        // The name is not the signed one.
        let mut changed = good.clone();
        let at = good.windows(9).position(|it| it == b"a.example").unwrap();
        changed[at] = b'b';
        assert_eq!(error(&changed), BadRequest::Signature);
        assert_eq!(error(&good[..good.len() - 1]), BadRequest::Malformed);
        assert_eq!(error(&[&good[..], b"x"].concat()), BadRequest::Malformed);
        assert_eq!(error(b""), BadRequest::Malformed);
        let pem = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
        let of = |text: &str| SigningRequest::from_pem(text.as_bytes()).err();
        assert_eq!(of(&pem("CERTIFICATE REQUEST", &good)), None);
        assert_eq!(of(&pem("CERTIFICATE", &good)), Some(BadRequest::NoPem));
        assert_eq!(of(&pem("CERTIFICATE REQUEST", &good).repeat(2)), Some(BadRequest::NoPem));
        assert_eq!(of(""), Some(BadRequest::NoPem));
    }
}
