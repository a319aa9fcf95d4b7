//! What an administrator, the clock, a full disk and the years do to a state directory, and that no
//! machine pays for it: the built binary on files, judged by those who verify certificates.

mod clock;
mod disk;
mod distrust;
mod faults;
mod limits;
mod lock;
mod many;
mod own;
mod own_ca;
mod pointers;
mod real_ignition;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use model::pointer_config::PointerConfig;
use pem::Pem;
use pki::{Certificate, Host, TrustHolder, locked_out};
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::support::clock::set_clock;
use crate::support::command::{Said, Store};
use crate::support::machine::Machine;
use crate::support::openssl::verify;
use crate::support::server::{Server, serving};
use crate::support::{go, in_repository, wait_for, wait_until};

/// A state directory.
struct Place {
    directory: TempDir,
}

impl Place {
    /// One with nothing in it.
    fn empty() -> Self {
        let place = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(place.state()).expect("a new folder");
        place
    }

    /// One that `serve` has made, with the clock as it is or elsewhere.
    fn made(clock: Option<&str>) -> Self {
        let place = Self::empty();
        drop(place.serve(clock, &[]));
        place
    }

    /// A copy, for another way to break it.
    fn copy(&self) -> Self {
        let place = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        let copy = Command::new("cp").arg("-a").arg(self.state()).arg(place.state()).status();
        assert!(copy.expect("cp").success());
        place
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.file(name), text).expect("a writable folder");
        let is_key = Path::new(name).extension().is_some_and(|extension| extension == "key");
        let mode = if is_key { 0o600 } else { 0o644 };
        fs::set_permissions(self.file(name), Permissions::from_mode(mode)).expect("chmod");
    }

    /// The workers' pointer config.
    fn pointer(&self) -> String {
        self.text("user-data/worker.ign")
    }

    /// `serve`, once it has written the workers' pointer config.
    fn serve(&self, clock: Option<&str>, flags: &[&str]) -> Server {
        let server = self.serve_anyhow(clock, flags);
        let pointer = self.file("user-data/worker.ign");
        wait_for("the pointer config", || {
            let port = format!(":{}/", server.secure().port());
            fs::read_to_string(&pointer).ok().filter(|text| text.contains(&port))
        });
        server
    }

    /// `serve`, whether it can write or not.
    fn serve_anyhow(&self, clock: Option<&str>, flags: &[&str]) -> Server {
        let mut command = self.serve_command(flags);
        if let Some(clock) = clock {
            set_clock(&mut command, clock);
        }
        Server::prepared(command)
    }

    fn serve_command(&self, flags: &[&str]) -> Command {
        let mut command = serving(&in_repository("ignition-fixtures"), &self.state());
        command.args(flags);
        command
    }

    fn certs(&self, arguments: &[&str]) -> Said {
        self.certs_at(None, arguments)
    }

    fn certs_at(&self, clock: Option<&str>, arguments: &[&str]) -> Said {
        let mut command = self.state().command(&[&["certs"], arguments].concat());
        if let Some(clock) = clock {
            set_clock(&mut command, clock);
        }
        Said::by(&mut command)
    }

    fn chain(&self) -> Vec<Certificate> {
        let chain = self.certificates("tls.key");
        if chain.is_empty() { self.certificates("tls.crt") } else { chain }
    }

    /// The certificates of a file.
    fn certificates(&self, name: &str) -> Vec<Certificate> {
        Certificate::read_all(self.text(name).as_bytes())
    }

    /// The CA that was made last.
    fn newest_ca(&self) -> Certificate {
        let cas = self.certificates("ca.crt").into_iter();
        cas.max_by_key(|ca| (ca.not_before, ca.not_after)).expect("a CA")
    }

    /// Whether a machine with this pointer config boots from what is kept to be served.
    #[track_caller]
    fn boots(&self, pointer: &str) -> bool {
        self.boots_at(pointer, OffsetDateTime::now_utc())
    }

    /// The same at another time. Fails the test where those who verify certificates differ.
    #[track_caller]
    fn boots_at(&self, pointer: &str, at: OffsetDateTime) -> bool {
        let config = PointerConfig::read(pointer.as_bytes());
        let [holder] = &config.holders("handed out")[..] else {
            panic!("a pointer config of one pool: {pointer}")
        };
        accepted(&self.chain(), holder, at)
    }

    #[track_caller]
    fn assert_boots(&self, pointer: &str) {
        assert!(self.boots(pointer), "{}", self.certs(&["check"]).text());
    }
}

/// What `pki`, OpenSSL and, where it is there, Go say of a chain. All have to say the same. OpenSSL, which
/// never looks further than the first CA of a name, is asked with those alone that are valid.
#[track_caller]
fn accepted(chain: &[Certificate], holder: &TrustHolder, at: OffsetDateTime) -> bool {
    let reported = locked_out(chain, std::slice::from_ref(holder), at);
    let accepted = reported.is_empty();
    let output = openssl_verify(chain, holder, at);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), accepted, "{reported:?}, OpenSSL: {said}");
    if std::env::var_os("CERTIFICATE_VERIFIER").is_some() {
        let errors = go::judge(chain, holder, at);
        assert_eq!(errors.is_empty(), accepted, "{reported:?}, Go: {errors:?}");
    }
    accepted
}

fn openssl_verify(chain: &[Certificate], holder: &TrustHolder, at: OffsetDateTime) -> Output {
    let time = at.unix_timestamp().to_string();
    let mut flags = ["-purpose", "sslserver", "-attime", &time].map(str::to_owned).to_vec();
    flags.extend(holder.hosts.iter().flat_map(|host| match host {
        Host::Name(name) => ["-verify_hostname".to_owned(), name.clone()],
        Host::Address(address) => ["-verify_ip".to_owned(), address.to_string()],
    }));
    let valid: Vec<_> = holder.trusted.iter().filter(|ca| ca.is_valid_at(at)).cloned().collect();
    verify(&flags, chain, &valid)
}

/// Boots a machine with the real Ignition, from whichever port the server has by now.
#[track_caller]
fn boot(pointer: &str, server: &Server) {
    Machine::new().boot(&at_port_of(pointer, server));
}

fn at_port_of(pointer: &str, server: &Server) -> String {
    let (before, rest) = pointer.split_once("https://localhost:").expect("a URL");
    let digits = rest.find(|c: char| !c.is_ascii_digit()).expect("a path");
    format!("{before}https://localhost:{}{}", server.secure().port(), &rest[digits..])
}

/// The keys of a text.
fn keys(text: &str) -> Vec<Vec<u8>> {
    let blocks = pem::parse_many(text).expect("PEM").into_iter();
    blocks.filter(|block| block.tag().contains("PRIVATE KEY")).map(Pem::into_contents).collect()
}

/// Whether all keys of a text are in another.
fn keeps_keys(before: &str, after: &str) -> bool {
    keys(before).iter().all(|key| keys(after).contains(key))
}

/// Waits until `/readyz`, which answers 200, says this of the certificates.
fn wait_until_reported(server: &Server, part: &str) {
    wait_until(part, || {
        let answer = server.metrics().get("/readyz");
        let text = String::from_utf8(answer.body).expect("text");
        answer.status == 200 && text.contains(part)
    });
}

/// Waits until the log, which is written beside what it tells of, has a line that says this.
fn wait_until_logged(server: &Server, part: &str) {
    wait_until(part, || server.log().lines().any(|line| line.contains(part)));
}

/// A file's bytes and its place on the disk: whether it was written, even with the same.
fn identity(path: &Path) -> (u64, Vec<u8>) {
    use std::os::unix::fs::MetadataExt as _;
    (fs::metadata(path).expect("a file").ino(), fs::read(path).expect("a file"))
}
