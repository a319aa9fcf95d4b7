//! `certs check --pointer`: what is told of a file before a machine gets it, by a state directory
//! and by a server that runs.

mod answers;
mod certificates;
mod contents;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::access::trusted;
use crate::support::command::{Said, Store};
use crate::support::server::{Server, binary};
use crate::support::wait_until;

/// The lines of a check, and its exit code.
struct Report {
    status: i32,
    lines: Vec<String>,
    error: String,
}

impl Report {
    fn of(command: &mut Command) -> Self {
        let Said { status, output, error } = Said::by(command);
        Self { status, lines: output.lines().map(str::to_owned).collect(), error }
    }
}

fn check(file: &Path, more: &[&str]) -> Report {
    Report::of(binary().args(["certs", "check", "--pointer"]).arg(file).args(more))
}

/// A server, and the pointer config that it has made for its workers.
struct Served {
    server: Server,
    directory: TempDir,
    state: String,
    address: String,
}

impl Served {
    fn start() -> Self {
        Self::with_flags(&[])
    }

    fn with_flags(flags: &[&str]) -> Self {
        let server = Server::sample_cluster(flags);
        let state = server.state().to_str().expect("text").to_owned();
        let address = format!("localhost:{}", server.secure().port());
        let directory = tempfile::tempdir().expect("a temporary folder");
        let made = Self { server, directory, state, address };
        wait_until("the pointer config", || made.own().exists());
        made
    }

    fn own(&self) -> PathBuf {
        self.server.state().join("user-data/worker.ign")
    }

    fn config(&self) -> Value {
        serde_json::from_slice(&fs::read(self.own()).expect("a file")).expect("JSON")
    }

    /// A file for which the machine's config is changed.
    fn with(&self, change: impl FnOnce(&mut Value)) -> PathBuf {
        let mut config = self.config();
        change(&mut config);
        self.file(config.to_string().as_bytes())
    }

    fn file(&self, contents: &[u8]) -> PathBuf {
        let file = self.directory.path().join("other.ign");
        fs::write(&file, contents).expect("a writable folder");
        file
    }

    fn by_state(&self, file: &Path) -> Report {
        check(file, &["--state-dir", &self.state])
    }

    fn by_server(&self, file: &Path) -> Report {
        check(file, &["--connect", &self.address])
    }

    /// A copy of what is kept: the server writes its own pointer configs anew where it sees that they are not right.
    fn copied(&self) -> Kept {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let state = directory.path().join("state");
        self.server.copy_state(&state);
        Kept { state, _directory: directory }
    }

    /// By both. Each names the same faults, which `expected` are parts of.
    fn assert_refused(&self, file: &Path, expected: &[&str]) {
        for said in [self.by_state(file), self.by_server(file)] {
            let Report { status, lines, error } = said;
            assert_eq!(status, 1, "{lines:?}");
            assert_eq!(lines.len(), expected.len(), "{lines:?}");
            for (line, part) in lines.iter().zip(expected) {
                assert!(line.starts_with(&file.display().to_string()), "{line}");
                assert!(line.contains(part), "{part} in {line}");
            }
            assert_eq!(error, one_error(file, expected.len()));
        }
    }
}

/// A state directory that no server serves.
struct Kept {
    state: PathBuf,
    _directory: TempDir,
}

impl Kept {
    fn pointer(&self, pool: &str) -> PathBuf {
        self.state.join(format!("user-data/{pool}.ign"))
    }

    fn check(&self, more: &[&str]) -> Report {
        Report::of(&mut self.state.command(&[&["certs", "check"], more].concat()))
    }

    fn check_pointer(&self, pool: &str, more: &[&str]) -> Report {
        let file = self.pointer(pool);
        self.check(&[&["--pointer", file.to_str().expect("text")], more].concat())
    }
}

fn one_error(file: &Path, faults: usize) -> String {
    let file = file.display();
    format!("machine-config-server: {file}: no machine can boot from it: faults: {faults}\n")
}

/// The entry of the only authorities.
fn ca(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["security"]["tls"]["certificateAuthorities"][0]
}

fn pem(config: &Value) -> String {
    String::from_utf8(trusted(config.to_string().as_bytes())).expect("PEM")
}

fn set_pem(config: &mut Value, pem: &str) {
    ca(config)["source"] = format!("data:;base64,{}", BASE64.encode(pem)).into();
}

fn merge(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["config"]["merge"][0]
}
