//! What is served after a restart with files that are broken, empty, late or gone, and while many files change.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::Said;
use crate::support::contract::{SOON, marker};
use crate::support::manifests::{self, pool, replace, with_files};
use crate::support::server::{Server, binary};
use crate::support::stopwatch::once_within;
use crate::support::wait_for;

/// A directory with a rendered pool `worker` and a merged one, `edge`, and its state directory.
struct Served {
    directory: TempDir,
}

/// A MachineConfig with a marker, which the pools of a role select.
fn machine_config(name: &str, role: &str, marker: &str) -> Value {
    let mut config = manifests::machine_config(name, &with_files(&[("/etc/marker", marker)]));
    config["metadata"]["labels"]["machineconfiguration.openshift.io/role"] = role.into();
    config
}

impl Served {
    fn new() -> Self {
        let site = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(site.manifests()).expect("a folder");
        let edge = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "edge"},
            "spec": {"machineConfigSelector": {
                "matchLabels": {"machineconfiguration.openshift.io/role": "edge"},
            }},
        });
        site.write("pool.yaml", pool("worker", "a"));
        site.write("edge.yaml", edge);
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

    fn start(&self) -> Server {
        let mut command = binary();
        let state = self.directory.path().join("state");
        command.arg("serve").arg(self.manifests()).arg("--state-dir").arg(state);
        Server::prepared(command)
    }

    /// Starts a server, and ends it once both pools are served and stored.
    fn served_once(&self) {
        let mut server = self.start().until_ready();
        is_served(&server, "worker", "worker-1");
        is_served(&server, "edge", "edge-1");
        let index = self.directory.path().join("state/last-good/index.json");
        wait_for("what is served to be stored", || index.exists().then_some(()));
        server.terminate();
        server.ended();
    }

    fn validate(&self) -> Said {
        Said::by(binary().arg("validate").arg("--strict").arg(self.manifests()))
    }
}

fn is_served(server: &Server, pool: &str, expected: &str) {
    wait_for(&format!("{expected} from pool {pool}"), || {
        (marker(server, pool).as_deref() == Ok(expected)).then_some(())
    });
}

fn is_reported(server: &Server, what: &str) {
    wait_for(&format!("readiness to say {what:?}"), || {
        let text = server.page("/readyz");
        text.contains(what).then_some(())
    });
}

/// The report, the file, and what is wrong with it.
type Fault = (&'static str, &'static str, fn(&Path));

#[test]
fn a_restart_with_a_file_that_says_nothing_serves_what_was_served() {
    let broken: [Fault; 6] = [
        ("half written", "b.yaml", |path| {
            fs::write(path, "kind: MachineConfig\nx: [").expect("a writable folder");
        }),
        ("is empty", "b.yaml", |path| fs::write(path, "").expect("it")),
        ("not UTF-8", "b.yaml", |path| fs::write(path, b"kind: \xff").expect("it")),
        ("leads nowhere", "b.yaml", |path| {
            fs::remove_file(path).expect("a manifest");
            symlink("/nowhere/b.yaml", path).expect("a link");
        }),
        ("is empty", "edge.yaml", |path| fs::write(path, "").expect("it")),
        ("expected a string", "c.yaml", |path| {
            let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: 1}\n";
            fs::write(path, text).expect("a writable folder");
        }),
    ];
    for (what, file, spoil) in broken {
        let site = Served::new();
        site.served_once();
        spoil(&site.path(file));
        // The others are as they are now.
        site.write("a.yaml", machine_config("a", "worker", "worker-2"));
        let server = site.start();
        is_served(&server, "edge", "edge-1");
        is_served(&server, "worker", "worker-2");
        let reported = if what == "half written" { file } else { what };
        is_reported(&server, reported);
        let restored = site.path(file);
        fs::remove_file(&restored).expect("a file");
        let text = machine_config("50-edge", "edge", "edge-2");
        if file == "b.yaml" {
            site.write(file, text);
            is_served(&server, "edge", "edge-2");
        }
    }
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

#[test]
fn a_restart_before_the_manifests_are_mounted_serves_what_was_served() {
    for is_there in [true, false] {
        let site = Served::new();
        site.served_once();
        let away = site.directory.path().join("away");
        fs::rename(site.manifests(), &away).expect("a rename");
        if is_there {
            fs::create_dir(site.manifests()).expect("a folder");
        }
        let server = site.start();
        is_served(&server, "worker", "worker-1");
        is_served(&server, "edge", "edge-1");
        is_reported(&server, "its directory is missing");
        if is_there {
            fs::remove_dir(site.manifests()).expect("an empty folder");
        }
        fs::rename(&away, site.manifests()).expect("a rename");
        site.write("a.yaml", machine_config("a", "worker", "worker-2"));
        is_served(&server, "worker", "worker-2");
        wait_for("readiness", || (server.metrics().get("/readyz").status == 200).then_some(()));
    }
}

#[test]
fn a_server_of_another_directory_serves_that_one_alone() {
    let site = Served::new();
    site.served_once();
    let other = tempfile::tempdir().expect("a temporary folder");
    replace(other.path(), "pool.yaml", pool("infra", "i"));
    replace(other.path(), "i.yaml", machine_config("i", "infra", "infra-1"));
    let mut command = binary();
    let state = site.directory.path().join("state");
    command.arg("serve").arg(other.path()).arg("--state-dir").arg(state);
    let mut server = Server::prepared(command).until_ready();
    is_served(&server, "infra", "infra-1");
    assert_ne!(server.plain().get("/config/worker").status, 200);
    server.terminate();
    server.ended();
    // A path is the same, wherever its link leads.
    let link = other.path().join("link");
    symlink(site.manifests(), &link).expect("a link");
    let through_the_link = || {
        let mut command = binary();
        command.arg("serve").arg(&link).arg("--state-dir").arg(other.path().join("state"));
        Server::prepared(command)
    };
    let mut server = through_the_link().until_ready();
    is_served(&server, "worker", "worker-1");
    let index = other.path().join("state/last-good/index.json");
    wait_for("what is served to be stored", || index.exists().then_some(()));
    server.terminate();
    server.ended();
    fs::remove_file(&link).expect("a link");
    symlink("/nowhere", &link).expect("a link");
    is_served(&through_the_link(), "worker", "worker-1");
}

#[test]
fn what_was_removed_is_not_served_after_a_restart() {
    let site = Served::new();
    site.served_once();
    fs::remove_file(site.path("edge.yaml")).expect("a manifest");
    let server = site.start();
    wait_for("the pool to be gone", || (marker(&server, "edge") == Err(503)).then_some(()));
    is_served(&server, "worker", "worker-1");
}

#[test]
fn a_first_start_with_a_broken_file_serves_all_pools_that_it_cannot_concern() {
    let site = Served::new();
    site.write("c.yaml", "kind: MachineConfig\nx: [");
    let server = site.start();
    is_served(&server, "worker", "worker-1");
    assert_eq!(marker(&server, "edge"), Err(503));
    is_reported(&server, "c.yaml cannot be read and may have a part of its config");
    // Whatever else changes.
    site.write("a.yaml", machine_config("a", "worker", "worker-2"));
    is_served(&server, "worker", "worker-2");
    assert_eq!(marker(&server, "edge"), Err(503));
    site.write("c.yaml", machine_config("60-edge", "edge", "edge-2"));
    is_served(&server, "edge", "edge-2");
    // What is served stays when another one comes.
    site.write("d.yaml", "kind: MachineConfig\nx: [");
    is_reported(&server, "d.yaml");
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

#[test]
fn a_manifest_that_says_nothing_is_reported_by_validate() {
    for (file, text) in [
        ("c.yaml", ""),
        ("c.json", " \n"),
        ("c", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nx: [\n"),
    ] {
        let site = Served::new();
        site.validate().done();
        site.write(file, text);
        site.validate().refused(&[&format!("{file}: ")]);
    }
    let site = Served::new();
    site.write("README.md", "# What apiVersion and kind mean: [\n");
    site.write("comments.yaml", "# Nothing yet\n");
    site.validate().done();
}

/// Number of changes at a pace, and the time between two.
const PACED: usize = 6;
const PACE: Duration = Duration::from_millis(1500);

#[test]
fn a_change_is_served_soon_whatever_else_is_written() {
    let site = Served::new();
    let server = site.start().until_ready();
    is_served(&server, "worker", "worker-1");
    let burst = |length: Duration| {
        let started = Instant::now();
        for number in 0.. {
            fs::write(site.path("other.json"), number.to_string()).expect("a writable folder");
            if started.elapsed() > length {
                return;
            }
        }
    };
    burst(Duration::from_secs(3));
    // The next change comes whether this one was served or not.
    let in_time = (0..PACED).filter(|number| {
        let marker = format!("paced-{number}");
        site.write("a.yaml", machine_config("a", "worker", &marker));
        let changed = Instant::now();
        let mut is_served = false;
        while !is_served && changed.elapsed() < PACE {
            is_served = self::marker(&server, "worker").as_ref() == Ok(&marker);
        }
        is_served
    });
    let in_time = in_time.count();
    assert!(in_time > PACED / 2, "{in_time} of {PACED} changes were served before the next one");
    once_within(SOON, "a change after a burst", |attempt| {
        let marker = format!("after-{attempt}");
        site.write("a.yaml", machine_config("a", "worker", &marker));
        let changed = Instant::now();
        is_served(&server, "worker", &marker);
        changed.elapsed()
    });
    // While another file changes all the time.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| burst(Duration::from_secs(3)));
        once_within(SOON, "a change within a burst", |attempt| {
            let marker = format!("within-{attempt}");
            site.write("a.yaml", machine_config("a", "worker", &marker));
            let changed = Instant::now();
            is_served(&server, "worker", &marker);
            changed.elapsed()
        });
        writer.join().expect("no panic");
    });
}
