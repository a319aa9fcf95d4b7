//! A CA that is to be trusted never again.

use std::fs;

use model::pointer_config::PointerConfig;
use pki::Certificate;

use super::{Place, boot};

fn with_colons(fingerprint: &str) -> String {
    let pairs = fingerprint.as_bytes().chunks(2);
    let pairs: Vec<_> = pairs.map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
    pairs.join(":")
}

/// Whether a CA's key or name is in a file, but as one that is distrusted.
fn is_in(place: &Place, name: &str, ca: &Certificate) -> bool {
    place.certificates(name).iter().any(|it| it.has_key_of(ca) || it.is_issued_by(ca))
}

/// The first line of a CA's key, which follows the CA.
fn key_of(ca: &Certificate, stored: &str) -> String {
    let (_, rest) = stored.split_once(&ca.to_pem()).expect("the CA");
    assert!(rest.starts_with("-----BEGIN PRIVATE KEY-----"), "its key follows");
    rest.lines().nth(1).expect("its key").to_owned()
}

#[test]
fn a_ca_that_is_distrusted_leaves_every_file_for_ever_however_it_is_named() {
    let place = Place::made(Some("-3d"));
    let oldest = place.pointer();
    let leaked = place.certificates("ca.crt")[0].clone();
    place.certs_at(Some("-2d"), &["rotate", "--ca"]).done();
    let newest = place.pointer();
    let signer = place.newest_ca();
    assert_ne!(signer, leaked);
    let key = key_of(&leaked, &place.text("ca.key"));
    place.write("../leaked.pem", leaked.to_pem());
    let file = place.directory.path().join("leaked.pem").display().to_string();
    let fingerprint = leaked.fingerprint();
    for name in [&fingerprint, &with_colons(&fingerprint), &leaked.common_name, &file] {
        let place = place.copy();
        let files = ["ca.key", "ca.crt", "tls.key", "user-data/worker.ign"];
        let before = files.map(|name| place.text(name));
        let said = place.certs(&["distrust", name]);
        said.refused(&[
            &fingerprint,
            &format!("trusts only \"{}\" cannot boot a machine", leaked.common_name),
            "nothing was changed: repeat the command with --yes",
        ]);
        assert_eq!(files.map(|name| place.text(name)), before);

        place.certs(&["distrust", name, "--yes"]).done();
        let check = |place: &Place| {
            for file in ["ca.key", "ca.crt", "tls.key", "tls.crt"] {
                assert!(!is_in(place, file, &leaked), "{file}");
            }
            assert!(!place.text("ca.key").contains(&key));
            assert!(place.text("ca.key").contains("DISTRUSTED CERTIFICATE"));
            for pool in ["worker", "master", "edge"] {
                let text = place.text(&format!("user-data/{pool}.ign"));
                let trusted = PointerConfig::read(text.as_bytes()).cas();
                assert!(!trusted.contains(&leaked) && !trusted.is_empty(), "{pool}");
            }
            assert!(!place.boots(&oldest));
            place.assert_boots(&newest);
            place.assert_boots(&place.pointer());
            place.certs(&["check"]).done();
        };
        check(&place);
        place.certs(&["rotate", "--ca", "--force"]).done();
        check(&place);
        drop(place.serve(None, &[]));
        check(&place);
        // Not even one who brings it back makes it trusted again.
        let bundle = place.text("ca.crt") + &leaked.to_pem();
        place.write("ca.crt", bundle);
        place.write("user-data/worker.ign", &newest);
        drop(place.serve(None, &[]));
        check(&place);
        assert!(is_in(&place, "ca.crt", &signer));
    }
}

#[test]
fn distrusting_the_only_ca_makes_a_new_one_at_once() {
    let place = Place::made(None);
    let handed_out = place.pointer();
    let leaked = place.certificates("ca.crt")[0].clone();
    let said = place.certs(&["distrust", &leaked.common_name]);
    said.refused(&["worker.ign cannot boot a machine"]);
    place.certs(&["distrust", &leaked.common_name, "--yes"]).done();
    assert!(!place.boots(&handed_out));
    let server = place.serve(None, &[]);
    boot(&place.pointer(), &server);
    assert!(!is_in(&place, "tls.key", &leaked) && !is_in(&place, "ca.crt", &leaked));
    place.certs(&["check"]).done();
    // Said again, there is nothing left to do.
    place.certs(&["distrust", &leaked.fingerprint(), "--yes"]).refused(&["not the name of a CA"]);
}

#[test]
fn distrusting_the_ca_that_signs_leaves_the_pointer_configs_that_trust_another() {
    let place = Place::made(Some("-2d"));
    let oldest = place.pointer();
    place.certs(&["rotate", "--ca"]).done();
    let leaked = place.newest_ca();
    place.certs(&["distrust", &leaked.fingerprint(), "--yes"]).done();
    for name in ["ca.key", "ca.crt", "tls.key"] {
        assert!(!is_in(&place, name, &leaked), "{name}");
    }
    place.assert_boots(&oldest);
    place.assert_boots(&place.pointer());
    place.certs(&["check"]).done();
}

#[test]
fn a_file_with_a_cross_certificate_names_the_ca_whose_key_it_has() {
    let place = Place::made(Some("-2d"));
    place.certs(&["rotate", "--ca"]).done();
    let signer = place.newest_ca();
    let cross = place.chain()[1].clone();
    assert!(cross.has_key_of(&signer) && cross != signer);
    place.write("../cross.pem", cross.to_pem());
    let file = place.directory.path().join("cross.pem").display().to_string();
    place.certs(&["distrust", &file]).refused(&[&signer.fingerprint()]);
    place.certs(&["distrust", &file, "--yes"]).done();
    assert!(!is_in(&place, "ca.crt", &signer) && !is_in(&place, "tls.key", &signer));
}

#[test]
fn an_unknown_name_and_a_file_without_a_certificate_change_nothing() {
    let place = Place::made(None);
    let before = place.text("ca.key");
    place.write("../note", "no certificate");
    let leaf = place.file("tls.crt").display().to_string();
    let note = place.directory.path().join("note").display().to_string();
    for (name, reported) in [
        ("nobody", "nobody: not the name of a CA"),
        ("00:11", "00:11: not the name of a CA"),
        ("", "not the name of a CA"),
        (&note[..], "has no certificate"),
        // A file that has none but those that no machine trusts.
        (&leaf[..], "not the name of a CA"),
    ] {
        for flags in [&["--yes"][..], &[]] {
            place.certs(&[&["distrust", name], flags].concat()).refused(&[reported]);
        }
    }
    assert_eq!(fs::read_to_string(place.file("ca.key")).expect("a file"), before);
}
