//! Files of a state directory that are broken, lost or another tool's: each is named and kept.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::{Place, identity, wait_until_logged, wait_until_reported};
use crate::support::openssl::openssl;

/// A state directory whose CA has been rotated once, and the pointer configs from before and after.
fn rotated() -> (Place, [String; 2]) {
    let place = Place::made(Some("-2d"));
    let oldest = place.pointer();
    place.certs(&["rotate", "--ca"]).done();
    let newest = place.pointer();
    (place, [oldest, newest])
}

/// An openssl command in a folder beside the state directory; returns what it has written to `out`.
fn made_by_openssl(place: &Place, arguments: &[&str]) -> String {
    openssl(place.directory.path(), &[arguments, &["-out", "out"]].concat());
    fs::read_to_string(place.directory.path().join("out")).expect("a file")
}

/// The certificates and the key of a file in which the key comes first.
fn parts(text: &str) -> (&str, &str) {
    text.split_at(text.find("-----BEGIN CERTIFICATE-----").expect("a certificate"))
}

/// Files of a CA that cannot be used: what is wrong, the text, and what is told.
fn unusable(place: &Place, whole: &str) -> [(&'static str, String, &'static str); 9] {
    let (key, certificates) = parts(whole);
    place.write("../key.pem", key);
    let pkcs8 =
        made_by_openssl(place, &["pkcs8", "-topk8", "-in", "key.pem", "-passout", "pass:secret"]);
    let sec1 =
        made_by_openssl(place, &["ec", "-aes256", "-in", "key.pem", "-passout", "pass:secret"]);
    let ec = ["-algorithm", "EC", "-pkeyopt"];
    let another =
        made_by_openssl(place, &[&["genpkey"], &ec[..], &["ec_paramgen_curve:P-256"]].concat());
    let unknown = made_by_openssl(
        place,
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:secp256k1",
            "-nodes",
            "-subj",
            "/CN=unknown",
            "-keyout",
            "unknown.key",
        ],
    );
    let unknown_key =
        fs::read_to_string(place.directory.path().join("unknown.key")).expect("a file");
    let first = certificates.find("-----END CERTIFICATE-----\n").expect("an end") + 26;
    let own = &certificates[..first];
    assert!(pkcs8.contains("ENCRYPTED PRIVATE KEY") && sec1.contains("Proc-Type"));
    [
        ("empty", String::new(), "empty"),
        ("encrypted, PKCS#8", pkcs8 + own, "its key is encrypted"),
        ("encrypted, SEC1", sec1 + own, "its key is encrypted"),
        ("cut short", whole[..whole.len() - 100].to_owned(), "broken or cut short"),
        ("cut short in its key", whole[..100].to_owned(), "broken or cut short"),
        ("another's key", another + own, "its key does not belong to its certificate"),
        ("an unknown curve", unknown_key + &unknown, "machines cannot read its certificate 1"),
        ("no CA", place.text("tls.key"), "CA:TRUE is missing"),
        ("no PEM", "a note\n".to_owned(), "has no certificate"),
    ]
}

#[test]
fn a_ca_file_that_cannot_be_used_is_named_and_kept_and_the_server_serves_on() {
    let (place, pointers) = rotated();
    let whole = place.text("ca.key");
    for (what, text, reported) in unusable(&place, &whole) {
        let place = place.copy();
        place.write("ca.key", &text);
        let before = identity(&place.file("ca.key"));
        let pair = identity(&place.file("tls.key"));
        {
            let server = place.serve(None, &[]);
            wait_until_reported(&server, "certificates: the signing CA cannot be used");
            wait_until_logged(&server, reported);
            let log = server.log();
            let lines: Vec<_> = log.lines().filter(|line| line.contains(reported)).collect();
            assert_eq!(lines.len(), 1, "{what}: {log}");
        }
        let reported = ["the signing CA is not changed: ", reported, "ca.key"];
        place.certs(&["check"]).refused(&reported);
        place.certs(&["rotate", "--ca"]).refused(&reported[..2]);
        assert_eq!(identity(&place.file("ca.key")), before, "{what}");
        assert_eq!(identity(&place.file("tls.key")), pair, "{what}");
        for pointer in pointers.iter().chain([&place.pointer()]) {
            place.assert_boots(pointer);
        }
        // Brought back, all is well.
        place.write("ca.key", &whole);
        drop(place.serve(None, &[]));
        place.certs(&["check"]).done();
        place.assert_boots(&pointers[0]);
    }
}

#[test]
fn a_directory_in_the_place_of_a_ca_file_is_named_and_the_server_serves_on() {
    let (place, pointers) = rotated();
    fs::remove_file(place.file("ca.key")).expect("a file");
    fs::create_dir(place.file("ca.key")).expect("a new folder");
    {
        let server = place.serve(None, &[]);
        wait_until_reported(&server, "certificates: ");
    }
    place.certs(&["check"]).refused(&["ca.key", "cannot be read", "is not a regular file"]);
    place.certs(&["rotate", "--ca"]).refused(&["ca.key"]);
    assert!(place.file("ca.key").is_dir());
    for pointer in &pointers {
        place.assert_boots(pointer);
    }
}

#[test]
fn swapped_files_make_no_certificate_a_ca_and_lock_nobody_out_once_they_are_back() {
    let (place, pointers) = rotated();
    let (ca, tls) = (place.text("ca.key"), place.text("tls.key"));
    place.write("ca.key", &tls);
    place.write("tls.key", &ca);
    place.certs(&["check"]).refused(&["CA:TRUE is missing", "its certificate is a CA certificate"]);
    place.certs(&["rotate", "--ca"]).refused(&["CA:TRUE is missing"]);
    assert_eq!((place.text("ca.key"), place.text("tls.key")), (tls.clone(), ca.clone()));
    place.write("ca.key", &ca);
    place.write("tls.key", &tls);
    drop(place.serve(None, &[]));
    place.certs(&["check"]).done();
    for pointer in &pointers {
        place.assert_boots(pointer);
    }
}

#[test]
fn an_unusable_custom_serving_pair_is_named_and_kept() {
    let (place, _) = rotated();
    let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let names = ["-subj", "/CN=own", "-addext", "subjectAltName=DNS:localhost", "-keyout"];
    let no_ca = ["-addext", "basicConstraints=critical,CA:FALSE"];
    fs::write(place.directory.path().join("config"), "[req]\ndistinguished_name=n\n[n]\n")
        .expect("a file");
    let own = made_by_openssl(
        &place,
        &[
            &request[..],
            &names,
            &["own.key", "-passout", "pass:secret", "-config", "config"],
            &no_ca,
        ]
        .concat(),
    );
    let key = fs::read_to_string(place.directory.path().join("own.key")).expect("a file");
    let another = made_by_openssl(&place, &["genpkey", "-algorithm", "ED25519"]);
    for (what, text, reported) in [
        ("encrypted", key.clone() + &own, "its key is encrypted"),
        ("another's key", another + &own, "its key does not belong to its certificate"),
        ("no key", own, "has no key"),
    ] {
        let place = place.copy();
        place.write("tls.key", &text);
        let before = identity(&place.file("tls.key"));
        let reported = ["the serving certificate is not changed: ", reported, "tls.key"];
        place.certs(&["check"]).refused(&reported);
        place.certs(&["rotate"]).refused(&reported[..2]);
        assert_eq!(identity(&place.file("tls.key")), before, "{what}");
        // It is replaced, and kept, only where an administrator says so.
        place.certs(&["rotate", "--force"]).done();
        assert_ne!(identity(&place.file("tls.key")), before, "{what}");
        assert!(place.text("ca.key").contains("KEPT SERVING PAIR"), "{what}");
        place.assert_boots(&place.pointer());
    }
}

#[test]
fn cross_certificates_that_were_stripped_are_noticed_and_made_again() {
    let (place, pointers) = rotated();
    let end = "-----END CERTIFICATE-----\n";
    let without = |text: &str| {
        let (key, certificates) = parts(text);
        key.to_owned() + &certificates[..certificates.find(end).expect("an end") + end.len()]
    };
    let cross = {
        let all = place.certificates("ca.key");
        all.into_iter().find(|it| it.issuer != it.common_name).expect("a cross-certificate")
    };
    let stored = place.text("ca.key").replace(&cross.to_pem(), "");
    let pair = without(&place.text("tls.key"));
    for (ca, tls) in [(false, true), (true, false), (true, true)] {
        let place = place.copy();
        if ca {
            place.write("ca.key", &stored);
        }
        if tls {
            place.write("tls.key", &pair);
            place.write("tls.crt", "");
            place.certs(&["check"]).refused(&["cannot boot a machine"]);
        }
        drop(place.serve(None, &[]));
        place.certs(&["check"]).done();
        for pointer in &pointers {
            place.assert_boots(pointer);
        }
        assert_eq!(place.chain().len(), 2);
    }
}

#[test]
fn keys_that_others_can_read_are_reported() {
    let (place, _) = rotated();
    for (name, mode) in [("ca.key", 0o640), ("ca.key", 0o604), ("tls.key", 0o644)] {
        let set = |mode| {
            fs::set_permissions(place.file(name), Permissions::from_mode(mode)).expect("chmod");
        };
        set(mode);
        let reported = format!("{name}: users other than its owner can read the key");
        place.certs(&["check"]).refused(&[&reported, "other users can read keys"]);
        set(0o600);
        place.certs(&["check"]).done();
    }
}

#[test]
fn a_rotation_after_a_lost_key_names_the_holders_that_need_new_user_data() {
    let place = Place::made(None);
    let lost = place.certificates("ca.crt")[0].common_name.clone();
    fs::rename(place.state().join("ca.key"), place.state().join("ca.key.lost")).expect("a file");
    place.certs(&["rotate"]).refused(&[
        &format!("a pointer config that trusts only \"{lost}\" cannot boot a machine"),
        "a pointer config that trusts only the serving certificate \"",
        "hand out the newest pointer configs first, or use --force",
    ]);
    place.certs(&["rotate", "--force"]).done();
}
