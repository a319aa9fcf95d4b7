//! What a state directory asks of those who use it, and what is not taken from it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::contract::config;
use crate::support::in_repository;
use crate::support::server::{Server, binary, limited_output};

/// `serve` on free ports.
fn serve(manifests: &Path, state: &Path) -> Command {
    let mut command = binary();
    command.arg("serve").arg(manifests).arg("--state-dir").arg(state);
    command.args(["--host", "other.example.com", "--metrics-address=off"]);
    command.args(["--listen-address=127.0.0.1", "--secure-port=0", "--insecure-port=0"]);
    command
}

#[test]
fn a_second_server_on_a_state_directory_is_refused_in_one_line_with_the_process_of_the_first() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (manifests, state) = (in_repository("ignition-fixtures"), directory.path().join("state"));
    let pointer = || fs::read_to_string(state.join("user-data/worker.ign")).expect("a config");
    let server = Server::serve_with_state(&manifests, &state);
    let before = pointer();

    let second = limited_output(&serve(&manifests, &state));
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).expect("text");
    assert_eq!((said.lines().count(), second.stdout), (1, Vec::new()), "{said}");
    assert!(said.contains(&format!("process {} serves", server.pid())), "{said}");
    assert_eq!(pointer(), before);

    for arguments in [&["certs", "rotate"][..], &["tokens", "list"], &["machines", "list"]] {
        let mut command = binary();
        command.args(arguments).arg("--state-dir").arg(&state);
        let output = limited_output(&command);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // It is killed, and its file stays.
    drop(server);
    assert!(state.join(".server").is_file());
    Server::serve_with_state(&manifests, &state);
}

/// A command in a directory of manifests.
fn within(manifests: &Path, arguments: &[&str]) -> Command {
    let mut command = binary();
    command.args(arguments).current_dir(manifests);
    command
}

/// Serves once with a request, once more, and checks the manifests.
fn assert_apart(manifests: &Path) {
    let serve = || Server::prepared(within(manifests, &["serve", "."])).until_ready();
    let mut server = serve();
    assert_eq!(config(&server.plain(), "worker", "3.4.0").status, 200);
    server.terminate();
    server.ended();
    assert!(manifests.join("certs/ledger.json").is_file());
    let server = serve();
    assert_eq!(config(&server.plain(), "worker", "3.4.0").status, 200);
    assert!(server.metric("mcs_input_problems") < 0.5);
    for arguments in [&["validate", "--strict", "."][..], &["render", "worker", "."]] {
        let output = limited_output(&within(manifests, arguments));
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_state_directory_among_the_manifests_is_none_of_them_also_behind_a_link() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let copy = |name: &str| {
        let to = directory.path().join(name);
        let from = in_repository("ignition-fixtures");
        let copied = Command::new("cp").arg("-rL").args([&from, &to]).status();
        assert!(copied.expect("cp").success());
        to
    };
    assert_apart(&copy("below"));
    let linked = copy("linked");
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a new folder");
    symlink(elsewhere, linked.join("certs")).expect("a link");
    assert_apart(&linked);
}

#[test]
fn the_manifests_themselves_are_no_state_directory() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let refused = limited_output(&serve(directory.path(), directory.path()));
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.contains("--state-dir is the directory of manifests"), "{said}");
    assert_eq!(fs::read_dir(directory.path()).expect("a folder").count(), 0);
}
