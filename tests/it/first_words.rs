//! Mistakes that are reported where one looks first: by `validate`, by the first lines of a log, and by commands that
//! have nothing to ask.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::command::{Said, run_in};
use crate::support::manifests::{
    machine_config, machine_config_of, pool, selecting_pool, with_files, write,
};
use crate::support::server::{Server, binary, free_ports};
use crate::support::{in_repository, wait_for, wait_until};

/// A directory with one pool `worker` of a MachineConfig with this Ignition config.
fn directory(config: &Value) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.json", pool("worker", "a"));
    write(directory.path(), "a.json", machine_config("a", config));
    directory
}

#[test]
fn a_config_that_no_cluster_stores_is_reported_before_a_cluster_gets_it() {
    for (bytes, warning) in [
        (1_100_000, ""),
        (1_300_000, "MachineConfig a: it has 1300"),
        (1_600_000, "MachineConfig a: it has 1600"),
    ] {
        let contents = "x".repeat(bytes);
        let directory = directory(&with_files(&[("/etc/large", &contents)]));
        let said = run_in(&["validate", "."], directory.path()).done();
        assert_eq!(said.output.contains("warning: "), !warning.is_empty(), "{}", said.output);
        assert!(said.output.contains(warning), "{}", said.output);
        let is_refused = said.output.contains("stores at most 1572864");
        assert_eq!(is_refused, bytes > 1_572_864, "{}", said.output);
    }
}

#[test]
fn spec_3_6_is_reported_for_a_release_that_cannot_read_it() {
    for (release, version, is_reported) in [
        (json!("4.22.3"), "3.6.0", true),
        (json!("4.22.3"), "3.5.0", false),
        (json!("4.23.0-ec.2"), "3.6.0", false),
        (json!(4.22), "3.6.0", false),
        (Value::Null, "3.6.0", false),
    ] {
        let directory = directory(&json!({"ignition": {"version": version}}));
        let key = "machineconfiguration.openshift.io/release-image-version";
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
            "metadata": {"name": "machine-config-controller", "annotations": {key: release}},
            "spec": {},
        });
        write(directory.path(), "controller.json", config);
        let said = run_in(&["validate", "."], directory.path()).done();
        let warning = "warning: MachineConfigPool worker: MachineConfig a has spec 3.6.0, which the machine config \
                       operator of OpenShift 4.22.3 cannot read";
        assert_eq!(said.output.contains(warning), is_reported, "{release}: {}", said.output);
    }
}

#[test]
fn a_unit_that_cannot_be_enabled_is_reported() {
    let unit =
        json!({"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/a\n"});
    let config = json!({"ignition": {"version": "3.2.0"}, "systemd": {"units": [unit]}});
    let directory = directory(&config);
    let warning = "systemd.units[0].enabled: no effect: the unit has no [Install] section";
    let said = run_in(&["validate", "."], directory.path()).done();
    assert!(said.output.contains(warning), "{}", said.output);
    assert_eq!(run_in(&["validate", ".", "--strict"], directory.path()).status, 1);
    let said = run_in(&["inspect", ".", "worker"], directory.path()).done();
    assert!(said.text().contains(warning), "{}", said.text());
}

#[test]
fn an_extension_that_does_not_exist_is_refused_without_an_ignition_config_too() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.json", selecting_pool("worker"));
    let mut config = machine_config_of("worker", "a", &Value::Null);
    for (extension, status) in [("usbguard", 0), ("usbgard", 1)] {
        config["spec"] = json!({"extensions": [extension]});
        write(directory.path(), "a.json", &config);
        let said = run_in(&["validate", "."], directory.path());
        assert_eq!(said.status, status, "{}", said.text());
        assert!(status == 0 || said.output.contains("usbgard"), "{}", said.output);
    }
}

#[test]
fn a_group_of_commands_alone_lists_them() {
    for (group, commands) in [
        ("certs", "missing one of show, check, rotate, distrust"),
        ("tokens", "missing one of add, list, revoke, rotate"),
        ("cmp", "missing one of enroll"),
    ] {
        run_in(&[group], Path::new("/")).refused(&[commands]);
    }
}

#[test]
fn a_pool_that_is_nearly_one_is_named() {
    let directory = directory(&with_files(&[]));
    let said = run_in(&["render", "wroker", "."], directory.path());
    said.refused(&["no pool has the name wroker, did you mean worker?; known pools: worker"]);
}

#[test]
fn a_command_that_finds_no_server_says_how_to_name_one() {
    let [free] = free_ports();
    let said = run_in(&["machines", "--from", &free.to_string()], Path::new("/"));
    said.refused(&[&format!("{free}: no server listens there"), "--from"]);
}

#[test]
fn networks_that_keep_nobody_away_are_reported_at_the_start() {
    let flags = ["--allow-from", "wroker=192.0.2.0/24", "--allow-from", "worker=127.0.0.0/8"];
    let server = Server::sample_cluster(&flags);
    let said = |text: &str| {
        wait_until(text, || server.log().contains(text));
    };
    said("--allow-from names a pool that does not exist");
    said("pool=\"wroker\" meant=\"worker\"");
    said("--allow-from blocks nothing in pools with access mode audit");
    let server = Server::sample_cluster(&["--access", "off", flags[2], flags[3]]);
    let log = server.log();
    assert!(!log.contains("--allow-from"), "{log}");
}

#[test]
fn without_a_host_the_address_that_is_listened_on_goes_into_pointer_configs() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut command = binary();
    command.arg("serve").arg(in_repository("ignition-fixtures"));
    command.arg("--state-dir").arg(state.path());
    let server = Server::prepared(command).until_ready();
    let port = server.secure().port();
    let path = state.path().join("user-data/worker.ign");
    let pointer = wait_for("the pointer config", || std::fs::read_to_string(&path).ok());
    assert!(pointer.contains(&format!("https://127.0.0.1:{port}/config/worker")), "{pointer}");
    let shown = format!("https://127.0.0.1:{port}/config/POOL");
    wait_until("the addresses", || server.log().contains(&shown));
}

#[test]
fn tokens_are_listed_as_one_object_without_the_tokens() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let path = state.path().to_str().expect("a path in UTF-8");
    let tokens = |arguments: &[&str]| -> Said {
        let mut command: Command = binary();
        Said::by(command.arg("tokens").args(arguments).args(["--state-dir", path]))
    };
    let token = tokens(&["add", "rack", "--pool", "worker,edge", "--until", "never"]).done().output;
    let listed = tokens(&["list", "--json"]).done();
    assert!(!listed.output.contains(token.trim()), "{}", listed.output);
    let listed = listed.json();
    let keys: Vec<_> = listed.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["tokens", "enforced", "withoutToken"]);
    let first = &listed["tokens"][0];
    let keys: Vec<_> = first.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["id", "name", "pools", "made", "until", "state"]);
    assert_eq!((&first["name"], &first["state"]), (&json!("rack"), &json!("valid")));
    assert_eq!((&first["pools"], &first["until"]), (&json!(["edge", "worker"]), &Value::Null));
}

#[test]
fn a_check_fails_while_a_list_of_tokens_cannot_be_kept() {
    let server = Server::sample_cluster(&[]);
    let copied = tempfile::tempdir().expect("a temporary folder");
    let state = copied.path().join("state");
    server.copy_state(&state);
    drop(server);
    let check = || Said::by(binary().args(["certs", "check", "--state-dir"]).arg(&state));
    check().done();
    let path = state.join("tokens.json");
    std::fs::write(&path, "{").expect("a writable file");
    check().refused(&["tokens.json", "the server cannot read all its files"]);
    std::fs::remove_file(&path).expect("the file");
    std::fs::create_dir(&path).expect("a folder in its place");
    check().refused(&["tokens.json", "the server cannot read all its files"]);
}
