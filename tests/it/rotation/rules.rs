//! When and why certificates are made anew, and what they are.

use std::process::Command;

use pki::plan::renewal;
use pki::{Certificate, Host, KeyAlgorithm, Reason, Step, StoredPair, Unusable};
use time::{Duration, OffsetDateTime};

use super::world::{HOST, OwnCa, START, World, YEAR, host, key};
use crate::support::openssl::verify;

#[test]
fn renewal_and_expiry_are_kept_to_the_second() {
    let mut world = World::settled(START);
    let policy = world.policy;
    let old = world.bundle()[0].clone();
    let due = renewal(&world.chain()[0], &policy);
    assert_eq!(due, START + 8 * YEAR);
    let step = |world: &World, now: OffsetDateTime| World { now, ..world.clone() }.step();
    assert_eq!(step(&world, due - Duration::SECOND), None);
    assert_eq!(step(&world, due), Some(Step::Ca(Reason::Renewal)));
    let end = world.chain()[0].not_after;
    assert_eq!(end, START + 10 * YEAR);
    assert_eq!(step(&world, end), Some(Step::Ca(Reason::Renewal)));
    assert_eq!(step(&world, end + Duration::SECOND), Some(Step::Ca(Reason::Expired)));
    assert_eq!(
        step(&world, START - 2 * Duration::DAY),
        None,
        "its time has not come: a clock is wrong"
    );

    // The old authority leaves the bundle in the second after its end.
    world.now = due;
    world.settle();
    assert!(world.bundle().contains(&old));
    assert_eq!(step(&world, old.not_after), None);
    let Some(Step::Bundle(_)) = step(&world, old.not_after + Duration::SECOND) else {
        panic!("it stays in the bundle")
    };
}

#[test]
fn each_reason_is_reported() {
    let mut world = World::fresh(START);
    assert_eq!(world.step(), Some(Step::Ca(Reason::Missing)));
    world.settle();
    let settled = world;
    let serving = |reason| Some(Step::Serving(reason, vec![host()]));
    let with = |change: &dyn Fn(&mut World)| {
        let mut world = settled.clone();
        change(&mut world);
        world.step()
    };
    assert_eq!(with(&|_| {}), None, "it is in order");
    assert_eq!(with(&|world| world.stored.serving = None), serving(Reason::Missing));
    let pair = |world: &mut World, change: &dyn Fn(&mut StoredPair)| {
        change(world.stored.serving.as_mut().expect("one"));
    };
    assert_eq!(
        with(&|world| pair(world, &|pair| pair.certificates = b"x".to_vec())),
        serving(Reason::Unreadable)
    );
    assert_eq!(
        with(&|world| pair(world, &|pair| pair.key = Vec::new())),
        serving(Reason::Unusable(Unusable::NoKey))
    );
    assert_eq!(
        with(&|world| pair(world, &|pair| pair.key = key().serialize_pem().into())),
        serving(Reason::Unusable(Unusable::ForeignKey))
    );
    let other: Host = "192.0.2.1".parse().expect("an address");
    assert_eq!(
        with(&|world| world.stored.hosts.push("192.0.2.1".parse().expect("an address"))),
        Some(Step::Serving(Reason::Host(other.clone()), vec![host(), other.clone()]))
    );
    assert_eq!(with(&|world| world.stored.requested.serving = true), serving(Reason::Requested));
    let asked = Some(Step::Ca(Reason::Requested));
    assert_eq!(with(&|world| world.stored.requested.ca = true), asked);
}

#[test]
fn a_leaf_does_not_outlive_its_ca_and_is_renewed_in_time() {
    let mut world = World::settled(START);
    world.now = START + 7 * YEAR;
    world.rotate(false, false);
    let (leaf, ca) = (world.chain()[0].clone(), world.bundle()[0].clone());
    assert_eq!(leaf.not_after, ca.not_after);
    let due = renewal(&leaf, &world.policy);
    assert!(due < leaf.not_after && due > world.now, "{due}");
}

#[test]
fn a_pointer_of_an_old_installation_is_served_as_long_as_its_pair_lasts() {
    let (mut world, root) = World::with_root(START);
    world.settle();
    assert!(world.chain()[0].is_issued_by(&root), "the old pair stays");
    assert_eq!(world.bundle().len(), 2, "new machines trust both");
    assert_eq!(world.bundle()[0], root, "those that read the first alone boot");
    assert_eq!(world.attention, []);
    // Its renewal would lock out who trusts it alone, so that it is told, and stays.
    world.now = renewal(&world.chain()[0], &world.policy);
    world.settle();
    assert!(world.chain()[0].is_issued_by(&root), "{:?}", world.attention);
    assert_eq!(world.attention.len(), 1, "{:?}", world.attention);
    world.now = root.not_after + Duration::SECOND;
    world.settle();
    assert!(!world.chain()[0].is_issued_by(&root), "its time was over");
}

#[test]
fn a_ca_that_is_made_in_the_second_of_another_signs_all_the_same() {
    let mut world = World::settled(START);
    let first = world.bundle()[0].clone();
    world.stored.requested.ca = true;
    world.settle();
    let others: Vec<_> = world.bundle().into_iter().filter(|ca| *ca != first).collect();
    let [second] = &others[..] else { panic!("{others:?}") };
    assert_eq!(second.made_at(), first.made_at());
    assert!(world.chain()[0].is_issued_by(second));
    assert_eq!(world.chain().len(), 2);
}

#[test]
fn a_pair_that_nobody_can_issue_again_is_not_replaced_while_it_cannot_be_kept() {
    let mut world = World::settled(START);
    world.rotate(true, false);
    let own = OwnCa::with(START, |_| {});
    let pair = own.pair(&[host()], START, YEAR);
    world.stored.serving = Some(pair.clone());
    // The key of the CA that signs is another's; the one before it has its own still.
    let ca = world.stored.ca.as_mut().expect("one");
    ca.key = key().serialize_pem().into();
    world.stored.requested.serving = true;
    world.settle();
    assert_eq!(world.stored.serving.as_ref(), Some(&pair));
    let reported: Vec<_> = world.attention.iter().map(ToString::to_string).collect();
    assert!(
        reported.iter().any(|it| it.contains("cannot be kept with the signing CA")),
        "{reported:?}"
    );
    world.stored.requested.force = true;
    world.settle();
    assert_ne!(world.stored.serving.as_ref(), Some(&pair));
}

/// Output of OpenSSL for a chain, which it verifies strictly by these CAs.
pub(super) fn openssl_verifies(
    chain: &[Certificate],
    trusted: &[Certificate],
    now: OffsetDateTime,
) -> String {
    let at = now.unix_timestamp().to_string();
    let flags = ["-x509_strict", "-purpose", "sslserver", "-verify_hostname", HOST, "-attime", &at];
    let output = verify(&flags, chain, trusted);
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn openssl_follows_a_dozen_rotations_strictly() {
    let mut world = World::settled(START);
    let mut all = world.bundle();
    for month in 1..=12 {
        world.now = START + Duration::days(30 * month);
        world.rotate(true, false);
        all.push(world.bundle()[0].clone());
    }
    let chain = world.chain();
    assert_eq!(chain.len(), 1 + 12, "one certificate leads to each older authority");
    for ca in &all {
        let verified = openssl_verifies(&chain, std::slice::from_ref(ca), world.now);
        assert!(verified.contains(": OK"), "{verified}");
    }
}

#[test]
fn certificates_are_as_rfc_5280_asks() {
    for (name, algorithm) in KeyAlgorithm::ALL {
        let mut world = World::fresh(START);
        world.stored.hosts.push("192.0.2.1".parse().expect("an address"));
        world.stored.hosts.push("2001:db8::1".parse().expect("an address"));
        world.policy.algorithm = algorithm;
        world.settle();
        let ca = world.bundle().remove(0);
        let chain = world.chain();
        let verified = openssl_verifies(&chain, std::slice::from_ref(&ca), START);
        assert!(verified.contains(": OK"), "{name}: {verified}");
        let text = openssl_text(&chain[0]);
        for wanted in [
            "CA:FALSE",
            "Digital Signature",
            "TLS Web Server Authentication",
            "X509v3 Subject Key Identifier",
            "X509v3 Authority Key Identifier",
            "DNS:localhost, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1",
        ] {
            assert!(text.contains(wanted), "{name}: {wanted} in {text}");
        }
        for (flag, name) in
            [("-checkhost", HOST), ("-checkip", "192.0.2.1"), ("-checkip", "2001:db8::1")]
        {
            let checked = openssl_x509(&chain[0], &["-noout", flag, name]);
            assert!(checked.contains("does match certificate"), "{flag} {name}: {checked}");
        }
        let text = openssl_text(&ca);
        for wanted in ["CA:TRUE", "Certificate Sign, CRL Sign", "X509v3 Subject Key Identifier"] {
            assert!(text.contains(wanted), "{name}: {wanted} in {text}");
        }
    }
}

fn openssl_text(certificate: &Certificate) -> String {
    openssl_x509(certificate, &["-noout", "-text"])
}

fn openssl_x509(certificate: &Certificate, arguments: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), certificate.to_pem()).expect("a writable file");
    let output = Command::new("openssl")
        .arg("x509")
        .args(arguments)
        .arg("-in")
        .arg(file.path())
        .output()
        .expect("openssl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
