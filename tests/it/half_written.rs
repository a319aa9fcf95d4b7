//! Files that a program writes while they are followed: no half of one is served.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use tempfile::TempDir;

use crate::changes::{cluster, machine_config};
use crate::last_good::is_stored;
use crate::support::contract::{is_served, marker, marker_soon};
use crate::support::manifests::{machine_config_of, pool, selecting_pool, with_files, write};
use crate::support::server::{Server, serving};
use crate::support::stop::Stop;
use crate::support::wait_for;

/// The MachineConfig of pool `worker`, cut in the middle: it is still YAML, with a shorter marker.
const HALF: &str = "
kind: MachineConfig
metadata: {name: a, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - path: /etc/marker
        contents:
          source: data:,half";
const REST: &str = "-and-whole\n";

/// Pause of a writer between two writes.
const PAUSE: Duration = Duration::from_secs(2);
/// Time between the writes of a quick writer.
const PACE: Duration = Duration::from_millis(10);
/// Longest such time by which a file is surely not read in between: it is read when its last write is 60 ms ago.
const QUICK: Duration = Duration::from_millis(45);
/// Priority of a quick writer.
const HIGHEST_PRIORITY: i32 = -20;
/// Maximum number of attempts to write that quickly on a busy machine.
const ATTEMPTS: usize = 20;

/// A file with [`HALF`], still open.
fn begun(path: &Path) -> File {
    let mut file = File::create(path).expect("a file");
    append(&mut file, HALF);
    file
}

fn append(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).expect("a write");
}

#[test]
fn a_file_is_not_read_while_a_program_still_writes_it() {
    let (directory, server) = cluster();
    let path = directory.path().join("a.yaml");
    completed_with_pauses(&directory, &server, || begun(&path));
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
    completed_with_pauses(&directory, &server, || begun(&target));
}

#[test]
fn a_file_behind_a_link_is_not_read_while_a_program_writes_it_right_after_a_start() {
    let (directory, server) = cluster();
    drop(server);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let target = elsewhere.path().join("a.yaml");
    write(elsewhere.path(), "a.yaml", machine_config("a", "linked"));
    fs::remove_file(directory.path().join("a.yaml")).expect("the file");
    symlink(&target, directory.path().join("a.yaml")).expect("a link");
    let server = Server::serve(directory.path(), &[]);
    completed_with_pauses(&directory, &server, || begun(&target));
}

#[test]
fn a_file_that_is_renamed_too_early_is_not_read_while_a_program_still_writes_it() {
    let (directory, server) = cluster();
    let new = directory.path().join(".a.yaml.new");
    completed_with_pauses(&directory, &server, || {
        let file = begun(&new);
        fs::rename(&new, directory.path().join("a.yaml")).expect("a rename");
        file
    });
}

/// Completes the MachineConfig of pool `worker` with pauses after `begin`, and checks that no half of it is served.
fn completed_with_pauses(directory: &TempDir, server: &Server, begin: impl FnOnce() -> File) {
    let before = marker(server, "worker");
    let mut file = begin();
    let more = write_until_looked_at(directory, server, &mut file);
    assert_eq!(marker(server, "worker"), before);
    append(&mut file, REST);
    drop(file);
    marker_soon(server, "worker", Ok(&format!("half{more}{}", REST.trim_end())));
}

/// Writes to a file now and then until the directory was looked at. Returns what was written.
fn write_until_looked_at(directory: &TempDir, server: &Server, file: &mut File) -> String {
    put_other(directory.path(), "other");
    // The pauses are longer than a file must be quiet. A writer that is silent for long is taken to have gone, so this one
    // is not.
    let (mut more, mut written) = (String::new(), Instant::now());
    wait_for("the other pool", || {
        if written.elapsed() > PAUSE {
            append(file, "x");
            more.push('x');
            written = Instant::now();
        }
        is_other_served(server, "other")
    });
    more
}

/// Adds another pool, which shows that a server has looked at the directory.
fn put_other(directory: &Path, name: &str) {
    write(directory, &format!("{name}.yaml"), pool(name, name));
    write(directory, &format!("{name}-config.yaml"), machine_config(name, "other"));
}

fn is_other_served(server: &Server, name: &str) -> Option<()> {
    (marker(server, name).as_deref() == Ok("other")).then_some(())
}

/// The kernel reports a program that has the file open when that writes again, not when the file is moved.
#[test]
fn a_file_that_is_moved_there_from_another_folder_is_read_no_more_once_a_program_continues_to_write_it()
 {
    let (directory, server) = cluster();
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let mut file = begun(&elsewhere.path().join("a.yaml"));
    let place = directory.path().join("a.yaml");
    fs::rename(elsewhere.path().join("a.yaml"), place).expect("a rename within a file system");
    append(&mut file, "-more");
    let more = write_until_looked_at(&directory, &server, &mut file);
    let seen = marker(&server, "worker").expect("a config");
    assert!(["one", "half"].contains(&&*seen), "{seen}");
    append(&mut file, REST);
    drop(file);
    marker_soon(&server, "worker", Ok(&format!("half-more{more}{}", REST.trim_end())));
}

/// The kernel does not report that such a program will continue.
#[test]
fn a_program_that_closes_a_file_and_appends_to_it_later_is_followed_each_time() {
    let (directory, server) = cluster();
    let path = directory.path().join("a.yaml");
    drop(begun(&path));
    marker_soon(&server, "worker", Ok("half"));
    append(&mut File::options().append(true).open(&path).expect("a file"), REST);
    marker_soon(&server, "worker", Ok("half-and-whole"));
}

#[test]
fn a_file_that_is_closed_between_quick_appends_is_read_after_the_last_one() {
    let (directory, server) = cluster();
    let path = directory.path().join("a.yaml");
    let append_to = |text: &str| {
        append(&mut File::options().append(true).open(&path).expect("a file"), text);
    };
    hurry();
    let is_quick = (0..ATTEMPTS).any(|attempt| {
        write(directory.path(), "a.yaml", machine_config("a", "one"));
        marker_soon(&server, "worker", Ok("one"));
        let other = format!("other-{attempt}");
        let (begun_at, mut seen, mut more) = (Instant::now(), BTreeSet::new(), String::new());
        drop(begun(&path));
        let write_more = || {
            append_to("x");
            more.push('x');
        };
        let ((), longest) = while_written(begun_at, write_more, || {
            put_other(directory.path(), &other);
            wait_for("the other pool", || {
                seen.insert(marker(&server, "worker"));
                is_other_served(&server, &other)
            });
        });
        append_to(REST);
        marker_soon(&server, "worker", Ok(&format!("half{more}{}", REST.trim_end())));
        let is_quick = longest < QUICK;
        assert!(!is_quick || seen == BTreeSet::from([Ok("one".to_owned())]), "{seen:?}");
        is_quick
    });
    assert!(is_quick, "the file was never written quickly");
}

/// Gives this thread, and what it starts, the highest priority: without it, a busy machine makes a writer pause for longer than a
/// file must be quiet. Only root gets it.
fn hurry() {
    let _ = setpriority_process(None, HIGHEST_PRIORITY);
}

/// Calls `write` again and again while `body` runs. Returns the longest time from one write to the end of the next one, with
/// that from `begun_at` to the first.
fn while_written<T>(
    begun_at: Instant,
    mut write: impl FnMut() + Send,
    body: impl FnOnce() -> T,
) -> (T, Duration) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut longest, mut last) = (Duration::ZERO, begun_at);
            while !stop.load(Ordering::SeqCst) {
                let now = Instant::now();
                write();
                longest = longest.max(last.elapsed());
                last = now;
                std::thread::sleep(PACE);
            }
            longest.max(last.elapsed())
        });
        let stopped = Stop(&stop);
        let result = body();
        drop(stopped);
        (result, writer.join().expect("no panic"))
    })
}

/// Writes the MachineConfig of pool `worker` while a server starts, on manifests that `prepare` has written, and checks that
/// nothing but `before` is served of the pool until it is whole.
fn written_during_a_start(before: &Result<String, u16>, prepare: impl Fn(&Path, &Path)) {
    hurry();
    let is_quick = (0..ATTEMPTS).any(|_| {
        let top = tempfile::tempdir().expect("a temporary folder");
        let [manifests, state] = ["manifests", "state"].map(|name| top.path().join(name));
        put_other(&manifests, "other");
        prepare(&manifests, &state);
        let command = serving(&manifests, &state);
        let (begun_at, mut seen, mut more) = (Instant::now(), BTreeSet::new(), String::new());
        let mut file = begun(&manifests.join("a.yaml"));
        let write_more = || {
            append(&mut file, "x");
            more.push('x');
        };
        let (server, longest) = while_written(begun_at, write_more, || {
            let server = Server::prepared(command);
            wait_for("the other pool", || {
                seen.insert(marker(&server, "worker"));
                is_other_served(&server, "other")
            });
            seen.insert(marker(&server, "worker"));
            server
        });
        append(&mut file, REST);
        drop(file);
        let whole = format!("half{more}{}", REST.trim_end());
        is_served(&server, "worker", &whole);
        let is_quick = longest < QUICK;
        assert!(!is_quick || seen == BTreeSet::from([before.clone()]), "{seen:?}");
        is_quick
    });
    assert!(is_quick, "the file was never written quickly");
}

#[test]
fn a_file_that_is_written_during_a_first_start_is_served_once_it_is_whole() {
    written_during_a_start(&Err(503), |manifests, _| {
        write(manifests, "pool.yaml", pool("worker", "a"));
    });
}

#[test]
fn a_pool_is_not_merged_without_a_file_that_is_written_during_a_first_start() {
    written_during_a_start(&Err(503), |manifests, _| {
        write(manifests, "pool.yaml", selecting_pool("worker"));
        let base = machine_config_of("worker", "base", &with_files(&[("/etc/base", "base")]));
        write(manifests, "base.yaml", base);
    });
}

#[test]
fn a_file_that_is_written_during_a_restart_is_served_once_it_is_whole() {
    written_during_a_start(&Ok("one".to_owned()), |manifests, state| {
        write(manifests, "pool.yaml", pool("worker", "a"));
        write(manifests, "a.yaml", machine_config("a", "one"));
        let server = Server::serve_with_state(manifests, state);
        assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
        is_stored(state);
        server.stop();
    });
}
