//! Issuing certificates. Keys and times are arguments.
//!
//! Extensions follow RFC 5280 section 4.2: a CA is marked as one and can sign certificates, a serving certificate can
//! only serve, and each certificate identifies its issuer's key. A serial number is unique for its issuer (section
//! 4.1.2.2): it is derived from the key, the issuer and the time.
//!
//! Verifiers compare names byte for byte, and an external CA's name can have any form: several domain components, old
//! string types, multi-valued parts. So names are copied in their encoding.

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
    SubjectPublicKeyInfo,
};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::certificate::Certificate;
use super::encoding::with_names;
use super::hosts::Host;
use super::reason::IssueError;

/// Time by which validity is backdated. A machine's clock can be hours behind at its first boot, if it counts in local
/// time.
pub const BACKDATED: Duration = Duration::days(1);

/// A CA that can sign.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    /// Certificate of the CA.
    pub certificate: &'a Certificate,
    /// Private key of that certificate.
    pub key: &'a KeyPair,
}

/// Validity of a certificate, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub begin: OffsetDateTime,
    /// Last moment.
    pub end: OffsetDateTime,
}

/// Issues a new self-signed CA. It is valid from a day before `now`.
pub fn issue_ca(
    key: &KeyPair,
    validity: Duration,
    now: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let name = ca_name(key, now);
    let validity =
        Validity { begin: now.saturating_sub(BACKDATED), end: now.saturating_add(validity) };
    let mut params = params(&name, key.der_bytes(), b"", validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = ca_usages();
    let issued = params.self_signed(key)?;
    Certificate::from_der(issued.der()).ok_or(IssueError::Unreadable)
}

/// A certificate signing request in PEM (RFC 2986) for a CA that an external CA issues.
pub fn request_ca(key: &KeyPair, now: OffsetDateTime) -> Result<String, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, ca_name(key, now));
    params.key_usages = ca_usages();
    Ok(params.serialize_request(key)?.pem()?)
}

/// A unique name for each CA, so that verifiers never confuse two of them.
fn ca_name(key: &KeyPair, now: OffsetDateTime) -> String {
    let digest = Sha256::digest(key.der_bytes());
    let suffix = HEXLOWER.encode(&digest[..2]);
    format!("machine-config-server-ca@{}-{suffix}", now.unix_timestamp())
}

fn ca_usages() -> Vec<KeyUsagePurpose> {
    vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature]
}

/// Cross-signs: issues a certificate for the name and key of `ca` by another CA, so that clients that trust the other
/// one trust `ca` too. It is valid from `begin` until either of them expires.
pub fn cross_sign(
    ca: &Certificate,
    by: Signer<'_>,
    begin: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let end = ca.not_after.min(by.certificate.not_after);
    let key = SubjectPublicKeyInfo::from_der(&ca.key_info)?;
    let issuer_name = &by.certificate.subject_name;
    let validity = Validity { begin, end };
    let mut params = params(&ca.common_name, key.der_bytes(), issuer_name, validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = ca_usages();
    identify_key(&mut params, ca);
    by.issue(&params, &key, Some(&ca.subject_name))
}

/// Copies the identifier that certificates of a CA have as their issuer's key.
fn identify_key(params: &mut CertificateParams, ca: &Certificate) {
    if !ca.key_identifier().is_empty() {
        params.key_identifier_method = KeyIdMethod::PreSpecified(ca.key_identifier().to_vec());
    }
}

/// A serving certificate for `hosts`, the main one first. It expires no later than its issuer.
pub fn issue_serving(
    key: &KeyPair,
    hosts: &[Host],
    by: Signer<'_>,
    validity: Validity,
) -> Result<Certificate, IssueError> {
    let name = hosts.first().ok_or(IssueError::NoHost)?;
    // RFC 5280 limits a common name to 64 characters; verifiers read the alternative names only.
    let name: String = name.to_string().chars().take(64).collect();
    let end = validity.end.min(by.certificate.not_after);
    let validity = Validity { end, ..validity };
    let mut params = params(&name, key.der_bytes(), &by.certificate.subject_name, validity)?;
    let alternative_name = |host: &Host| {
        Ok::<_, rcgen::Error>(match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(*address),
        })
    };
    params.subject_alt_names = hosts.iter().map(alternative_name).collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.algorithm() == &rcgen::PKCS_RSA_SHA256 {
        // Some cipher suites of TLS 1.2 decrypt with the RSA key.
        params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    by.issue(&params, key, None)
}

impl Signer<'_> {
    /// Issues a certificate for a key, and checks the result. `subject` is the encoded subject, if it replaces that of
    /// `params`.
    pub(super) fn issue(
        self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
        subject: Option<&[u8]>,
    ) -> Result<Certificate, IssueError> {
        // The library's issuer has a placeholder name, which is replaced below.
        let mut own = CertificateParams::new(Vec::new())?;
        identify_key(&mut own, self.certificate);
        let issued = params.signed_by(key, &Issuer::new(own, self.key))?;
        let der = with_names(issued.der(), &self.certificate.subject_name, subject, self.key)?;
        let certificate = Certificate::from_der(&der).ok_or(IssueError::Unreadable)?;
        let is_sound = certificate.is_issued_by(self.certificate);
        is_sound.then_some(certificate).ok_or(IssueError::Unreadable)
    }
}

pub(super) fn params(
    name: &str,
    key: &[u8],
    issuer: &[u8],
    validity: Validity,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = validity.begin;
    params.not_after = validity.end;
    params.use_authority_key_identifier_extension = true;
    let digest = Sha256::new()
        .chain_update(key)
        .chain_update(issuer)
        .chain_update(validity.begin.unix_timestamp_nanos().to_be_bytes())
        .chain_update(validity.end.unix_timestamp_nanos().to_be_bytes())
        .finalize();
    let mut serial = digest[..16].to_vec();
    // Serial numbers are positive, and a leading bit keeps their length.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from(serial));
    Ok(params)
}
