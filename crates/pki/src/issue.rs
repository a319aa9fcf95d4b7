//! Issuing certificates. Keys and times are arguments.
//!
//! What a certificate has to hold is RFC 5280's section 4.2: an authority is marked as one and may
//! sign certificates, a serving certificate may only serve, and each names its issuer's key so that
//! a verifier finds the chain. A serial number is one of a kind for its issuer (section 4.1.2.2):
//! here it follows from the key, the issuer and the time.
//!
//! Verifiers compare names byte for byte, and an authority that somebody brings may have one of any
//! shape: several domain components, strings of old kinds, parts of more than one attribute. So names
//! are taken over as they are encoded.

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
    SubjectPublicKeyInfo,
};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::encoding::with_names;
use super::{Certificate, Host, IssueError};

/// A machine's clock may be behind at its first boot, by hours where it counts in local time.
pub const BACKDATED: Duration = Duration::days(1);

/// A certificate authority that can sign.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    /// What it signs in the name of.
    pub certificate: &'a Certificate,
    /// The one of the certificate.
    pub key: &'a KeyPair,
}

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub begin: OffsetDateTime,
    /// The last moment.
    pub end: OffsetDateTime,
}

/// A new certificate authority, self-signed. It is valid from a day before `now` on.
pub fn issue_ca(
    key: &KeyPair,
    validity: Duration,
    now: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let name = ca_name(key, now);
    let validity =
        Validity { begin: now.saturating_sub(BACKDATED), end: now.saturating_add(validity) };
    let params = ca_params(&name, key.der_bytes(), b"", validity)?;
    let issued = params.self_signed(key)?;
    Certificate::from_der(issued.der()).ok_or(IssueError::Unreadable)
}

/// A request for a certificate of an authority (RFC 2986), PEM: somebody else is to issue it.
pub fn request_ca(key: &KeyPair, now: OffsetDateTime) -> Result<String, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, ca_name(key, now));
    params.key_usages = ca_usages();
    Ok(params.serialize_request(key)?.pem()?)
}

/// A name of its own for each, so that verifiers never take one for another.
fn ca_name(key: &KeyPair, now: OffsetDateTime) -> String {
    let digest = Sha256::digest(key.der_bytes());
    let suffix = HEXLOWER.encode(&digest[..2]);
    format!("machine-config-server-ca@{}-{suffix}", now.unix_timestamp())
}

fn ca_usages() -> Vec<KeyUsagePurpose> {
    vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature]
}

/// A certificate for an authority's name and key by another authority, so that who trusts the
/// other one trusts this one too. It begins at `begin`, and ends when either of them does.
pub fn cross_sign(
    ca: &Certificate,
    by: Signer<'_>,
    begin: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let end = ca.not_after.min(by.certificate.not_after);
    let key = SubjectPublicKeyInfo::from_der(&ca.key_info)?;
    let issuer_name = &by.certificate.subject_name;
    let mut params =
        ca_params(&ca.common_name, key.der_bytes(), issuer_name, Validity { begin, end })?;
    // What the other's certificates name as their issuer's key.
    if !ca.extensions.key_identifier.is_empty() {
        let identifier = ca.extensions.key_identifier.clone();
        params.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
    }
    let issued = params.signed_by(&key, &by.issuer()?)?;
    by.finish(issued.der(), &ca.subject_name)
}

/// A serving certificate for `hosts`, the main one first. It ends with its issuer at the latest.
pub fn issue_serving(
    key: &KeyPair,
    hosts: &[Host],
    by: Signer<'_>,
    validity: Validity,
) -> Result<Certificate, IssueError> {
    let name = hosts.first().ok_or(IssueError::NoHost)?;
    // RFC 5280's upper bound for a common name; verifiers read the alternative names only.
    let name: String = name.to_string().chars().take(64).collect();
    let end = validity.end.min(by.certificate.not_after);
    let validity = Validity { end, ..validity };
    let mut params = params(&name, key.der_bytes(), &by.certificate.subject_name, validity)?;
    params.subject_alt_names = hosts.iter().map(alternative_name).collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.algorithm() == &rcgen::PKCS_RSA_SHA256 {
        // TLS 1.2 has suites in which an RSA key decrypts.
        params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let issued = params.signed_by(key, &by.issuer()?)?;
    let subject = Certificate::from_der(issued.der()).ok_or(IssueError::Unreadable)?.subject_name;
    by.finish(issued.der(), &subject)
}

impl<'a> Signer<'a> {
    /// The authority as the library knows it, under a name that [`Signer::finish`] replaces.
    pub(super) fn issuer(self) -> Result<Issuer<'static, &'a KeyPair>, IssueError> {
        let mut params = CertificateParams::new(Vec::new())?;
        let identifier = &self.certificate.extensions.key_identifier;
        if !identifier.is_empty() {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier.clone());
        }
        Ok(Issuer::new(params, self.key))
    }

    /// What was issued, with the names as they are encoded elsewhere.
    pub(super) fn finish(self, issued: &[u8], subject: &[u8]) -> Result<Certificate, IssueError> {
        let der = with_names(issued, &self.certificate.subject_name, subject, self.key)?;
        let certificate = Certificate::from_der(&der).ok_or(IssueError::Unreadable)?;
        let is_sound = certificate.is_issued_by(self.certificate);
        is_sound.then_some(certificate).ok_or(IssueError::Unreadable)
    }
}

fn ca_params(
    name: &str,
    key: &[u8],
    issuer: &[u8],
    validity: Validity,
) -> Result<CertificateParams, IssueError> {
    let mut params = params(name, key, issuer, validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = ca_usages();
    Ok(params)
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
    // Positive, and not shorter than it looks.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from(serial));
    Ok(params)
}

fn alternative_name(host: &Host) -> Result<SanType, rcgen::Error> {
    Ok(match host {
        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address),
    })
}
