//! The authority as it is stored, with its previous CAs, and what is made with it.
//!
//! Verifiers differ in how they find a way from the serving certificate to an authority that they
//! trust. Some try every way but bound its length (webpki at six certificates, as Go bounds its
//! work); OpenSSL takes the first certificate of an issuer's name that it meets and never turns
//! back. So both kinds of ways are sent: the new authority signed by each older one, a short way to
//! any of them, and each older one signed by the one before it, a way along which every authority
//! lies, which comes first. For the short ways, older authorities' keys are kept until their
//! certificates expire. That puts nothing else at risk: whoever holds the current key is trusted
//! by all who trust an older one.

use rcgen::KeyPair;
use time::OffsetDateTime;

use super::certificate::{read_key, read_keys};
use super::issue::{Signer, cross_sign, issue_authority, issue_serving};
use super::{Certificate, CertificateState, Host, IssueError, Policy, Reason, StoredPair};

/// Makes the authority that [`Step::Authority`](super::Step::Authority) asks for, signed also by the one before where its
/// key is at hand. `key` is new.
pub(super) fn new_authority(
    state: &CertificateState,
    policy: &Policy,
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<StoredPair, IssueError> {
    let certificate = issue_authority(key, policy.validity, now)?;
    let new = Signer { certificate: &certificate, key };
    let mut previous = String::new();
    if let Ok(old) = Authority::read(state.authority.as_ref()) {
        let older: Vec<_> = old.line().filter(|older| older.certificate.is_valid_at(now)).collect();
        for PreviousCa { certificate, key, .. } in &older {
            previous += &cross_sign(&new, &Signer { certificate, key }, now)?.to_pem();
        }
        for PreviousCa { certificate, key, cross_certificate } in &older {
            previous += &cross_certificate.map(Certificate::to_pem).unwrap_or_default();
            previous += &certificate.to_pem();
            previous += &key.serialize_pem();
        }
    }
    Ok(StoredPair {
        certificates: certificate.to_pem().into(),
        key: key.serialize_pem().into(),
        previous: previous.into(),
    })
}

/// Makes the serving pair that [`Step::Serving`](super::Step::Serving) asks for. `key` is new.
pub(super) fn new_serving(
    state: &CertificateState,
    policy: &Policy,
    hosts: &[Host],
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<StoredPair, IssueError> {
    let authority = Authority::read(state.authority.as_ref()).map_err(IssueError::NoAuthority)?;
    let leaf = issue_serving(key, hosts, &authority.signer(), policy.validity, now)?;
    let mut certificates = leaf.to_pem();
    let cross_certificates = authority
        .previous
        .iter()
        .filter_map(|(_, _, cross_certificate)| cross_certificate.as_ref());
    let cross_certificates = authority.cross_signed.iter().chain(cross_certificates);
    certificates.extend(
        cross_certificates
            .filter(|certificate| certificate.is_valid_at(now))
            .map(Certificate::to_pem),
    );
    Ok(StoredPair {
        certificates: certificates.into(),
        key: key.serialize_pem().into(),
        previous: Vec::new(),
    })
}

/// The authority, read.
pub(super) struct Authority {
    pub(super) certificate: Certificate,
    key: KeyPair,
    /// Its name and key as older authorities signed them, the newest of these first.
    pub(super) cross_signed: Vec<Certificate>,
    /// The older authorities, newest first: each one's own certificate, its key, and its name and
    /// key as the one before it signed them.
    previous: Vec<(Certificate, KeyPair, Option<Certificate>)>,
}

/// An authority as its successors see it.
struct PreviousCa<'a> {
    certificate: &'a Certificate,
    key: &'a KeyPair,
    /// Its name and key as the one before it signed them.
    cross_certificate: Option<&'a Certificate>,
}

impl Authority {
    pub(super) fn read(stored: Option<&StoredPair>) -> Result<Self, Reason> {
        let stored = stored.ok_or(Reason::Missing)?;
        let certificate = stored.leaf().ok_or(Reason::Unreadable)?;
        let key = read_key(&stored.key).filter(|key| certificate.matches(key));
        let key = key.ok_or(Reason::Key)?;
        let previous = Certificate::read_all(&stored.previous);
        let (cross_signed, older): (Vec<_>, Vec<_>) =
            previous.into_iter().partition(|other| other.matches(&key));
        let cross_signed = cross_signed.into_iter().filter(|other| *other != certificate).collect();
        let previous = read_keys(&stored.previous).filter_map(|key| {
            let (own, cross_certificates): (Vec<_>, Vec<_>) = older
                .iter()
                .filter(|certificate| certificate.matches(&key))
                .cloned()
                .partition(|certificate| certificate.issuer == certificate.common_name);
            Some((own.into_iter().next()?, key, cross_certificates.into_iter().next()))
        });
        let previous = previous.collect();
        Ok(Self { certificate, key, cross_signed, previous })
    }

    /// This authority and those before it, newest first.
    fn line(&self) -> impl Iterator<Item = PreviousCa<'_>> {
        let Self { certificate, key, cross_signed, previous } = self;
        let own = PreviousCa { certificate, key, cross_certificate: cross_signed.first() };
        let older = previous.iter().map(|(certificate, key, cross_certificate)| PreviousCa {
            certificate,
            key,
            cross_certificate: cross_certificate.as_ref(),
        });
        std::iter::once(own).chain(older)
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: &self.certificate, key: &self.key }
    }
}
