//! Who sets the kernel arguments of a pool that is merged: machine-config-daemon or, by an annotation, Ignition.
//!
//! What the arguments of several MachineConfigs come to is in tables in `crates/model`; a machine that boots with them is
//! in [`crate::virtual_machine`].

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::run_in;
use crate::support::contract::{VERSIONS, config};
use crate::support::http::Client;
use crate::support::manifests::{self, machine_config_of, selecting_pool, with_files, write};
use crate::support::resource;
use crate::support::server::Server;
use crate::support::wait_until;

const ANNOTATION: &str = "machine-config-server.io/kernel-arguments";

/// A pool without a configuration, with this annotation.
fn pool(annotation: Option<&str>) -> Value {
    let mut pool = selecting_pool("worker");
    pool["metadata"]["annotations"] = json!(annotation.map(|it| json!({ANNOTATION: it})));
    pool
}

fn directory(annotation: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.json", pool(annotation));
    for (name, arguments) in
        [("50-base", ["console=tty0", "quiet"]), ("60-site", ["quiet", r#"note="rack 12""#])]
    {
        let marker = with_files(&[("/etc/marker", "one")]);
        let mut config = machine_config_of("worker", name, &marker);
        config["spec"]["kernelArguments"] = json!(arguments);
        write(directory.path(), &format!("{name}.json"), config);
    }
    directory
}

/// Kernel arguments of the pool's config in a version: those for Ignition, and those in each of the two files for
/// machine-config-daemon.
fn served(client: &Client, version: &str) -> [Value; 3] {
    let config = config(client, "worker", version).json();
    assert_eq!(config["ignition"]["version"], version);
    let files = config["storage"]["files"].as_array().expect("files");
    let in_file = |path: &str| {
        let file = files.iter().find(|file| file["path"] == path).expect("the server's file");
        let bytes = resource::bytes(&file["contents"]).expect("contents");
        let machine_config: Value = serde_json::from_slice(&bytes).expect("JSON");
        machine_config["spec"]["kernelArguments"].clone()
    };
    [
        config["kernelArguments"]["shouldExist"].clone(),
        in_file("/etc/ignition-machine-config-encapsulated.json"),
        in_file("/etc/mcs-machine-config-content.json"),
    ]
}

#[test]
fn ignition_gets_kernel_arguments_in_the_specs_that_have_them_and_files_have_them_in_the_others() {
    let directory = directory(Some("ignition"));
    let server = Server::serve(directory.path(), &[]);
    let all = json!(["console=tty0", "quiet", r#"note="rack 12""#]);
    for version in VERSIONS {
        let expected = if version >= "3.3.0" {
            [all.clone(), json!([]), json!([])]
        } else {
            [Value::Null, all.clone(), all.clone()]
        };
        assert_eq!(served(&server.plain(), version), expected, "{version}");
    }
    // As soon as the daemon sets them, every byte is what it is without the annotation.
    write(directory.path(), "pool.json", pool(Some("machine-config-daemon")));
    let concatenated = json!(["console=tty0", "quiet", "quiet", r#"note="rack 12""#]);
    wait_until("the daemon's", || served(&server.plain(), "3.3.0")[1] == concatenated);
    write(directory.path(), "pool.json", pool(None));
    let other = self::directory(None);
    let other = Server::serve(other.path(), &[]);
    for version in VERSIONS {
        let of = |server: &Server| config(&server.plain(), "worker", version).body;
        assert_eq!(of(&server), of(&other), "{version}");
        let expected = [Value::Null, concatenated.clone(), concatenated.clone()];
        assert_eq!(served(&server.plain(), version), expected, "{version}");
    }
}

#[test]
fn an_annotation_that_is_not_understood_is_reported_and_the_last_good_config_stays() {
    let directory = directory(Some("ignition"));
    let server = Server::serve(directory.path(), &[]);
    let before = config(&server.plain(), "worker", "3.4.0").body;
    write(directory.path(), "pool.json", pool(Some("Ignition")));
    let reason = format!("{ANNOTATION}: \"Ignition\": expected machine-config-daemon or ignition");
    let of_pool = format!("MachineConfigPool worker: {reason}");
    server.reported(&of_pool);
    assert_eq!(config(&server.plain(), "worker", "3.4.0").body, before);
    let said = run_in(&["validate", "."], directory.path());
    assert!(said.status == 1 && said.output.contains(&reason), "{said:?}");
    for arguments in [
        &["render", "worker", "."][..],
        &["render", "worker", ".", "--machine-config"],
        &["render", "worker", ".", "--machine-config", "--explain"],
    ] {
        let said = run_in(arguments, directory.path());
        assert!(said.status == 1 && said.error.contains(&reason), "{said:?}");
    }
}

#[test]
fn validate_says_which_kernel_arguments_a_pool_has_who_sets_them_and_when_nobody_does() {
    let without_daemon = "note: pool worker: a machine without machine-config-daemon ignores spec.kernelArguments; for Ignition to set \
         them, annotate the pool with machine-config-server.io/kernel-arguments: ignition";
    let old_ignition = "note: pool worker: an Ignition that asks for a spec before 3.3 does not set kernel arguments; hold it with \
         the annotation machine-config-server.io/min-ignition-version: 2.11.0:hold";
    let daemon = "pool worker: kernel arguments console=tty0 quiet quiet note=\"rack 12\", set by \
                  machine-config-daemon, if the machine has it";
    let ignition =
        "pool worker: kernel arguments console=tty0 quiet note=\"rack 12\", set by Ignition";
    for (annotation, lines) in [
        (None, &[daemon, without_daemon][..]),
        (Some("machine-config-daemon"), &[daemon]),
        (Some("ignition"), &[ignition, old_ignition]),
    ] {
        let directory = directory(annotation);
        // None of it is a fault: a directory shows nothing of the daemon.
        let said = run_in(&["validate", ".", "--strict"], directory.path());
        assert_eq!(said.status, 0, "{said:?}");
        let said: Vec<_> = said.output.lines().skip(1).collect();
        assert_eq!(said, lines, "{annotation:?}");
    }
    let directory = directory(None);
    let report = run_in(&["validate", ".", "--json"], directory.path()).json();
    let arguments = json!(["console=tty0", "quiet", "quiet", r#"note="rack 12""#]);
    assert_eq!(
        report["pools"][0]["kernelArguments"],
        json!({"machineConfigDaemon": arguments}),
        "{report}"
    );
    assert!(report["pools"][0]["note"].is_string(), "{report}");

    // Secrets are not printed.
    let secret = fs::read_to_string(directory.path().join("60-site.json")).expect("a file");
    write(directory.path(), "60-site.json", secret.replace("quiet", "inst.sshpw=sesame"));
    for arguments in [&["validate", "."][..], &["validate", ".", "--json"]] {
        let said = run_in(arguments, directory.path());
        assert!(said.output.contains("inst.sshpw=(secret)"), "{said:?}");
        assert!(!said.output.contains("sesame"), "{said:?}");
    }
}

#[test]
fn inspect_names_who_sets_the_kernel_arguments_by_a_server_and_of_files_alike() {
    let directory = directory(Some("ignition"));
    let server = Server::serve(directory.path(), &[]);
    let url = format!("http://localhost:{}", server.insecure().port());
    let all = "Kernel arguments  console=tty0 quiet note=\"rack 12\"";
    for (spec, setter, key) in [
        ("3.2", "machine-config-daemon, if the machine has it", "machineConfigDaemon"),
        ("3.3", "Ignition", "ignition"),
        ("3.6", "Ignition", "ignition"),
    ] {
        for from in [&url, "."] {
            let inspect = ["inspect", from, "worker", "--as", spec];
            let said = run_in(&inspect, directory.path());
            let lines: Vec<_> = said.output.lines().collect();
            let at = lines.iter().position(|line| *line == all).expect(&said.output);
            assert_eq!(lines[at + 1], format!("Set by            {setter}"));
            let page = run_in(&[&inspect[..], &["--json"]].concat(), directory.path()).json();
            let facts = &page["machine"]["facts"];
            let set_by = json!({key: facts["kernelArguments"]});
            assert_eq!(facts["kernelArgumentsSetBy"], set_by, "{page}");
        }
    }
}

#[test]
fn the_annotation_has_no_effect_on_a_pool_that_names_its_config_and_that_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut named = manifests::pool("worker", "rendered-worker");
    named["metadata"]["annotations"] = json!({ANNOTATION: "ignition"});
    let mut config = manifests::machine_config("rendered-worker", &with_files(&[]));
    config["spec"]["kernelArguments"] = json!(["quiet"]);
    write(directory.path(), "config.json", config);
    write(directory.path(), "pool.json", &named);
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(served(&server.plain(), "3.4.0")[0], Value::Null);
    let warning = format!(
        "MachineConfigPool worker: metadata.annotations: {ANNOTATION}: no effect: the pool names its configuration"
    );
    let readiness = server.page("/readyz");
    assert!(readiness.contains(&warning), "{readiness}");
    let validate = |flags: &[&str]| run_in(&[&["validate", "."], flags].concat(), directory.path());
    let lax = validate(&[]);
    assert_eq!(lax.status, 0, "{lax:?}");
    assert!(lax.output.contains(&format!("warning: {warning}")), "{lax:?}");
    assert!(!lax.output.contains("note: "), "the annotation would change nothing: {lax:?}");
    assert_eq!(validate(&["--strict"]).status, 1);
    named["metadata"]["annotations"] = Value::Null;
    write(directory.path(), "pool.json", &named);
    let without = validate(&["--strict"]);
    assert!(without.status == 0 && !without.output.contains("note: "), "{without:?}");
}
