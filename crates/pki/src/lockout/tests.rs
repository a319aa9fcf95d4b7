//! A chain for each reason, and the same chain without the fault.

use super::*;
use crate::keys::KeyAlgorithm;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};
use time::Duration;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const YEAR: Duration = Duration::days(365);
const HOST: &str = "api-int.example.com";
const ADDRESS: &str = "192.0.2.1";

type Change = fn(&mut CertificateParams);
const UNCHANGED: Change = |_| {};

/// A certificate that can sign others.
struct Issued {
    params: CertificateParams,
    key: KeyPair,
    certificate: Certificate,
}

fn issue(mut params: CertificateParams, name: &str, by: Option<&Issued>) -> Issued {
    let key = KeyAlgorithm::P256.generate().unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    let certificate = signed(&params, &key, by);
    Issued { params, key, certificate }
}

/// A certificate with this name and key, self-signed without an issuer.
fn signed(params: &CertificateParams, key: &KeyPair, by: Option<&Issued>) -> Certificate {
    let issued = match by {
        None => params.self_signed(key),
        Some(by) => params.signed_by(key, &Issuer::from_params(&by.params, &by.key)),
    };
    Certificate::from_der(issued.unwrap().der()).unwrap()
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = NOW - YEAR;
    params.not_after = NOW + YEAR;
    params
}

fn ca(name: &str, by: Option<&Issued>, change: Change) -> Issued {
    let mut params = params();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    change(&mut params);
    issue(params, name, by)
}

fn leaf(by: &Issued, change: Change) -> Certificate {
    let mut params = params();
    params.subject_alt_names = vec![
        SanType::DnsName(HOST.try_into().unwrap()),
        SanType::IpAddress(ADDRESS.parse().unwrap()),
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    change(&mut params);
    issue(params, "leaf", Some(by)).certificate
}

fn refused(
    chain: &[Certificate],
    trusted: &[&Certificate],
    hosts: &[&str],
) -> Option<LockoutReason> {
    let holder = TrustHolder {
        name: "worker.ign".to_owned(),
        trusted: trusted.iter().copied().cloned().collect(),
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
    };
    locked_out(chain, &[holder], NOW).pop().map(|lockout| lockout.reason)
}

/// Judges a leaf below an intermediate CA below a trusted root, each of them changed.
fn refused_with(root: Change, intermediate: Change, leaf_change: Change) -> Option<LockoutReason> {
    let root = ca("root", None, root);
    let intermediate = ca("intermediate", Some(&root), intermediate);
    let leaf = leaf(&intermediate, leaf_change);
    refused(&[leaf, intermediate.certificate], &[&root.certificate], &[HOST, ADDRESS])
}

#[test]
fn who_is_served_a_sound_chain_boots() {
    assert_eq!(refused_with(UNCHANGED, UNCHANGED, UNCHANGED), None);
}

#[test]
fn what_is_wrong_with_the_leaf_is_reported() {
    let leaf = || "leaf".to_owned();
    let (before, after) = (NOW - Duration::SECOND, NOW + Duration::SECOND);
    let changes: [(Change, _); 5] = [
        (
            |params| params.not_after = NOW - Duration::SECOND,
            LockoutReason::Expired { certificate: leaf(), at: before },
        ),
        (
            |params| params.not_before = NOW + Duration::SECOND,
            LockoutReason::NotYetValid { certificate: leaf(), at: after },
        ),
        (
            |params| drop(params.subject_alt_names.remove(0)),
            LockoutReason::Host(HOST.parse().unwrap()),
        ),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            LockoutReason::ExtendedKeyUsage(leaf()),
        ),
        (add_critical_extension, critical_extension_of("leaf")),
    ];
    for (change, reason) in changes {
        assert_eq!(refused_with(UNCHANGED, UNCHANGED, change), Some(reason));
    }
    let to_the_second: Change = |params| {
        params.not_before = NOW;
        params.not_after = NOW;
    };
    assert_eq!(refused_with(to_the_second, to_the_second, to_the_second), None);
}

fn add_critical_extension(params: &mut CertificateParams) {
    // NULL, under a number reserved for examples (RFC 5612).
    let mut extension =
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 1], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
}

fn critical_extension_of(certificate: &str) -> LockoutReason {
    LockoutReason::CriticalExtension {
        certificate: certificate.to_owned(),
        extension: "1.3.6.1.4.1.32473.1".to_owned(),
    }
}

fn constrain<'a>(
    params: &'a mut CertificateParams,
    permitted: &[&str],
    excluded: &[&str],
) -> &'a mut NameConstraints {
    let subtrees = |names: &[&str]| {
        names.iter().map(|&name| GeneralSubtree::DnsName(name.to_owned())).collect()
    };
    params.name_constraints.insert(NameConstraints {
        permitted_subtrees: subtrees(permitted),
        excluded_subtrees: subtrees(excluded),
    })
}

fn faults_of(ca: &str) -> [(Change, LockoutReason); 10] {
    let ca = || ca.to_owned();
    let named =
        |name: &str| LockoutReason::NameConstraints { certificate: ca(), name: name.to_owned() };
    let expired = LockoutReason::Expired { certificate: ca(), at: NOW - Duration::SECOND };
    let early = LockoutReason::NotYetValid { certificate: ca(), at: NOW + Duration::SECOND };
    [
        (|params| params.not_after = NOW - Duration::SECOND, expired),
        (|params| params.not_before = NOW + Duration::SECOND, early),
        (|params| params.is_ca = IsCa::NoCa, LockoutReason::NoCa(ca())),
        (|params| params.is_ca = IsCa::ExplicitNoCa, LockoutReason::NoCa(ca())),
        (
            |params| params.key_usages = vec![KeyUsagePurpose::CrlSign],
            LockoutReason::KeyUsage(ca()),
        ),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            LockoutReason::ExtendedKeyUsage(ca()),
        ),
        (|params| _ = constrain(params, &["example.org"], &[]), named(HOST)),
        (|params| _ = constrain(params, &[], &["example.com"]), named(HOST)),
        (
            |params| {
                let network = CidrSubnet::V4([198, 51, 100, 0], [255, 255, 255, 0]);
                let constraints = constrain(params, &["example.com"], &[]);
                constraints.permitted_subtrees.push(GeneralSubtree::IpAddress(network));
            },
            named(ADDRESS),
        ),
        (add_critical_extension, critical_extension_of(&ca())),
    ]
}

#[test]
fn what_is_wrong_with_a_ca_is_reported_whether_it_is_sent_or_trusted() {
    for (change, reason) in faults_of("intermediate") {
        assert_eq!(refused_with(UNCHANGED, change, UNCHANGED), Some(reason));
    }
    for (change, reason) in faults_of("root") {
        // The validity of a trusted CA is checked first.
        let reason = match reason {
            LockoutReason::Expired { .. } | LockoutReason::NotYetValid { .. } => {
                LockoutReason::NoValidCa
            }
            other => other,
        };
        assert_eq!(refused_with(change, UNCHANGED, UNCHANGED), Some(reason));
    }
}

#[test]
fn a_demand_for_policies_ends_a_way_below_the_trusted_ca() {
    /// `policyConstraints` with a `requireExplicitPolicy` of 0, not critical.
    const DEMANDING: Change = |params| {
        let value = b"\x30\x03\x80\x01\0".to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 36], value)];
    };
    let reported = |name: &str| Some(LockoutReason::Policies(name.to_owned()));
    assert_eq!(refused_with(UNCHANGED, DEMANDING, UNCHANGED), reported("intermediate"));
    assert_eq!(refused_with(UNCHANGED, UNCHANGED, DEMANDING), reported("leaf"));
    assert_eq!(refused_with(DEMANDING, UNCHANGED, UNCHANGED), None);
}

#[test]
fn what_a_ca_restricts_as_it_may_does_no_harm() {
    let changes: [Change; 5] = [
        |params| params.key_usages = Vec::new(),
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any],
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1)),
        |params| {
            let network = CidrSubnet::V4([192, 0, 2, 0], [255, 255, 255, 0]);
            let constraints = constrain(params, &["example.com"], &["a.example.com"]);
            constraints.permitted_subtrees.push(GeneralSubtree::IpAddress(network));
        },
    ];
    for change in changes {
        assert_eq!(refused_with(change, change, UNCHANGED), None);
    }
}

#[test]
fn a_path_length_counts_the_cas_below() {
    let none: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    assert_eq!(refused_with(UNCHANGED, none, UNCHANGED), None);
    assert_eq!(
        refused_with(none, UNCHANGED, UNCHANGED),
        Some(LockoutReason::PathLength { certificate: "root".to_owned(), most: 0, present: 1 })
    );
}

#[test]
fn a_chain_that_leads_to_none_of_the_trusted_cas_says_where_it_ends() {
    let root = ca("root", None, UNCHANGED);
    let intermediate = ca("intermediate", Some(&root), UNCHANGED);
    let unrelated = ca("unrelated", None, UNCHANGED);
    let [r, i, s] = [&root, &intermediate, &unrelated].map(|issued| &issued.certificate);
    let leaf = leaf(&intermediate, UNCHANGED);
    let missing = |issuer: &str, certificate: &str| {
        Some(LockoutReason::IssuerMissing {
            issuer: issuer.to_owned(),
            certificate: certificate.to_owned(),
        })
    };
    let chain = [&leaf, i, r].map(Clone::clone);
    assert_eq!(refused(&chain[..1], &[r], &[HOST]), missing("intermediate", "leaf"));
    assert_eq!(refused(&chain[..2], &[s], &[HOST]), missing("root", "intermediate"));
    let untrusted = Some(LockoutReason::Untrusted("root".to_owned()));
    assert_eq!(refused(&chain, &[s], &[HOST]), untrusted);
    assert_eq!(refused(&chain, &[], &[HOST]), Some(LockoutReason::NoValidCa));
    assert_eq!(refused(&[], &[r], &[HOST]), Some(LockoutReason::NothingServed));
    for trusted in [&[s, r][..], &[i], &[&leaf]] {
        assert_eq!(refused(&chain, trusted, &[HOST]), None);
    }

    // The same name with another key is another CA.
    let namesake = ca("intermediate", Some(&root), UNCHANGED).certificate;
    let chain = [&leaf, &namesake].map(Clone::clone);
    assert_eq!(refused(&chain, &[r], &[HOST]), missing("intermediate", "leaf"));
    let chain = [&leaf, &namesake, i].map(Clone::clone);
    assert_eq!(refused(&chain, &[r], &[HOST]), None);
}

#[test]
fn every_way_is_tried_in_whatever_order_it_is_sent() {
    let (old, new) = (ca("old", None, UNCHANGED), ca("new", None, UNCHANGED));
    let of_new = |by: &Issued, change: Change| {
        let mut params = new.params.clone();
        change(&mut params);
        signed(&params, &new.key, Some(by))
    };
    let sound = of_new(&old, UNCHANGED);
    let expired = of_new(&old, |params| params.not_after = NOW - YEAR / 2);
    // The other direction makes a loop.
    let back = signed(&old.params, &old.key, Some(&new));
    let leaf = leaf(&new, UNCHANGED);
    let mut sent = [expired.clone(), back.clone(), sound.clone(), new.certificate.clone()];
    for _ in 0..sent.len() {
        sent.rotate_left(1);
        let chain = [std::slice::from_ref(&leaf), &sent[..]].concat();
        assert_eq!(refused(&chain, &[&old.certificate], &[HOST]), None);
        assert_eq!(refused(&chain, &[&new.certificate], &[HOST]), None);
    }
    assert_eq!(
        refused(&[leaf, back, expired], &[&old.certificate], &[HOST]),
        Some(LockoutReason::Expired { certificate: "new".to_owned(), at: NOW - YEAR / 2 })
    );
}

#[test]
fn a_leaf_is_for_its_names_and_wildcards() {
    let root = ca("root", None, UNCHANGED);
    let leaf = leaf(&root, |params| {
        params.subject_alt_names = ["*.example.com", "API.example.org"]
            .map(|name| SanType::DnsName(name.try_into().unwrap()))
            .into();
        params.subject_alt_names.push(SanType::IpAddress("2001:db8::1".parse().unwrap()));
    });
    for (host, is_named) in [
        ("api-int.example.com", true),
        ("example.com", false),
        ("a.b.example.com", false),
        ("api.example.org", true),
        ("leaf", false),
        ("[2001:db8::1]", true),
        ("192.0.2.1", false),
    ] {
        let reason = refused(std::slice::from_ref(&leaf), &[&root.certificate], &[host]);
        let unnamed = LockoutReason::Host(host.parse().unwrap());
        assert_eq!(reason, (!is_named).then_some(unnamed), "{host}");
    }
}

#[test]
fn clients_bound_what_they_read_and_try() {
    let root = ca("root", None, UNCHANGED);
    let issuer = ca("intermediate", Some(&root), UNCHANGED);
    let leaf = leaf(&issuer, UNCHANGED);
    let sent = |namesakes: usize, last: &Certificate| -> Vec<Certificate> {
        // They share the name and the key identifier, which is not verified.
        let others = (0..namesakes).map(|_| {
            let identifier = issuer.certificate.extensions.key_identifier.clone();
            let mut params = issuer.params.clone();
            params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(identifier);
            signed(&params, &KeyAlgorithm::P256.generate().unwrap(), Some(&root))
        });
        std::iter::once(leaf.clone()).chain(others).chain([last.clone()]).collect()
    };
    // One candidate is the root.
    let trusted = [&root.certificate];
    assert_eq!(refused(&sent(98, &issuer.certificate), &trusted, &[HOST]), None);
    assert_eq!(
        refused(&sent(99, &issuer.certificate), &trusted, &[HOST]),
        Some(LockoutReason::TooManyCandidates)
    );

    let with_padding = |length: usize| {
        let mut params = issuer.params.clone();
        let padding =
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 2], vec![0; length]);
        params.custom_extensions.push(padding);
        vec![leaf.clone(), signed(&params, &issuer.key, Some(&root))]
    };
    let length = MAX_HANDSHAKE_BYTES - handshake_bytes(&with_padding(60_000)) + 60_000 - 8;
    assert_eq!(refused(&with_padding(length), &trusted, &[HOST]), None);
    let chain = with_padding(length + 16);
    let bytes = handshake_bytes(&chain);
    assert_eq!(refused(&chain, &trusted, &[HOST]), Some(LockoutReason::TooLarge { bytes }));
}

#[test]
fn those_who_do_not_boot_are_named_in_one_line_each() {
    let (root, unrelated) = (ca("root", None, UNCHANGED), ca("unrelated", None, UNCHANGED));
    let chain = [leaf(&root, UNCHANGED)];
    let holder = |name: &str, trusted: &Issued| TrustHolder {
        name: name.to_owned(),
        trusted: vec![trusted.certificate.clone()],
        hosts: vec![HOST.parse().unwrap()],
    };
    let holders = [holder("worker.ign", &unrelated), holder("master.ign", &root)];
    let lines: Vec<_> = locked_out(&chain, &holders, NOW).iter().map(Lockout::to_string).collect();
    assert_eq!(
        lines,
        [
            "worker.ign cannot boot a machine: \"root\" issued \"leaf\" and is neither sent nor trusted"
        ]
    );
    for (change, reason) in faults_of("root") {
        assert!(refused_with(change, UNCHANGED, UNCHANGED).is_some());
        let line = reason.to_string();
        assert!(line.contains("\"root\"") && !line.contains('\n'), "{line}");
    }
}
