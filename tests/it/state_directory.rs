//! What a state directory asks of those who use it, and what is not taken from it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::contract::config;
use crate::support::in_repository;
use crate::support::manifests::copied_fixtures;
use crate::support::server::{Server, binary, limited_output, serving};
use crate::support::wait_until;

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

    for arguments in [&["certs", "rotate"][..], &["tokens", "list"]] {
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
    let server = serve();
    assert_eq!(config(&server.plain(), "worker", "3.4.0").status, 200);
    server.stop();
    assert!(manifests.join("certs/ledger.json").is_file());
    let server = serve();
    assert_eq!(config(&server.plain(), "worker", "3.4.0").status, 200);
    wait_until("all to be read", || server.metric("mcs_input_problems") < 0.5);
    for arguments in [&["validate", "--strict", "."][..], &["render", "worker", "."]] {
        let output = limited_output(&within(manifests, arguments));
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_state_directory_among_the_manifests_is_none_of_them() {
    let (_directory, manifests) = copied_fixtures();
    assert_apart(&manifests);
}

#[test]
fn a_state_directory_behind_a_link_among_the_manifests_is_none_of_them() {
    let (directory, manifests) = copied_fixtures();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a new folder");
    symlink(elsewhere, manifests.join("certs")).expect("a link");
    assert_apart(&manifests);
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

#[test]
fn what_killed_processes_left_is_removed_at_the_start_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (manifests, state) = (in_repository("ignition-fixtures"), directory.path().join("state"));
    drop(Server::serve_with_state(&manifests, &state));
    fs::create_dir_all(state.join("machines")).expect("a folder");
    // A process that has ended, and one that runs.
    let mut child = Command::new("true").spawn().expect("coreutils");
    child.wait().expect("its end");
    let (ended, running) = (child.id(), std::process::id());
    let left = [
        format!(".access.json.{ended}"),
        format!("machines/.rack-7.json.{ended}"),
        format!("user-data/.worker.ign.{ended}"),
        format!(".tls.key.{ended}"),
    ];
    let kept =
        [format!(".tls.key.{running}"), format!(".notes.{ended}"), format!("a.json.{ended}")];
    for name in left.iter().chain(&kept) {
        fs::write(state.join(name), "half").expect("a file");
    }
    let _server = Server::serve_with_state(&manifests, &state);
    assert_eq!(left.each_ref().map(|name| state.join(name).exists()), [false; 4]);
    assert_eq!(kept.each_ref().map(|name| state.join(name).exists()), [true; 3]);
}

#[test]
fn files_with_tokens_that_all_users_can_read_are_reported_and_made_private_by_their_owner() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (manifests, state) = (in_repository("ignition-fixtures"), directory.path().join("state"));
    let serve_enforced = || {
        let mut command = serving(&manifests, &state);
        command.args(["--access", "enforce"]);
        Server::prepared(command)
    };
    let files = ["tokens.json", "access.json"].map(|name| state.join(name));
    let mode = |path: &PathBuf| Some(fs::metadata(path).ok()?.permissions().mode() & 0o777);
    let server = serve_enforced();
    wait_until("the tokens", || files.each_ref().map(mode) == [Some(0o600); 2]);
    drop(server);
    for path in &files {
        fs::set_permissions(path, Permissions::from_mode(0o644)).expect("chmod");
    }
    let check = || {
        let mut command = binary();
        command.args(["certs", "check", "--state-dir"]).arg(&state);
        limited_output(&command)
    };
    let reported = check();
    let text = String::from_utf8(reported.stdout).expect("text");
    let line = |path: &PathBuf| format!("{}: all users can read its tokens", path.display());
    let lines = files.each_ref().map(line);
    assert_eq!(lines.each_ref().map(|line| text.contains(line)), [true; 2], "{lines:?}: {text}");
    assert_eq!(reported.status.code(), Some(1));
    let server = serve_enforced();
    assert_eq!(files.each_ref().map(mode), [Some(0o600); 2]);
    assert!(server.log().contains("made a file with tokens private"), "{}", server.log());
    assert!(check().status.success());
}

#[test]
fn a_pool_whose_name_is_too_long_for_a_pointer_config_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for name in ["a".repeat(253), "b".to_owned()] {
        let config = format!(
            "kind: MachineConfig\nmetadata: {{name: c-{0}}}\n\
             spec: {{config: {{ignition: {{version: 3.4.0}}}}}}\n---\n\
             kind: MachineConfigPool\nmetadata: {{name: {name}}}\n\
             spec: {{configuration: {{name: c-{0}}}}}\n",
            &name[..1]
        );
        let config =
            config.replace("kind:", "apiVersion: machineconfiguration.openshift.io/v1\nkind:");
        fs::write(directory.path().join(format!("{}.yaml", &name[..1])), config).expect("a file");
    }
    let long = "a".repeat(253);
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(config(&server.plain(), &long, "3.4.0").status, 200);
    wait_until("the fault to be reported", || {
        let text = String::from_utf8(server.metrics().get("/readyz").body).expect("text");
        text.contains("pointer configs: pool aaa") && text.contains("File name too long")
    });
    assert!(server.state().join("user-data/b.ign").is_file());
    let mut validate = binary();
    validate.arg("validate").arg(directory.path());
    let output = limited_output(&validate);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("its name has more than 242 bytes"), "{text}");
    assert!(!text.contains("pool b: its name"), "{text}");
}

/// A state directory that a server has made, and a pipe.
struct Endless {
    directory: TempDir,
}

impl Endless {
    fn new() -> Self {
        let endless = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        drop(Server::serve_with_state(&in_repository("ignition-fixtures"), &endless.state()));
        let made = Command::new("mkfifo").arg(endless.directory.path().join("pipe")).status();
        assert!(made.expect("coreutils").success());
        endless
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Files that never end.
    fn files(&self) -> [PathBuf; 2] {
        [self.directory.path().join("pipe"), PathBuf::from("/dev/zero")]
    }

    /// What is wrong with the end of a command: it must fail soon and with little memory, and name `path`.
    fn fault(&self, command: &Command, path: &Path) -> Option<String> {
        // A process that reads on without a limit fails, as one that waits.
        let mut limited = Command::new("prlimit");
        limited.arg("--data=1073741824").arg(command.get_program()).args(command.get_args());
        let output = limited_output(limited.current_dir(self.directory.path()));
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        let last = text.lines().last().unwrap_or_default();
        let is_named = last.contains(path.to_str().expect("text"));
        let has_failed = matches!(output.status.code(), Some(1 | 2));
        (!is_named || !has_failed).then(|| format!("{command:?}: {}: {text}", output.status))
    }

    /// Runs a command with each of the files as its last argument.
    #[track_caller]
    fn assert_named(&self, arguments: &[&str]) {
        let faults = self.files().into_iter().filter_map(|path| {
            let mut command = binary();
            command.args(arguments).arg(&path);
            self.fault(&command, &path)
        });
        assert_eq!(faults.collect::<Vec<_>>(), Vec::<String>::new());
    }
}

#[test]
fn a_serving_key_that_never_ends_is_named_and_takes_neither_time_nor_memory() {
    let endless = Endless::new();
    let link = endless.state().join("tls.key");
    let faults = endless.files().into_iter().filter_map(|path| {
        fs::remove_file(&link).expect("a file");
        symlink(path, &link).expect("a link");
        endless.fault(&serve(&in_repository("ignition-fixtures"), &endless.state()), &link)
    });
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_pointer_config_that_never_ends_is_named_and_takes_neither_time_nor_memory() {
    Endless::new().assert_named(&["certs", "check", "--state-dir", "state", "--pointer"]);
}

#[test]
fn a_certificate_to_distrust_that_never_ends_is_named_and_takes_neither_time_nor_memory() {
    Endless::new().assert_named(&["certs", "distrust", "--yes", "--state-dir", "state"]);
}

#[test]
fn an_overlay_that_never_ends_is_named_and_takes_neither_time_nor_memory() {
    let machine = ["machines", "add", "n", "--pool", "worker", "--manifests", "."];
    let of_state = ["--state-dir", "state", "--overlay"];
    Endless::new().assert_named(&[&machine[..], &of_state].concat());
}

#[test]
fn a_kubeconfig_that_never_ends_is_named_and_takes_neither_time_nor_memory() {
    Endless::new().assert_named(&["bootstrap", "--bootstrap-kubeconfig"]);
}
