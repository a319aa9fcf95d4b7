//! What is a certificate, asked of the rules in `pki` and of Go's parser: no certificate that Go refuses is one here.
//!
//! They need a Go program, which `tests/run` builds: `--skip go_parser::` leaves them out.

use std::collections::BTreeMap;

use pki::{Certificate, Malformed};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DnType, DnValue,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, RsaKeySize, SanType,
};

use crate::support::go;

const BATCH: usize = 500;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // The generator splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).expect("a few")).expect("a few")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What an element holds.
#[derive(Debug, Clone)]
enum Contents {
    Octets(Vec<u8>),
    /// What comes before the elements, such as a bit string's first octet, and those.
    Elements(Vec<u8>, Vec<Node>),
}

/// An element of DER that can be changed.
#[derive(Debug, Clone)]
struct Node {
    tag: u8,
    contents: Contents,
    /// Octets that its length takes beyond the fewest.
    excess: usize,
}

impl Node {
    /// All elements of a text that is nothing else.
    fn read_all(mut der: &[u8]) -> Option<Vec<Self>> {
        let mut nodes = Vec::new();
        while !der.is_empty() {
            let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
            let octets = if first < 0x80 { 0 } else { usize::from(first & 0x7f) };
            let (digits, rest) = rest.split_at_checked(octets)?;
            let length = digits.iter().fold(0_usize, |length, it| length << 8 | usize::from(*it));
            let length = if octets == 0 { usize::from(first) } else { length };
            let (contents, after) = rest.split_at_checked(length)?;
            if tag & 0x1f == 0x1f {
                return None;
            }
            nodes.push(Self { tag, contents: Contents::read(tag, contents), excess: 0 });
            der = after;
        }
        Some(nodes)
    }

    fn write(&self, der: &mut Vec<u8>) {
        let mut contents = Vec::new();
        match &self.contents {
            Contents::Octets(octets) => contents.extend(octets),
            Contents::Elements(before, nodes) => {
                contents.extend(before);
                for node in nodes {
                    node.write(&mut contents);
                }
            }
        }
        der.push(self.tag);
        let length = contents.len().to_be_bytes();
        let zeros = length.iter().take_while(|it| **it == 0).count();
        if contents.len() < 0x80 && self.excess == 0 {
            der.extend(&length[7..]);
        } else {
            let digits = &length[zeros.min(7).saturating_sub(self.excess)..];
            der.push(0x80 | u8::try_from(digits.len()).expect("eight at most"));
            der.extend(digits);
        }
        der.extend(contents);
    }

    /// How many elements there are, with itself.
    fn count(&self) -> usize {
        1 + match &self.contents {
            Contents::Octets(_) => 0,
            Contents::Elements(_, nodes) => nodes.iter().map(Self::count).sum(),
        }
    }

    /// The element of this number.
    fn nth(&mut self, mut number: usize) -> &mut Self {
        if number == 0 {
            return self;
        }
        number -= 1;
        if let Contents::Elements(_, nodes) = &mut self.contents {
            for node in nodes {
                let count = node.count();
                if number < count {
                    return node.nth(number);
                }
                number -= count;
            }
        }
        panic!("there are not so many elements")
    }

    fn change(&mut self, random: &mut Random) {
        let kind = random.below(10);
        match &mut self.contents {
            _ if kind == 0 => self.tag = TAGS[random.below(TAGS.len())],
            _ if kind == 1 && random.below(4) == 0 => self.excess = 1 + random.below(2),
            _ if kind == 2 => {
                let mut octets = Vec::new();
                for _ in 0..random.below(12) {
                    octets.push(random.byte());
                }
                self.contents = Contents::Octets(octets);
            }
            Contents::Elements(_, nodes) if !nodes.is_empty() => {
                let (one, other) = (random.below(nodes.len()), random.below(nodes.len()));
                match kind {
                    3 | 4 => drop(nodes.remove(one)),
                    5 | 6 => nodes.insert(other, nodes[one].clone()),
                    7 => nodes.swap(one, other),
                    8 => self.contents = Contents::Octets(Vec::new()),
                    _ => {
                        let octets = random.one(VALUES).to_vec();
                        let tag = TAGS[random.below(TAGS.len())];
                        let contents = Contents::Octets(octets);
                        nodes.insert(other, Self { tag, contents, excess: 0 });
                    }
                }
            }
            Contents::Elements(..) => {
                self.contents = Contents::Octets(random.one(VALUES).to_vec());
            }
            Contents::Octets(octets) => match kind {
                3 | 4 => *octets = random.one(VALUES).to_vec(),
                5 if !octets.is_empty() => drop(octets.remove(random.below(octets.len()))),
                6 => octets.insert(random.below(octets.len() + 1), random.byte()),
                7 if !octets.is_empty() => {
                    let at = random.below(octets.len());
                    octets[at] = random.byte();
                }
                8 if !octets.is_empty() => {
                    let at = random.below(octets.len());
                    let value = random.one(VALUES);
                    octets.splice(at..at, value.iter().copied());
                }
                _ => {
                    let mut shortened = random.one(VALUES).to_vec();
                    shortened.truncate(random.below(shortened.len() + 1));
                    *octets = shortened;
                }
            },
        }
    }
}

impl Contents {
    fn read(tag: u8, contents: &[u8]) -> Self {
        let is_constructed = tag & 0x20 != 0;
        let before = usize::from(tag == 3);
        // A key or an extension's value holds elements as well, in octets of a string.
        if is_constructed || tag == 4 || tag == 3 {
            let (before, rest) = contents.split_at(before.min(contents.len()));
            if let Some(nodes) = Node::read_all(rest).filter(|it| is_constructed || !it.is_empty())
            {
                return Self::Elements(before.to_vec(), nodes);
            }
        }
        Self::Octets(contents.to_vec())
    }
}

const TAGS: [u8; 30] = [
    1, 2, 3, 4, 5, 6, 10, 12, 18, 19, 20, 22, 23, 24, 26, 28, 30, 0x30, 0x31, 0x80, 0x81, 0x82,
    0x84, 0x86, 0x87, 0xa0, 0xa1, 0xa3, 0xa4, 0x88,
];

/// What means something to one field or another, and what nearly does.
const VALUES: &[&[u8]] = &[
    b"",
    b"\0",
    b"\xff",
    b"\x01",
    b"\x80",
    b"\0\x80",
    b"\0\x7f",
    b"\xff\x80",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\0\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x03",
    b"\x07\x80",
    b"\x07\x81",
    b"\x08\0",
    b"\0\x03",
    b"\x05\xa0",
    b"\x55\x1d\x11",
    b"\x55\x1d\x0f",
    b"\x55\x1d\x1e",
    b"\x55\x1d\x20",
    b"\x55\x1d\x23",
    b"\x55\x1d\x24",
    b"\x55\x1d\x0e",
    b"\x55\x1d\x36",
    b"\x55\x1d\x21",
    b"\x55\x1d\x1f",
    b"\x55\x1d\x25",
    b"\x55\x1d\x13",
    b"\x2b\x06\x01\x05\x05\x07\x01\x01",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01",
    b"\x80\x01",
    b"\x88\x37",
    b"\x2a\x87\xff\xff\xff\x7f",
    b"\x2a\x88\x80\x80\x80\0",
    b"\x2a\x80\x01",
    b"\x2a\x81",
    b"\x78",
    b"\x81\x34\x03",
    b"\x2a\x86\x48\xce\x38\x04\x01",
    b"\x2b\x81\x04\0\x21",
    b"\x2b\x65\x70",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01",
    b"::::",
    b":",
    b"*",
    b"a",
    b"/",
    b"//",
    b"///",
    b"a:b",
    b"a/b:c",
    b"?a:b",
    b"1a:b",
    b"mailto:%zz",
    b"http://",
    b"https://example.com",
    b"https://example.com.",
    b"https://.example.com",
    b"https://example..com",
    b"https://example.com:",
    b"https://example.com:443/%41",
    b"https://example.com:a",
    b"http://a:1:2",
    b"x://a:1:2",
    b"https://a:b@example.com/",
    b"https://a%4:1@b",
    b"https://a^@b",
    b"https://a@b@c",
    b"https://[::1]",
    b"https://[::1]:1",
    b"https://[::1",
    b"https://[1.2.3.4]",
    b"https://[::ffff:1.2.3.4]",
    b"https://[fe80::1%25a]",
    b"https://a[::1]",
    b"https://[::1]a",
    b"https://[[::1]]",
    b"https://[::1]]",
    b"https://a]",
    b"https://%25",
    b"https://%2525",
    b"https://%41",
    b"https://%c3%a9",
    b"https://a%",
    b"https://a/%",
    b"https://a/%4",
    b"a#%",
    b"#",
    b"a#b#%41",
    b"https://a b",
    b"https://a\"<>b",
    b"https://a{b",
    b"http:/a%",
    b"http:a%",
    b"https://a?%",
    b"a b",
    b"\x7f",
    b"a\x01",
    b"\xc3\xa9",
    b"\xe9",
    b"//a.",
    b"//a:b",
    b"https:///a",
    b"https://:1",
    b"https://a:1%41",
    b".",
    b"..",
    b".a",
    b"a.",
    b"a..b",
    b"..a",
    b"a.b",
    b".a.b",
    b"a_b",
    b"*.a",
    b"1.2.3.4",
    b"01.2.3.4",
    b"1.2.3",
    b"1.2.3.256",
    b"::1",
    b"00000::1",
    b"1::2::3",
    b"a@b",
    b"a.b@c",
    b".a@b",
    b"a.@b",
    b"a..b@c",
    b"\"a b\"@c",
    b"\"a@b",
    b"\"a\\\"b\"@c",
    b"a\\ b@c",
    b"a\\@b",
    b"a\\",
    b"@",
    b"@a",
    b"a@",
    b"a@.b",
    b"a@b..c",
    b"a@b.",
    b"a@b c",
    b"\x7f\0\0\x01",
    b"\x7f\0\0\x01\xff",
    b"\x0a\0\0\0\xff\0\0\0",
    b"\x0a\0\0\0\xff\xe0\0\0",
    b"\x0a\0\0\0\xff\xe1\0\0",
    b"\x0a\0\0\0\0\xff\0\0",
    b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01",
    b"\0a\0b",
    b"\xd8\0\xdc\0",
    b"\xff\xfe",
    b"\xfd\xd0",
    b"\0a\0\0",
    b"\0",
    b"1 2",
    b"a'b",
    b"a;b",
    b"a*b&c",
    b"261121000000Z",
    b"2611210000Z",
    b"261121000000+0100",
    b"261121000000+0000",
    b"520229000000Z",
    b"260229000000Z",
    b"000229000000Z",
    b"261121240000Z",
    b"261121000060Z",
    b"20261121000000Z",
    b"20261121000000.5Z",
    b"00000101000000Z",
    b"99991231235959Z",
    b"21000229000000Z",
    b"20261121000000+0100",
];

fn extension(identifier: &[u64], der: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(identifier, der.to_vec())
}

/// Certificates that have all that is looked into.
fn originals() -> Vec<Vec<u8>> {
    let ecdsa = KeyPair::generate().expect("a key");
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    let generate = |algorithm| KeyPair::generate_for(algorithm).expect("a key");

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
