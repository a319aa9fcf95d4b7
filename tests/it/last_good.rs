//! What is served after a restart with files that are broken, empty, late or gone, and while many files change.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::memory::pool_of_twenty;
use crate::support::command::Said;
use crate::support::contract::{SOON, config, is_served, marker};
use crate::support::manifests::{
    machine_config_of, pool, replace, selecting_pool, with_files, write_often,
};
use crate::support::server::{Server, binary, serving};
use crate::support::stopwatch::{Stopwatch, once_within};
use crate::support::{wait_for, wait_until};

/// A directory with a rendered pool `worker` and a merged one, `edge`, and its state directory.
struct Served {
    directory: TempDir,
}

/// A MachineConfig with a marker, which the pools of a role select.
fn machine_config(name: &str, role: &str, marker: &str) -> Value {
    machine_config_of(role, name, &with_files(&[("/etc/marker", marker)]))
}

impl Served {
    fn new() -> Self {
        let site = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(site.manifests()).expect("a folder");
        site.write("pool.yaml", pool("worker", "a"));
        site.write("edge.yaml", selecting_pool("edge"));
        site.write("a.yaml", machine_config("a", "worker", "worker-1"));
        site.write("b.yaml", machine_config("50-edge", "edge", "edge-1"));
        site
    }

    fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.manifests().join(file)
    }

    fn write(&self, file: &str, manifest: impl Display) {
        replace(&self.manifests(), file, manifest);
    }

    fn command(&self) -> Command {
        serving(&self.manifests(), &self.directory.path().join("state"))
    }

    fn start(&self) -> Server {
        Server::prepared(self.command())
    }

    /// Starts a server, and ends it once both pools are served and stored.
    fn served_once(&self) {
        let server = self.start().until_ready();
        is_served(&server, "worker", "worker-1");
        is_served(&server, "edge", "edge-1");
        is_stored(&self.directory.path().join("state"));
        server.stop();
    }

    fn validate(&self) -> Said {
        Said::by(binary().arg("validate").arg("--strict").arg(self.manifests()))
    }
}

/// Waits until what is served is stored.
pub(crate) fn is_stored(state: &Path) {
    let index = state.join("last-good/index.json");
    wait_until("what is served to be stored", || index.exists());
}

/// Waits until it is stored that each file is valid, so that a restart need not read all first.
pub(crate) fn all_is_stored(state: &Path) {
    let index = state.join("last-good/index.json");
    wait_for("all files to be stored as valid", || {
        let index: Value = serde_json::from_slice(&fs::read(&index).ok()?).ok()?;
        index["stamps"].is_u64().then_some(())
    });
}

/// Restarts a server of `site` after `damage` has made one of its files say nothing. Pool `edge` is served as it was, pool
/// `worker` as it is by then, and `reported` is reported. A config in the file is followed again once it is valid.
fn restarts_with(site: &Served, file: &str, reported: &str, damage: impl FnOnce(&Path)) {
    let had_config = site.path(file).exists() && file != "edge.yaml";
    site.served_once();
    damage(&site.path(file));
    site.write("a.yaml", machine_config("a", "worker", "worker-2"));
    let server = site.start();
    is_served(&server, "edge", "edge-1");
    is_served(&server, "worker", "worker-2");
    server.reported(reported);
    fs::remove_file(site.path(file)).expect("a file");
    if had_config {
        site.write(file, machine_config("50-edge", "edge", "edge-2"));
        is_served(&server, "edge", "edge-2");
    }
}

#[test]
fn a_restart_with_a_half_written_manifest_serves_what_was_served() {
    restarts_with(&Served::new(), "b.yaml", "b.yaml", |path| {
        fs::write(path, "kind: MachineConfig\nx: [").expect("a writable folder");
    });
}

#[test]
fn a_restart_with_an_emptied_manifest_serves_what_was_served() {
    restarts_with(&Served::new(), "b.yaml", "is empty", |path| fs::write(path, "").expect("it"));
}

#[test]
fn a_restart_with_a_manifest_that_is_no_text_serves_what_was_served() {
    restarts_with(&Served::new(), "b.yaml", "not UTF-8", |path| {
        fs::write(path, b"kind: \xff").expect("a writable folder");
    });
}

#[test]
fn a_restart_with_a_link_that_leads_nowhere_serves_what_was_served() {
    restarts_with(&Served::new(), "b.yaml", "leads nowhere", |path| {
        fs::remove_file(path).expect("a manifest");
        symlink("/nowhere/b.yaml", path).expect("a link");
    });
}

#[test]
fn a_restart_with_an_emptied_manifest_of_a_pool_serves_what_was_served() {
    restarts_with(&Served::new(), "edge.yaml", "is empty", |path| {
        fs::write(path, "").expect("a writable folder");
    });
}

#[test]
fn a_restart_with_a_number_in_a_config_map_serves_what_was_served() {
    restarts_with(&Served::new(), "c.yaml", "expected a string", |path| {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: 1}\n";
        fs::write(path, text).expect("a writable folder");
    });
}

#[test]
fn a_restart_with_a_broken_manifest_without_an_extension_serves_what_was_served() {
    let site = Served::new();
    fs::rename(site.path("b.yaml"), site.path("b")).expect("a rename");
    restarts_with(&site, "b", "manifests/b: ", |path| {
        let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nx: [\n";
        fs::write(path, text).expect("a writable folder");
    });
}

#[test]
fn a_restart_with_a_link_to_a_file_that_is_there_too_serves_all() {
    let site = Served::new();
    site.served_once();
    symlink("b.yaml", site.path("c.yaml")).expect("a link");
    let server = site.start();
    is_served(&server, "worker", "worker-1");
    is_served(&server, "edge", "edge-1");
}

/// Restarts a server while the manifests are elsewhere, with or without an empty directory in their place.
fn restarts_without_the_manifests(is_directory_there: bool) {
    let site = Served::new();
    site.served_once();
    let away = site.directory.path().join("away");
    fs::rename(site.manifests(), &away).expect("a rename");
    if is_directory_there {
        fs::create_dir(site.manifests()).expect("a folder");
    }
    let server = site.start();
    is_served(&server, "worker", "worker-1");
    is_served(&server, "edge", "edge-1");
    server.reported("its directory is missing");
    if is_directory_there {
        fs::remove_dir(site.manifests()).expect("an empty folder");
    }
    fs::rename(&away, site.manifests()).expect("a rename");
    site.write("a.yaml", machine_config("a", "worker", "worker-2"));
    is_served(&server, "worker", "worker-2");
    wait_until("readiness", || server.metrics().get("/readyz").status == 200);
}

#[test]
fn a_restart_before_the_manifests_are_mounted_serves_what_was_served() {
    restarts_without_the_manifests(true);
}

#[test]
fn a_restart_without_the_directory_of_manifests_serves_what_was_served() {
    restarts_without_the_manifests(false);
}

#[test]
fn a_server_of_another_directory_serves_that_one_alone() {
    let site = Served::new();
    site.served_once();
    let other = tempfile::tempdir().expect("a temporary folder");
    replace(other.path(), "pool.yaml", pool("infra", "i"));
    replace(other.path(), "i.yaml", machine_config("i", "infra", "infra-1"));
    let state = site.directory.path().join("state");
    let server = Server::serve_with_state(other.path(), &state);
    is_served(&server, "infra", "infra-1");
    assert_ne!(server.plain().get("/config/worker").status, 200);
    server.stop();
    // A path is the same, wherever its link leads.
    let link = other.path().join("link");
    symlink(site.manifests(), &link).expect("a link");
    let through_the_link = || Server::prepared(serving(&link, &other.path().join("state")));
    let server = through_the_link().until_ready();
    is_served(&server, "worker", "worker-1");
    is_stored(&other.path().join("state"));
    server.stop();
    fs::remove_file(&link).expect("a link");
    symlink("/nowhere", &link).expect("a link");
    is_served(&through_the_link(), "worker", "worker-1");
}

#[test]
fn a_restart_without_a_change_answers_for_a_pool_before_all_is_read() {
    const POOLS: usize = 100;
    const ATTEMPTS: usize = 5;
    let site = Served::new();
    for number in 0..POOLS {
        let pool = format!("pool-{number}");
        site.write(&format!("{pool}.json"), pool_of_twenty(&pool));
    }
    site.served_once();
    // A slow server may have read all before it answers, or not even this pool.
    let is_early = |attempt: usize| {
        let server = Server::prepared_unread(site.command());
        let pool = format!("pool-{attempt}");
        let status = config(&server.plain(), &pool, "3.4.0").status;
        let readiness = server.plain().get("/readyz").text();
        assert!(matches!(status, 200 | 503), "{status}: {}", server.log());
        let is_early = status == 200 && readiness.contains("the inputs have not been read yet");
        is_served(&server, "edge", "edge-1");
        let all = format!("pools={}", POOLS + 2);
        wait_until("all to be read", || server.log().contains(&all));
        all_is_stored(&site.directory.path().join("state"));
        server.stop();
        is_early
    };
    assert!((0..ATTEMPTS).any(is_early), "no pool was answered for before all");
}

#[test]
fn what_was_removed_is_not_served_after_a_restart() {
    let site = Served::new();
    site.served_once();
    fs::remove_file(site.path("edge.yaml")).expect("a manifest");
    let server = site.start();
    wait_until("the pool to be gone", || marker(&server, "edge") == Err(503));
    is_served(&server, "worker", "worker-1");
}

#[test]
fn a_first_start_with_a_broken_file_serves_all_pools_that_it_cannot_concern() {
    let site = Served::new();
    site.write("c.yaml", "kind: MachineConfig\nx: [");
    let server = site.start();
    is_served(&server, "worker", "worker-1");
    assert_eq!(marker(&server, "edge"), Err(503));
    server.reported("c.yaml cannot be read and may have a part of its config");
    // Whatever else changes.
    site.write("a.yaml", machine_config("a", "worker", "worker-2"));
    is_served(&server, "worker", "worker-2");
    assert_eq!(marker(&server, "edge"), Err(503));
    site.write("c.yaml", machine_config("60-edge", "edge", "edge-2"));
    is_served(&server, "edge", "edge-2");
    // What is served stays when another one comes.
    site.write("d.yaml", "kind: MachineConfig\nx: [");
    server.reported("d.yaml");
    is_served(&server, "edge", "edge-2");
}

#[test]
fn a_text_that_was_cut_off_by_a_power_cut_is_not_used() {
    let site = Served::new();
    site.served_once();
    let texts = site.directory.path().join("state/last-good/texts");
    for entry in fs::read_dir(&texts).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read(&path).expect("a text");
        fs::write(&path, &text[..text.len() / 2]).expect("a writable folder");
    }
    let server = site.start().until_ready();
    is_served(&server, "worker", "worker-1");
    drop(server);
    fs::write(texts.with_file_name("index.json"), "{").expect("a writable folder");
    is_served(&site.start().until_ready(), "worker", "worker-1");
}

/// Adds a file with a text that says nothing, and has the manifests judged.
fn validate_with(file: &str, text: &str) -> Said {
    let site = Served::new();
    site.validate().done();
    site.write(file, text);
    site.validate()
}

#[test]
fn an_empty_manifest_is_reported_by_validate() {
    validate_with("c.yaml", "").refused(&["c.yaml: is empty"]);
}

#[test]
fn a_blank_manifest_is_reported_by_validate() {
    validate_with("c.json", " \n").refused(&["c.json: is empty"]);
}

#[test]
fn a_broken_manifest_without_an_extension_is_reported_by_validate() {
    let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nx: [\n";
    validate_with("c", text).refused(&["manifests/c: "]);
}

#[test]
fn files_that_are_no_manifests_are_not_reported_by_validate() {
    validate_with("README.md", "# What apiVersion and kind mean: [\n").done();
    validate_with("comments.yaml", "# Nothing yet\n").done();
}

/// Number of changes at a pace, and the time between two.
const PACED: usize = 6;
const PACE: Duration = Duration::from_millis(1500);
/// Duration of many writes of another file.
const BURST: Duration = Duration::from_secs(3);

/// A directory with a server, and a file that is none of a pool's.
fn with_other_file() -> (Served, Server, PathBuf) {
    let site = Served::new();
    let server = site.start().until_ready();
    is_served(&server, "worker", "worker-1");
    let other = site.path("other.json");
    (site, server, other)
}

/// Changes a config. Returns the time until that is served.
fn change(site: &Served, server: &Server, marker: &str) -> Duration {
    site.write("a.yaml", machine_config("a", "worker", marker));
    let changed = Stopwatch::start();
    is_served(server, "worker", marker);
    changed.took()
}

#[test]
fn changes_at_a_pace_are_served_after_many_writes_of_another_file() {
    let (site, server, other) = with_other_file();
    write_often(&other, BURST);
    // The next change comes whether this one was served or not.
    let in_time = (0..PACED).filter(|number| {
        let marker = format!("paced-{number}");
        site.write("a.yaml", machine_config("a", "worker", &marker));
        let changed = Stopwatch::start();
        let mut is_served = false;
        while !is_served && changed.took() < PACE {
            is_served = self::marker(&server, "worker").as_ref() == Ok(&marker);
        }
        is_served
    });
    let in_time = in_time.count();
    assert!(in_time > PACED / 2, "{in_time} of {PACED} changes were served before the next one");
}

#[test]
fn a_change_after_many_writes_of_another_file_is_served_within_a_second() {
    let (site, server, other) = with_other_file();
    once_within(SOON, "a change after a burst", |attempt| {
        write_often(&other, BURST);
        change(&site, &server, &format!("after-{attempt}"))
    });
}

#[test]
fn a_change_during_many_writes_of_another_file_is_served_within_a_second() {
    let (site, server, other) = with_other_file();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_often(&other, BURST));
        once_within(SOON, "a change within a burst", |attempt| {
            change(&site, &server, &format!("within-{attempt}"))
        });
        writer.join().expect("no panic");
    });
}
