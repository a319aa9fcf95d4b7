//! Issuing certificates. Keys and the time are arguments.
//!
//! What a certificate has to hold is RFC 5280's section 4.2: an authority is marked as one and may
//! sign certificates, a serving certificate may only serve, and each names its issuer's key so that
//! a verifier finds the chain. A serial number is one of a kind for its issuer (section 4.1.2.2):
//! here it follows from the key, the issuer and the time.

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::{Certificate, Host, IssueError};

/// A machine's clock may be behind at its first boot.
const BACKDATED: Duration = Duration::hours(1);

/// A certificate authority that can sign.
pub struct Signer<'a> {
    /// Its certificate.
    pub certificate: &'a Certificate,
    /// Its key.
    pub key: &'a KeyPair,
}

impl Signer<'_> {
    fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, IssueError> {
        let der = CertificateDer::from(self.certificate.der());
        Ok(Issuer::from_ca_cert_der(&der, self.key)?)
    }
}

/// A new certificate authority, self-signed.
pub fn issue_authority(
    key: &KeyPair,
    validity: Duration,
    now: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    // A name of its own for each, so that verifiers never take one for another.
    let digest = Sha256::digest(key.der_bytes());
    let suffix = HEXLOWER.encode(&digest[..2]);
    let name = format!("machine-config-server-ca@{}-{suffix}", now.unix_timestamp());
    let params = authority_params(&name, key, "", now - BACKDATED, now + validity)?;
    read(&params.self_signed(key)?)
}

/// A certificate for an authority's name and key by another authority, so that who trusts the
/// other one trusts this one too. It ends when either of them does.
pub fn cross_sign(
    authority: &Signer<'_>,
    by: &Signer<'_>,
    now: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let Certificate { common_name, not_after, .. } = authority.certificate;
    let not_after = (*not_after).min(by.certificate.not_after);
    let issuer_name = &by.certificate.common_name;
    let params =
        authority_params(common_name, authority.key, issuer_name, now - BACKDATED, not_after)?;
    read(&params.signed_by(authority.key, &by.issuer()?)?)
}

/// A serving certificate for `hosts`. It ends with its issuer at the latest.
pub fn issue_serving(
    key: &KeyPair,
    hosts: &[Host],
    by: &Signer<'_>,
    validity: Duration,
    now: OffsetDateTime,
) -> Result<Certificate, IssueError> {
    let name = hosts.first().ok_or(IssueError::NoHost)?;
    // RFC 5280's upper bound for a common name; verifiers read the alternative names only.
    let name: String = name.to_string().chars().take(64).collect();
    let not_after = (now + validity).min(by.certificate.not_after);
    let issuer_name = &by.certificate.common_name;
    let mut params = params(&name, key, issuer_name, now - BACKDATED, not_after)?;
    params.subject_alt_names = hosts.iter().map(alternative_name).collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.algorithm() == &rcgen::PKCS_RSA_SHA256 {
        // TLS 1.2 has suites in which an RSA key decrypts.
        params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    read(&params.signed_by(key, &by.issuer()?)?)
}

fn authority_params(
    name: &str,
    key: &KeyPair,
    issuer: &str,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
) -> Result<CertificateParams, IssueError> {
    let mut params = params(name, key, issuer, not_before, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn params(
    name: &str,
    key: &KeyPair,
    issuer: &str,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = not_before;
    params.not_after = not_after;
    params.use_authority_key_identifier_extension = true;
    let digest = Sha256::new()
        .chain_update(key.der_bytes())
        .chain_update(issuer)
        .chain_update(not_before.unix_timestamp_nanos().to_be_bytes())
        .finalize();
    let mut serial = digest[..16].to_vec();
    // Positive, and not shorter than it looks.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from(serial));
    Ok(params)
}

fn read(issued: &rcgen::Certificate) -> Result<Certificate, IssueError> {
    Certificate::from_der(issued.der()).ok_or(IssueError::Unreadable)
}

fn alternative_name(host: &Host) -> Result<SanType, rcgen::Error> {
    Ok(match host {
        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address),
    })
}
