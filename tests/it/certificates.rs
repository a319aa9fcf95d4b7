//! The certificates of `serve`: rotated while it serves, killed in the middle, taken over as they are.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::access;
use crate::support::command::{Said, Store};
use crate::support::contract::config;
use crate::support::events::Events;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::meanwhile::meanwhile;
use crate::support::openssl::{openssl, sign_serving};
use crate::support::server::{Server, binary};
use crate::support::wait_until;

fn certs(state: &Path, arguments: &[&str]) -> Said {
    state.run(&[&["certs"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The authorities that a pointer config trusts, PEM.
fn trusted(pointer: &Path) -> Vec<u8> {
    access::trusted(&fs::read(pointer).expect("a pointer config"))
}

fn serial(state: &Path) -> String {
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-serial", "-in"]).arg(state.join("tls.crt"));
    Said::by(&mut command).done().output
}

#[test]
fn machines_boot_with_every_pointer_config_while_certificates_change() {
    let server = Server::sample_cluster(&[]);
    let state = server.state();
    let pointer = state.join("user-data/worker.ign");
    wait_until("the pointer config", || pointer.exists());
    let oldest = fs::read_to_string(&pointer).expect("a pointer config");
    let oldest_ca = trusted(&pointer);

    let boot_by_old_and_new = |_| {
        let old = Client::tls(server.secure(), &oldest_ca);
        // A machine that boots now has the pointer config of now.
        let new = Client::tls(server.secure(), &trusted(&pointer));
        for client in [old, new] {
            assert_eq!(config(&client, "worker", "3.4.0").status, 200);
        }
    };
    meanwhile(4, boot_by_old_and_new, |boots| {
        for round in 1..=3 {
            let before = serial(&state);
            let said = certs(&state, &["rotate", "--ca", "--force"]).done().output;
            assert!(said.contains("made a signing CA: requested"), "{said}");
            assert_ne!(serial(&state), before);
            boots.continues(20);
            let chain = fs::read_to_string(state.join("tls.crt")).expect("the chain");
            assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 1 + round);
        }
        certs(&state, &["rotate"]).done();
        boots.continues(20);
    });
    assert!((server.metric("mcs_certificate_reload_failures_total")).abs() < 0.5);

    // The new pair is the one that is served, and a machine of three rotations ago boots with it.
    let shown = || server.tls().shown_certificate().expect("a certificate");
    let issued = fs::read(state.join("tls.crt")).expect("the chain");
    wait_until("the new pair", || {
        let found = openssl_der(&issued);
        shown() == found
    });
    let machine = Machine::new();
    machine.boot(&oldest);
    assert_eq!(trusted(&pointer), fs::read(state.join("ca.crt")).expect("the bundle"));
    certs(&state, &["check"]).done();
}

/// The first certificate of a PEM text.
fn openssl_der(pem: &[u8]) -> Vec<u8> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(pem).expect("a certificate").to_vec()
}

/// A state directory that `serve` has made. It is on a disk, where each write takes a moment.
fn made() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let state = directory.path().join("state");
    let server = Server::sample_cluster(&[]);
    let pointer = server.state().join("user-data/worker.ign");
    wait_until("the pointer configs", || pointer.exists());
    server.copy_state(&state);
    (directory, state)
}

/// Whether OpenSSL, which is the pickiest of all in finding its way, follows the chain to one of
/// these authorities.
fn verifies(state: &Path, cas: &Path) -> bool {
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"])
        .arg(cas)
        .arg("-untrusted")
        .arg(state.join("tls.crt"))
        .arg(state.join("tls.crt"))
        .output()
        .expect("openssl");
    output.status.success()
}

/// Number of rotations that are killed: as many as a chain has room for. One makes some seventy changes.
const ROUNDS: usize = 30;

#[test]
fn a_rotation_that_is_killed_anywhere_locks_nobody_out_and_the_next_one_ends_it() {
    let (directory, state) = made();
    // What each pointer config trusted, in files.
    let mut handed: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut kills = 0;
    for round in 0..ROUNDS {
        let cas = trusted(&state.join("user-data/worker.ign"));
        if !handed.iter().any(|(_, known)| *known == cas) {
            let file = directory.path().join(format!("{round}.pem"));
            fs::write(&file, &cas).expect("a write");
            handed.push((file, cas));
        }
        let mut command = binary();
        // A CA of this hour serves a request that does not force another one.
        command.args(["certs", "rotate", "--ca", "--force", "--state-dir"]).arg(&state);
        command.stdout(std::process::Stdio::null());
        let events = Events::changes_of(&state);
        let mut child = command.spawn().expect("the built binary");
        // Two or three changes later each time, until it ends by itself.
        events.wait_for_changes_or(1 + round * 5 / 2, || {
            child.try_wait().expect("a child of this process").is_some()
        });
        let _ = child.kill();
        if !child.wait().expect("a child of this process").success() {
            kills += 1;
        }
        for (file, _) in &handed {
            assert!(verifies(&state, file), "{} after {round} rounds", file.display());
        }
    }
    // On a busy machine, some have ended by the time that the changes are seen.
    assert!((5..ROUNDS).contains(&kills), "{kills} of {ROUNDS} were killed in the middle");
    certs(&state, &["rotate"]).done();
    certs(&state, &["check"]).done();
    assert!(handed.iter().all(|(file, _)| verifies(&state, file)));
}

#[test]
fn a_file_asks_a_server_for_a_rotation_once_and_a_server_carries_out_what_a_power_cut_left() {
    let (_directory, state) = made();
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), &state);
    let [ca, serving] = ["ca", "serving"].map(|name| state.join("rotate").join(name));
    let cas = || {
        let bundle = fs::read_to_string(state.join("ca.crt")).expect("the bundle");
        bundle.matches("BEGIN CERTIFICATE").count()
    };
    wait_until("the folder of requests", || state.join("rotate").is_dir());
    let until_done = || {
        let is_done = || !serving.exists() && !serving.with_extension("begun").exists();
        wait_until("the end of the request", is_done);
    };
    let before = serial(&state);
    fs::write(&serving, "").expect("a request");
    until_done();
    let rotated = serial(&state);
    assert_ne!(rotated, before);

    // A command meanwhile ends a request that is there, and the server does nothing more.
    fs::write(&ca, "").expect("a request");
    let said = certs(&state, &["rotate"]).done().output;
    assert!(said.contains("made a signing CA: requested"), "{said}");
    let files = || fs::read_dir(state.join("rotate")).expect("a folder").count();
    assert_eq!((files(), cas()), (0, 2));
    let rotated = serial(&state);

    // Nobody can read this one, and the others wait for none of it.
    fs::create_dir(&ca).expect("a folder");
    wait_until("a report", || server.degraded().contains("rotate/ca: "));
    fs::write(&serving, "").expect("a request");
    until_done();
    assert_ne!(serial(&state), rotated);
    fs::remove_dir(&ca).expect("an empty folder");
    wait_until("the end of the report", || !server.degraded().contains("rotate/ca"));

    // One that cannot be begun waits, and what is due without it is done.
    let begun = serving.with_extension("begun");
    fs::create_dir(&begun).expect("a folder");
    fs::write(&serving, "").expect("a request");
    wait_until("a report", || server.degraded().contains("rotate/serving: "));
    drop(server);
    let rotated = serial(&state);
    fs::remove_file(state.join("tls.key")).expect("the pair");
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), &state);
    assert!(serving.is_file() && state.join("tls.key").is_file() && serial(&state) != rotated);
    let rotated = serial(&state);
    certs(&state, &["rotate"]).refused(&["rotate/serving: "]);
    assert_eq!(serial(&state), rotated);
    certs(&state, &["check"]).refused(&["rotate/serving.begun: "]);
    fs::remove_dir(&begun).expect("an empty folder");
    fs::write(&ca, "--force").expect("a request");
    until_done();
    wait_until("both requests", || files() == 0);
    assert_eq!(cas(), 3, "the server made one alone");
    assert_ne!(serial(&state), rotated);
    wait_until("the end", || !server.degraded().contains("rotate/serving"));

    drop(server);
    fs::write(state.join("rotate/serving.begun"), "").expect("a request");
    let rotated = serial(&state);
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), &state);
    assert_ne!(serial(&state), rotated, "it is carried out before the first answer");
    assert_eq!((files(), cas()), (0, 3));
    assert!(!server.log().contains("made a signing CA"), "{}", server.log());
}

#[test]
fn several_processes_at_once_take_turns() {
    let (_directory, state) = made();
    let before = trusted(&state.join("user-data/worker.ign"));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| certs(&state, &["rotate", "--ca"]).done().output);
        }
    });
    certs(&state, &["check"]).done();
    let bundle = fs::read_to_string(state.join("ca.crt")).expect("the bundle");
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2, "they ask for one rotation");
    assert!(bundle.contains(&text(&before)), "the older one stays");
}

#[test]
fn what_is_there_is_shown_and_judged() {
    let (_directory, state) = made();
    let shown = certs(&state, &["show"]).done().output;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("WHAT"), "{shown}");
    for wanted in
        ["serving certificate", "signing CA", "ECDSA P-256", "localhost", "trusts the signing CA"]
    {
        assert!(shown.contains(wanted), "{wanted} in {shown}");
    }
    assert!(certs(&state, &["check"]).done().output.starts_with("OK, next check 20"));
    for key in ["ca.key", "tls.key"] {
        let mode = fs::metadata(state.join(key)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }

    fs::remove_file(state.join("tls.key")).expect("the key");
    let output = certs(&state, &["check"]);
    assert_eq!(output.status, 1);
    let said = output.error;
    assert!(said.contains("the serving certificate: missing"), "{said}");
    assert_eq!(said.lines().count(), 1);

    // Scripts get the same, and the same exit code.
    let json = |arguments: &[&str]| {
        let output = certs(&state, &[arguments, &["--json"]].concat());
        (output.status, output.json(), output.error)
    };
    let (code, report, error) = json(&["check"]);
    assert_eq!((code, &*error), (1, &*said));
    assert_eq!(report["inOrderUntil"], Value::Null, "{report}");
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(said.trim_end().ends_with(verdict), "{verdict} in {said}");
    let (code, report, _) = json(&["show"]);
    assert_eq!(code, 0);
    let kinds = report["certificates"].as_array().expect("certificates").iter();
    let kinds: Vec<_> = kinds.map(|it| it["what"].clone()).collect();
    assert_eq!(kinds, ["authority"], "{report}");
    assert!(shown.contains(report["certificates"][0]["notAfter"].as_str().expect("a time")));
    let pointers = report["pointerConfigs"].as_array().expect("pointer configs");
    assert!(pointers.iter().all(|it| it["says"] == "trusts the signing CA"), "{report}");
    assert_eq!(pointers.len(), shown.lines().filter(|it| it.contains("user-data/")).count());

    let output = certs(&state.join("elsewhere"), &["show"]);
    assert_eq!(output.status, 1);
    assert!(output.error.contains("directory not found"));
    assert!(!state.join("elsewhere").exists());
}

#[test]
fn pointer_configs_that_no_machine_could_boot_from_are_named() {
    let (directory, state) = made();
    let pointers = state.join("user-data");
    let oldest = fs::read_to_string(pointers.join("worker.ign")).expect("a pointer config");
    let said = || {
        let output = certs(&state, &["check"]);
        assert_eq!(output.status, 1, "{}", output.output);
        output.text()
    };

    // One that trusts another CA alone is left as it is, and was never going to boot.
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let names = ["-subj", "/CN=unrelated", "-keyout", "key", "-out", "unrelated.pem"];
    openssl(directory.path(), &[&request[..], &names].concat());
    let unrelated = fs::read(directory.path().join("unrelated.pem")).expect("a certificate");
    let mut config: Value = serde_json::from_str(&oldest).expect("JSON");
    let source = percent_encoding::percent_encode(&unrelated, percent_encoding::NON_ALPHANUMERIC);
    config["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"] =
        format!("data:,{source}").into();
    let foreign = pointers.join("foreign.ign");
    fs::write(&foreign, config.to_string()).expect("a write");
    let lines = said();
    let subject = format!("{} cannot boot a machine: \"", foreign.display());
    assert!(lines.contains(&subject) && lines.contains("neither sent nor trusted"), "{lines}");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.ends_with(": locked out: 1\n"), "{lines}");
    fs::remove_file(foreign).expect("the file");
    certs(&state, &["check"]).done();

    // Cross-certificates that were lost: the first CA vouches for the new one no more.
    certs(&state, &["rotate", "--ca"]).done();
    fs::write(pointers.join("oldest.ign"), oldest).expect("a write");
    let lines = said();
    assert!(!lines.contains("cannot boot"), "it is stale, and boots: {lines}");
    let pair = fs::read_to_string(state.join("tls.key")).expect("the pair");
    let end = "-----END CERTIFICATE-----\n";
    let leaf = pair.find(end).expect("a leaf") + end.len();
    fs::write(state.join("tls.key"), &pair[..leaf]).expect("a write");
    let lines = said();
    assert!(lines.contains("oldest.ign cannot boot a machine"), "{lines}");
    // One machine may hold a copy that is not here any more.
    assert!(lines.contains("cannot boot a machine"), "{lines}");
    assert_eq!(lines.lines().count(), 3, "who could not boot, and what is to be done: {lines}");
}

/// The last moment that there is means "no expiration" (RFC 5280 section 4.1.2.5).
#[test]
fn a_ca_that_never_ends_is_served_shown_judged_and_rotated() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let state = directory.path().join("state");
    fs::create_dir(&state).expect("a new folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.not_after = time::macros::datetime!(9999-12-31 23:59:59 UTC);
    let ca = params.self_signed(&key).expect("a CA").pem();
    fs::write(state.join("ca.key"), key.serialize_pem() + &ca).expect("a write");
    let own = fs::Permissions::from_mode(0o600);
    fs::set_permissions(state.join("ca.key"), own).expect("a mode");
    fs::write(state.join("ca.crt"), &ca).expect("a write");
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), &state);
    let client = Client::tls(server.secure(), ca.as_bytes());
    assert_eq!(client.get("/healthz").status, 200);
    let shown = certs(&state, &["show"]).done().output;
    assert!(shown.contains("9999-12-31T23:59:59Z"), "{shown}");
    certs(&state, &["check"]).done();
    certs(&state, &["rotate", "--ca"]).done();
    certs(&state, &["check"]).done();
    assert_eq!(client.get("/healthz").status, 200);
}

#[test]
fn custom_pairs_are_adopted_unchanged() {
    for (form, key) in [
        ("pkcs1", vec!["genrsa", "-traditional", "-out"]),
        ("sec1", vec!["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"]),
        ("pkcs8", vec!["genpkey", "-algorithm", "RSA", "-out"]),
    ] {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let state = directory.path().join("state");
        fs::create_dir(&state).expect("a new folder");
        openssl(&state, &[&key[..], &["ca.key"]].concat());
        openssl(&state, &[&key[..], &["tls.key"]].concat());
        let request = ["req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=own CA"];
        openssl(&state, &[&request[..], &["-days", "3650", "-out", "ca.crt"]].concat());
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1";
        sign_serving(&state, &own_names(names));
        let identity = |name: &str| fs::metadata(state.join(name)).expect("a file").ino();
        let before = ["ca.key", "ca.crt", "tls.crt"].map(identity);
        let chain = fs::read(state.join("tls.crt")).expect("a file");
        let server = Server::serve_with_state(&in_repository("ignition-fixtures"), &state);
        let client = Client::tls(server.secure(), &fs::read(state.join("ca.crt")).expect("a CA"));
        assert_eq!(client.get("/healthz").status, 200);
        assert_eq!(client.shown_certificate().expect("a certificate"), openssl_der(&chain));
        assert_eq!(["ca.key", "ca.crt", "tls.crt"].map(identity), before, "{form}");
        // And its key signs the next one.
        certs(&state, &["rotate", "--ca"]).done();
        assert_eq!(client.get("/healthz").status, 200);
        certs(&state, &["check"]).done();
    }
}

/// The names that `serve` would want in a certificate of this machine.
fn own_names(names: &str) -> String {
    let state = tempfile::tempdir().expect("a temporary folder");
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), state.path());
    drop(server);
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-ext", "subjectAltName", "-in"]);
    let listed = Said::by(command.arg(state.path().join("tls.crt"))).done().output;
    let line = listed.lines().nth(1).expect("names").trim().replace("IP Address:", "IP:");
    format!("{names},{}", line.replace(", ", ","))
}
