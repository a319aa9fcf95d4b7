//! What lies among the manifests may have been made by anybody, by accident or to do harm: it takes
//! bounded memory and time, nothing from what is served, and looks like nothing else in the log.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::contract::config;
use crate::support::in_repository;
use crate::support::manifests::{self, machine_config};
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;
use crate::support::{wait_for, wait_until};

const POOL: &str = r#"{"kind": "MachineConfigPool", "metadata": {"name": "worker"},
    "status": {"configuration": {"name": "a"}}}"#;

/// One pool `worker`, whose config can be rendered.
fn cluster() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let config = machine_config("a", &json!({"ignition": {"version": "3.4.0"}}));
    manifests::write(directory.path(), "pool.json", POOL);
    manifests::write(directory.path(), "a.yaml", config);
    directory
}

fn write(path: &Path, head: &str, item: &str, count: usize, tail: &str) {
    let mut file = BufWriter::new(File::create(path).expect("a writable folder"));
    let mut write = |text: &str| file.write_all(text.as_bytes()).expect("space on the disk");
    write(head);
    (0..count).for_each(|_| write(item));
    write(tail);
}

/// Waits for the log to say that a file is not used, and why.
fn refused(server: &Server, file: &str, reason: &str) {
    wait_for(&format!("{file} to be refused: {reason}"), || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("cannot use an input"));
        lines.filter(|line| line.contains(file)).find(|line| line.contains(reason)).map(|_| ())
    });
    assert_eq!(config(&server.plain(), "worker", "3.4.0").status, 200);
}

/// The most memory that a process had at any time, in MiB.
fn peak(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kibibytes = line.split_whitespace().nth(1).expect("a number");
    kibibytes.parse::<u64>().expect("a number") / 1024
}

#[test]
fn a_file_of_too_many_values_takes_little_memory_and_nothing_from_what_is_served() {
    let directory = cluster();
    let server = Server::serve(directory.path(), &[]);
    let path = |name: &str| directory.path().join(name);
    // 56 MB each, which would be 3.5 GiB as values. As YAML each would take minutes.
    let read = Stopwatch::start();
    write(&path("list.json"), "[{\"a\":0}", ",{\"a\":0}", 7_000_000, "]");
    refused(&server, "list.json", "has more than 2000000 values and keys");
    let head = "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[{\"a\":0}";
    write(&path("items.json"), head, ",{\"a\":0}", 7_000_000, "]}");
    refused(&server, "items.json", "has more than 2000000 values and keys");
    write(&path("documents.json"), "", "{\"a\":0}\n", 7_000_000, "");
    refused(&server, "documents.json", "has more than 2000000 values and keys");
    read.within(Duration::from_secs(30), "3 files of 56 MB of JSON, written and refused");
    let taken = peak(&server);
    assert!(taken < 192, "{taken} MiB");

    // Even its depth is told before its values are read.
    write(&path("deep.json"), "", "[", 7_000_000, "");
    refused(&server, "deep.json", "has lists or mappings nested more than 100 deep");
    // YAML is measured while it is read.
    write(&path("list.yaml"), "", "- a: 0\n", 2_000_000, "");
    refused(&server, "list.yaml", "has more than 2000000 values and keys");
    let taken = peak(&server);
    assert!(taken < 448, "{taken} MiB");

    for file in ["list.json", "items.json", "documents.json", "deep.json", "list.yaml"] {
        fs::remove_file(path(file)).expect("the file");
    }
    server.until_ready();
}

#[test]
fn a_key_that_is_there_twice_leaves_the_last_good_state_and_is_named() {
    let directory = cluster();
    let server = Server::serve(directory.path(), &[]);
    let path = directory.path().join("pool.json");
    let twice = POOL.replacen("{\"name\"", "{\"name\": \"other\", \"name\"", 1);
    for text in [twice.clone(), format!("# YAML\n{twice}")] {
        fs::write(&path, text).expect("a writable folder");
        refused(&server, "pool.json", r#"the key \"name\" appears twice in one mapping at line"#);
        fs::write(&path, POOL).expect("a writable folder");
        wait_until("the file to be in order", || server.metric("mcs_input_problems") < 0.5);
    }
}

#[test]
fn links_to_the_directory_itself_change_nothing() {
    let directory = cluster();
    symlink(".", directory.path().join("0-loop")).expect("a link");
    let server = Server::serve(directory.path(), &[]);
    symlink(directory.path(), directory.path().join("loop")).expect("a link");
    symlink("loop", directory.path().join("link-to-link")).expect("a link");
    // A change that is served shows that the links were seen.
    let other = POOL.replacen("worker", "other", 1);
    fs::write(directory.path().join("other.json"), other).expect("a writable folder");
    wait_until("the other pool", || config(&server.plain(), "other", "3.4.0").status == 200);
    assert!(server.metric("mcs_input_problems") < 0.5);
    server.until_ready();
}

/// A file's name that would be a log line and clear the screen.
const NAME: &str = "a\n2026-01-01T00:00:00Z  INFO all is well\u{1b}[2J\u{9b}1A.yaml";
const ESCAPED: &str = "a\\n2026-01-01T00:00:00Z  INFO all is well\\u{1b}[2J\\u{9b}1A.yaml";

fn has_controls(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n')
}

#[test]
fn names_of_files_are_one_line_wherever_they_are_reported() {
    let directory = cluster();
    let server = Server::serve(directory.path(), &[]);
    fs::write(directory.path().join(NAME), POOL).expect("a writable folder");
    refused(&server, "all is well", "is also in");
    let log = server.log();
    assert!(!has_controls(&log) && !log.contains("\n2026-01-01"), "{log:?}");
    assert!(log.contains(ESCAPED), "{log:?}");

    let state = tempfile::tempdir().expect("a temporary folder");
    let pointer = server.state().join("user-data").join(format!("{NAME}.ign"));
    fs::write(&pointer, "{}").expect("a writable folder");
    for arguments in [
        vec!["validate".as_ref(), directory.path()],
        vec!["serve".as_ref(), pointer.as_path()],
        vec!["certs".as_ref(), "show".as_ref(), "--state-dir".as_ref(), &server.state()],
        vec!["certs".as_ref(), "check".as_ref(), "--pointer".as_ref(), &pointer],
    ] {
        let mut command = binary();
        command.args(&arguments).current_dir(in_repository("tests"));
        if arguments[0] == Path::new("serve") {
            command.args(["--secure-port=0", "--insecure-port=0", "--metrics-address=off"]);
            command.arg("--state-dir").arg(state.path());
        }
        let output = command.output().expect("the built binary");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).expect("text");
        assert!(!has_controls(&text) && !text.contains("\n2026-01-01"), "{arguments:?}: {text:?}");
        assert!(
            text.contains("INFO all is well\\u{1b}[2J\\u{9b}1A.yaml"),
            "{arguments:?}: {text:?}"
        );
    }
}
