//! Issuing certificates. Keys and the time are arguments.
//!
//! What a certificate has to hold is RFC 5280's section 4.2: an authority is marked as one and may
//! sign certificates, a serving certificate may only serve, and each names its issuer's key so that
//! a verifier finds the chain.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use super::Host;

/// Certificates are valid ten years of 365 days.
pub const VALIDITY: Duration = Duration::days(10 * 365);
/// A machine's clock may be behind at its first boot.
const BACKDATED: Duration = Duration::hours(1);

/// A certificate with its key, PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key or certificate cannot be used to sign, or a name not be put into a certificate.
    #[error("cannot issue a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A serving certificate without a name verifies nowhere.
    #[error("a serving certificate needs at least one host name")]
    NoHost,
}

/// A new P-256 key from the system's randomness.
pub fn generate_key() -> Result<KeyPair, IssueError> {
    Ok(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?)
}

/// A new certificate authority, self-signed.
pub fn issue_authority(key: &KeyPair, now: OffsetDateTime) -> Result<Issued, IssueError> {
    let mut params = params(now)?;
    // A name of its own for each, so that verifiers never take one for another.
    let name = format!("machine-config-server-ca@{}", now.unix_timestamp());
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(key)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// A serving certificate for `hosts`, signed by `authority`.
pub fn issue_serving(
    key: &KeyPair,
    hosts: &[Host],
    authority: &Issued,
    now: OffsetDateTime,
) -> Result<Issued, IssueError> {
    let mut params = params(now)?;
    let name = hosts.first().ok_or(IssueError::NoHost)?;
    // RFC 5280's upper bound for a common name; verifiers read the alternative names only.
    let name: String = name.to_string().chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = hosts.iter().map(alternative_name).collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let issuer =
        Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let certificate = params.signed_by(key, &issuer)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params(now: OffsetDateTime) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = now - BACKDATED;
    params.not_after = now + VALIDITY;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn alternative_name(host: &Host) -> Result<SanType, rcgen::Error> {
    Ok(match host {
        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address),
    })
}
