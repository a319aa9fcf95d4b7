//! Pools of Butane files, with the real Butane. Faults that it does not have are tested next to the code.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::last_good::is_stored;
use crate::support::command::Said;
use crate::support::contract::is_served;
use crate::support::machine::Machine;
use crate::support::manifests::{replace, with_files};
use crate::support::server::{Server, binary, serving};
use crate::support::wait_until;

const EMPTY: &str = "variant: fcos\nversion: 1.5.0\n";

fn program() -> String {
    std::env::var("BUTANE")
        .expect("BUTANE: run tests/run, or set it to what tests/butane/install prints")
}

/// A text with a file that says which config a machine has.
fn with_marker(text: &str) -> String {
    format!(
        "{EMPTY}storage:\n  files:\n  - path: /etc/marker\n    mode: 0644\n    contents: {{inline: {text}}}\n"
    )
}

/// A server on a directory, which keeps its state in `state` beside it.
fn serve(above: &Path, butane: &str) -> Server {
    let mut command = serving(&above.join("pools"), &above.join("state"));
    command.args(["--butane", butane]);
    Server::prepared(command)
}

fn site(file: &str, text: &str) -> tempfile::TempDir {
    let above = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(above.path().join("pools")).expect("a folder");
    replace(&above.path().join("pools"), file, text);
    above
}

/// A command on the directory `pools`, with Butane.
fn command(above: &Path, arguments: &[&str]) -> Command {
    let mut command = binary();
    command.args(arguments).args(["--butane", &program()]).current_dir(above);
    command
}

fn run(above: &Path, arguments: &[&str]) -> Said {
    Said::by(&mut command(above, arguments))
}

#[test]
fn a_machine_boots_into_what_a_butane_file_says() {
    let above = site("edge.bu", &with_marker("first"));
    let server = serve(above.path(), &program()).until_ready();
    let machine = Machine::new();
    let pointer = above.path().join("state/user-data/edge.ign");
    machine.boot(&fs::read_to_string(pointer).expect("a pointer config"));
    let read = fs::read_to_string(machine.root().join("etc/marker")).expect("a file");
    assert_eq!(read, "first");
    replace(&above.path().join("pools"), "edge.bu", with_marker("second"));
    is_served(&server, "edge", "second");
    // A folder's files are merged, of whichever kind.
    fs::create_dir(above.path().join("pools/edge")).expect("a folder");
    let more = with_files(&[("/etc/marker", "third")]);
    replace(&above.path().join("pools/edge"), "90-site.ign", more);
    is_served(&server, "edge", "third");
}

#[test]
fn a_file_that_butane_refuses_is_named_with_its_words_and_the_last_good_config_stays() {
    let above = site("edge.bu", &with_marker("good"));
    let pools = above.path().join("pools");
    let server = serve(above.path(), &program()).until_ready();
    let words = "Butane: error at $.storage.files.0.path, line 5 col 11: path not absolute";
    let refused = &*format!("edge.bu: {words}");
    replace(&pools, "edge.bu", with_marker("bad").replace("/etc/marker", "etc/marker"));
    wait_until("the log to name the fault", || server.log().contains(words));
    assert!(server.page("/readyz").contains(refused), "{}", server.page("/readyz"));
    // A client without a token sees no word of the file.
    let public = server.plain().get("/readyz").text();
    assert!(public.contains("edge.bu: a part of it cannot be used"), "{public}");
    is_served(&server, "edge", "good");
    server.stop();
    // After a restart too, with and without the program.
    for butane in [&*program(), "off"] {
        let server = serve(above.path(), butane);
        is_served(&server, "edge", "good");
        server.stop();
    }
    let health = run(above.path(), &["health", "pools", "--state-dir", "state"]);
    assert!(health.status == 1 && health.text().contains(refused), "{health:?}");
    run(above.path(), &["validate", "pools"]).refused(&[refused]);
    replace(&pools, "edge.bu", with_marker("mended"));
    assert_eq!(run(above.path(), &["validate", "pools", "--strict"]).status, 0);
    is_served(&serve(above.path(), &program()), "edge", "mended");
}

#[test]
fn all_commands_read_what_butane_makes() {
    let above = site("edge.bu", &with_marker("here"));
    let fetched = run(above.path(), &["render", "edge", "pools"]).done().json();
    let files = fetched["storage"]["files"].as_array().expect("files");
    assert!(files.iter().any(|file| file["path"] == "/etc/marker"), "{fetched}");
    let file = run(above.path(), &["inspect", "pools", "edge", "--file", "/etc/marker"]);
    assert_eq!(file.done().output, "here");
    let other = site("edge.bu", &with_marker("there"));
    let there = other.path().join("pools");
    let there = there.to_str().expect("a path");
    let difference = run(above.path(), &["inspect", "pools", "--diff", there]);
    assert!(difference.status == 1 && difference.output.contains("/etc/marker"), "{difference:?}");
    let valid = run(above.path(), &["validate", "pools", "--strict"]);
    assert!(valid.done().output.starts_with("pool edge: OK, serves rendered-edge-"));
    // By the PATH as well.
    let path = Path::new(&program()).parent().expect("a folder").to_owned();
    let by_path =
        Said::by(binary().args(["validate", "pools"]).env("PATH", path).current_dir(above.path()));
    assert!(by_path.done().output.contains("pool edge: OK"));
}

#[test]
fn what_butane_refuses_or_warns_of_is_a_fault_of_its_file_alone() {
    for (text, expected) in [
        (
            format!("{EMPTY}foo: 1\n"),
            "warning at $.foo, line 3 col 1: unused key foo, which --strict refuses",
        ),
        (
            "version: 1.5.0\n".to_owned(),
            "Error translating config: error parsing variant; must be specified",
        ),
        (
            "variant: fcos\nversion: 9.5.0\n".to_owned(),
            "No translator exists for variant fcos with version 9.5.0",
        ),
        ("variant: [".to_owned(), "Error translating config: "),
        // Nothing of this machine gets into a config.
        (
            with_marker("x").replace("inline: x", "local: /etc/passwd"),
            "local file paths are relative to a files directory",
        ),
    ] {
        let above = site("edge.bu", &text);
        replace(&above.path().join("pools"), "other.bu", with_marker("other"));
        let judged = run(above.path(), &["validate", "pools"]);
        let lines: Vec<_> =
            judged.output.lines().filter(|line| line.contains("edge.bu: Butane: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(expected), "{expected}: {judged:?}");
        assert!(judged.output.contains("pool other: OK"), "{judged:?}");
        // Its machines wait: half of their config would be worse.
        assert!(judged.output.contains("pool edge: "), "{judged:?}");
        assert_eq!(judged.status, 1);
    }
}

#[test]
fn the_variant_of_openshift_is_a_machine_config_of_the_files_pool() {
    let openshift = |role: &str| {
        format!(
            "variant: openshift\nversion: 4.19.0\nmetadata:\n  name: 99-edge\n  labels:\n    \
             machineconfiguration.openshift.io/role: {role}\nopenshift:\n  kernel_arguments: [site=edge]\n"
        )
    };
    let above = site("edge.bu", &openshift("edge"));
    let merged = run(above.path(), &["render", "edge", "pools", "--machine-config"]).done().json();
    assert_eq!(merged["spec"]["kernelArguments"], Value::from(vec!["site=edge"]));
    replace(&above.path().join("pools"), "edge.bu", openshift("worker"));
    let other = run(above.path(), &["validate", "pools"]);
    other.refused(&[
        "machineconfiguration.openshift.io/role is \"worker\", and the file is of pool edge",
    ]);
    // It is stored as it was made, and read again without Butane.
    replace(&above.path().join("pools"), "edge.bu", openshift("edge"));
    let server = serve(above.path(), &program()).until_ready();
    let answer = |server: &Server| server.plain().get("/config/edge");
    let before = answer(&server);
    assert!(before.status == 200 && before.text().contains("site%3Dedge"), "{}", before.text());
    is_stored(&above.path().join("state"));
    server.stop();
    let server = serve(above.path(), "off");
    wait_until("the same config", || answer(&server).body == before.body);
}

#[test]
fn a_converted_file_next_to_it_is_served_instead() {
    let above = site("edge.bu", &with_marker("source"));
    let server = serve(above.path(), &program()).until_ready();
    is_served(&server, "edge", "source");
    replace(&above.path().join("pools"), "edge.ign", with_files(&[("/etc/marker", "converted")]));
    is_served(&server, "edge", "converted");
    assert!(server.readiness().0 == 200, "{:?}", server.readiness());
}

#[test]
fn without_butane_a_file_is_reported_and_the_rest_of_its_pool_is_served() {
    let above = site("edge.bu", &with_marker("source"));
    fs::create_dir(above.path().join("pools/edge")).expect("a folder");
    replace(&above.path().join("pools/edge"), "a.ign", with_files(&[("/etc/marker", "rest")]));
    for (butane, reason) in [
        (
            "off",
            "edge.bu: is Butane, which is not read: convert it to a file *.ign with `butane --strict`",
        ),
        ("/nowhere/butane", "edge.bu: is Butane, and there is no program /nowhere/butane to run: "),
    ] {
        let judged = Said::by(
            binary().args(["validate", "pools", "--butane", butane]).current_dir(above.path()),
        );
        judged.refused(&[reason, "pool edge: OK"]);
        is_served(&serve(above.path(), butane), "edge", "rest");
    }
}
