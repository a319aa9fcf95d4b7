//! A server that runs as a user of its own, as the package installs it, and commands that root runs on
//! its state directory: each that succeeds leaves what the server boots machines with when it is started
//! again.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pki::Certificate;
use tempfile::TempDir;

use crate::support::command::{Said, Store, at_once, done_at_once};
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::server::{Server, binary, free_ports};
use crate::support::{wait_for, wait_until};

/// Numbers that are no account's.
const USER: u32 = 47_110;
const GROUP: u32 = 47_111;
const OTHER_USER: u32 = 47_120;
const OTHER_GROUP: u32 = 47_121;

const KEYS: [&str; 2] = ["ca.key", "tls.key"];
const ADD: &[&str] = &["tokens", "add", "bare-metal", "--pool", "worker", "--until", "never"];
const ENFORCE: [&str; 2] = ["--access", "enforce"];

/// A state directory of that user, with what the user may read of the repository.
struct Service {
    directory: TempDir,
    address: SocketAddr,
}

impl Service {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("chmod");
        let copies = [
            (PathBuf::from(binary().get_program()), "program"),
            (in_repository("ignition-fixtures"), "manifests"),
        ];
        for (from, to) in copies {
            let mut copy = Command::new("cp");
            copy.args(["-r", "--reflink=auto"]).arg(from).arg(directory.path().join(to));
            assert!(copy.status().expect("cp").success());
        }
        let [address] = free_ports();
        let service = Self { directory, address };
        fs::create_dir(service.state()).expect("a folder");
        service.give("", USER, GROUP, 0o700);
        service
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// One whose server has run with these flags, and made its files.
    fn made(flags: &[&str]) -> Self {
        let service = Self::new();
        drop(service.serve(flags));
        service
    }

    fn program(&self) -> Command {
        let mut command = Command::new(self.directory.path().join("program"));
        command.env_remove("RUST_LOG").current_dir("/");
        command
    }

    /// The server, as that user. Returns once it is ready.
    fn serve(&self, flags: &[&str]) -> Server {
        self.start(flags).until_ready()
    }

    /// The server, as that user.
    fn start(&self, flags: &[&str]) -> Server {
        let mut command = self.program();
        command.arg("serve").arg(self.directory.path().join("manifests"));
        command.arg("--state-dir").arg(self.state());
        command.args(["--host", "localhost"]).args(flags);
        command.uid(USER).gid(GROUP);
        Server::prepared_at(command, self.address)
    }

    /// A command as root.
    fn done(&self, arguments: &[&str]) -> String {
        self.run(arguments).done().text()
    }

    #[track_caller]
    fn refused(&self, said: &Said, lines: &[&str]) {
        said.refused(lines);
        let is_left = |name: &str| name.starts_with('.') && ![".lock", ".server"].contains(&name);
        assert!(!self.files().iter().any(|(name, ..)| is_left(name)), "nothing is left");
    }

    fn give(&self, name: &str, uid: u32, gid: u32, mode: u32) {
        let path = self.state().join(name);
        chown(&path, Some(uid), Some(gid)).expect("chown");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
    }

    /// Name, owner, group and mode of all files and folders.
    fn files(&self) -> Vec<(String, u32, u32, u32)> {
        let mut files = Vec::new();
        let mut directories = vec![self.state()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("a folder") {
                let path = entry.expect("an entry").path();
                let found = path.symlink_metadata().expect("a file");
                let name = path.strip_prefix(self.state()).expect("below it").display().to_string();
                files.push((name, found.uid(), found.gid(), found.mode() & 0o7777));
                if found.is_dir() {
                    directories.push(path);
                }
            }
        }
        files.sort();
        files
    }

    fn assert_all_are_the_servers(&self, after: &[&str]) {
        for (name, uid, gid, mode) in self.files() {
            assert_eq!((uid, gid), (USER, GROUP), "{name} after {after:?}");
            assert!(!KEYS.contains(&&*name) || mode == 0o600, "{name} {mode:o} after {after:?}");
        }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.state().join(name)).expect("a file")
    }

    fn pointers(&self) -> Vec<String> {
        ["master", "worker"].map(|pool| self.text(&format!("user-data/{pool}.ign"))).into()
    }

    /// Starts the server again, and boots a machine from each pointer config.
    fn boots_again(&self, flags: &[&str], older: &[String]) {
        let _server = self.serve(flags);
        for pointer in self.pointers().iter().chain(older) {
            Machine::new().boot(pointer);
        }
    }
}

impl Store for Service {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program();
        command.args(arguments).arg("--state-dir").arg(self.state());
        command
    }
}

/// The first certificate, as `certs distrust` takes it.
fn fingerprint(text: &str) -> String {
    let certificates = Certificate::read_all(text.as_bytes());
    certificates.first().expect("a certificate").fingerprint()
}

#[test]
fn manifests_beside_a_folder_that_the_user_cannot_read_are_served_also_after_a_restart() {
    let service = Service::new();
    let folder = service.directory.path().join("manifests/lost+found");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("chmod");
    for _ in 0..2 {
        let server = service.start(&[]);
        server.reported("lost+found: cannot be listed");
        assert_eq!(server.plain().get("/config/worker").status, 200);
    }
}

#[test]
fn what_root_changes_is_what_the_service_serves_when_it_is_started_again() {
    let service = Service::new();
    let mut server = Some(service.serve(&ENFORCE));
    let commands: [(&[&str], &[&str]); 8] = [
        (&["certs", "rotate"], &[]),
        (ADD, &["access.json"]),
        (&["tokens", "rotate"], &[]),
        (&["certs", "rotate", "--ca"], &["tls.crt"]),
        (&["tokens", "revoke", "bare-metal"], &[]),
        (&["certs", "rotate", "--ca", "--force"], &["ca.crt"]),
        (&["certs", "show"], &["user-data/edge.ign"]),
        (&["certs", "check"], &[]),
    ];
    for (arguments, missing) in commands {
        for name in missing {
            // The reconciler would make it again at once.
            server = None;
            fs::remove_file(service.state().join(name)).expect("a file");
        }
        let older = service.pointers();
        service.done(arguments);
        service.assert_all_are_the_servers(arguments);
        drop(server.take());
        let is_about_tokens = arguments[0] == "tokens" && !missing.is_empty();
        let older = if is_about_tokens { &[][..] } else { &older };
        service.boots_again(&ENFORCE, older);
        server = Some(service.serve(&ENFORCE));
    }
}

#[test]
fn the_only_ca_that_root_distrusts_is_served_no_more() {
    let service = Service::new();
    let server = service.serve(&[]);
    let leaked = service.text("ca.crt");
    let old = service.pointers();
    service.done(&["certs", "distrust", &fingerprint(&leaked), "--yes"]);
    service.assert_all_are_the_servers(&["distrust"]);
    // The server that runs takes it over, and one that is started again has it too.
    let new = service.text("ca.crt");
    assert_ne!(fingerprint(&new), fingerprint(&leaked));
    let trusting = |ca: &str| crate::support::http::Client::tls(service.address, ca.as_bytes());
    wait_for("the new pair", || {
        trusting(&new).try_request("GET", "/config/worker", &[]).ok().filter(|it| it.status == 200)
    });
    assert!(trusting(&leaked).try_request("GET", "/config/worker", &[]).is_err());
    drop(server);
    service.boots_again(&[], &[]);
    let _server = service.serve(&[]);
    assert!(trusting(&leaked).try_request("GET", "/config/worker", &[]).is_err());
    assert!(service.pointers().iter().all(|pointer| !old.contains(pointer)));
}

#[test]
fn a_file_keeps_the_group_that_reads_it() {
    let service = Service::made(&[]);
    for name in ["ca.key", "tls.key", "user-data/worker.ign"] {
        service.give(name, USER, OTHER_GROUP, 0o640);
    }
    service.done(&["certs", "rotate", "--ca"]);
    for (name, uid, gid, mode) in service.files() {
        let is_shared = ["ca.key", "tls.key", "user-data/worker.ign"].contains(&&*name);
        let expected = if is_shared { OTHER_GROUP } else { GROUP };
        assert_eq!((uid, gid), (USER, expected), "{name}");
        assert!(!is_shared || mode == 0o640, "{name} {mode:o}");
    }
    service.boots_again(&[], &[]);
    // The service is not in that group: it says that it cannot write the file as it was.
    let mut own = service.command(&["certs", "rotate"]);
    let output = Said::by(own.uid(USER).gid(GROUP));
    let before = service.text("tls.key");
    service.refused(&output, &["tls.key: not written: it must belong to gid 47121"]);
    assert_eq!(service.text("tls.key"), before);
}

#[test]
fn a_directory_of_root_holds_the_files_of_the_service_that_reads_them() {
    // By their owner, then by their group.
    for (uid, mode) in [(USER, 0o600), (0, 0o640)] {
        let service = Service::made(&[]);
        service.give("", 0, 0, 0o755);
        service.give("user-data", 0, 0, 0o755);
        for (name, ..) in service.files().iter().filter(|(name, ..)| name != "user-data") {
            service.give(name, uid, GROUP, mode);
        }
        for name in ["tls.crt", "access.json", "tokens.json"] {
            let _ = fs::remove_file(service.state().join(name));
        }
        service.done(ADD);
        service.done(&["certs", "rotate", "--ca"]);
        for (name, found_uid, gid, found) in service.files() {
            if name != "user-data" {
                assert_eq!((found_uid, gid), (uid, GROUP), "{name}");
                assert!(found & mode == mode, "{name} {found:o}");
            }
        }
        service.boots_again(&[], &[]);
    }
}

#[test]
fn files_that_the_service_cannot_read_are_reported_and_nothing_is_written() {
    let service = Service::made(&[]);
    service.done(&["certs", "check"]);
    let before = service.text("ca.key");
    // Without it the server would lose the machines that asked.
    fs::write(service.state().join("ledger.json"), "[]").expect("a write");
    for name in [KEYS[0], KEYS[1], "ledger.json"] {
        service.give(name, 0, 0, 0o600);
        let line = format!(
            "/{name}: uid 0, gid 0, mode 600: the server runs as uid {USER}, gid {GROUP} and could not \
             read it"
        );
        let check = service.run(&["certs", "check"]);
        service.refused(&check, &[&line, "chown 47110:47111", "the server cannot read all"]);
        for arguments in [
            &["certs", "rotate", "--ca"][..],
            ADD,
            &["certs", "distrust", &fingerprint(&service.text("ca.crt")), "--yes"],
        ] {
            service.refused(&service.run(arguments), &[&line]);
        }
        assert_eq!(service.text("ca.key"), before);
        service.give(name, USER, GROUP, 0o600);
    }
    service.give("user-data", 0, 0, 0o700);
    service.refused(&service.run(&["certs", "rotate"]), &["user-data: uid 0, gid 0, mode 700"]);
    service.give("user-data", USER, GROUP, 0o700);
    service.done(&["certs", "rotate"]);
    service.boots_again(&[], &[]);
}

#[test]
fn files_that_the_services_group_cannot_read_are_reported_with_the_fix() {
    let service = Service::made(&[]);
    for (name, ..) in service.files() {
        let is_directory = service.state().join(&name).is_dir();
        service.give(&name, 0, GROUP, if is_directory { 0o750 } else { 0o640 });
    }
    service.give("", 0, 0, 0o755);
    // Keys that this group reads, and nobody else, are as they should be.
    service.done(&["certs", "check"]);
    for (name, mode) in [("user-data/worker.ign", 0o600), ("user-data", 0o700)] {
        service.give(name, 0, 0, mode);
        let line = format!(
            "/{name}: uid 0, gid 0, mode {mode:o}: the server runs as a user in group {GROUP} \
             and could not read it"
        );
        service.refused(&service.run(&["certs", "check"]), &[&line]);
        let rotate = service.run(&["certs", "rotate"]);
        service.refused(&rotate, &[&line]);
        let text = rotate.text();
        let (_, remedy) = text.rsplit_once(": ").expect("what mends it");
        let repair = Command::new("sh").arg("-c").arg(remedy).status();
        assert!(repair.expect("a shell").success(), "{remedy}");
        service.done(&["certs", "check"]);
        service.done(&["certs", "rotate"]);
    }
    service.boots_again(&[], &[]);
}

#[test]
fn where_a_file_cannot_be_given_to_its_owner_the_command_refuses_and_changes_nothing() {
    let service = Service::made(&[]);
    for (name, ..) in service.files() {
        let is_directory = service.state().join(&name).is_dir();
        service.give(&name, USER, GROUP, if is_directory { 0o770 } else { 0o660 });
    }
    service.give("", USER, GROUP, 0o770);
    let _ = fs::remove_file(service.state().join("access.json"));
    let before = service.files();
    // Another member of the service's group can write there, and not for the service.
    for arguments in [ADD, &["certs", "rotate"], &["certs", "rotate", "--ca"]] {
        let mut command = service.command(arguments);
        let output = Said::by(command.uid(OTHER_USER).gid(GROUP));
        let lines = ["not written: it must belong to uid 47110", "run the command as root"];
        service.refused(&output, &lines);
        assert_eq!(service.files(), before, "{arguments:?}");
    }
    service.boots_again(&[], &[]);
}

#[test]
fn root_writes_through_no_link_that_the_service_made() {
    let service = Service::made(&[]);
    let elsewhere = service.directory.path().join("elsewhere");
    fs::write(&elsewhere, "root's").expect("a write");
    for name in ["access.json", "tls.crt", "ca.crt"] {
        let path = service.state().join(name);
        let _ = fs::remove_file(&path);
        symlink(&elsewhere, &path).expect("a link");
    }
    // It is no list of tokens, and is left alone.
    let add = service.run(ADD);
    service.refused(&add, &["access.json"]);
    fs::remove_file(service.state().join("access.json")).expect("a link");
    service.done(&["certs", "rotate"]);
    service.assert_all_are_the_servers(&["rotate"]);
    assert_eq!(fs::read_to_string(&elsewhere).expect("a file"), "root's");
    assert_eq!(elsewhere.metadata().expect("a file").uid(), 0);
    service.boots_again(&[], &[]);
}

/// A dozen administrators change tokens at the same time, beside others who run `rotation`.
pub(crate) fn a_dozen_changes_of_tokens(
    round: &str,
    command: impl Fn(&[&str]) -> Command,
    rotation: &[&str],
) {
    let names: Vec<_> = (0..12).map(|number| format!("{round}-{number}")).collect();
    let add =
        |name: &str| command(&["tokens", "add", name, "--pool", "worker", "--until", "never"]);
    let list = || Said::by(&mut command(&["tokens", "list"])).done().output;
    done_at_once(names.iter().map(|name| add(name)).collect());
    let listed = list();
    for name in &names {
        assert!(listed.contains(&format!("{name} ")), "{name} is lost: {listed}");
    }

    let of_one_name = at_once((0..6).map(|_| add(&format!("same-{round}"))).collect());
    assert_eq!(of_one_name.iter().filter(|said| said.status == 0).count(), 1, "{of_one_name:?}");

    let revocations = names.iter().map(|name| command(&["tokens", "revoke", name]));
    done_at_once(revocations.chain((0..3).map(|_| command(rotation))).collect());
    let listed = list();
    let revoked = listed.lines().filter(|line| {
        names.iter().any(|name| line.contains(&format!("{name} "))) && line.ends_with("revoked")
    });
    assert_eq!(revoked.count(), names.len(), "{listed}");
}

/// An administrator for each CA distrusts it, all at the same time.
pub(crate) fn distrust_at_once(store: &impl Store, cas: &[String]) {
    assert!(cas.len() >= 6, "{cas:?}");
    let distrust = |ca: &String| store.command(&["certs", "distrust", ca, "--yes"]);
    let reported = done_at_once(cas.iter().map(distrust).collect());
    assert!(reported.contains("cannot boot"), "the last one sees that no CA is left: {reported}");
}

#[test]
fn a_dozen_administrators_lose_none_of_each_others_changes() {
    let service = Service::made(&ENFORCE);
    for round in ["beside-a-server", "alone"] {
        let server = (round != "alone").then(|| service.serve(&ENFORCE));
        let is_root = Cell::new(false);
        let command = |arguments: &[&str]| {
            let mut command = service.command(arguments);
            if is_root.replace(!is_root.get()) {
                command.uid(USER).gid(GROUP);
            }
            command
        };
        a_dozen_changes_of_tokens(round, command, &["certs", "rotate", "--ca", "--force"]);
        drop(server);
        service.assert_all_are_the_servers(&["a dozen"]);
        service.boots_again(&ENFORCE, &[]);
    }
}

#[test]
fn cas_that_several_distrust_at_once_are_all_distrusted() {
    for has_server in [false, true] {
        let service = Service::made(&[]);
        for _ in 0..5 {
            service.done(&["certs", "rotate", "--ca", "--force"]);
        }
        let cas = Certificate::read_all(service.text("ca.crt").as_bytes());
        let cas: Vec<_> = cas.iter().map(Certificate::fingerprint).collect();
        let server = has_server.then(|| service.serve(&[]));
        distrust_at_once(&service, &cas);
        let left = service.text("ca.crt") + &service.text("tls.key");
        let left = Certificate::read_all(left.as_bytes());
        assert!(!left.is_empty() && left.iter().all(|ca| !cas.contains(&ca.fingerprint())));
        drop(server);
        service.assert_all_are_the_servers(&["distrust"]);
        service.boots_again(&[], &[]);
    }
}

#[test]
fn a_certificate_that_root_enrols_for_the_service_is_the_services() {
    let service = Service::made(&[]);
    let key = service.state().join("enrolled.key");
    let secret = service.directory.path().join("secret");
    fs::write(&secret, "secret").expect("a write");
    // Nobody answers there: the key is on disk before.
    let mut enroll = service.program();
    enroll.args(["cmp", "enroll", "--url", "http://127.0.0.1:1/cmp", "--allow-http"]);
    enroll.args(["--subject", "CN=mcs", "--sender-kid", "1", "--timeout", "1s"]);
    enroll.arg("--secret-file").arg(&secret).arg("--key-out").arg(&key);
    enroll.arg("--out").arg(service.state().join("enrolled.crt"));
    let output = Said::by(&mut enroll);
    assert!(key.exists(), "{}", output.text());
    owned(&key);
}

#[test]
fn an_approval_of_root_is_followed_and_removed_by_the_service() {
    let service = Service::new();
    let manifest = "{apiVersion: machine-config-server.io/v1alpha1, kind: FirstBootMachine, \
                    metadata: {name: box-1}, spec: {pool: worker, approval: required}}";
    fs::write(service.directory.path().join("manifests/box-1.yaml"), manifest).expect("a write");
    let _server = service.serve(&["--machine-token-window", "25s"]);
    let pointer = service.state().join("user-data/machines/box-1.ign");
    let pointer = wait_for("its pointer config", || fs::read_to_string(&pointer).ok());
    service.done(&["machines", "approve", "box-1"]);
    let approval = service.state().join("approvals/box-1");
    owned(&service.state().join("approvals"));
    owned(&approval);
    Machine::new().boot(&pointer);
    wait_until("the end of the approval", || !approval.exists());
    owned(&service.state().join("approvals.json"));
}

fn owned(path: &Path) {
    let found = path.metadata().expect("a file");
    assert_eq!((found.uid(), found.gid()), (USER, GROUP), "{}", path.display());
}
