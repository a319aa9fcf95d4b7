//! A CA that an administrator brings, of whatever kind: it signs, or it is named and left alone.

use std::fs;

use ignition::{SpecVersion, pointer};

use super::{Place, boot, identity};
use crate::support::openssl::openssl;

const CA: &str = "basicConstraints=critical,CA:TRUE";

/// Makes `NAME.key` and `NAME.pem`, a root, or one below `issuer`.
fn ca(place: &Place, name: &str, issuer: Option<&str>, extensions: &[&str]) {
    let key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"];
    openssl(place.directory.path(), &[&key[..], &[&format!("{name}.key")]].concat());
    certificate(place, name, &format!("/CN={name}"), issuer, extensions);
}

/// Makes `NAME.pem` for `NAME.key`.
fn certificate(
    place: &Place,
    name: &str,
    subject: &str,
    issuer: Option<&str>,
    extensions: &[&str],
) {
    let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
    let mut arguments = vec!["req", "-x509", "-new", "-key", &key, "-out", &pem, "-days", "3650"];
    let by = issuer.map(|issuer| (format!("{issuer}.pem"), format!("{issuer}.key")));
    if let Some((by, by_key)) = &by {
        arguments.extend(["-CA", by, "-CAkey", by_key]);
    }
    arguments.extend(["-utf8", "-multivalue-rdn", "-subj", subject]);
    let config = "[req]\ndistinguished_name=names\nstring_mask=default\n[names]\n";
    fs::write(place.directory.path().join("config"), config).expect("a writable folder");
    arguments.extend(["-config", "config"]);
    for extension in extensions {
        arguments.extend(["-addext", extension]);
    }
    openssl(place.directory.path(), &arguments);
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.directory.path().join(name)).expect("a file")
}

/// What a machine has that trusts these alone.
fn trusting(pem: &str) -> String {
    let url = "https://localhost:22623/config/worker";
    pointer(url, pem.as_bytes(), SpecVersion::V3_1).to_string()
}

/// Brings a CA to a state directory, with its key in `ca.key`.
fn bring(place: &Place, name: &str, bundle: &[&str]) {
    place.write("ca.key", read(place, &format!("{name}.key")));
    let bundle: String = bundle.iter().map(|name| read(place, &format!("{name}.pem"))).collect();
    place.write("ca.crt", bundle);
}

#[test]
fn an_own_root_without_a_key_is_trusted_beside_what_is_made() {
    let place = Place::empty();
    ca(&place, "root", None, &[CA]);
    place.write("ca.crt", read(&place, "root.pem"));
    let server = place.serve(None, &[]);
    let bundle = place.certificates("ca.crt");
    assert!(bundle.len() == 2 && bundle.iter().any(|ca| ca.common_name == "root"), "{bundle:?}");
    boot(&place.pointer(), &server);
    place.certs(&["rotate", "--ca", "--force"]).done();
    assert!(place.text("ca.crt").contains(&read(&place, "root.pem")));
    place.assert_boots(&place.pointer());
}

#[test]
fn an_intermediate_that_signs_is_sent_so_that_machines_boot_that_trust_the_root_alone() {
    for is_in_bundle in [true, false] {
        let place = Place::empty();
        ca(&place, "root", None, &[CA]);
        ca(&place, "intermediate", Some("root"), &[CA]);
        if is_in_bundle {
            bring(&place, "intermediate", &["intermediate", "root"]);
        } else {
            bring(&place, "intermediate", &["root"]);
            let text = read(&place, "intermediate.key") + &read(&place, "intermediate.pem");
            place.write("ca.key", text);
        }
        let server = place.serve(None, &[]);
        let root = trusting(&read(&place, "root.pem"));
        let chain = place.text("tls.key");
        assert!(chain.contains(&read(&place, "intermediate.pem")), "{is_in_bundle}");
        place.assert_boots(&root);
        boot(&root, &server);
        let first = place.pointer();
        place.certs(&["check"]).done();
        for _ in 0..2 {
            place.certs(&["rotate", "--ca", "--force"]).done();
            for pointer in [&root, &first, &place.pointer()] {
                place.assert_boots(pointer);
            }
        }
        place.certs(&["check"]).done();
        boot(&root, &server);
    }
}

#[test]
fn a_custom_ca_that_cannot_sign_another_refuses_the_first_rotation_and_names_the_holders() {
    for (extension, reason) in [
        ("basicConstraints=critical,CA:TRUE,pathlen:0", ""),
        ("nameConstraints=critical,permitted;DNS:localhost", "its name constraints exclude it"),
    ] {
        let place = Place::empty();
        let is_bounded = extension.contains("pathlen");
        let more: &[&str] = if is_bounded { &[] } else { &[CA] };
        ca(&place, "own", None, &[&[extension], more].concat());
        bring(&place, "own", &["own"]);
        let own = trusting(&read(&place, "own.pem"));
        if !is_bounded {
            // A pair for the name that it may vouch for.
            ca(
                &place,
                "leaf",
                Some("own"),
                &["subjectAltName=DNS:localhost", "basicConstraints=CA:FALSE"],
            );
            place.write("tls.key", read(&place, "leaf.key"));
            place.write("tls.crt", read(&place, "leaf.pem"));
        }
        {
            let server = place.serve(None, &[]);
            boot(&own, &server);
            place.assert_boots(&own);
            place.assert_boots(&place.pointer());
            if !is_bounded {
                // This machine's own name is due, and none that it may vouch for.
                assert_eq!(place.chain()[0].common_name, "leaf");
                wait_and_see(&server, reason);
                continue;
            }
        }
        let files = ["ca.key", "ca.crt", "tls.key"].map(|name| place.file(name));
        let before = files.each_ref().map(|file| identity(file));
        place.certs(&["rotate", "--ca"]).refused(&[
            "a new signing CA is refused (requested): afterwards ",
            "cannot boot a machine",
            "or use --force to do it regardless",
        ]);
        assert!(files.each_ref().map(|file| identity(file)) == before);
        place.assert_boots(&own);
        // A new pair by the same CA locks nobody out.
        place.certs(&["rotate"]).done();
        place.assert_boots(&own);

        place.certs(&["rotate", "--ca", "--force"]).done();
        assert!(!place.boots(&own));
        place.assert_boots(&place.pointer());
    }
}

fn wait_and_see(server: &crate::support::server::Server, reason: &str) {
    super::wait_until_reported(server, "refused: 1");
    super::wait_until_logged(server, reason);
}

#[test]
fn a_ca_and_a_pair_of_any_kind_of_key_that_openssl_makes_sign_and_serve() {
    let p256 = &["ecparam", "-name", "prime256v1", "-genkey"][..];
    for (kind, key) in [
        ("P-256, SEC1 after its parameters", p256),
        ("P-256, SEC1", &["ecparam", "-name", "prime256v1", "-genkey", "-noout"]),
        ("P-384, SEC1 after its parameters", &["ecparam", "-name", "secp384r1", "-genkey"]),
        ("P-384", &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"]),
        ("P-521, SEC1", &["ecparam", "-name", "secp521r1", "-genkey", "-noout"]),
        ("P-521", &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
        ("RSA 2048, PKCS#1", &["genrsa", "-traditional", "2048"]),
        ("RSA 3072", &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072"]),
        ("RSA 4096, PKCS#1", &["genrsa", "-traditional", "4096"]),
        ("Ed25519", &["genpkey", "-algorithm", "ED25519"]),
    ] {
        let place = Place::empty();
        let directory = place.directory.path();
        for name in ["own", "leaf"] {
            // Its last option is a number.
            let (command, options) = key.split_first().expect("a command");
            let file = format!("{name}.key");
            openssl(directory, &[&[*command, "-out", &file], options].concat());
        }
        certificate(&place, "own", "/CN=own", None, &[CA]);
        let names = ["subjectAltName=DNS:localhost", "basicConstraints=CA:FALSE"];
        certificate(&place, "leaf", "/CN=leaf", Some("own"), &names);
        bring(&place, "own", &["own"]);
        place.write("tls.key", read(&place, "leaf.key"));
        place.write("tls.crt", read(&place, "leaf.pem"));
        place.certs(&["check"]).done();
        let own = trusting(&read(&place, "own.pem"));
        place.assert_boots(&own);
        let pair = identity(&place.file("tls.crt"));
        place.certs(&["rotate", "--ca"]).done();
        assert_ne!(identity(&place.file("tls.crt")), pair, "{kind}");
        assert_eq!(place.chain().len(), 2, "{kind}");
        place.assert_boots(&own);
        let server = place.serve(None, &[]);
        boot(&own, &server);
        place.certs(&["check"]).done();
    }
}

#[test]
fn a_pair_of_every_kind_of_key_is_served_as_it_is() {
    for key in [
        &["ecparam", "-name", "secp521r1", "-genkey"][..],
        &["genpkey", "-algorithm", "ED25519"],
        &["genrsa", "-traditional", "4096"],
    ] {
        let place = Place::empty();
        let (command, options) = key.split_first().expect("a command");
        openssl(place.directory.path(), &[&[*command, "-out", "leaf.key"], options].concat());
        ca(&place, "own", None, &[CA]);
        let names = ["subjectAltName=DNS:localhost", "basicConstraints=CA:FALSE"];
        certificate(&place, "leaf", "/CN=leaf", Some("own"), &names);
        place.write("ca.crt", read(&place, "own.pem"));
        place.write("tls.key", read(&place, "leaf.key"));
        place.write("tls.crt", read(&place, "leaf.pem"));
        let server = place.serve(None, &[]);
        assert_eq!(place.text("tls.crt"), read(&place, "leaf.pem"));
        boot(&place.pointer(), &server);
    }
}

#[test]
fn a_ca_with_an_unusual_name_is_followed_by_every_verifier() {
    for (subject, mask) in [
        ("/DC=com/DC=example/DC=corp/O=Example/OU=PKI/CN=own", "utf8only"),
        ("/O=Example+OU=PKI+CN=own", "default"),
        ("/C=DE/O=Müller & Söhne/CN=Größe", "nombstr"),
        ("/C=DE/O=Müller/CN=中文", "pkix"),
        ("/O=Example/CN=a T61String", "MASK:0x4"),
        ("/O=Example/CN=a BMPString", "MASK:0x800"),
        ("/O=no common name", "default"),
        ("/CN=a \\/ slash, comma=\\+/emailAddress=pki@example.com", "default"),
    ] {
        let place = Place::empty();
        let key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
        openssl(place.directory.path(), &[&key[..], &["-out", "own.key"]].concat());
        let config = format!("[req]\ndistinguished_name=names\nstring_mask={mask}\n[names]\n");
        fs::write(place.directory.path().join("config"), config).expect("a writable folder");
        let request = ["req", "-x509", "-new", "-key", "own.key", "-out", "own.pem", "-days"];
        let named = ["3650", "-utf8", "-multivalue-rdn", "-config", "config", "-subj", subject];
        openssl(place.directory.path(), &[&request[..], &named, &["-addext", CA]].concat());
        bring(&place, "own", &["own"]);
        drop(place.serve(None, &[]));
        let own = trusting(&read(&place, "own.pem"));
        place.assert_boots(&own);
        let first = place.pointer();
        place.certs(&["rotate", "--ca"]).done();
        for pointer in [&own, &first, &place.pointer()] {
            assert!(place.boots(pointer), "{subject}");
        }
        place.certs(&["check"]).done();
    }
}
