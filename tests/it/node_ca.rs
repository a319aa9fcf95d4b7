//! What `node-ca` does to a real folder: what it writes, repairs and removes, and what it leaves.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use model::objects::ConfigMap;
use model::registry_ca::{Entries, read};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo, setfsuid};
use node_agent::{Layout, Reconciler, RegistryCas, Report};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::disk::Disk;
use crate::support::events::{Event, Events};
use crate::support::logged::Logged;
use crate::support::manifests::registry_ca;
use crate::support::stopwatch::Stopwatch;
use crate::support::tree::{self, Tree};
use rustix::process::Signal;

const LIST: &str = ".machine-config-server.json";

fn entries(data: &Value) -> Entries {
    let map = json!({
        "metadata": {"name": "merged-trusted-image-registry-ca",
                     "namespace": "openshift-config-managed"},
        "data": data,
    });
    let map: ConfigMap = serde_json::from_value(map).expect("a config map");
    read(&map)
}

/// A directory and its reconciler.
struct Node {
    directory: TempDir,
    reconciler: Reconciler<RegistryCas>,
}

impl Node {
    fn new(layout: Layout) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let reconciler = reconciler(&directory.path().join("certs.d"), layout);
        Self { directory, reconciler }
    }

    fn certs(&self) -> PathBuf {
        self.directory.path().join("certs.d")
    }

    fn reconcile(&mut self, entries: &Entries) -> Report {
        self.reconciler.reconcile(entries, SystemTime::now())
    }

    fn tree(&self) -> Tree {
        tree::read(&self.certs())
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.certs().join(path)).ok()
    }

    fn listed(&self) -> BTreeSet<String> {
        listed(&self.certs())
    }
}

fn reconciler(directory: &Path, layout: Layout) -> Reconciler<RegistryCas> {
    Reconciler::of_registry_cas(directory.to_owned(), layout, Duration::from_secs(600))
}

fn listed(certs: &Path) -> BTreeSet<String> {
    let Ok(text) = fs::read(certs.join(LIST)) else { return BTreeSet::new() };
    let list: Value = serde_json::from_slice(&text).expect("a list that is whole");
    let names = list["registries"].as_array().expect("registries").iter();
    names.map(|name| name.as_str().expect("a name").to_owned()).collect()
}

fn hosts(hosts: &[String]) -> Vec<&str> {
    hosts.iter().map(String::as_str).collect()
}

#[test]
fn cas_are_added_replaced_and_removed() {
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let mut node = Node::new(Layout::Crio);
    let report = node.reconcile(&entries(&json!({"a.example.com..5000": main, "b": main})));
    assert_eq!(hosts(&report.written), ["a.example.com:5000", "b"]);
    assert_eq!(node.read("a.example.com:5000/ca.crt").as_ref(), Some(&main));
    for (path, mode) in [("b", 0o755), ("b/ca.crt", 0o644)] {
        let metadata = fs::metadata(node.certs().join(path)).expect("a node");
        assert_eq!(metadata.mode() & 0o7777, mode, "{path}");
    }
    let inode = |node: &Node, path| fs::metadata(node.certs().join(path)).expect("a node").ino();
    let before = inode(&node, "b/ca.crt");

    let report =
        node.reconcile(&entries(&json!({"a.example.com..5000": mirror, "b": main, "c": main})));
    assert_eq!(hosts(&report.written), ["a.example.com:5000", "c"]);
    assert_eq!(node.read("a.example.com:5000/ca.crt").as_ref(), Some(&mirror));
    assert_eq!(inode(&node, "b/ca.crt"), before);

    let report = node.reconcile(&entries(&json!({"b": main})));
    assert_eq!(hosts(&report.removed), ["a.example.com:5000", "c"]);
    assert_eq!(node.tree().keys().collect::<Vec<_>>(), [LIST, "b", "b/ca.crt"]);
    node.reconcile(&entries(&json!({})));
    assert_eq!(node.tree().keys().collect::<Vec<_>>(), [LIST]);
    assert_eq!(node.listed(), BTreeSet::new());
}

#[test]
fn containerd_gets_its_own_layout() {
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let mut node = Node::new(Layout::Containerd);
    node.reconcile(&entries(&json!({"a.example.com..5000": main})));
    assert_eq!(
        node.read("a.example.com:5000/hosts.toml").as_deref(),
        Some("server = \"https://a.example.com:5000\"\nca = \"ca.crt\"\n")
    );
    let events = Events::of(&node.certs());
    node.reconcile(&entries(&json!({"a.example.com..5000": mirror})));
    assert_eq!(node.read("a.example.com:5000/ca.crt"), Some(mirror));
    assert!(!events.drain().iter().any(|event| event.name == "hosts.toml" && event.changes()));
    node.reconcile(&entries(&json!({})));
    assert_eq!(node.tree().keys().collect::<Vec<_>>(), [LIST]);
}

#[test]
fn a_look_that_finds_all_in_step_touches_nothing() {
    let data = json!({"a..5000": registry_ca("main"), "b": registry_ca("mirror"), "foreign": registry_ca("main")});
    let entries = entries(&data);
    let mut node = Node::new(Layout::Crio);
    let foreign = node.certs().join("foreign");
    fs::create_dir_all(&foreign).expect("a folder");
    fs::write(foreign.join("ca.crt"), "theirs").expect("a file");
    node.reconcile(&entries);
    // Nothing is written any more, not even by one that has just been started.
    let before = node.tree();
    let events = Events::of(&node.certs());
    node.reconcile(&entries);
    reconciler(&node.certs(), Layout::Crio).reconcile(&entries, SystemTime::now());
    let changes: Vec<_> = events.drain().into_iter().filter(Event::changes).collect();
    assert!(changes.is_empty(), "{changes:?}");
    // Once the stamps are old enough to be trusted, nothing is even opened.
    crate::support::wait_until("a look without any event", || {
        node.reconcile(&entries);
        events.drain().is_empty()
    });
    let report = node.reconcile(&entries);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(events.drain().is_empty());
    assert_eq!(tree::differences(&node.tree(), &before), Vec::<String>::new());
    // After a while files are read all the same, and nothing more.
    node.reconciler.reconcile(&entries, SystemTime::now() + Duration::from_secs(601));
    let seen = events.drain();
    assert!(!seen.is_empty() && !seen.iter().any(Event::changes), "{seen:?}");
}

#[test]
fn a_ca_that_stays_is_never_missing_or_half() {
    let (main, mirror) =
        (registry_ca("main"), format!("{}{}", registry_ca("mirror"), registry_ca("mirror-next")));
    let mut node = Node::new(Layout::Crio);
    node.reconcile(&entries(&json!({"stays": main, "other": main})));
    let path = node.certs().join("stays/ca.crt");
    let events = Events::changes_of(&node.certs());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u32;
            while reads == 0 || !is_over.load(Ordering::SeqCst) {
                let found = fs::read_to_string(&path).expect("it is always there");
                assert!(found == main || found == mirror, "{found:?}");
                reads += 1;
            }
            reads
        });
        for round in 0..100 {
            let pem = if round % 2 == 0 { &mirror } else { &main };
            let data = if round % 3 == 0 {
                json!({"stays": pem})
            } else {
                json!({"stays": pem, "other": main})
            };
            node.reconcile(&entries(&data));
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(reader.join().expect("the reader") > 0);
    });
    for event in events.drain() {
        let is_ca =
            event.directory.ends_with("stays") && event.name == "ca.crt" || event.name == "stays";
        assert!(!(is_ca && event.removes()), "{event:?}");
    }
}

/// What it is, and what makes it in a folder.
type Drift<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn drift_of_every_kind_is_repaired() {
    let data = json!({"a..5000": registry_ca("main"), "b": registry_ca("mirror")});
    let entries = entries(&data);
    for layout in [Layout::Crio, Layout::Containerd] {
        let mut node = Node::new(layout);
        node.reconcile(&entries);
        let expected = node.tree();
        let elsewhere = node.directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        fs::write(elsewhere.join("ca.crt"), "elsewhere").expect("a file");
        let drifts: [Drift<'_>; 16] = [
            ("contents", &|d| fs::write(d.join("b/ca.crt"), "x").expect("a write")),
            ("one byte", &|d| {
                let mut bytes = fs::read(d.join("b/ca.crt")).expect("a file");
                bytes[100] ^= 1;
                fs::write(d.join("b/ca.crt"), bytes).expect("a write");
            }),
            ("emptied", &|d| fs::write(d.join("b/ca.crt"), "").expect("a write")),
            ("file gone", &|d| fs::remove_file(d.join("b/ca.crt")).expect("a removal")),
            ("folder gone", &|d| fs::remove_dir_all(d.join("b")).expect("a removal")),
            ("all gone", &|d| fs::remove_dir_all(d).expect("a removal")),
            ("file's mode", &|d| chmod(&d.join("b/ca.crt"), 0o600)),
            ("writable by all", &|d| chmod(&d.join("b/ca.crt"), 0o666)),
            ("folder's mode", &|d| chmod(&d.join("b"), 0o700)),
            ("file's owner", &|d| {
                std::os::unix::fs::chown(d.join("b/ca.crt"), Some(1), None).expect("a new owner");
            }),
            ("link for the file", &|d| {
                fs::remove_file(d.join("b/ca.crt")).expect("a removal");
                symlink(elsewhere.join("ca.crt"), d.join("b/ca.crt")).expect("a link");
            }),
            ("folder for the file", &|d| {
                fs::remove_file(d.join("b/ca.crt")).expect("a removal");
                fs::create_dir(d.join("b/ca.crt")).expect("a folder");
            }),
            ("link for the folder", &|d| {
                fs::remove_dir_all(d.join("b")).expect("a removal");
                symlink(&elsewhere, d.join("b")).expect("a link");
            }),
            ("file for the folder", &|d| {
                fs::remove_dir_all(d.join("b")).expect("a removal");
                fs::write(d.join("b"), "x").expect("a write");
            }),
            ("list gone", &|d| fs::remove_file(d.join(LIST)).expect("a removal")),
            ("list undecodable", &|d| fs::write(d.join(LIST), "{").expect("a write")),
        ];
        for (drift, make) in drifts {
            make(&node.certs());
            node.reconcile(&entries);
            let differences = tree::differences(&node.tree(), &expected);
            assert!(differences.is_empty(), "{layout:?}, {drift}: {differences:#?}");
            assert_eq!(node.reconcile(&entries), Report::default(), "{layout:?}, {drift}");
        }
        assert_eq!(fs::read_to_string(elsewhere.join("ca.crt")).expect("a file"), "elsewhere");
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 1);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn what_others_have_made_survives_and_is_reported_where_it_is_in_the_way() {
    let main = registry_ca("main");
    let mut node = Node::new(Layout::Crio);
    let certs = node.certs();
    let outside = node.directory.path().join("outside");
    for (path, text) in [
        ("certs.d/foreign.example.com/ca.crt", "theirs"),
        ("certs.d/foreign.example.com/client.key", "theirs"),
        ("certs.d/empty/.keep", ""),
        ("certs.d/unrelated/ca.crt", "theirs"),
        ("certs.d/file", "theirs"),
        ("certs.d/same-and-more/ca.crt", &main),
        ("certs.d/same-and-more/client.cert", "theirs"),
        ("outside/ca.crt", "outside"),
    ] {
        let path = node.directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    symlink(&outside, certs.join("link")).expect("a link");
    let before = node.tree();
    let wanted = json!({
        "foreign.example.com": main, "empty": main, "file": main, "link": main,
        "same-and-more": main, "ours": main,
    });
    let report = node.reconcile(&entries(&wanted));
    let named: Vec<String> = ["empty", "file", "foreign.example.com", "link"]
        .map(|name| certs.join(name).display().to_string())
        .into();
    assert_eq!(report.problems.keys().cloned().collect::<Vec<_>>(), named);
    assert!(report.problems[&named[0]].starts_with("another program made it"), "{report:?}");
    assert_eq!(hosts(&report.written), ["ours"]);
    assert_eq!(node.listed(), ["ours".to_owned()].into());
    node.reconcile(&entries(&json!({})));
    let mut after = node.tree();
    after.remove(LIST);
    assert_eq!(tree::differences(&after, &before), Vec::<String>::new());
    assert_eq!(fs::read_to_string(outside.join("ca.crt")).expect("a file"), "outside");

    // Moved away, it makes room.
    fs::remove_dir_all(certs.join("foreign.example.com")).expect("a removal");
    let report = node.reconcile(&entries(&json!({"foreign.example.com": main})));
    assert_eq!(report.problems.len(), 0);
    assert_eq!(node.read("foreign.example.com/ca.crt"), Some(main.clone()));
    // What others put beside ours stays when ours goes.
    fs::write(certs.join("foreign.example.com/client.cert"), "theirs").expect("a file");
    node.reconcile(&entries(&json!({})));
    assert_eq!(node.read("foreign.example.com/client.cert").as_deref(), Some("theirs"));
    assert_eq!(node.read("foreign.example.com/ca.crt"), None);
    assert_eq!(node.listed(), BTreeSet::new());
}

#[test]
fn what_ignition_wrote_is_kept_from_then_on() {
    let mut node = Node::new(Layout::Crio);
    let directory = node.certs().join("a");
    fs::create_dir_all(&directory).expect("a folder");
    fs::write(directory.join("ca.crt"), registry_ca("main")).expect("a file");
    let inode = fs::metadata(directory.join("ca.crt")).expect("a file").ino();
    let report = node.reconcile(&entries(&json!({"a": registry_ca("main")})));
    assert_eq!((hosts(&report.adopted), report.written.len()), (vec!["a"], 0));
    assert_eq!(fs::metadata(directory.join("ca.crt")).expect("a file").ino(), inode);
    node.reconcile(&entries(&json!({"a": registry_ca("mirror")})));
    assert_eq!(node.read("a/ca.crt"), Some(registry_ca("mirror")));
    node.reconcile(&entries(&json!({})));
    assert!(!directory.exists());
}

#[test]
fn an_undecodable_entry_leaves_the_file_unchanged() {
    let mut node = Node::new(Layout::Crio);
    node.reconcile(&entries(&json!({"a": registry_ca("main"), "b": registry_ca("main")})));
    let undecodable =
        entries(&json!({"a": "oops", "b": registry_ca("mirror"), "../x": registry_ca("main")}));
    assert_eq!(undecodable.refused.len(), 2);
    node.reconcile(&undecodable);
    assert_eq!(node.read("a/ca.crt"), Some(registry_ca("main")));
    assert_eq!(node.read("b/ca.crt"), Some(registry_ca("mirror")));
    assert_eq!(node.listed(), ["a", "b"].map(str::to_owned).into());
    assert_eq!(fs::read_dir(node.directory.path()).expect("a folder").count(), 1);
}

#[test]
fn a_list_that_cannot_be_read_is_not_replaced_and_one_that_is_no_list_is() {
    let main = registry_ca("main");
    let mut node = Node::new(Layout::Crio);
    node.reconcile(&entries(&json!({"a": main, "b": main})));
    let (certs, list) = (node.certs(), node.certs().join(LIST));
    let text = fs::read(&list).expect("the list");
    // A user without the rights of root, for this thread alone.
    let nobody = Uid::from_raw(65_534);
    std::os::unix::fs::chown(&certs, Some(nobody.as_raw()), None).expect("root");
    chmod(node.directory.path(), 0o755);
    chmod(&list, 0);
    setfsuid(nobody);
    let report = node.reconcile(&entries(&json!({"b": main, "c": main})));
    setfsuid(Uid::from_raw(0));
    let problem = report.problems.values().next().expect("a problem");
    assert_eq!(problem, ".machine-config-server.json: Permission denied (os error 13)");
    assert_eq!(fs::read(&list).expect("the list"), text);
    assert!(certs.join("a").exists() && !certs.join("c").exists());
    chmod(&list, 0o644);
    let report = node.reconcile(&entries(&json!({"b": main, "c": main})));
    assert_eq!((hosts(&report.removed), hosts(&report.written)), (vec!["a"], vec!["c"]));

    let put = |place: &str| {
        fs::remove_file(&list).expect("a file");
        match place {
            "emptied" => fs::write(&list, "").expect("a file"),
            "half" => fs::write(&list, "{\"registries\": [\"b").expect("a file"),
            "a fifo" => mkfifo(&list, Mode::S_IRUSR).expect("a pipe"),
            "a socket" => drop(UnixListener::bind(&list).expect("a socket")),
            _ => symlink("/dev/zero", &list).expect("a link"),
        }
    };
    for place in ["emptied", "half", "a fifo", "a socket", "a link to /dev/zero"] {
        put(place);
        let report = node.reconcile(&entries(&json!({"b": main})));
        assert_eq!(report.problems.len(), 1, "{place}: {report:?}");
        assert_eq!(hosts(&report.adopted), ["b"], "{place}: {report:?}");
        // What it may have named stays.
        assert!(certs.join("c/ca.crt").exists(), "{place}");
        assert_eq!(node.listed(), ["b".to_owned()].into(), "{place}");
    }
}

#[test]
fn on_a_disk_that_is_full_or_read_only_the_files_stay_and_the_next_check_continues() {
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let mut node = Node::new(Layout::Crio);
    let disk = Disk::mount(node.directory.path(), 64);
    node.reconcile(&entries(&json!({"a": main, "b": main})));
    let before = node.tree();
    let wanted = entries(&json!({"a": mirror, "c": main}));
    let filler = node.directory.path().join("filler");
    // It fails at the end of the disk.
    let _ = fs::write(&filler, vec![1; 1 << 20]);
    let report = node.reconcile(&wanted);
    assert!(report.problems.values().any(|it| it.contains("No space left")), "{report:?}");
    assert_eq!(node.read("a/ca.crt").as_ref(), Some(&main));
    fs::remove_file(&filler).expect("a file");
    node.reconcile(&entries(&json!({"a": main, "b": main})));
    assert_eq!(tree::differences(&node.tree(), &before), Vec::<String>::new());
    disk.remount("ro");
    let report = node.reconcile(&wanted);
    assert!(report.problems.values().any(|it| it.contains("Read-only")), "{report:?}");
    assert_eq!(tree::differences(&node.tree(), &before), Vec::<String>::new());
    disk.remount("rw");
    let report = node.reconcile(&wanted);
    assert_eq!((hosts(&report.written), hosts(&report.removed)), (vec!["a", "c"], vec!["b"]));
    assert_eq!(report.problems.len(), 0, "{report:?}");
}

#[test]
fn another_process_that_holds_the_lock_is_reported_and_stops_nothing_else() {
    let mut node = Node::new(Layout::Crio);
    node.reconcile(&entries(&json!({"a": registry_ca("main")})));
    let folder = fs::File::open(node.certs()).expect("a folder");
    folder.lock().expect("its lock");
    let asked = Stopwatch::start();
    let report = node.reconcile(&entries(&json!({})));
    asked.within(Duration::from_secs(10), "the wait for a lock");
    let problem = report.problems.values().next().expect("a problem");
    assert!(problem.contains("another process has held the lock"), "{problem}");
    drop(folder);
    assert_eq!(hosts(&node.reconcile(&entries(&json!({}))).removed), ["a"]);
}

#[test]
fn no_symbolic_link_is_followed_on_the_way() {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(place.path().join("real")).expect("a folder");
    symlink(place.path().join("real"), place.path().join("link")).expect("a link");
    for path in ["link", "link/certs.d", "real/../real"] {
        let path = place.path().join(path);
        let entries = entries(&json!({"a": registry_ca("main")}));
        let report = reconciler(&path, Layout::Crio).reconcile(&entries, SystemTime::now());
        assert_eq!(report.problems.keys().collect::<Vec<_>>(), [&path.display().to_string()]);
    }
    assert_eq!(fs::read_dir(place.path().join("real")).expect("a folder").count(), 0);
    // A list that is a link is not read and not written through.
    let secret = place.path().join("secret");
    fs::write(&secret, "{\"registries\": [\"a\"]}").expect("a file");
    let mut node = Node::new(Layout::Crio);
    fs::create_dir(node.certs()).expect("a folder");
    symlink(&secret, node.certs().join(LIST)).expect("a link");
    node.reconcile(&entries(&json!({"b": registry_ca("main")})));
    assert_eq!(fs::read_to_string(&secret).expect("a file"), "{\"registries\": [\"a\"]}");
    assert_eq!(node.listed(), ["b".to_owned()].into());
    // Nor does a list lead out of the folder.
    let victim = node.directory.path().join("victim");
    fs::create_dir(&victim).expect("a folder");
    fs::write(victim.join("ca.crt"), "theirs").expect("a file");
    fs::write(node.certs().join(LIST), "{\"registries\": [\"../victim\", \"b\"]}").expect("a list");
    node.reconcile(&entries(&json!({})));
    assert!(victim.join("ca.crt").exists());
}

#[test]
fn five_hundred_registries_are_in_step_within_two_seconds() {
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let name = |number| format!("registry-{number}.example.com..5000");
    let data = |pem: &str| -> Value {
        (0..500).map(|number| (name(number), json!(pem))).collect::<serde_json::Map<_, _>>().into()
    };
    let mut node = Node::new(Layout::Containerd);
    for entries in [entries(&data(&main)), entries(&data(&mirror)), entries(&json!({}))] {
        let started = Stopwatch::start();
        let report = node.reconcile(&entries);
        started.within(Duration::from_secs(2), "500 registries");
        assert_eq!(report.written.len() + report.removed.len(), 500);
        assert_eq!(report.problems.len(), 0);
    }
}

/// Tells the process that is to be killed which folder to work on.
const TO_BE_KILLED: &str = "NODE_CA_TO_BE_KILLED";

/// What the process that is to be killed writes, round by round.
fn round(number: usize) -> Entries {
    let pem = [registry_ca("main"), registry_ca("mirror")];
    let mut data = json!({"stays..5000": pem[number % 2]});
    if !number.is_multiple_of(3) {
        data["comes-and-goes"] = pem[number / 2 % 2].clone().into();
    }
    entries(&data)
}

/// The work of the process that is to be killed; nothing where this is not that process.
#[test]
fn work_until_killed() {
    let Some(directory) = std::env::var_os(TO_BE_KILLED) else { return };
    for number in 0.. {
        // Each time as after a start, so that all of the work is done.
        let report = reconciler(Path::new(&directory), Layout::Containerd)
            .reconcile(&round(number), SystemTime::now());
        assert_eq!(report.problems.len(), 0, "{report:?}");
    }
}

#[test]
fn killed_at_any_point_it_leaves_the_old_or_the_new() {
    let mut node = Node::new(Layout::Containerd);
    node.reconcile(&round(1));
    let certs = node.certs();
    let possible = [registry_ca("main"), registry_ca("mirror")];
    for kill in 0..61_usize {
        let events = Events::changes_of(&certs);
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "node_ca::work_until_killed", "--test-threads=1"])
            .env(TO_BE_KILLED, &certs);
        let mut killed = Logged::start("the one to be killed", &mut command);
        // Another number of steps each time.
        events.wait_for_changes(1 + kill * 7 % 61);
        killed.signal(Signal::KILL);
        let status = killed.ended();
        assert!(status.code().is_none(), "it ended by itself: {status}");

        let listed = listed(&certs);
        for entry in fs::read_dir(&certs).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("text");
            if name.starts_with('.') {
                continue;
            }
            assert!(listed.contains(&name), "{name} is not on the list: {listed:?}");
            let ca = fs::read_to_string(certs.join(&name).join("ca.crt"));
            let hosts = fs::read_to_string(certs.join(&name).join("hosts.toml"));
            if name == "stays:5000" {
                assert!(possible.contains(&ca.expect("a CA")), "{kill}");
                assert_eq!(
                    hosts.expect("hosts.toml"),
                    "server = \"https://stays:5000\"\nca = \"ca.crt\"\n"
                );
            } else {
                // While it is being removed, its parts go one by one.
                assert!(ca.is_err() || possible.contains(&ca.expect("a CA")), "{kill}");
                assert!(hosts.is_err() || certs.join(&name).join("ca.crt").exists(), "{kill}");
            }
        }
        assert!(certs.join("stays:5000").exists(), "{kill}");
        // The next one takes up where it was.
        let mut next = reconciler(&certs, Layout::Containerd);
        assert_eq!(next.reconcile(&round(4), SystemTime::now()).problems.len(), 0);
        assert_eq!(node.read("stays:5000/ca.crt"), Some(registry_ca("main")), "{kill}");
        let expected = [
            LIST,
            "comes-and-goes",
            "comes-and-goes/ca.crt",
            "comes-and-goes/hosts.toml",
            "stays:5000",
            "stays:5000/ca.crt",
            "stays:5000/hosts.toml",
        ];
        assert_eq!(node.tree().keys().collect::<Vec<_>>(), expected, "{kill}");
    }
}
