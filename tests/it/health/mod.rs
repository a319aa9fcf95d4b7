//! `health`: each cause for which a machine does not come up is named with its fix, once, and nothing that a source does
//! takes longer than the command's limit.

mod causes;
mod hostile;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::Said;
use crate::support::http::{IGNITION, loopback};
use crate::support::manifests::{machine_config, pool, with_files, write};
use crate::support::server::{Server, binary};
use crate::support::wait_for;

/// A directory with a pool that can be served, and has no secret.
fn sound() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "config.json", machine_config("rendered", &with_files(&[])));
    write(directory.path(), "pool.json", pool("worker", "rendered"));
    directory
}

fn health(arguments: &[&str]) -> Said {
    Said::by(binary().arg("health").args(arguments))
}

/// The findings about a directory with its state directory, and its server.
fn health_of(manifests: &Path, server: &Server) -> Said {
    let from = server.metrics().address().to_string();
    let (manifests, state) =
        (manifests.display().to_string(), server.state().display().to_string());
    once_rendered(&[&manifests, "--state-dir", &state, "--from", &from, "--json"])
}

/// The findings that a server by its address gives.
fn health_from(server: &Server) -> Said {
    once_rendered(&["--from", &server.metrics().address().to_string(), "--json"])
}

/// The findings of a server that has rendered its pools, which follows its start, and answers in time: a busy machine's may not.
fn once_rendered(arguments: &[&str]) -> Said {
    let not_yet = ["is being rendered", "no answer in time"];
    wait_for("pools to be rendered", || {
        Some(health(arguments)).filter(|said| !not_yet.iter().any(|it| said.output.contains(it)))
    })
}

/// The findings with a text in their thing or their words.
pub(crate) fn findings(said: &Said, part: &str) -> Vec<Value> {
    let report = said.json();
    let all = report["findings"].as_array().expect("a list");
    let text = |it: &Value| {
        let things = it["things"].as_array().expect("a list").iter();
        let things: Vec<_> = things.map(|thing| thing.as_str().expect("text")).collect();
        format!("{}: {}", things.join(", "), it["what"].as_str().expect("text"))
    };
    let has = |it: &&Value| text(it).contains(part);
    all.iter().filter(has).cloned().collect()
}

/// Asserts that exactly one finding has this text, and that its level and its fix are these.
#[track_caller]
pub(crate) fn assert_named(said: &Said, level: &str, part: &str, fix: &str) {
    let found = findings(said, part);
    let [one] = &found[..] else { panic!("{part}: {} of {}", found.len(), said.output) };
    assert_eq!(one["level"], level, "{one}");
    assert!(one["fix"].as_str().expect("a fix").contains(fix), "{fix}: {one}");
    let is_error = said.json()["errors"].as_u64().expect("a number") > 0;
    assert_eq!((said.status, is_error), (i32::from(is_error), is_error), "{said:?}");
}

#[test]
fn a_directory_whose_server_has_no_fault_is_one_line_with_counts() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    server.pointer("worker");
    server.plain().from(loopback(2)).request("GET", "/config/worker", &[IGNITION]);
    let from = server.metrics().address().to_string();
    let (directory, state) =
        (manifests.path().display().to_string(), server.state().display().to_string());
    let said = health(&[&directory, "--state-dir", &state, "--from", &from]);
    let line = "OK: 1 pool, 1 pointer config, 1 machine that asked\n";
    assert_eq!((said.status, &*said.output, &*said.error), (0, line, ""));
    // No machine is invented by the look.
    assert_eq!(
        server.metrics().get("/api/v1/machines").json().as_array().expect("a list").len(),
        1
    );
    let said = health_of(manifests.path(), &server);
    let report = said.json();
    let counts = json!({"pools": 1, "pointers": 1, "machines": 1});
    let expected =
        json!({"isHealthy": true, "errors": 0, "warnings": 0, "checked": counts, "findings": []});
    assert_eq!((said.status, report), (0, expected));
    assert_eq!(health(&["--from", &from]).done().output, line);
}

#[test]
fn what_several_sources_report_is_listed_once_and_errors_come_first() {
    let manifests = sound();
    let mut invalid = with_files(&[]);
    invalid["storage"] = json!({"files": [{"path": "no/slash"}]});
    write(manifests.path(), "bad.json", machine_config("bad", &invalid));
    write(manifests.path(), "pool-bad.json", pool("bad", "bad"));
    let mut unknown = with_files(&[("/etc/token", "a")]);
    unknown["storage"]["files"][0]["contets"] = json!({});
    write(manifests.path(), "config.json", machine_config("rendered", &unknown));
    let server = Server::serve_when_up(manifests.path(), &[]);
    server.pointer("worker");
    server.plain().from(loopback(3)).request("GET", "/config/bad", &[IGNITION]);
    let said = health_of(manifests.path(), &server);
    assert_named(&said, "error", "storage.files[0].path", "correct the MachineConfig");
    assert_named(&said, "warning", "contets", "correct the name of the field");
    assert_named(&said, "error", "machine 127.0.0.3", "the machine retries, and boots then");
    let report = said.json();
    assert_eq!((&report["errors"], &report["warnings"]), (&json!(2), &json!(1)), "{report}");
    let from = server.metrics().address().to_string();
    let (directory, state) =
        (manifests.path().display().to_string(), server.state().display().to_string());
    let said = health(&[&directory, "--state-dir", &state, "--from", &from]);
    let lines: Vec<_> = said.output.lines().collect();
    assert!(lines[0].starts_with("error    pool bad: "), "{}", said.output);
    assert!(lines[1].starts_with("         fix: "), "{}", said.output);
    assert!(lines[2].starts_with("error    machine 127.0.0.3: "), "{}", said.output);
    assert!(lines[4].starts_with("warning  "), "{}", said.output);
    assert_eq!(lines[6..], ["2 errors, 1 warning"], "{}", said.output);
    assert_eq!((said.status, &*said.error), (1, ""));
}

#[test]
fn flags_that_name_two_places_or_half_of_one_are_refused() {
    health(&["manifests", "--kubeconfig", "x"]).refused(&["--kubeconfig"]);
    health(&["--state-dir", "certs"]).refused(&["missing"]);
    health(&["--from", "nowhere"]).refused(&["expected HOST:PORT"]);
}

/// Copies the files of a state directory that `certs` needs.
fn copied_state(server: &Server) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    server.copy_state(&directory.path().join("state"));
    fs::read(directory.path().join("state/tls.crt")).expect("the copy");
    directory
}
