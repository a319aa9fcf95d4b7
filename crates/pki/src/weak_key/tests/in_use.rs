//! Tests that weak keys are refused or reported wherever they are in use.

use num_bigint::BigUint;
use pem::Pem;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SubjectPublicKeyInfo};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use yasna::DERWriter;

use super::super::Weakness;
use crate::certificate::key_of;
use crate::issue::{Signer, Validity, cross_sign, issue_ca, issue_serving};
use crate::plan::plan;
use crate::requested::{OwnCa, OwnCaFault};
use crate::view::View;
use crate::{Certificate, CertificateState, External, Host, Policy, StoredPair, Unusable, Warning};

const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

/// A prime of 1024 bits, the next prime after it, and another prime.
const PRIME: &[u8] = b"c4753c54ebfac901cd58884beae74bcbde2a25571e9be5d68c98980793eee6305413c7e7d0c52d1ea0d2b59d7de8115e5c17bd7b202ccd7d21a9c49cf6e05a5eb669dbd1952b0100bb0bda9c22e3850abefc83df433883df1fa333d448c02fa28b3acc49fa3608020e1d7b7cf59ae879d7129727c9883305432128b2d59a6237";
const NEXT: &[u8] = b"c4753c54ebfac901cd58884beae74bcbde2a25571e9be5d68c98980793eee6305413c7e7d0c52d1ea0d2b59d7de8115e5c17bd7b202ccd7d21a9c49cf6e05a5eb669dbd1952b0100bb0bda9c22e3850abefc83df433883df1fa333d448c02fa28b3acc49fa3608020e1d7b7cf59ae879d7129727c9883305432128b2d59a632d";
const OTHER: &[u8] = b"e5825b855b175528afcd1ce343c6dae5687660d7ede68123602d93a9f3af6a85b5774ff9544bbd6b3944d23ec22dd8eb8c20a7051e332807cfaa13cd512f4f922711034806106a4d828241aec60615c88f5acc84de89a8dcde96b63edab14871ac79b68f5c2074e3dc29134e5064a877f7790a637855fa7c02eef68afacdd2ed";

fn number(hex: &[u8]) -> BigUint {
    BigUint::parse_bytes(hex, 16).unwrap()
}

fn write_numbers(writer: DERWriter<'_>, numbers: &[BigUint]) {
    writer.write_sequence(|writer| {
        for number in numbers {
            writer.next().write_bigint_bytes(&number.to_bytes_be(), true);
        }
    });
}

/// A key, and its text: the library writes another form than it has read.
struct Key {
    pair: KeyPair,
    text: String,
}

impl Key {
    fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let text = pair.serialize_pem();
        Self { pair, text }
    }
}

/// A key as RFC 8017, appendix A.1.2, has it.
fn key(primes: [&[u8]; 2], exponent: u32) -> Key {
    let [p, q] = primes.map(number);
    let (one, e) = (BigUint::from(1_u32), BigUint::from(exponent));
    let (of_p, of_q) = (&p - &one, &q - &one);
    let d = e.modinv(&(&of_p * &of_q)).unwrap();
    let inverse = q.modinv(&p).unwrap();
    let numbers =
        [BigUint::from(0_u32), &p * &q, e, d.clone(), p, q, &d % of_p, &d % of_q, inverse];
    let der = yasna::construct_der(|writer| write_numbers(writer, &numbers));
    let text = pem::encode(&Pem::new("RSA PRIVATE KEY", der));
    Key { pair: key_of(text.as_bytes()).unwrap(), text }
}

/// Usable keys, each with its weakness.
fn weak_keys() -> [(Key, Weakness); 2] {
    [
        (key([PRIME, OTHER], 3), Weakness::Exponent),
        (key([PRIME, NEXT], 65_537), Weakness::CloseFactors),
    ]
}

/// The public half of a key that no library generates.
fn divisible_by_three() -> SubjectPublicKeyInfo {
    let numbers = [number(PRIME) * 3_u32 * number(OTHER), BigUint::from(65_537_u32)];
    let public = yasna::construct_der(|writer| write_numbers(writer, &numbers));
    let der = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_sequence(|writer| {
                let rsa =
                    yasna::models::ObjectIdentifier::from_slice(&[1, 2, 840, 113_549, 1, 1, 1]);
                writer.next().write_oid(&rsa);
                writer.next().write_null();
            });
            writer.next().write_bitvec_bytes(&public, public.len() * 8);
        });
    });
    SubjectPublicKeyInfo::from_der(&der).unwrap()
}

struct Ca {
    certificate: Certificate,
    key: Key,
}

impl Ca {
    fn of(key: Key) -> Self {
        let certificate = issue_ca(&key.pair, Duration::days(3_650), NOW).unwrap();
        Self { certificate, key }
    }

    fn new() -> Self {
        Self::of(Key::new())
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: &self.certificate, key: &self.key.pair }
    }

    /// A serving pair with this key, and these behind the leaf.
    fn pair(&self, key: &Key, behind: &[Certificate]) -> StoredPair {
        let hosts: Vec<Host> = vec!["mcs.example.com".parse().unwrap()];
        let validity = Validity { begin: NOW, end: NOW + Duration::days(30) };
        let leaf = issue_serving(&key.pair, &hosts, self.signer(), validity).unwrap();
        stored(&[&[leaf], behind].concat(), key)
    }
}

fn stored(certificates: &[Certificate], key: &Key) -> StoredPair {
    let certificates: String = certificates.iter().map(Certificate::to_pem).collect();
    let (certificates, key) = (certificates.into_bytes(), key.text.clone().into_bytes());
    StoredPair { certificates, key, ..StoredPair::default() }
}

/// Certificates with a weak key that another CA has signed.
fn weak_intermediates() -> Vec<(Certificate, Weakness)> {
    let root = Ca::new();
    let below = |(key, weakness)| {
        let weak = Ca::of(key).certificate;
        (cross_sign(&weak, root.signer(), NOW).unwrap(), weakness)
    };
    let mut all: Vec<_> = weak_keys().map(below).into();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::from_params(&params, &root.key.pair);
    let made = params.signed_by(&divisible_by_three(), &issuer).unwrap();
    let made = Certificate::from_der(made.der()).unwrap();
    // It must not count as self-signed.
    assert!(!made.is_issued_by(&made));
    all.push((made, Weakness::SmallFactor(3)));
    all
}

#[test]
fn a_pair_of_another_tool_is_not_served_with_a_weak_key_anywhere_in_it() {
    let ca = Ca::new();
    let fault = |pair| {
        let trust = ca.certificate.to_pem().into_bytes();
        External { name: "theirs".to_owned(), pair: Some(pair), trust }.fault()
    };
    let good = Key::new();
    assert_eq!(fault(ca.pair(&good, &[])), None);
    for (key, weakness) in weak_keys() {
        assert_eq!(fault(ca.pair(&key, &[])), Some(Unusable::Weak(weakness)));
        // A root behind the leaf is not sent.
        assert_eq!(fault(ca.pair(&good, &[Ca::of(key).certificate])), None);
    }
    for (behind, weakness) in weak_intermediates() {
        assert_eq!(fault(ca.pair(&good, &[behind])), Some(Unusable::Weak(weakness)));
    }
}

#[test]
fn an_external_ca_signs_with_no_weak_key_and_sends_none() {
    let read = |ca: &Ca, above: &[Certificate]| {
        let own = [std::slice::from_ref(&ca.certificate), above].concat();
        OwnCa::read(&stored(&own, &ca.key), b"", NOW).err()
    };
    let weak = |weakness| Some(OwnCaFault::Unusable(Unusable::Weak(weakness)));
    let good = Ca::new();
    assert_eq!(read(&good, &[]), None);
    for (key, weakness) in weak_keys() {
        assert_eq!(read(&Ca::of(key), &[]), weak(weakness));
    }
    for (above, weakness) in weak_intermediates() {
        assert_eq!(read(&good, &[above]), weak(weakness));
    }
}

#[test]
fn a_weak_key_of_the_signing_ca_or_in_what_is_served_is_reported_once() {
    let reported = |ca: &Ca, serving: StoredPair| {
        let state = CertificateState {
            ca: Some(stored(std::slice::from_ref(&ca.certificate), &ca.key)),
            bundle: Some(ca.certificate.to_pem().into_bytes()),
            serving: Some(serving),
            ..CertificateState::default()
        };
        let attention = plan(&View::of(&state, NOW), &Policy::default()).attention;
        let weakness = |it| match it {
            Warning::WeakKey { weakness, .. } => Some(weakness),
            _ => None,
        };
        attention.into_iter().filter_map(weakness).collect::<Vec<_>>()
    };
    let (good, key) = (Ca::new(), Key::new());
    assert_eq!(reported(&good, good.pair(&key, &[])), []);
    for (weak, weakness) in weak_keys() {
        assert_eq!(reported(&good, good.pair(&weak, &[])), std::slice::from_ref(&weakness));
        let ca = Ca::of(weak);
        let crossed = cross_sign(&ca.certificate, good.signer(), NOW).unwrap();
        assert_eq!(reported(&ca, ca.pair(&key, &[crossed])), [weakness]);
    }
    for (behind, weakness) in weak_intermediates() {
        assert_eq!(reported(&good, good.pair(&key, &[behind])), [weakness]);
    }
}
