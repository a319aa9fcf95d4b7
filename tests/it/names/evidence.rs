//! What becomes of a machine's token when its manifest is emptied, lost, moved or removed: it is refused at once, and
//! revoked only on evidence that an administrator meant it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::process::Signal;
use serde_json::json;

use super::{MachinesDirectory, get_known};
use crate::last_good::is_stored;
use crate::support::access::get;
use crate::support::clock::follow_all_clocks;
use crate::support::contract::SOON;
use crate::support::manifests::{first_boot_machine, write_often};
use crate::support::server::{Server, serving};
use crate::support::stopwatch::{Stopwatch, once_within};
use crate::support::{wait_for, wait_until};

/// A machine `n` among two others.
fn with_machines() -> MachinesDirectory {
    let site = MachinesDirectory::new();
    for name in ["n", "second", "third"] {
        site.put_machine(name, &json!({"pool": "worker"}));
    }
    site
}

/// These machines with a server that knows the token of `n`.
fn with_known_machine() -> (MachinesDirectory, Server, String) {
    let site = with_machines();
    let server = site.serve(&[]);
    let credential = site.credential("n");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    (site, server, credential)
}

/// Serves, and does not wait until all is well.
fn serve(site: &MachinesDirectory, manifests: &Path) -> Server {
    Server::prepared(serving(manifests, &site.state()))
}

fn restart(site: &MachinesDirectory, server: Server, manifests: &Path) -> Server {
    server.stop();
    serve(site, manifests)
}

fn answered(site: &MachinesDirectory, server: &Server, credential: &str, expected: u16) {
    wait_until(&format!("status {expected}"), || {
        get(&site.tls(server), "worker", Some(credential)).status == expected
    });
}

/// The first refusal says that the machine is to ask again.
fn assert_is_only_refused(site: &MachinesDirectory, server: &Server, credential: &str) {
    let refused = wait_for("a refusal", || {
        let response = get(&site.tls(server), "worker", Some(credential));
        (response.status != 200).then_some(response.status)
    });
    assert_eq!(refused, 503);
}

/// Does something to the manifest of `n` that removes nothing, and later undoes it.
fn is_only_missing(cause: &str, lose: impl Fn(&Path), restore: impl Fn(&Path)) {
    let (site, server, credential) = with_known_machine();
    let path = site.manifests().join("n.json");
    lose(&path);
    assert_is_only_refused(&site, &server, &credential);
    server.reported(cause);
    // Also after a restart, and its pool is served all the time.
    let server = restart(&site, server, &site.manifests());
    assert_is_only_refused(&site, &server, &credential);
    server.reported(cause);
    assert_eq!(get(&site.tls(&server), "worker", None).status, 200, "its pool is open");
    restore(&path);
    answered(&site, &server, &credential, 200);
    assert_eq!(site.credential("n"), credential);
}

fn text(name: &str) -> String {
    first_boot_machine(name, &json!({"pool": "worker"})).to_string()
}

#[test]
fn a_machine_whose_manifest_is_emptied_waits_and_keeps_its_token() {
    is_only_missing(
        "its file is empty",
        |path| fs::write(path, "").expect("a writable folder"),
        |path| fs::write(path, text("n")).expect("a writable folder"),
    );
}

#[test]
fn a_machine_whose_manifest_is_a_link_to_nowhere_waits_and_keeps_its_token() {
    is_only_missing(
        "its file is a link that leads nowhere",
        |path| {
            fs::remove_file(path).expect("a manifest");
            symlink("/nowhere/n.json", path).expect("a link");
        },
        |path| {
            fs::remove_file(path).expect("a link");
            fs::write(path, text("n")).expect("a writable folder");
        },
    );
}

#[test]
fn machines_whose_directory_is_away_wait_and_keep_their_tokens() {
    let away = |path: &Path| -> PathBuf { path.with_file_name("away") };
    is_only_missing(
        "its directory is missing",
        |path| {
            let manifests = path.parent().expect("a folder");
            fs::rename(manifests, away(manifests)).expect("a rename");
        },
        |path| {
            let manifests = path.parent().expect("a folder");
            fs::rename(away(manifests), manifests).expect("a rename");
        },
    );
}

#[test]
fn an_emptied_manifest_revokes_nothing_at_a_restart() {
    let (site, server, credential) = with_known_machine();
    fs::write(site.manifests().join("n.json"), "").expect("a writable folder");
    let server = restart(&site, server, &site.manifests());
    assert_is_only_refused(&site, &server, &credential);
    fs::write(site.manifests().join("n.json"), text("n")).expect("a writable folder");
    answered(&site, &server, &credential, 200);
}

#[test]
fn files_that_are_moved_away_and_back_revoke_nothing() {
    let (site, server, credential) = with_known_machine();
    let away = site.directory.path().join("away");
    fs::create_dir(&away).expect("a folder");
    let move_all = |from: &Path, to: &Path| {
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            fs::rename(entry.path(), to.join(entry.file_name())).expect("a rename");
        }
    };
    move_all(&site.manifests(), &away);
    assert_is_only_refused(&site, &server, &credential);
    move_all(&away, &site.manifests());
    answered(&site, &server, &credential, 200);
}

/// A mount that never answers.
struct HungMount {
    on: PathBuf,
    _device: File,
}

impl HungMount {
    fn new(on: PathBuf) -> Self {
        let mut device = File::options();
        let device = device.read(true).write(true).open("/dev/fuse").expect("a kernel with FUSE");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount(Some("hung"), &on, Some("fuse"), MsFlags::empty(), Some(&*options))
            .expect("root, as tests/run is");
        Self { on, _device: device }
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // Those that wait for the mount get an error once the device is closed.
        umount2(&self.on, MntFlags::MNT_DETACH).expect("a mount");
    }
}

#[test]
fn a_mount_that_hangs_keeps_no_pool_from_being_served_and_revokes_nothing() {
    let (site, server, credential) = with_known_machine();
    is_stored(&site.state());
    let mount = HungMount::new(site.manifests());
    assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 200);
    let server = restart(&site, server, &site.manifests());
    answered(&site, &server, &credential, 503);
    server.reported("not read within 2 s");
    assert_eq!(get(&site.tls(&server), "worker", None).status, 200, "its pool is open");
    drop(mount);
    answered(&site, &server, &credential, 200);
    assert_eq!(site.credential("n"), credential);
    wait_until("readiness", || server.metrics().get("/readyz").status == 200);
}

#[test]
fn the_wrong_directory_revokes_nothing_though_it_has_a_machine_too() {
    let (site, server, credential) = with_known_machine();
    let wrong = site.directory.path().join("wrong");
    fs::create_dir(&wrong).expect("a folder");
    fs::write(wrong.join("other.json"), text("other")).expect("a writable folder");
    let server = restart(&site, server, &wrong);
    assert_is_only_refused(&site, &server, &credential);
    server.reported("possibly in the wrong directory of manifests");
    let server = restart(&site, server, &site.manifests());
    answered(&site, &server, &credential, 200);
}

#[test]
fn a_machine_that_is_removed_alone_is_revoked_and_has_its_token_back_with_its_object() {
    let (site, server, credential) = with_known_machine();
    site.remove("n");
    answered(&site, &server, &credential, 401);
    site.put_machine("n", &json!({"pool": "worker"}));
    answered(&site, &server, &credential, 200);
    // The same while no server runs.
    server.stop();
    site.remove("n");
    let server = serve(&site, &site.manifests());
    answered(&site, &server, &credential, 401);
}

#[test]
fn a_revocation_after_many_writes_of_another_file_is_in_force_within_a_second() {
    let (site, server, _) = with_known_machine();
    once_within(SOON, "a revocation after a burst", |_| {
        site.put_machine("n", &json!({"pool": "worker"}));
        let credential =
            wait_for("its token", || site.pointer_path("n").exists().then(|| site.credential("n")));
        answered(&site, &server, &credential, 200);
        write_often(&site.manifests().join("other.json"), Duration::from_secs(2));
        site.remove("n");
        let removed = Stopwatch::start();
        answered(&site, &server, &credential, 401);
        removed.took()
    });
}

#[test]
fn machines_that_are_lost_at_once_are_missing_until_a_command_removes_them() {
    let site = with_machines();
    let server = site.serve(&[]);
    let credentials = ["n", "second", "third"].map(|name| site.credential(name));
    for credential in &credentials {
        assert_eq!(get_known(&site.tls(&server), "worker", credential).status, 200);
    }
    for name in ["n", "second"] {
        site.remove(name);
    }
    answered(&site, &server, &credentials[0], 503);
    server.reported("removed with most machines");
    let manifests = site.manifests().display().to_string();
    let remove = || site.machines(&["remove", "n", "--manifests", &manifests]);
    assert!(remove().done().output.contains("n: its token is revoked for good"));
    answered(&site, &server, &credentials[0], 401);
    assert_eq!(get(&site.tls(&server), "worker", Some(&credentials[1])).status, 503);
    assert_eq!(get(&site.tls(&server), "worker", Some(&credentials[2])).status, 200);
    // Its object gets another token.
    site.put_machine("n", &json!({"pool": "worker"}));
    let next =
        wait_for("another token", || site.pointer_path("n").exists().then(|| site.credential("n")));
    assert_ne!(next, credentials[0]);
    answered(&site, &server, &next, 200);
    answered(&site, &server, &credentials[0], 401);
}

/// Serves with clocks that follow a file.
fn serve_with_clocks(site: &MachinesDirectory, manifests: &Path) -> Server {
    fs::write(clocks(site), "+0s").expect("a writable folder");
    let mut command = serving(manifests, &site.state());
    follow_all_clocks(&mut command, &clocks(site));
    Server::prepared(command)
}

fn clocks(site: &MachinesDirectory) -> PathBuf {
    site.directory.path().join("clocks")
}

#[test]
fn an_unchanged_hour_confirms_that_most_machines_were_removed_and_until_then_they_can_be_back() {
    let site = with_machines();
    let server = serve_with_clocks(&site, &site.manifests());
    let server = server.until_ready();
    let credentials = ["n", "second", "third"].map(|name| site.credential(name));
    let after = |offset: &str| fs::write(clocks(&site), offset).expect("a writable folder");
    for name in ["n", "second"] {
        site.remove(name);
    }
    server.reported("removed with most machines");
    after("+3500s");
    answered(&site, &server, &credentials[0], 503);
    site.put_machine("second", &json!({"pool": "worker"}));
    answered(&site, &server, &credentials[1], 200);
    assert_eq!(get(&site.tls(&server), "worker", Some(&credentials[0])).status, 503);
    after("+3700s");
    answered(&site, &server, &credentials[0], 401);
    assert!(!site.pointer_path("n").exists(), "its pointer config goes with it");
    assert_eq!(get(&site.tls(&server), "worker", Some(&credentials[1])).status, 200);
    // The revocation can be taken back for an hour too, and no longer.
    after("+7200s");
    site.put_machine("n", &json!({"pool": "worker"}));
    answered(&site, &server, &credentials[0], 200);
    site.remove("n");
    answered(&site, &server, &credentials[0], 401);
    after("+10900s");
    site.put_machine("n", &json!({"pool": "worker"}));
    let next =
        wait_for("another token", || site.pointer_path("n").exists().then(|| site.credential("n")));
    assert_ne!(next, credentials[0]);
    answered(&site, &server, &next, 200);
    answered(&site, &server, &credentials[0], 401);
}

#[test]
fn an_hour_without_a_machine_that_was_never_seen_revokes_its_token() {
    let (site, server, credential) = with_known_machine();
    let wrong = site.directory.path().join("wrong");
    fs::create_dir(&wrong).expect("a folder");
    fs::write(wrong.join("other.json"), text("other")).expect("a writable folder");
    server.stop();
    let server = serve_with_clocks(&site, &wrong);
    server.reported("possibly in the wrong directory of manifests");
    fs::write(clocks(&site), "+3500s").expect("a writable folder");
    answered(&site, &server, &credential, 503);
    fs::write(clocks(&site), "+3700s").expect("a writable folder");
    answered(&site, &server, &credential, 401);
}

#[test]
fn a_removal_that_a_busy_server_has_not_followed_is_no_success_and_is_for_good_later() {
    let site = with_machines();
    let server = site.serve(&[]);
    let credential = site.credential("n");
    let manifest = site.manifests().join("machine-n.yaml");
    fs::rename(site.manifests().join("n.json"), &manifest).expect("a rename");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    let object = fs::read(&manifest).expect("a manifest");
    server.signal(Signal::STOP);
    let manifests = site.manifests().display().to_string();
    let removed = site.machines(&["remove", "n", "--manifests", &manifests]);
    removed.refused(&["machine n: its token is not revoked yet", &server.pid().to_string()]);
    server.signal(Signal::CONT);
    answered(&site, &server, &credential, 401);
    fs::write(&manifest, object).expect("a writable folder");
    let another = || {
        let there = site.pointer_path("n").exists();
        there.then(|| site.credential("n")).filter(|now| *now != credential)
    };
    answered(&site, &server, &wait_for("another token", another), 200);
    answered(&site, &server, &credential, 401);
}

#[test]
fn a_machine_is_removed_for_good_while_no_server_runs() {
    let site = with_machines();
    let server = site.serve(&[]);
    let credential = site.credential("n");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    server.stop();
    let manifests = site.manifests().display().to_string();
    let remove = |name| site.machines(&["remove", name, "--manifests", &manifests]);
    fs::rename(site.manifests().join("n.json"), site.manifests().join("machine-n.yaml"))
        .expect("a rename");
    remove("n").done();
    assert!(!site.manifests().join("machine-n.yaml").exists());
    remove("second").refused(&["another file has FirstBootMachine second; remove it there first"]);
    remove("nobody").refused(&["machine nobody not found"]);
    let server = site.serve(&[]);
    answered(&site, &server, &credential, 401);
}
