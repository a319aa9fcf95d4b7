//! Who is locked out by chains whose signatures are sound and whose extensions are anything, name
//! constraints among them.
//!
//! An input is three certificates, each a byte for its validity, and extensions up to a byte 0: one
//! byte for the kind, one for the length, and the contents.

use super::{CAS, NOW};
use pki::{Certificate, Host, TrustHolder, locked_out};
use rcgen::{CertificateParams, CustomExtension, DnType, Issuer, KeyPair};
use time::Duration;

/// Of names, constraints, usages and key identifiers, and one that nobody knows.
const KINDS: [&[u64]; 8] = [
    &[2, 5, 29, 17],
    &[2, 5, 29, 30],
    &[2, 5, 29, 19],
    &[2, 5, 29, 15],
    &[2, 5, 29, 37],
    &[2, 5, 29, 14],
    &[2, 5, 29, 35],
    &[1, 2, 3],
];

fn params(name: &str, input: &mut &[u8]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let first = take(input, 1).first().copied().unwrap_or_default();
    params.not_before = NOW - Duration::days(i64::from(first & 15) - 2);
    params.not_after = NOW + Duration::days(i64::from(first >> 4) - 1);
    while let [kind, length] = *take(input, 2)
        && kind != 0
    {
        let contents = take(input, length.into()).to_vec();
        let oid = KINDS[usize::from(kind) % KINDS.len()];
        let mut extension = CustomExtension::from_oid_content(oid, contents);
        extension.set_criticality(kind & 128 != 0);
        params.custom_extensions.push(extension);
    }
    params
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

fn signed(
    params: &CertificateParams,
    key: &KeyPair,
    by: (&CertificateParams, &KeyPair),
) -> Option<Certificate> {
    let issued = params.signed_by(key, &Issuer::from_params(by.0, by.1)).ok()?;
    Certificate::from_der(issued.der())
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let mut input = data;
    let [root_key, middle_key, leaf_key, _] = &*CAS;
    let root = params("root", &mut input);
    let middle = params("middle", &mut input);
    let leaf = params("leaf", &mut input);
    let (root, middle, leaf) = (
        signed(&root, &root_key.key, (&root, &root_key.key)),
        signed(&middle, &middle_key.key, (&root, &root_key.key)),
        signed(&leaf, &leaf_key.key, (&middle, &middle_key.key)),
    );
    let (Some(root), Some(middle), Some(leaf)) = (root, middle, leaf) else { return };
    let mut hosts: Vec<Host> = leaf.hosts.iter().take(2).cloned().collect();
    if hosts.is_empty() {
        hosts.push("a.example".parse().expect("a host"));
    }
    let holder = |trusted| TrustHolder { name: "a".to_owned(), trusted, hosts: hosts.clone() };
    let reason = |chain: &[&Certificate], trusted: &[&Certificate]| {
        let chain: Vec<_> = chain.iter().copied().cloned().collect();
        let trusted = trusted.iter().copied().cloned().collect();
        let found = locked_out(&chain, &[holder(trusted)], NOW);
        found.first().map(ToString::to_string)
    };
    let through = reason(&[&leaf, &middle], &[&root]);
    // The order in which certificates are sent is no matter, nor is what has no part in a way.
    assert_eq!(reason(&[&leaf, &root, &middle], &[&root]).is_none(), through.is_none());
    // Who trusts more refuses no more.
    let either = reason(&[&leaf, &middle], &[&root, &middle]);
    assert!(either.is_none() || through.is_some(), "{either:?}");
    assert!(reason(&[&leaf, &middle], &[]).is_some());
    assert!(reason(&[&leaf], &[&root]).is_some(), "nobody vouches for the one that vouches");
}
