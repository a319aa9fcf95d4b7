//! `machines add`, and what other commands make of machines with names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{MachinesDirectory, get_known, text};
use crate::support::access::{assert_refused, get};
use crate::support::command::{Said, Store};
use crate::support::{wait_for, wait_until};

fn add<'a>(site: &MachinesDirectory, manifests: &'a str, more: &[&'a str]) -> Said {
    let arguments: Vec<&str> = ["add", "rack-7", "--pool", "worker", "--manifests", manifests]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    site.machines(&arguments)
}

#[test]
fn adding_a_machine_writes_its_manifest_and_tells_how_to_boot_by_its_pointer_config() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    fs::create_dir(site.state()).expect("a folder");
    let early = add(&site, &manifests, &[]);
    early.refused(&["worker.ign: run `serve` first"]);
    let server = site.serve(&[]);
    let lines = add(&site, &manifests, &["--address", "127.0.0.0/8"]).done().output;
    let path = site.pointer_path("rack-7");
    for part in [
        format!("wrote {manifests}/machine-rack-7.yaml"),
        format!("coreos-installer install /dev/sda --ignition-file {}", text(&path)),
        "coreos.inst.ignition_url=".to_owned(),
        "ignition.config.url=".to_owned(),
    ] {
        assert!(lines.contains(&part), "{part} is not in {lines}");
    }
    assert_hash(&lines, &path);
    let credential = site.credential("rack-7");
    wait_until("the server to know it", || server.named_machine("rack-7")["pool"] == "worker");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    assert_eq!(site.credential("rack-7"), credential, "the server keeps it");
    let again = add(&site, &manifests, &[]);
    assert!(again.error.ends_with("the machine exists already\n"), "{}", again.error);
    let unknown = site.machines(&["rearm", "rack-8"]);
    unknown.refused(&["machine rack-8 not found"]);
    let table = server.run(&["machines"]).done().output;
    assert!(table.contains("NAME") && table.contains("rack-7"), "{table}");
}

/// The printed hash is that of the pointer config.
#[track_caller]
fn assert_hash(lines: &str, pointer: &Path) {
    let hash = lines.split("--ignition-hash sha512-").nth(1).expect("a hash");
    let hash = hash.split_whitespace().next().expect("a hash");
    let expected = Command::new("sha512sum").arg(pointer).output().expect("coreutils");
    assert!(expected.stdout.starts_with(hash.as_bytes()) && hash.len() == 128, "{hash}");
}

#[test]
fn a_machine_that_is_added_again_after_its_removal_has_the_token_that_was_printed() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    let server = site.serve(&[]);
    add(&site, &manifests, &[]).done();
    let known = || (server.named_machine("rack-7")["token"] == "armed").then_some(());
    wait_for("the server to know it", known);
    let removed = site.credential("rack-7");
    assert_eq!(get_known(&site.tls(&server), "worker", &removed).status, 200);
    site.machines(&["remove", "rack-7", "--manifests", &manifests]).done();
    assert_refused(&get(&site.tls(&server), "worker", Some(&removed)));
    let lines = add(&site, &manifests, &[]).done().output;
    wait_for("the server to know it again", known);
    assert_hash(&lines, &site.pointer_path("rack-7"));
    let credential = site.credential("rack-7");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    assert_hash(&lines, &site.pointer_path("rack-7"));
    assert_refused(&get(&site.tls(&server), "worker", Some(&removed)));
}

#[test]
fn a_machine_that_is_added_after_its_manifest_was_deleted_boots_by_what_was_printed() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    for other in ["rack-8", "rack-9"] {
        site.put_machine(other, &serde_json::json!({"pool": "worker"}));
    }
    let server = site.serve(&["--access", "enforce"]);
    add(&site, &manifests, &[]).done();
    wait_until("the server to know it", || server.named_machine("rack-7")["token"] == "armed");
    let before = site.credential("rack-7");
    assert_eq!(get_known(&site.tls(&server), "worker", &before).status, 200);
    fs::remove_file(site.manifests().join("machine-rack-7.yaml")).expect("a manifest");
    wait_until("the token to be revoked", || {
        get(&site.tls(&server), "worker", Some(&before)).status == 401
    });
    let lines = add(&site, &manifests, &[]).done().output;
    wait_until("the server to know it again", || {
        server.named_machine("rack-7")["token"] != "revoked"
    });
    assert_hash(&lines, &site.pointer_path("rack-7"));
    let credential = site.credential("rack-7");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    assert_hash(&lines, &site.pointer_path("rack-7"));
}

/// A removal is left by a command that a server did not follow, or that was killed.
#[test]
fn a_machine_whose_removal_was_left_is_removed_before_it_is_added_again() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    let server = site.serve(&[]);
    add(&site, &manifests, &[]).done();
    let removed = site.credential("rack-7");
    drop(server);
    let request = site.state().join("machines/removed/rack-7");
    fs::write(&request, "").expect("a request");
    fs::remove_file(site.manifests().join("machine-rack-7.yaml")).expect("a manifest");
    // Another one has the place of a server, and does not follow.
    let place = fs::File::open(site.state().join(".server")).expect("a file of a server");
    place.lock().expect("its lock");
    add(&site, &manifests, &[]).refused(&[
        "machine rack-7, whose removal is not complete",
        "its token is not revoked yet",
    ]);
    drop(place);
    add(&site, &manifests, &[]).done();
    assert!(!request.exists());
    assert_ne!(site.credential("rack-7"), removed);
    let server = site.serve(&["--access", "enforce"]);
    assert_eq!(get_known(&site.tls(&server), "worker", &site.credential("rack-7")).status, 200);
    assert_refused(&get(&site.tls(&server), "worker", Some(&removed)));
}

#[test]
fn a_machine_of_another_manifest_is_not_added_again() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    site.put_machine("rack-7", &serde_json::json!({"pool": "worker"}));
    drop(site.serve(&[]));
    let refused = add(&site, &manifests, &[]);
    refused.refused(&["another manifest has FirstBootMachine rack-7 already\n"]);
    assert!(!site.manifests().join("machine-rack-7.yaml").exists());
    site.serve(&[]);
}

#[test]
fn a_manifest_with_an_overlay_that_others_cannot_read_is_as_private() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    let _server = site.serve(&[]);
    let file = site.state().join("own.ign");
    fs::write(&file, r#"{"ignition": {"version": "3.4.0"}}"#).expect("a writable folder");
    for (name, mode) in [("secret", 0o600), ("public", 0o644)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("chmod");
        let arguments = ["add", name, "--pool", "worker", "--manifests", &manifests];
        let overlay = ["--overlay", &text(&file)];
        site.machines(&[&arguments[..], &overlay].concat()).done();
        let manifest = fs::metadata(site.manifests().join(format!("machine-{name}.yaml")));
        assert_eq!(manifest.expect("a manifest").permissions().mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn names_that_are_no_objects_names_are_refused() {
    let site = MachinesDirectory::new();
    let manifests = text(&site.manifests());
    for name in ["..", "a/b", "../x", "A", "", ".json", &"n".repeat(201)] {
        let output = site.machines(&["add", name, "--pool", "worker", "--manifests", &manifests]);
        assert_eq!(output.status, 1, "{name}");
        assert_eq!(output.error.lines().count(), 1, "{}", output.error);
        site.machines(&["rearm", name]).refused(&[]);
    }
    assert!(!site.state().exists());
}

/// The pointer configs of machines follow the CA, and their tokens are known to `certs check` and `tokens list`.
#[test]
fn pointer_configs_of_machines_follow_a_new_ca_and_keep_their_tokens() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &serde_json::json!({"pool": "worker"}));
    let server = site.serve(&["--access", "enforce"]);
    let credential = site.credential("n");
    let of_state = |arguments: &[&str]| site.state().run(arguments);
    let cas = |text: &str| {
        let pointer: Value = serde_json::from_str(text).expect("JSON");
        pointer["ignition"]["security"]["tls"]["certificateAuthorities"].clone()
    };
    let before = cas(&site.pointer("n"));
    of_state(&["certs", "rotate", "--ca"]).done();
    wait_until("the new CA in the pointer config", || cas(&site.pointer("n")) != before);
    assert_eq!(site.credential("n"), credential);
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    of_state(&["certs", "check"]).done();
    let listed = of_state(&["tokens", "list"]).done().output;
    assert!(listed.contains("machine n"), "{listed}");
    of_state(&["tokens", "rotate"]).done();
    let of_pool = site.state().join("user-data/worker.ign");
    let pointer = site.pointer_path("n");
    assert!(of_pool.exists());
    of_state(&["certs", "check", "--pointer", &text(&pointer)]).done();
    assert_eq!(site.credential("n"), credential, "a rotation is of pools' tokens");
}
