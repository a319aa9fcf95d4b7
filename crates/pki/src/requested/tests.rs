//! Tests of certificates issued for requests, and of CAs that administrators provide.

use rcgen::{CertificateParams, GeneralSubtree, KeyPair, NameConstraints};
use time::Duration;
use time::macros::datetime;

use super::*;
use crate::issue::{cross_sign, issue_ca};

const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

/// A self-signed CA.
struct Root {
    certificate: Certificate,
    key: KeyPair,
}

impl Root {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = issue_ca(&key, Duration::days(100), NOW).unwrap();
        Self { certificate, key }
    }

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

    /// Cross-signs this CA by another one.
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
fn an_external_ca_signs_where_its_roots_vouch_for_it() {
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
    // The CA is a root, comes with other roots, or is below one.
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
    let certificate = issue_ca(&key, Duration::days(100), later).unwrap();
    let new = Root { certificate, key };
    let mut state = CertificateState {
        ca: Some(StoredPair {
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
        assert!(!chain.iter().any(Certificate::is_self_signed));
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
    // The validity is clamped to the CA's on both sides.
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
            GeneralSubtree::IpAddress(rcgen::CidrSubnet::V4([192, 0, 2, 0], [255, 255, 255, 0])),
        ];
        let excluded_subtrees = Vec::new();
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees });
    });
    let usages = BTreeSet::new();
    let fault = |root: &Root, names: &[&str], is_ca| {
        let names = request(names);
        let issued = issue(&requested(&names, &usages, is_ca), root.signer());
        issued.err().map(|error| error.to_string())
    };
    let forbids = |what: &str| {
        Some(format!("the CA's certificate does not allow it to issue certificates for {what}"))
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
        (&ca, sent.clone(), false, Some("it is a CA certificate")),
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
    let reported = excess(&other, &sent, false).unwrap();
    assert_eq!(reported, "it is for admin, spiffe://a/b, the e-mail address a@example.com too");
    let uris = vec!["spiffe://a/b".to_owned()];
    let reported = excess(&other, &SigningRequest { uris, ..asked(&["admin"], &[], "") }, false);
    assert_eq!(reported.unwrap(), "it is for the e-mail address a@example.com too");
}

/// A subject's name with these attributes: the type's identifier, the string's type, the value.
fn name(attributes: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let tlv = |tag: u8, parts: &[&[u8]]| {
        let value = parts.concat();
        [&[tag, u8::try_from(value.len()).unwrap()], &value[..]].concat()
    };
    let attributes = attributes.iter().map(|(kind, tag, value)| {
        let pair = tlv(0x30, &[&tlv(6, &[kind]), &tlv(*tag, &[value])]);
        tlv(0x31, &[&pair])
    });
    tlv(0x30, &[&attributes.collect::<Vec<_>>().concat()])
}

#[test]
fn every_name_in_a_subject_is_in_excess_that_was_not_asked_for() {
    const COMMON_NAME: &[u8] = &[85, 4, 3];
    const ORGANIZATION: &[u8] = &[85, 4, 10];
    const E_MAIL: &[u8] = &[42, 134, 72, 134, 247, 13, 1, 9, 1];
    let [utf8, printable, teletex, ia5] = [12, 19, 20, 22];
    let [universal, bmp] = [28, 30];
    let root = Root::new();
    let usages = BTreeSet::new();
    let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "a");
    let mail = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
    params.distinguished_name.push(mail, "Ann@example.com");
    let sent = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
    let sent = SigningRequest::from_der(sent.der()).unwrap();
    let more = |what: &str| Some(format!("it is for {what} too"));
    let unreadable = || more("CN in its subject, which cannot be read");
    let (a, mail) = ((COMMON_NAME, utf8, &b"a"[..]), (E_MAIL, ia5, &b"ann@example.com"[..]));
    for (subject, expected) in [
        (vec![], None),
        (vec![a, mail, (ORGANIZATION, teletex, b"\xe9")], None),
        (vec![a, (COMMON_NAME, printable, b"A.example.com"), (COMMON_NAME, utf8, b"")], None),
        (vec![a, (COMMON_NAME, utf8, b"admin")], more("admin")),
        (vec![(COMMON_NAME, teletex, b"admin"), a], more("admin")),
        (vec![(COMMON_NAME, bmp, b"\0a")], None),
        (vec![(COMMON_NAME, bmp, b"\0r\0o\0o\0t")], more("root")),
        (vec![(COMMON_NAME, teletex, b"\xe9")], unreadable()),
        (vec![(E_MAIL, utf8, b"bob@example.com")], more("the e-mail address bob@example.com")),
    ] {
        let asked = SigningRequest { subject_name: name(&subject), ..sent.clone() };
        let leaf = issue(&requested(&asked, &usages, false), root.signer()).unwrap();
        assert_eq!(excess(&leaf, &sent, false), expected, "{subject:?}");
    }
    // Machines cannot read these.
    for value in [(COMMON_NAME, universal, &b"\0\0\0r"[..]), (COMMON_NAME, bmp, b"\0ro")] {
        let asked = SigningRequest { subject_name: name(&[value]), ..sent.clone() };
        let refused = issue(&requested(&asked, &usages, false), root.signer());
        assert!(matches!(refused, Err(IssueError::Unreadable)), "{value:?}");
    }
    // Issuers copy names of the subject into the alternative names.
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "a");
    params.subject_alt_names = vec![SanType::Rfc822Name("Ann@example.com".try_into().unwrap())];
    let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let other = Certificate::from_der(signed.der()).unwrap();
    assert_eq!(excess(&other, &sent, false), None);
}
