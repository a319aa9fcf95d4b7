//! Issues certificates for requests: for keys of other parties, by this server's CA or another one with a key.

use core::net::IpAddr;
use std::collections::BTreeSet;

use rcgen::{BasicConstraints, DnType, IsCa, SanType, SubjectPublicKeyInfo};
use time::OffsetDateTime;
use x509_parser::extensions::SubjectAlternativeName;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

use super::ca_store::{Ca, CaStore};
use super::certificate::Certificate;
use super::hosts::Host;
use super::issue::{Signer, Validity, params};
use super::reason::{IssueError, Unusable};
use super::servable::read_chain;
use super::signing_request::{COMMON_NAME, E_MAIL, SigningRequest, mail_address};
use super::state::{CertificateState, StoredPair};
use super::usage::Usage;
use super::view::View;

/// Contents of a certificate to issue.
pub struct Requested<'a> {
    /// Request with names and public key.
    pub request: &'a SigningRequest,
    /// Uses of the key.
    pub usages: &'a BTreeSet<Usage>,
    /// True for a CA, which can sign only leaves.
    pub is_ca: bool,
    /// Validity, clamped to that of the issuer.
    pub validity: Validity,
}

/// An issued certificate with its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The leaf, and the intermediates from it to the roots, without roots.
    pub chain: Vec<Certificate>,
    /// Roots that vouch for the certificate.
    pub roots: Vec<Certificate>,
}

/// A CA that an administrator provides in files or a Secret.
pub struct OwnCa {
    ca: Ca,
    above: Vec<Certificate>,
    roots: Vec<Certificate>,
}

/// Reasons why a provided CA cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnCaFault {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("its CA is not valid now")]
    Expired,
    #[error("none of the roots verifies its CA")]
    ForeignRoots,
    #[error("has no root: its CA is signed by another CA, which is not given")]
    NoRoots,
}

impl OwnCa {
    /// Reads a CA at `now`: its certificate followed by intermediates, its key, and the roots in PEM, which can be
    /// empty for a self-signed CA.
    pub fn read(pair: &StoredPair, roots: &[u8], now: OffsetDateTime) -> Result<Self, OwnCaFault> {
        let (store, fault) = CaStore::read(pair);
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        let given = read_chain(&pair.certificates)?;
        let ca = store.cas.into_iter().next().ok_or(Unusable::NoCertificate)?;
        let own = &ca.certificate;
        let (tops, above): (Vec<_>, Vec<_>) =
            given.into_iter().partition(Certificate::is_self_signed);
        // The certificates above the CA are sent with each issued one.
        if let Some(weakness) = std::iter::once(own).chain(&above).find_map(Certificate::weakness) {
            return Err(Unusable::Weak(weakness).into());
        }
        if !own.is_valid_at(now) {
            return Err(OwnCaFault::Expired);
        }
        let mut roots = read_chain(roots)?;
        if roots.is_empty() {
            roots = tops;
        }
        roots.retain(|root| root.is_valid_at(now));
        if roots.is_empty() {
            return Err(OwnCaFault::NoRoots);
        }
        let vouched =
            |it: &Certificate| roots.iter().any(|root| it == root || it.is_issued_by(root));
        if !std::iter::once(own).chain(&above).any(vouched) {
            return Err(OwnCaFault::ForeignRoots);
        }
        Ok(Self { ca, above, roots })
    }

    /// Returns `true` if its key is that of a CA, present or older, in the store of a signing CA.
    pub fn is_of(&self, stored: &StoredPair) -> bool {
        let (store, _) = CaStore::read(stored);
        let own = store.cas.iter().filter(|ca| ca.key.is_some()).map(|ca| &ca.certificate);
        // The store's own certificate counts even if the rest is unreadable, and may be repaired.
        let named = Certificate::read_all(&stored.certificates);
        let key = self.ca.key.as_ref();
        key.is_some_and(|key| own.chain(named.first()).any(|ca| ca.matches(&key.pair)))
    }

    /// Issues a certificate for a request.
    pub fn issue(&self, requested: &Requested<'_>) -> Result<Issued, IssueError> {
        let leaf = issue(requested, self.ca.signer()?)?;
        let chain = std::iter::once(leaf).chain(self.above.iter().cloned()).collect();
        Ok(Issued { chain, roots: self.roots.clone() })
    }
}

/// Issues a certificate by this server's own CA, with the cross-certificates to the CAs before it, and all trusted CAs
/// as roots.
pub fn issue_requested(
    state: &CertificateState,
    requested: &Requested<'_>,
    now: OffsetDateTime,
) -> Result<Issued, IssueError> {
    let view = View::of(state, now);
    let ca = signer(&view, now).ok_or(IssueError::NoSigner)?;
    let leaf = issue(requested, ca.signer()?)?;
    let mut chain = view.links().chain(&leaf, &ca.certificate)?;
    chain.retain(|certificate| !certificate.is_self_signed());
    let mut roots = view.bundle.clone();
    roots.retain(|root| root.is_valid_at(now) && !view.store.is_distrusted(root));
    Ok(Issued { chain, roots })
}

/// Reason why this server's own CA cannot sign, `None` if it can.
pub fn signing_fault(state: &CertificateState, now: OffsetDateTime) -> Option<String> {
    let view = View::of(state, now);
    let fault = || view.fault.as_ref().map(Unusable::to_string);
    let is_missing = view.store.signer_at(now).is_none();
    is_missing.then(|| fault().unwrap_or_else(|| IssueError::NoSigner.to_string()))
}

/// The newest CA that the bundle vouches for: one that was made just now is not in it yet, and no client trusts it. If
/// the bundle vouches for none, the newest.
fn signer<'a>(view: &'a View<'_>, now: OffsetDateTime) -> Option<&'a Ca> {
    let is_trusted = |ca: &&Ca| {
        let ca = &ca.certificate;
        view.bundle.iter().any(|root| root == ca || ca.is_issued_by(root))
    };
    let mut signers = view.store.signers_at(now).into_iter();
    signers.clone().find(is_trusted).or_else(|| signers.next())
}

/// Names, usages and CA rights of a certificate that exceed its request, in words. The certificate comes from another
/// issuer.
#[must_use]
pub fn excess(certificate: &Certificate, request: &SigningRequest, is_ca: bool) -> Option<String> {
    let extensions = &certificate.extensions;
    if !is_ca && certificate.is_ca() {
        return Some("it is a CA certificate".to_owned());
    }
    let asked: BTreeSet<String> = words(request).collect();
    let mut named = SigningRequest::default();
    match X509Name::from_der(&certificate.subject_name) {
        Ok((_, subject)) => named.take_subject_names(&subject),
        Err(_) => named.others.push("a subject that cannot be read".to_owned()),
    }
    let alternative = extensions.alternative_names.as_deref().unwrap_or_default();
    if let Ok((_, alternative)) = SubjectAlternativeName::from_der(alternative) {
        alternative.general_names.iter().for_each(|name| named.take_name(name));
    }
    let more: BTreeSet<String> = words(&named).filter(|name| !asked.contains(name)).collect();
    let others =
        named.others.into_iter().filter(|name| !asked.contains(&name.to_ascii_lowercase()));
    let more: Vec<String> = more.into_iter().chain(others).collect();
    (!more.is_empty()).then(|| format!("it is for {} too", more.join(", ")))
}

/// All names of a request, in lower case: CAs repeat common names as alternative names, and the other way round; e-mail
/// addresses likewise.
fn words(request: &SigningRequest) -> impl Iterator<Item = String> {
    let of_kind = |wanted: &'static str| {
        let found = request.subject.iter().filter(move |(kind, _)| kind == wanted);
        found.map(|(_, value)| value.to_ascii_lowercase())
    };
    let names = request.dns_names.iter().map(|name| name.to_ascii_lowercase());
    names
        .chain(of_kind(COMMON_NAME))
        .chain(of_kind(E_MAIL).map(|address| mail_address(&address)))
        .chain(request.addresses.iter().map(IpAddr::to_string))
        .chain(request.uris.iter().cloned())
}

/// Issues a certificate for a request, with its validity clamped to that of the CA.
fn issue(requested: &Requested<'_>, by: Signer<'_>) -> Result<Certificate, IssueError> {
    let Requested { request, usages, is_ca, validity } = requested;
    check_constraints(request, *is_ca, by.certificate)?;
    let validity = Validity {
        begin: validity.begin.max(by.certificate.not_before),
        end: validity.end.min(by.certificate.not_after),
    };
    let key = SubjectPublicKeyInfo::from_der(&request.key_info)?;
    let mut params = params("", &request.key_info, &by.certificate.subject_name, validity)?;
    // The encoded subject is copied in later; without a subject the alternative names are critical.
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !request.subject.is_empty() {
        params.distinguished_name.push(DnType::CommonName, "");
    }
    params.subject_alt_names = alternative_names(request)?;
    params.key_usages = usages.iter().filter_map(|usage| usage.key_usage()).collect();
    params.extended_key_usages =
        usages.iter().filter_map(|usage| usage.extended_key_usage()).collect();
    params.is_ca =
        if *is_ca { IsCa::Ca(BasicConstraints::Constrained(0)) } else { IsCa::ExplicitNoCa };
    by.issue(&params, &key, Some(&request.subject_name))
}

fn alternative_names(request: &SigningRequest) -> Result<Vec<SanType>, rcgen::Error> {
    let names = request.dns_names.iter().map(|it| Ok(SanType::DnsName(it.as_str().try_into()?)));
    let addresses = request.addresses.iter().map(|address| Ok(SanType::IpAddress(*address)));
    let uris = request.uris.iter().map(|uri| Ok(SanType::URI(uri.as_str().try_into()?)));
    names.chain(addresses).chain(uris).collect()
}

/// Refuses names that the CA's name constraints exclude: no client would accept the certificate.
fn check_constraints(
    request: &SigningRequest,
    is_ca: bool,
    ca: &Certificate,
) -> Result<(), IssueError> {
    let constraints = ca.extensions.basic_constraints.as_ref();
    if is_ca && constraints.is_some_and(|it| it.path_len_constraint == Some(0)) {
        return Err(IssueError::Constrained("another CA below it".to_owned()));
    }
    let Some(constraints) = &ca.extensions.name_constraints else { return Ok(()) };
    let name = request.dns_names.iter().find(|name| !constraints.allow_name(name));
    let address = request.addresses.iter().find(|address| !constraints.allow_address(**address));
    let found = name.cloned().or_else(|| address.map(|it| Host::Address(*it).to_string()));
    found.map_or(Ok(()), |found| Err(IssueError::Constrained(found)))
}

#[cfg(test)]
mod tests;
