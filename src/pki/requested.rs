//! Certificates for those who ask for one: for a key that they have, by this server's CA or another one whose key is
//! at hand.

use core::net::IpAddr;
use std::collections::BTreeSet;

use rcgen::{BasicConstraints, DnType, IsCa, SanType, SubjectPublicKeyInfo};
use time::OffsetDateTime;
use x509_parser::extensions::SubjectAlternativeName;
use x509_parser::prelude::FromDer as _;

use super::issue::{Signer, Validity, params};
use super::kept::{Ca, Kept};
use super::view::View;
use super::{
    Certificate, CertificateState, Host, IssueError, SigningRequest, StoredPair, Unusable, Usage,
};

/// A certificate that is to be issued.
pub struct Requested<'a> {
    /// Whose names and key it has.
    pub request: &'a SigningRequest,
    /// What it is for.
    pub usages: &'a BTreeSet<Usage>,
    /// Whether it is a CA's, which signs leaves alone.
    pub is_ca: bool,
    /// From when to when it is valid; within the issuer's own time.
    pub validity: Validity,
}

/// A certificate with what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The leaf, and what leads from it to the roots; none of them.
    pub chain: Vec<Certificate>,
    /// All that may be trusted for it.
    pub roots: Vec<Certificate>,
}

/// A CA that somebody has in files or a secret of their own.
pub struct OwnCa {
    kept: Kept,
    above: Vec<Certificate>,
    roots: Vec<Certificate>,
}

/// Why a CA of somebody's own cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnCaFault {
    /// Its pair cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Its time is over, or has not come.
    #[error("its CA is not valid now")]
    Expired,
    /// The roots are none that it leads to.
    #[error("none of the roots vouches for its CA")]
    ForeignRoots,
    /// There are no roots.
    #[error("there is no root: its CA is signed by another one, which is not given")]
    NoRoots,
}

impl OwnCa {
    /// Reads one at `now`: its certificate, followed by what leads to a root, its key, and the roots as PEM, which
    /// a CA that signed itself need not have beside it.
    pub fn read(pair: &StoredPair, roots: &[u8], now: OffsetDateTime) -> Result<Self, OwnCaFault> {
        let (kept, fault) = Kept::read(pair);
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        let given = Certificate::read_all(&pair.certificates);
        let own = given.first().ok_or(Unusable::NoCertificate)?;
        if !own.is_valid_at(now) {
            return Err(OwnCaFault::Expired);
        }
        let (tops, above): (Vec<_>, Vec<_>) = given.iter().cloned().partition(is_root);
        let mut roots = Certificate::read_all(roots);
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
        Ok(Self { kept, above, roots })
    }

    /// Issues a certificate.
    pub fn issue(&self, requested: &Requested<'_>) -> Result<Issued, IssueError> {
        let ca = self.kept.cas.first().and_then(Ca::signer).ok_or(IssueError::NoSigner)?;
        let leaf = issue(requested, ca)?;
        let chain = std::iter::once(leaf).chain(self.above.iter().cloned()).collect();
        Ok(Issued { chain, roots: self.roots.clone() })
    }
}

/// Issues a certificate by this server's own CA: with all that leads to the CAs before it, and all of those that are
/// trusted.
pub fn issue_requested(
    state: &CertificateState,
    requested: &Requested<'_>,
    now: OffsetDateTime,
) -> Result<Issued, IssueError> {
    let view = View::of(state, now);
    let ca = signer(&view, now).ok_or(IssueError::NoSigner)?;
    let leaf = issue(requested, ca.signer().ok_or(IssueError::NoSigner)?)?;
    let mut chain = view.links().chain(&leaf, &ca.certificate)?;
    chain.retain(|certificate| !is_root(certificate));
    let mut roots = view.bundle.clone();
    roots.retain(|root| root.is_valid_at(now) && !view.kept.is_distrusted(root));
    Ok(Issued { chain, roots })
}

/// Why this server's own CA cannot sign, `None` if it can.
#[must_use]
pub fn signing_fault(state: &CertificateState, now: OffsetDateTime) -> Option<String> {
    let view = View::of(state, now);
    if view.kept.signer_at(now).is_some() {
        return None;
    }
    Some(view.fault.as_ref().map_or_else(|| IssueError::NoSigner.to_string(), Unusable::to_string))
}

/// The newest CA that the bundle vouches for: one that was made a moment ago is not in it yet, and nobody trusts it
/// by itself. Where the bundle vouches for none, the newest.
fn signer<'a>(view: &'a View<'_>, now: OffsetDateTime) -> Option<&'a Ca> {
    let is_trusted = |ca: &&Ca| {
        let ca = &ca.certificate;
        view.bundle.iter().any(|root| root == ca || ca.is_issued_by(root))
    };
    let signers = view.kept.signers().into_iter();
    let mut valid = signers.filter(|ca| ca.certificate.is_valid_at(now));
    valid.find(is_trusted).or_else(|| view.kept.signer_at(now))
}

/// What a certificate of somebody else's says beyond what was asked for, in words.
#[must_use]
pub fn excess(certificate: &Certificate, request: &SigningRequest, is_ca: bool) -> Option<String> {
    let extensions = &certificate.extensions;
    if !is_ca && extensions.basic_constraints.as_ref().is_some_and(|constraints| constraints.ca) {
        return Some("it is a CA's".to_owned());
    }
    let asked: BTreeSet<String> = words(request).collect();
    let mut named = SigningRequest::default();
    if !certificate.common_name.is_empty() {
        named.subject.push(("CN".to_owned(), certificate.common_name.clone()));
    }
    let alternative = extensions.alternative_names.as_deref().unwrap_or_default();
    if let Ok((_, alternative)) = SubjectAlternativeName::from_der(alternative) {
        alternative.general_names.iter().for_each(|name| named.take_name(name));
    }
    let more: BTreeSet<String> = words(&named).filter(|name| !asked.contains(name)).collect();
    let more: Vec<String> = more.into_iter().chain(named.others).collect();
    (!more.is_empty()).then(|| format!("it is for {} too", more.join(", ")))
}

/// All names that a certificate is for: CAs repeat a common name as an alternative one, and the other way.
fn words(request: &SigningRequest) -> impl Iterator<Item = String> {
    let common_names = request.subject.iter().filter(|(kind, _)| kind == "CN");
    let names = request.dns_names.iter().chain(common_names.map(|(_, name)| name));
    names
        .map(|name| name.to_ascii_lowercase())
        .chain(request.addresses.iter().map(IpAddr::to_string))
        .chain(request.uris.iter().cloned())
}

fn is_root(certificate: &Certificate) -> bool {
    certificate.is_issued_by(certificate)
}

/// A certificate for a request by a CA. It ends with its issuer at the latest, and begins no sooner.
fn issue(requested: &Requested<'_>, by: Signer<'_>) -> Result<Certificate, IssueError> {
    let Requested { request, usages, is_ca, validity } = requested;
    check_constraints(request, *is_ca, by.certificate)?;
    let validity = Validity {
        begin: validity.begin.max(by.certificate.not_before),
        end: validity.end.min(by.certificate.not_after),
    };
    let key = SubjectPublicKeyInfo::from_der(&request.key_info)?;
    let mut params = params("", &request.key_info, &by.certificate.subject_name, validity)?;
    // The name itself is taken over as it is encoded; without one the alternative names are critical.
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
    let issued = params.signed_by(&key, &by.issuer()?)?;
    by.finish(issued.der(), &request.subject_name)
}

fn alternative_names(request: &SigningRequest) -> Result<Vec<SanType>, rcgen::Error> {
    let mut names = Vec::new();
    for name in &request.dns_names {
        names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    names.extend(request.addresses.iter().map(|address| SanType::IpAddress(*address)));
    for uri in &request.uris {
        names.push(SanType::URI(uri.as_str().try_into()?));
    }
    Ok(names)
}

/// What a CA may not vouch for makes a certificate that nobody accepts.
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
mod tests {
    use rcgen::{CertificateParams, GeneralSubtree, KeyPair, NameConstraints};
    use time::Duration;
    use time::macros::datetime;

    use super::super::issue::{cross_sign, issue_authority};
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    /// A CA that signed itself.
    struct Root {
        certificate: Certificate,
        key: KeyPair,
    }

    impl Root {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let certificate = issue_authority(&key, Duration::days(100), NOW).unwrap();
            Self { certificate, key }
        }

        /// One with constraints of its own.
        fn constrained(change: impl FnOnce(&mut CertificateParams)) -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            change(&mut params);
            let der = params.self_signed(&key).unwrap();
            Self { certificate: Certificate::from_der(der.der()).unwrap(), key }
        }

        fn signer(&self) -> Signer<'_> {
            Signer { certificate: &self.certificate, key: &self.key }
        }

        /// This CA below another one.
        fn below(&self, other: &Self) -> Certificate {
            cross_sign(&self.certificate, other.signer(), NOW).unwrap()
        }

        fn pem(&self) -> String {
            self.certificate.to_pem()
        }
    }

    fn request(dns_names: &[&str]) -> SigningRequest {
        let names: Vec<String> = dns_names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        SigningRequest::from_der(params.serialize_request(&key).unwrap().der()).unwrap()
    }

    fn requested<'a>(
        request: &'a SigningRequest,
        usages: &'a BTreeSet<Usage>,
        is_ca: bool,
    ) -> Requested<'a> {
        let validity = Validity { begin: NOW - Duration::HOUR, end: NOW + Duration::days(1) };
        Requested { request, usages, is_ca, validity }
    }

    fn own(certificates: &str, key: &KeyPair, roots: &str) -> Result<OwnCa, OwnCaFault> {
        let pair = StoredPair {
            certificates: certificates.into(),
            key: key.serialize_pem().into(),
            ..StoredPair::default()
        };
        OwnCa::read(&pair, roots.as_bytes(), NOW)
    }

    #[test]
    fn a_ca_of_somebody_s_own_signs_where_its_roots_vouch_for_it() {
        let (root, other, ca) = (Root::new(), Root::new(), Root::new());
        let below = ca.below(&root).to_pem();
        let names = request(&["a.example.com"]);
        let usages = [Usage::SERVER_AUTH].into();
        let issued = |certificates: &str, roots: &str| {
            let own = own(certificates, &ca.key, roots)?;
            let issued = own.issue(&requested(&names, &usages, false)).unwrap();
            assert!(issued.chain[0].is_issued_by(&ca.certificate));
            Ok((issued.chain.len(), issued.roots))
        };
        let roots = |all: &[&Root]| all.iter().map(|root| root.certificate.clone()).collect();
        // It is a root itself, is given with others, or hangs on one.
        assert_eq!(issued(&ca.pem(), ""), Ok((1, roots(&[&ca]))));
        let both = ca.pem() + &other.pem();
        assert_eq!(issued(&ca.pem(), &both), Ok((1, roots(&[&ca, &other]))));
        assert_eq!(issued(&below, &root.pem()), Ok((2, roots(&[&root]))));
        assert_eq!(issued(&(below.clone() + &root.pem()), ""), Ok((2, roots(&[&root]))));
        assert_eq!(issued(&below, ""), Err(OwnCaFault::NoRoots));
        assert_eq!(issued(&below, &other.pem()), Err(OwnCaFault::ForeignRoots));
        assert_eq!(issued("", ""), Err(Unusable::NoCertificate.into()));
        let foreign = own(&root.pem(), &ca.key, "").err();
        assert_eq!(foreign, Some(Unusable::ForeignKey.into()));
        let pair = StoredPair::joined((ca.key.serialize_pem() + &ca.pem()).as_bytes());
        for (days, is_usable) in [(-2, false), (0, true), (99, true), (101, false)] {
            let read = OwnCa::read(&pair, b"", NOW + Duration::days(days));
            assert_eq!(read.err(), (!is_usable).then_some(OwnCaFault::Expired), "{days}");
        }
    }

    #[test]
    fn a_new_ca_of_the_server_signs_once_it_is_in_the_bundle() {
        let old = Root::new();
        let later = NOW + Duration::HOUR;
        let key = KeyPair::generate().unwrap();
        let certificate = issue_authority(&key, Duration::days(100), later).unwrap();
        let new = Root { certificate, key };
        let mut state = CertificateState {
            authority: Some(StoredPair {
                certificates: new.pem().into(),
                key: new.key.serialize_pem().into(),
                previous: (old.pem() + &old.key.serialize_pem()).into(),
                unreadable: None,
            }),
            ..CertificateState::default()
        };
        let names = request(&["a.example.com"]);
        let usages = [Usage::SERVER_AUTH].into();
        let mut issued = |bundle: String| {
            state.bundle = Some(bundle.into());
            let asked = requested(&names, &usages, false);
            let Issued { chain, roots } = issue_requested(&state, &asked, later).unwrap();
            assert!(!chain.iter().any(is_root));
            (chain[0].is_issued_by(&new.certificate), chain.len(), roots.len())
        };
        assert_eq!(issued(old.pem()), (false, 2, 1), "the old one, and what leads to the new one");
        assert_eq!(issued(new.pem() + &old.pem()), (true, 2, 2));
        assert_eq!(issued(String::new()), (true, 2, 0), "there is no other");
        let none = CertificateState::default();
        assert!(signing_fault(&none, NOW).is_some());
        let asked = requested(&names, &usages, false);
        assert!(matches!(issue_requested(&none, &asked, NOW), Err(IssueError::NoSigner)));
    }

    #[test]
    fn what_is_issued_has_the_names_uses_and_time_that_were_asked_for() {
        let root = Root::new();
        let names = request(&["a.example.com", "*.b.example.com"]);
        let usages = [Usage::DIGITAL_SIGNATURE, Usage::CLIENT_AUTH].into();
        let leaf = issue(&requested(&names, &usages, false), root.signer()).unwrap();
        assert_eq!(leaf.extensions.dns_names, ["a.example.com", "*.b.example.com"]);
        assert!(leaf.extensions.forbids_serving && leaf.extensions.forbids_signing);
        assert_eq!(leaf.not_after, NOW + Duration::days(1));
        assert_eq!(leaf.subject_name, names.subject_name);
        assert_eq!(leaf.key_info, names.key_info);
        let usages = [Usage::CERT_SIGN].into();
        let ca = issue(&requested(&names, &usages, true), root.signer()).unwrap();
        assert_eq!(ca.signing_fault(), None);
        // Not beyond the CA's own time, on either side.
        let always = Validity { begin: NOW - Duration::days(9), end: NOW + Duration::days(900) };
        let asked = Requested { validity: always, ..requested(&names, &usages, false) };
        let leaf = issue(&asked, root.signer()).unwrap();
        let time = (root.certificate.not_before, root.certificate.not_after);
        assert_eq!((leaf.not_before, leaf.not_after), time);
    }

    #[test]
    fn what_the_ca_s_own_certificate_forbids_is_not_issued() {
        let constrained = Root::constrained(|params| {
            let permitted_subtrees = vec![
                GeneralSubtree::DnsName("example.com".to_owned()),
                GeneralSubtree::IpAddress(rcgen::CidrSubnet::V4(
                    [192, 0, 2, 0],
                    [255, 255, 255, 0],
                )),
            ];
            let excluded_subtrees = Vec::new();
            params.name_constraints =
                Some(NameConstraints { permitted_subtrees, excluded_subtrees });
        });
        let usages = BTreeSet::new();
        let fault = |root: &Root, names: &[&str], is_ca| {
            let names = request(names);
            let issued = issue(&requested(&names, &usages, is_ca), root.signer());
            issued.err().map(|error| error.to_string())
        };
        let forbids = |what: &str| {
            Some(format!("the CA's own certificate does not allow it to vouch for {what}"))
        };
        assert_eq!(fault(&constrained, &["a.example.com", "192.0.2.1"], false), None);
        assert_eq!(fault(&constrained, &["a.example.org"], false), forbids("a.example.org"));
        assert_eq!(fault(&constrained, &["198.51.100.1"], false), forbids("198.51.100.1"));
        let last = Root::constrained(|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        });
        assert_eq!(fault(&last, &["a"], false), None);
        assert_eq!(fault(&last, &["a"], true), forbids("another CA below it"));
    }

    #[test]
    fn what_was_not_asked_for_is_in_excess_and_repeated_common_names_are_not() {
        let root = Root::new();
        let asked = |dns_names: &[&str], addresses: &[&str], common_name: &str| SigningRequest {
            subject: vec![("CN".to_owned(), common_name.to_owned())],
            dns_names: dns_names.iter().map(|&name| name.to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..request(&["a.example.com"])
        };
        let sent = asked(&["A.example.com", "*.b.example.com"], &["192.0.2.1"], "");
        let usages = BTreeSet::new();
        let leaf = issue(&requested(&sent, &usages, false), root.signer()).unwrap();
        let ca = issue(&requested(&sent, &usages, true), root.signer()).unwrap();
        for (certificate, request, is_ca, expected) in [
            (&leaf, sent.clone(), false, None),
            (&ca, sent.clone(), true, None),
            (&ca, sent.clone(), false, Some("it is a CA's")),
            (&leaf, asked(&["*.b.example.com"], &["192.0.2.1"], "a.example.com"), false, None),
            (
                &leaf,
                asked(&["a.example.com"], &[], ""),
                false,
                Some("it is for *.b.example.com, 192.0.2.1 too"),
            ),
        ] {
            assert_eq!(excess(certificate, &request, is_ca).as_deref(), expected, "{request:?}");
        }
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.subject_alt_names = vec![
            SanType::URI("spiffe://a/b".try_into().unwrap()),
            SanType::Rfc822Name("a@example.com".try_into().unwrap()),
        ];
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let other = Certificate::from_der(signed.der()).unwrap();
        let told = excess(&other, &sent, false).unwrap();
        assert_eq!(told, "it is for admin, spiffe://a/b, the e-mail address a@example.com too");
        let uris = vec!["spiffe://a/b".to_owned()];
        let told = excess(&other, &SigningRequest { uris, ..asked(&["admin"], &[], "") }, false);
        assert_eq!(told.unwrap(), "it is for the e-mail address a@example.com too");
    }
}
