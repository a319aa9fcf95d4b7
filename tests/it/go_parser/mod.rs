//! What is a certificate, asked of the rules in `pki` and of Go's parser: no certificate that Go refuses is one here.
//!
//! They need a Go program, which `tests/run` builds: `--skip go_parser::` leaves them out.

mod mutation;
mod values;

use std::collections::BTreeMap;

use pki::{Certificate, Malformed};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DnType, DnValue,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, RsaKeySize, SanType,
};

use self::mutation::{Node, Random};
use self::values::VALUES;
use crate::support::go;

const BATCH: usize = 500;

fn extension(identifier: &[u64], der: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(identifier, der.to_vec())
}

/// A CA with every kind of name constraint.
fn ca_params() -> CertificateParams {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(3));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name.push(DnType::CommonName, "a CA");
    ca.distinguished_name.push(
        DnType::OrganizationName,
        DnValue::PrintableString("Example".try_into().expect("printable")),
    );
    let of_text = |text: &str| GeneralSubtree::DnsName(text.to_owned());
    ca.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            of_text("example.com"),
            of_text(".example.org"),
            GeneralSubtree::Rfc822Name("host@example.com".to_owned()),
            GeneralSubtree::Rfc822Name(".example.com".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::V4([10, 0, 0, 0], [255, 0, 0, 0])),
        ],
        excluded_subtrees: vec![GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16]))],
    });
    ca
}

/// Certificates that have all that is looked into.
fn originals() -> Vec<Vec<u8>> {
    let ecdsa = KeyPair::generate().expect("a key");
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    let generate = |algorithm| KeyPair::generate_for(algorithm).expect("a key");

    let ca = ca_params();
    let ca_certificate = ca.self_signed(&rsa).expect("a certificate");
    let issuer = Issuer::from_params(&ca, &rsa);

    let mut leaf =
        CertificateParams::new(["example.com".to_owned(), "127.0.0.1".to_owned()]).expect("names");
    let ia5 = |text: &str| text.try_into().expect("ASCII");
    leaf.subject_alt_names.extend([
        SanType::URI(ia5("https://user:secret@example.com:8443/a%20b?c#d")),
        SanType::URI(ia5("spiffe://example.com/workload")),
        SanType::URI(ia5("https://[2001:db8::1]:80/")),
        SanType::Rfc822Name(ia5("host@example.com")),
    ]);
    leaf.use_authority_key_identifier_extension = true;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.custom_extensions = vec![
        // A distribution point, a way to the issuer, policies, what they map to, and what they demand.
        extension(&[2, 5, 29, 31], b"\x30\x13\x30\x11\xa0\x0f\xa0\x0d\x86\x0bhttp://a/crl"),
        extension(
            &[1, 3, 6, 1, 5, 5, 7, 1, 1],
            b"\x30\x16\x30\x14\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x01\x86\x08http://a",
        ),
        extension(&[2, 5, 29, 32], b"\x30\x0d\x30\x06\x06\x04\x55\x1d\x20\0\x30\x03\x06\x01\x2a"),
        extension(&[2, 5, 29, 33], b"\x30\x08\x30\x06\x06\x01\x2a\x06\x01\x2b"),
        extension(&[2, 5, 29, 36], b"\x30\x06\x80\x01\0\x81\x01\x01"),
        extension(&[2, 5, 29, 54], b"\x02\x01\x05"),
    ];
    let signed = |params: &CertificateParams, key: &KeyPair| {
        params.signed_by(key, &issuer).expect("a certificate").der().to_vec()
    };
    // What differs is the key alone.
    let plain = CertificateParams::new(["example.com".to_owned()]).expect("names");
    vec![
        ca_certificate.der().to_vec(),
        signed(&leaf, &ecdsa),
        signed(&leaf, &rsa),
        signed(&plain, &generate(&rcgen::PKCS_ECDSA_P384_SHA384)),
        signed(&plain, &generate(&rcgen::PKCS_ECDSA_P521_SHA512)),
        signed(&plain, &generate(&rcgen::PKCS_ED25519)),
    ]
}

fn mutated(original: &[u8], random: &mut Random) -> Vec<u8> {
    let mut der = Vec::new();
    if random.below(8) == 0 {
        der.extend(original);
        let at = random.below(der.len());
        der[at] = random.byte();
        return der;
    }
    let mut certificate = Node::read_all(original).expect("DER").remove(0);
    for _ in 0..=random.below(2) {
        let number = random.below(certificate.count());
        certificate.nth(number).change(random);
    }
    certificate.write(&mut der);
    der
}

/// What is refused here and not by Go, and why that is so (src/pki/go_x509).
fn is_listed(malformed: &Malformed) -> bool {
    match malformed {
        // What the library that reads certificates refuses.
        Malformed::Unread => true,
        Malformed::Field(field) => ["public key", "validity", "version"].contains(field),
        Malformed::Extension(name) => ["subjectAltName", "nameConstraints"].contains(name),
        _ => false,
    }
}

#[test]
fn no_certificate_that_go_refuses_is_read() {
    let originals = originals();
    let mut random = Random(24);
    let mut refused = BTreeMap::new();
    let (mut both_take, mut only_go_takes) = (0, BTreeMap::new());
    for _ in 0..60 {
        let ders: Vec<_> = (0..BATCH)
            .map(|_| mutated(&originals[random.below(originals.len())], &mut random))
            .collect();
        for (der, error) in ders.iter().zip(go::parse(&ders)) {
            let parsed = Certificate::parse(der);
            match (&parsed, error.is_empty()) {
                (Ok(_), true) => both_take += 1,
                (Ok(_), false) => panic!("Go says {error:?} of {}", hex(der)),
                (Err(malformed), false) => {
                    *refused.entry(format!("{malformed:?}")).or_insert(0) += 1;
                }
                (Err(malformed), true) => {
                    assert!(is_listed(malformed), "{malformed:?}, and Go takes {}", hex(der));
                    *only_go_takes.entry(format!("{malformed:?}")).or_insert(0) += 1;
                }
            }
        }
    }
    // Not everything is refused, and each extension is reached.
    assert!(both_take > 5_000, "{both_take}, {refused:?}");
    for name in [
        "subjectKeyIdentifier",
        "keyUsage",
        "subjectAltName",
        "basicConstraints",
        "nameConstraints",
        "cRLDistributionPoints",
        "certificatePolicies",
        "policyMappings",
        "authorityKeyIdentifier",
        "policyConstraints",
        "extKeyUsage",
        "inhibitAnyPolicy",
        "authorityInfoAccess",
    ] {
        let count = refused.get(&format!("Extension({name:?})")).copied().unwrap_or_default();
        assert!(count >= 5, "{name}: {count}, {refused:?}");
    }
    let only_go_takes_in_all: usize = only_go_takes.values().sum();
    assert!(only_go_takes_in_all * 10 < both_take, "{both_take}, {only_go_takes:?}");
}

/// Each text as a name of each kind, as it is and inside others: what differs is the text alone.
#[test]
fn no_name_that_go_refuses_is_read() {
    let key = KeyPair::generate().expect("a key");
    let mut random = Random(25);
    let mut texts: Vec<Vec<u8>> = VALUES.iter().map(|text| text.to_vec()).collect();
    for _ in 0..1_500 {
        let (mut one, other) = (random.one(VALUES).to_vec(), random.one(VALUES));
        let at = random.below(one.len() + 1);
        one.splice(at..at, other.iter().copied());
        texts.push(one);
    }
    texts.retain(|text| text.len() < 100);
    let element = |tag: u8, contents: &[u8]| {
        let length = u8::try_from(contents.len()).expect("a short text");
        [&[tag, length], contents].concat()
    };
    let mut ders = Vec::new();
    for text in &texts {
        for tag in [0x81, 0x82, 0x86, 0x87] {
            let name = element(tag, text);
            let subtrees = element(0x30, &element(0xa0, &element(0x30, &name)));
            for (number, value) in [(17, element(0x30, &name)), (30, subtrees)] {
                let mut params = CertificateParams::default();
                params.custom_extensions = vec![extension(&[2, 5, 29, number], &value)];
                ders.push(params.self_signed(&key).expect("a certificate").der().to_vec());
            }
        }
    }
    let mut taken = 0;
    for ders in ders.chunks(BATCH) {
        for (der, error) in ders.iter().zip(go::parse(ders)) {
            match Certificate::parse(der) {
                Ok(_) => assert_eq!(error, "", "{}", hex(der)),
                Err(malformed) if error.is_empty() => {
                    assert!(is_listed(&malformed), "{malformed:?}: {}", hex(der));
                }
                Err(_) => {}
            }
            taken += usize::from(error.is_empty());
        }
    }
    assert!(taken > 1_000, "{taken} of {}", ders.len());
}

fn hex(der: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(der)
}
