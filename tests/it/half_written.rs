//! Files that a program writes while they are followed: no half of one is served.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::changes::{cluster, machine_config};
use crate::support::contract::{marker, marker_soon};
use crate::support::manifests::{pool, write};
use crate::support::server::Server;
use crate::support::wait_for;

#[test]
fn a_file_is_not_read_while_a_program_still_writes_it() {
    let (directory, server) = cluster();
    written_with_pauses(&directory, &directory.path().join("a.yaml"), &server);
}

#[test]
fn a_file_behind_a_link_that_leads_out_is_not_read_while_a_program_still_writes_it() {
    let (directory, server) = cluster();
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let target = elsewhere.path().join("a.yaml");
    write(elsewhere.path(), "a.yaml", machine_config("a", "linked"));
    fs::remove_file(directory.path().join("a.yaml")).expect("the file");
    symlink(&target, directory.path().join("a.yaml")).expect("a link");
    marker_soon(&server, "worker", Ok("linked"));
    written_with_pauses(&directory, &target, &server);
}

/// Pause of a writer between two writes.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes the MachineConfig of pool `worker` to a file, with pauses, and checks that no half of it is served.
fn written_with_pauses(directory: &TempDir, path: &Path, server: &Server) {
    let before = marker(server, "worker");
    // Cut in the middle it is still YAML, with a shorter marker.
    let text = "kind: MachineConfig\nmetadata: {name: a}\nspec:\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files:\n      - path: /etc/marker\n        contents:\n          source: data:,half";
    let mut file = File::create(path).expect("a file");
    file.write_all(text.as_bytes()).expect("a write");
    file.sync_all().expect("a sync");
    // Another change shows that the folder was looked at meanwhile.
    write(directory.path(), "other.yaml", pool("other", "b"));
    write(directory.path(), "b.yaml", machine_config("b", "b"));
    // The pauses are longer than a file must be quiet. A writer that is silent for long is taken to have gone, so this one
    // is not.
    let (mut more, mut written) = (String::new(), Instant::now());
    wait_for("the other pool", || {
        if written.elapsed() > PAUSE {
            file.write_all(b"x").expect("a write");
            more.push('x');
            written = Instant::now();
        }
        (marker(server, "other").as_deref() == Ok("b")).then_some(())
    });
    assert_eq!(marker(server, "worker"), before);
    file.write_all(b"-and-whole\n").expect("a write");
    drop(file);
    marker_soon(server, "worker", Ok(&format!("half{more}-and-whole")));
}
