//! The causes that `health` knows, each made to happen.

use std::fs;

use serde_json::json;

use super::hostile::http;
use super::{assert_named, copied_state, findings, health, health_from, health_of, sound};
use crate::faults::bootstrap_directory;
use crate::support::clock::set_clock;
use crate::support::command::Store;
use crate::support::disk::Disk;
use crate::support::http::{Client, IGNITION, answering, loopback};
use crate::support::manifests::{machine_config, replace, with_files, write};
use crate::support::pair::Pair;
use crate::support::server::{Server, serving};
use crate::support::{enter_own_network, in_repository, wait_for};

#[test]
fn a_pointer_config_that_trusts_another_ca_is_named() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    let other = Server::sample_cluster(&[]);
    server.pointer("worker");
    fs::write(server.state().join("user-data/old.ign"), other.pointer("worker")).expect("a file");
    let said = health_of(manifests.path(), &server);
    assert_named(
        &said,
        "error",
        "old.ign: cannot boot",
        "give the machine the newest pointer config",
    );
    assert_eq!(said.status, 1);
}

/// Its files are sound, and a server with other ones answers where its pointer configs send machines.
#[test]
fn a_server_that_shows_another_certificate_than_the_directory_has_is_named() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    server.pointer("worker");
    let (copy, address) = (copied_state(&server), server.secure());
    drop(server);
    let other = tempfile::tempdir().expect("a temporary folder");
    let command = serving(manifests.path(), &other.path().join("state"));
    let other = Server::prepared_at(command, address).until_ready();
    let directory = manifests.path().display().to_string();
    let state = copy.path().join("state").display().to_string();
    let from = other.metrics().address().to_string();
    let said = health(&[&directory, "--state-dir", &state, "--from", &from, "--json"]);
    let fix = "give the machine the newest pointer config";
    assert_named(&said, "error", "certificate signed by unknown authority", fix);
    assert_eq!(said.status, 1);
}

#[test]
fn a_machine_that_refuses_the_certificate_is_named_with_its_ca_and_its_clock() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    let directory = tempfile::tempdir().expect("a temporary folder");
    let other = Pair::make(directory.path(), "localhost");
    let ca = fs::read(&other.certificate).expect("a certificate");
    let client = Client::tls(server.secure(), &ca).from(loopback(2));
    assert!(client.try_request("GET", "/config/worker", &[IGNITION]).is_err());
    let said = wait_for("the handshake to be noted", || {
        let said = health_from(&server);
        (!findings(&said, "machine 127.0.0.2").is_empty()).then_some(said)
    });
    assert_named(&said, "error", "or its clock is wrong", "or set its clock");
    assert_eq!(said.status, 1);
}

#[test]
fn a_serving_certificate_that_has_expired_is_named_once() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let old = Pair::expired(directory.path(), "old");
    let base = bootstrap_directory();
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let flags = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("text")];
    let server = Server::bootstrap(base.path(), &old.certificate, &old.key, &flags);
    let said = health_from(&server);
    assert_named(&said, "error", "expired at 2021-01-01T00:00:", "certs rotate");
    assert_eq!(said.status, 1);

    // By the files, as `serve` has made them long ago.
    let manifests = sound();
    let state = directory.path().join("state");
    let mut command = serving(manifests.path(), &state);
    set_clock(&mut command, "@2010-01-01 00:00:00");
    drop(Server::prepared(command).until_ready());
    let (manifests, state) = (manifests.path().display().to_string(), state.display().to_string());
    let said = health(&[&manifests, "--state-dir", &state, "--json"]);
    assert_named(&said, "error", "\"localhost\" expired at 2019-12-30", "certs rotate");
    assert_eq!(said.status, 1);
}

#[test]
fn a_server_whose_clock_is_wrong_is_named() {
    let manifests = sound();
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut command = serving(manifests.path(), state.path());
    set_clock(&mut command, "+2h");
    let server = Server::prepared(command).until_ready();
    let said = health_from(&server);
    assert_named(&said, "error", "its clock shows", "set the wrong one");
    // The directory's own judge finds it too: a CA was made in the future.
    let directory = manifests.path().display().to_string();
    let from = server.metrics().address().to_string();
    let state = state.path().display().to_string();
    let said = health(&[&directory, "--state-dir", &state, "--from", &from, "--json"]);
    assert_named(&said, "error", "the clock is behind", "set the clock");
    assert_eq!(said.status, 1);
}

#[test]
fn a_machine_of_a_pool_that_does_not_exist_is_named() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    for last in [4, 5] {
        server.plain().from(loopback(last)).request("GET", "/config/gpu", &[IGNITION]);
    }
    let said = health_from(&server);
    assert_named(&said, "error", "no pool has this name", "correct the pool at the end of the URL");
    // Both have one fault.
    let found = findings(&said, "machine 127.0.0.4");
    let mut things: Vec<_> = found[0]["things"].as_array().expect("a list").iter().collect();
    things.sort_by_key(|it| it.as_str());
    assert_eq!(things, ["machine 127.0.0.4", "machine 127.0.0.5"]);
    assert_eq!(said.json()["errors"], 1, "{}", said.output);
}

#[test]
fn a_config_that_is_invalid_is_named_without_a_server_too() {
    let manifests = sound();
    let mut invalid = with_files(&[]);
    invalid["storage"] = json!({"files": [{"path": "no/slash"}]});
    write(manifests.path(), "config.json", machine_config("rendered", &invalid));
    let directory = manifests.path().display().to_string();
    let said = health(&[&directory, "--json"]);
    assert_named(&said, "error", "storage.files[0].path", "correct the MachineConfig");
    assert_eq!(said.status, 1);
}

#[test]
fn a_registry_without_a_ca_is_named() {
    let manifests = sound();
    let mut config = machine_config("rendered", &with_files(&[]));
    config["spec"]["osImageURL"] = "os.example.com:5000/os@sha256:ab".into();
    write(manifests.path(), "config.json", config);
    let server = Server::serve(manifests.path(), &[]);
    for said in [health_from(&server), health_of(manifests.path(), &server)] {
        let fix = "if the registry has a private CA";
        assert_named(&said, "warning", "registry os.example.com:5000", fix);
        assert_eq!(said.status, 0, "{said:?}");
    }
}

#[test]
fn a_machine_whose_token_has_ended_is_named() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &["--access", "enforce"]);
    let add = ["tokens", "add", "short", "--pool", "worker", "--until", "1s"];
    let token = format!("Bearer {}", server.state().run(&add).done().output.trim());
    let said = wait_for("the token to end", || {
        let client = server.tls().from(loopback(6));
        let credential = ("Authorization", &*token);
        client.request("GET", "/config/worker", &[IGNITION, credential]);
        let said = health_from(&server);
        (!findings(&said, "token expired").is_empty()).then_some(said)
    });
    assert_named(
        &said,
        "error",
        "token expired",
        "give the machine the pool's present pointer config",
    );
    assert_eq!(said.status, 1);
}

#[test]
fn a_server_that_is_down_is_named_by_the_address_that_machines_use() {
    // Nothing is at the address of a server that is not named either.
    enter_own_network();
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    server.pointer("worker");
    let (copy, from) = (copied_state(&server), server.metrics().address().to_string());
    let secure = format!("server localhost:{}", server.secure().port());
    drop(server);
    let directory = manifests.path().display().to_string();
    let state = copy.path().join("state").display().to_string();
    let said = health(&[&directory, "--state-dir", &state, "--from", &from, "--json"]);
    assert_named(&said, "error", &secure, "start the server");
    assert_named(&said, "error", "nothing listens there", "systemctl start");
    assert_eq!(said.status, 1);
    // Without a name it may be elsewhere.
    let said = health(&[&directory, "--state-dir", &state, "--json"]);
    assert_named(&said, "warning", "cannot be asked", "--from");
}

#[test]
fn a_machine_that_has_its_config_and_never_joins_is_named() {
    let machine = json!({
        "address": "192.0.2.7", "first": "2026-11-21T11:00:00Z", "last": "2026-11-21T11:00:00Z",
        "standing": "stuck", "why": "fetched its config 25 min ago, no Node has this address yet",
        "requests": {
            "pool": "worker", "user_agent": "Ignition/2.14.0", "spec": "3.4.0", "times": 1,
            "since": "2026-11-21T11:00:00Z", "last": "2026-11-21T11:00:00Z",
            "served": {"config": "rendered-worker-1", "sha256": "ab"},
        },
    });
    let now = time::OffsetDateTime::now_utc();
    let now = now.format(&time::format_description::well_known::Rfc3339).expect("a time");
    let overview = json!({"at": now, "not_ready": [], "degraded": [], "machines": [machine]});
    let from = answering(move |_| http("200 OK", &overview.to_string())).to_string();
    let said = health(&["--from", &from, "--json"]);
    assert_named(&said, "error", "no Node has this address yet", "kubectl get csr");
    assert_eq!(said.json()["checked"]["machines"], 1);
}

#[test]
fn a_full_disk_is_named_with_what_cannot_be_stored() {
    let manifests = sound();
    let directory = tempfile::tempdir().expect("a temporary folder");
    let _disk = Disk::mount(directory.path(), 1024);
    let state = directory.path().join("state");
    let server = Server::serve_with_state(manifests.path(), &state);
    // It ends when the disk is full.
    let _ = fs::write(directory.path().join("filler"), vec![0_u8; 2 << 20]);
    let text = "a".repeat(10_000);
    let config = machine_config("rendered", &with_files(&[("/etc/new", &text)]));
    replace(manifests.path(), "config.json", config);
    let said = wait_for("the reason", || {
        let said = health_from(&server);
        (!findings(&said, "No space left on device").is_empty()).then_some(said)
    });
    let found = findings(&said, "last good inputs");
    assert_eq!(found.len(), 1, "{}", said.output);
    let fix = found[0]["fix"].as_str().expect("a fix");
    assert!(fix.starts_with("free space on the disk of the state directory"), "{fix}");
}
