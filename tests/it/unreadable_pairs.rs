//! Pairs that can be served, and that machines cannot read: left as they are, named, and no other pair's successor.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::faults::bootstrap_directory;
use crate::support::command::Store;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::pair::Pair;
use crate::support::server::{Server, binary};
use crate::support::wait_until;

/// An alternative name that is an address of five bytes.
const SHORT_ADDRESS: (&[u64], &[u8], bool) =
    (&[2, 5, 29, 17], b"\x30\x07\x87\x05\x7f\0\0\x01\0", false);
const POLICIES: (&[u64], &[u8], bool) = (&[2, 5, 29, 32], b"\x30\x05\x30\x03\x06\x01\x2a", true);
const POLICY_CONSTRAINTS: (&[u64], &[u8], bool) = (&[2, 5, 29, 36], b"\x30\x03\x81\x01\0", true);

fn extension((identifier, value, is_critical): (&[u64], &[u8], bool)) -> CustomExtension {
    let mut extension = CustomExtension::from_oid_content(identifier, value.to_vec());
    extension.set_criticality(is_critical);
    extension
}

/// A CA and a leaf for `localhost` with one extension more, in the files of a state directory. Where the extension is
/// that of alternative names, it takes the place of `localhost`.
fn bring(state: &Path, more: (&[u64], &[u8], bool)) {
    let key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca.distinguished_name = DistinguishedName::new();
    ca.distinguished_name.push(DnType::CommonName, "own CA");
    let certificate = ca.self_signed(&key).expect("a certificate").pem();
    fs::write(state.join("ca.key"), key.serialize_pem()).expect("a file");
    fs::write(state.join("ca.crt"), &certificate).expect("a file");

    let names = if more == SHORT_ADDRESS { vec![] } else { vec!["localhost".to_owned()] };
    let mut leaf = CertificateParams::new(names).expect("names");
    leaf.use_authority_key_identifier_extension = true;
    leaf.custom_extensions = vec![extension(more)];
    let own = KeyPair::generate().expect("a key");
    let signed = leaf.signed_by(&own, &Issuer::from_params(&ca, &key)).expect("a certificate");
    fs::write(state.join("tls.key"), own.serialize_pem()).expect("a file");
    fs::write(state.join("tls.crt"), signed.pem()).expect("a file");
}

#[test]
fn a_pair_that_machines_cannot_read_is_named_and_left_and_served() {
    for (more, wanted) in [
        (
            SHORT_ADDRESS,
            "machines cannot read its certificate 1: its extension subjectAltName is malformed",
        ),
        (POLICY_CONSTRAINTS, "a critical extension that clients do not understand: 2.5.29.36"),
    ] {
        let state = tempfile::tempdir().expect("a temporary folder");
        bring(state.path(), more);
        let before = fs::read(state.path().join("tls.crt")).expect("a file");
        let key = fs::read(state.path().join("tls.key")).expect("a file");
        state.path().run(&["certs", "check"]).refused(&[wanted]);
        if more != SHORT_ADDRESS {
            continue;
        }
        let server = Server::serve_with_state(&in_repository("ignition-fixtures"), state.path());
        let wanted = "no machine can boot with the serving certificate";
        wait_until("the reason in the log", || server.log().contains(wanted));
        assert_eq!(fs::read(state.path().join("tls.crt")).expect("a file"), before);
        assert!(fs::read(state.path().join("tls.key")).expect("a file").starts_with(&key));
    }
}

#[test]
fn a_pair_whose_policies_are_critical_is_served() {
    let state = tempfile::tempdir().expect("a temporary folder");
    bring(state.path(), POLICIES);
    let base = bootstrap_directory();
    let path = |name: &str| state.path().join(name);
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let kubeconfig = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let server = Server::bootstrap(base.path(), &path("tls.crt"), &path("tls.key"), &kubeconfig);
    let output = Command::new("openssl")
        .args(["s_client", "-verify_return_error", "-verify_hostname", "localhost", "-CAfile"])
        .arg(path("ca.crt"))
        .args(["-connect", &server.secure().to_string()])
        .stdin(Stdio::null())
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_pair_that_machines_cannot_read_takes_no_other_pairs_place() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let pair = Pair::make(directory.path(), "localhost");
    let base = bootstrap_directory();
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let kubeconfig = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let server = Server::bootstrap(base.path(), &pair.certificate, &pair.key, &kubeconfig);
    let client = Client::tls(server.secure(), pair.pem.as_bytes());
    let shown = client.shown_certificate().expect("a handshake");

    let other = tempfile::tempdir().expect("a temporary folder");
    bring(other.path(), SHORT_ADDRESS);
    fs::rename(other.path().join("tls.key"), &pair.key).expect("a rename");
    fs::rename(other.path().join("tls.crt"), &pair.certificate).expect("a rename");
    wait_until("the reason in the log", || {
        server.log().contains("its extension subjectAltName is malformed")
    });
    assert_eq!(client.shown_certificate().expect("a handshake"), shown);
}

#[test]
fn inspect_tells_what_it_passed_over_and_a_file_of_cas_is_not_taken_in_part() {
    let state = tempfile::tempdir().expect("a temporary folder");
    bring(state.path(), SHORT_ADDRESS);
    let read = |name: &str| fs::read_to_string(state.path().join(name)).expect("a file");
    let (good, bad) = (read("ca.crt"), read("tls.crt"));
    let inspect = |contents: &str| {
        let source = format!("data:;base64,{}", STANDARD.encode(contents));
        let file = json!({"path": "/etc/bundle", "contents": {"source": source}});
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
        let path = state.path().join("config.ign");
        fs::write(&path, config.to_string()).expect("a file");
        let inspect = |more: &[&str]| {
            let output =
                binary().arg("inspect").arg(&path).args(more).output().expect("the binary");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("text")
        };
        let page: Value = serde_json::from_str(&inspect(&["--json"])).expect("JSON");
        let skipped = page["machine"]["passedOver"].clone();
        let lines = skipped.as_array().into_iter().flatten();
        let text = inspect(&[]);
        for line in lines {
            assert!(text.contains(line.as_str().expect("text")), "{text}");
        }
        skipped
    };
    assert_eq!(inspect(&good), Value::Null);
    let unread = "/etc/bundle: machines cannot read certificate 2: its extension \
                  subjectAltName is malformed";
    assert_eq!(inspect(&format!("{good}{bad}{good}")), json!([unread]));
    let many = "/etc/bundle: only the first 1000 of 1001 certificates are listed";
    assert_eq!(inspect(&good.repeat(1_001)), json!([many]));
    let large = "/etc/bundle: only its first 4 MiB were searched for secrets";
    assert_eq!(inspect(&"a\n".repeat(2 << 20)), Value::Null);
    assert_eq!(inspect(&"a\n".repeat((2 << 20) + 1)), json!([large]));

    let bundle = state.path().join("bundle.crt");
    fs::write(&bundle, format!("{good}{bad}")).expect("a file");
    let output = binary()
        .args(["inspect", "https://127.0.0.1:1/config/worker", "--ca"])
        .arg(&bundle)
        .output()
        .expect("the binary");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success() && error.lines().count() == 1, "{error}");
    let reason = "certificate 2 cannot be used: its extension subjectAltName is malformed";
    assert!(error.contains("bundle.crt") && error.contains(reason), "{error}");
}
