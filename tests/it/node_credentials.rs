//! What `node-ca` does to a real file of registry credentials: what it writes and takes out, and what it
//! leaves.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use model::registry_credentials::Entries;
use node_agent::{Reconciler, RegistryCredentials, Report};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::events::{Event, Events};
use crate::support::tree;

const LIST: &str = ".config.json.machine-config-server";

fn credential(user: &str) -> Value {
    json!({"auth": data_encoding::BASE64.encode(format!("{user}:secret").as_bytes())})
}

fn entries(auths: &Value) -> Entries {
    Entries::parse(json!({"auths": auths}).to_string().as_bytes()).expect("logins")
}

/// A file and its reconciler.
struct Node {
    directory: TempDir,
    reconciler: Reconciler<RegistryCredentials>,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let reconciler = reconciler(&directory.path().join("kubelet/config.json"));
        Self { directory, reconciler }
    }

    fn with(text: &str) -> Self {
        let node = Self::new();
        fs::create_dir(node.kubelet()).expect("a folder");
        fs::write(node.path(), text).expect("a file");
        node
    }

    fn kubelet(&self) -> PathBuf {
        self.directory.path().join("kubelet")
    }

    fn path(&self) -> PathBuf {
        self.kubelet().join("config.json")
    }

    fn reconcile(&mut self, auths: &Value) -> Report {
        self.reconciler.reconcile(&entries(auths), SystemTime::now())
    }

    fn file(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path()).expect("the file")).expect("JSON")
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.kubelet().join(name)).expect("a file").mode() & 0o7777
    }
}

fn reconciler(path: &Path) -> Reconciler<RegistryCredentials> {
    Reconciler::of_registry_credentials(path, Duration::from_secs(600)).expect("a file's path")
}

fn names(registries: &[String]) -> Vec<&str> {
    registries.iter().map(String::as_str).collect()
}

/// The problem of the file, the only path of a report.
fn problem(report: &Report) -> Option<&str> {
    assert!(report.problems.len() <= 1, "{report:?}");
    report.problems.values().next().map(String::as_str)
}

#[test]
fn credentials_are_added_replaced_and_removed_and_those_of_others_stay() {
    let theirs = json!({"credHelpers": {"x": "y"}, "auths": {"their.example": credential("them")}});
    let mut node = Node::with(&theirs.to_string());
    let report =
        node.reconcile(&json!({"a.example": credential("a"), "b.example": credential("a")}));
    assert_eq!(names(&report.written), ["a.example", "b.example"]);
    let mut expected = theirs.clone();
    expected["auths"]["a.example"] = credential("a");
    expected["auths"]["b.example"] = credential("a");
    assert_eq!(node.file(), expected);
    assert_eq!((node.mode("config.json"), node.mode(LIST)), (0o600, 0o600));
    let list = fs::read_to_string(node.kubelet().join(LIST)).expect("the list");
    assert!(list.contains("a.example") && !list.contains("their.example"), "{list}");
    assert!(!list.contains(credential("a")["auth"].as_str().expect("text")), "{list}");

    let report = node.reconcile(&json!({"a.example": credential("new")}));
    assert_eq!(
        (names(&report.written), names(&report.removed)),
        (vec!["a.example"], vec!["b.example"])
    );
    // Another process of the same goes on where this one was.
    let mut other = reconciler(&node.path());
    let report = other.reconcile(&entries(&json!({})), SystemTime::now());
    assert_eq!(names(&report.removed), ["a.example"]);
    assert_eq!(node.file(), theirs);
}

#[test]
fn a_node_without_a_file_gets_one_only_when_there_is_something_to_write() {
    let mut node = Node::new();
    assert_eq!(node.reconcile(&json!({})), Report::default());
    assert!(!node.path().exists());
    node.reconcile(&json!({"a.example": credential("a")}));
    assert_eq!(node.file(), json!({"auths": {"a.example": credential("a")}}));
    assert_eq!(node.mode("config.json"), 0o600);
    // What was taken away comes back.
    fs::remove_file(node.path()).expect("a file");
    assert_eq!(
        names(&node.reconcile(&json!({"a.example": credential("a")})).written),
        ["a.example"]
    );
    fs::set_permissions(node.path(), Permissions::from_mode(0o644)).expect("a mode");
    node.reconcile(&json!({"a.example": credential("a")}));
    assert_eq!(node.mode("config.json"), 0o600);
}

#[test]
fn what_ignition_wrote_at_the_first_boot_is_kept_from_then_on() {
    let first = json!({"auths": {"a.example": credential("a")}}).to_string();
    let mut node = Node::with(&first);
    fs::set_permissions(node.path(), Permissions::from_mode(0o600)).expect("a mode");
    let report = node.reconcile(&json!({"a.example": credential("a")}));
    assert_eq!((names(&report.adopted), names(&report.written)), (vec!["a.example"], vec![]));
    assert_eq!(fs::read_to_string(node.path()).expect("the file"), first, "byte for byte");
    node.reconcile(&json!({"a.example": credential("new")}));
    assert_eq!(node.file()["auths"]["a.example"], credential("new"));
}

#[test]
fn undecodable_files_and_those_of_other_programs_stay_and_are_reported() {
    let wanted = json!({"a.example": credential("a")});
    for (text, reported) in [
        ("SECRET", "not JSON (line 1, column 1); not changed"),
        ("[]", "has no object `auths`; not changed"),
        ("{\"auths\": \"SECRET\"}", "has no object `auths`; not changed"),
    ] {
        let mut node = Node::with(text);
        assert_eq!(problem(&node.reconcile(&wanted)), Some(reported));
        assert_eq!(fs::read_to_string(node.path()).expect("the file"), text);
    }

    let theirs = json!({"auths": {"a.example": credential("them")}}).to_string();
    let mut node = Node::with(&theirs);
    let reported = "another program wrote credentials for a.example that differ from the Secret's; \
        remove them to have the Secret's written";
    let report =
        node.reconcile(&json!({"a.example": credential("a"), "b.example": credential("a")}));
    assert_eq!((problem(&report), names(&report.written)), (Some(reported), vec!["b.example"]));
    assert_eq!(node.file()["auths"]["a.example"], credential("them"));
    let report = node.reconcile(&wanted);
    assert_eq!(problem(&report), Some(reported));
    fs::write(node.path(), "{}").expect("a write");
    assert_eq!(problem(&node.reconcile(&wanted)), None);
    assert_eq!(node.file()["auths"], wanted);

    let mut node = Node::new();
    fs::create_dir(node.kubelet()).expect("a folder");
    let elsewhere = node.directory.path().join("elsewhere");
    fs::write(&elsewhere, "{}").expect("a file");
    symlink(&elsewhere, node.path()).expect("a link");
    let report = node.reconcile(&wanted);
    assert_eq!(problem(&report), Some("a symbolic link is not followed"));
    assert_eq!(fs::read_to_string(&elsewhere).expect("the file"), "{}");
    fs::remove_file(node.path()).expect("a link");
    fs::create_dir(node.path()).expect("a folder");
    assert_eq!(problem(&node.reconcile(&wanted)), Some("is not a regular file"));
}

#[test]
fn a_file_that_was_just_emptied_is_left_to_the_program_that_writes_it() {
    let theirs = json!({"auths": {"their.example": credential("them")}});
    let wanted = json!({"a.example": credential("a")});
    let mut node = Node::with(&theirs.to_string());
    node.reconcile(&wanted);
    fs::write(node.path(), "").expect("a file");
    let report = node.reconcile(&wanted);
    let reported = "was emptied a moment ago; not changed until it is written";
    assert_eq!(problem(&report), Some(reported));
    assert_eq!(fs::read_to_string(node.path()).expect("the file"), "");
    fs::write(node.path(), theirs.to_string()).expect("a file");
    assert_eq!(problem(&node.reconcile(&wanted)), None);
    assert_eq!(node.file()["auths"]["their.example"], credential("them"));
    // If it stays empty, nothing is lost.
    fs::write(node.path(), "").expect("a file");
    let later = SystemTime::now() + Duration::from_secs(10);
    let report = node.reconciler.reconcile(&entries(&wanted), later);
    assert_eq!((problem(&report), node.file()), (None, json!({"auths": wanted})));
}

#[test]
fn a_look_that_finds_all_in_step_touches_nothing() {
    let wanted = json!({"a.example": credential("a"), "their.example": credential("a")});
    let mut node = Node::with(&json!({"auths": {"their.example": credential("them")}}).to_string());
    node.reconcile(&wanted);
    let before = tree::read(&node.kubelet());
    let events = Events::of(&node.kubelet());
    node.reconcile(&wanted);
    reconciler(&node.path()).reconcile(&entries(&wanted), SystemTime::now());
    let changes: Vec<_> = events.drain().into_iter().filter(Event::changes).collect();
    assert!(changes.is_empty(), "{changes:?}");
    // Once the stamps are old enough to be trusted, nothing is even opened.
    crate::support::wait_until("a look without any event", || {
        node.reconcile(&wanted);
        events.drain().is_empty()
    });
    // A clock that was set back may be set right only in years.
    let earlier = SystemTime::now() - Duration::from_secs(3600);
    node.reconciler.reconcile(&entries(&wanted), earlier);
    assert!(!events.drain().is_empty(), "the file is read");
    assert!(problem(&node.reconcile(&wanted)).is_some());
    assert_eq!(tree::differences(&tree::read(&node.kubelet()), &before), Vec::<String>::new());
}

#[test]
fn the_file_is_whole_at_every_moment() {
    let mut node = Node::with(&json!({"auths": {"their.example": credential("them")}}).to_string());
    let path = node.path();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let reads = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let text = fs::read(&path).expect("it is always there");
                let file: Value = serde_json::from_slice(&text).expect("a whole file");
                assert_eq!(file["auths"]["their.example"], credential("them"));
                reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        for round in 0.. {
            if round >= 100 && reads.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                break;
            }
            node.reconcile(&json!({"a.example": credential(&round.to_string())}));
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        reader.join().expect("the reader");
    });
    // What a process that died was writing is removed.
    let left = node.kubelet().join(".machine-config-server.tmp");
    fs::write(&left, "{").expect("a file");
    node.reconcile(&json!({"a.example": credential("last")}));
    assert!(!left.exists());
}
