//! `cmp enroll`: certificates by CMPv2, against OpenSSL's server, an RA of Siemens' component and a CA of the tests' own.

mod openssl_server;
mod ra_component;
mod refusals;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pki::Certificate;
use pki::certificate::key_of;
use tempfile::TempDir;

use crate::support::cmp_ca::{CmpCa, NAME, Quirk, REFERENCE, SECRET, Seen};
use crate::support::command::Said;
use crate::support::openssl::openssl;
use crate::support::server::binary;
use crate::support::wait_until;

const IR: u8 = 0;
const P10CR: u8 = 4;
const KUR: u8 = 7;

/// A folder in which certificates are asked for.
struct Desk {
    directory: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        desk.put("password", &format!("{SECRET}\n"));
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a writable folder");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn certificates(&self, name: &str) -> Vec<Certificate> {
        Certificate::read_all(&self.read(name))
    }

    fn names(&self, name: &str) -> Vec<String> {
        self.certificates(name).into_iter().map(|it| it.common_name).collect()
    }

    /// Whether a file begins with the certificate of a key in another.
    fn is_pair(&self, certificate: &str, key: &str) -> bool {
        let key = key_of(&self.read(key)).expect("a key");
        self.certificates(certificate)[0].matches(&key)
    }

    fn command(&self, url: &str, flags: &[&str]) -> Command {
        let mut command = binary();
        command.current_dir(&self.directory).args(["cmp", "enroll", "--url", url]).args(flags);
        command
    }

    fn enroll(&self, ca: &CmpCa, flags: &[&str]) -> Said {
        let url = format!("http://{}/pkix/", ca.address());
        let common = ["--ca-name", "servers", "--allow-http", "--out", "tls.crt"];
        let flags = [&common[..], flags].concat();
        Said::by(&mut self.command(&url, &flags))
    }

    /// A first certificate by a password.
    fn first(&self, ca: &CmpCa, flags: &[&str]) -> Said {
        self.enroll(ca, &[&FIRST[..], flags].concat())
    }
}

const PASSWORD: [&str; 4] = ["--secret-file", "password", "--sender-kid", REFERENCE];
const FIRST: [&str; 8] = [
    "--secret-file",
    "password",
    "--sender-kid",
    REFERENCE,
    "--subject",
    "CN=mcs.example.com",
    "--key-out",
    "tls.key",
];

fn requested(kind: u8, by_password: bool) -> Seen {
    Seen::Request { kind, by_password }
}

#[test]
fn a_first_certificate_comes_with_its_chain_and_its_root_for_the_key_that_was_made() {
    let (ca, desk) = (CmpCa::start(Quirk::None), Desk::new());
    let names = ["--dns", "mcs.example.com", "--dns", "192.0.2.7", "--cas-out", "cas.crt"];
    let said = desk.first(&ca, &[&names[..], &["--recipient", NAME]].concat()).quietly_done();
    assert!(said.output.starts_with("tls.crt: \"mcs.example.com\" by \"issuing\", until "));
    assert_eq!(desk.names("tls.crt"), ["mcs.example.com", "issuing"]);
    assert_eq!(desk.names("cas.crt"), ["root"]);
    let hosts: Vec<_> =
        desk.certificates("tls.crt")[0].hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["mcs.example.com", "192.0.2.7"]);
    assert!(desk.is_pair("tls.crt", "tls.key"));
    assert_eq!(mode(&desk.path("tls.key")), 0o600);
    assert_eq!(ca.seen(), [requested(IR, true), Seen::Confirmed]);
    openssl(
        desk.directory.path(),
        &["verify", "-CAfile", "cas.crt", "-untrusted", "tls.crt", "tls.crt"],
    );
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().expect("a file").permissions().mode() & 0o777
}

#[test]
fn a_signing_request_from_a_file_is_certified_in_pem_and_in_der() {
    let (ca, desk) = (CmpCa::start(Quirk::None), Desk::new());
    let key =
        ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521", "-nodes", "-keyout", "their.key"];
    let request = ["req", "-new", "-sha512", "-subj", "/CN=theirs", "-out", "their.csr"];
    openssl(desk.directory.path(), &[&request[..], &key].concat());
    openssl(
        desk.directory.path(),
        &["req", "-in", "their.csr", "-outform", "DER", "-out", "their.der"],
    );
    for csr in ["their.csr", "their.der"] {
        desk.enroll(&ca, &[&PASSWORD[..], &["--csr", csr]].concat()).quietly_done();
        assert_eq!(desk.names("tls.crt"), ["theirs", "issuing"]);
        assert!(desk.is_pair("tls.crt", "their.key"));
        assert!(!desk.has("tls.key"));
    }
    let once = [requested(P10CR, true), Seen::Confirmed];
    assert_eq!(ca.seen(), [once.clone(), once].concat());
    let mut broken = desk.read("their.der");
    let last = broken.len() - 1;
    broken[last] ^= 1;
    fs::write(desk.path("broken.der"), broken).expect("a writable folder");
    let said = desk.enroll(&ca, &[&PASSWORD[..], &["--csr", "broken.der"]].concat());
    assert!(said.error.contains("its signature is not from its key"), "{}", said.error);
    assert_eq!(ca.seen().len(), 4, "nothing is asked for with a broken request");
}

/// A desk with a pair of the CA's, which is to be renewed.
fn with_pair(ca: &CmpCa) -> Desk {
    let desk = Desk::new();
    desk.first(ca, &["--dns", "a.example.com"]).quietly_done();
    desk.put("root.crt", &ca.root());
    desk
}

const RENEWAL: [&str; 8] =
    ["--renew", "tls.crt", "--key", "tls.key", "--key-out", "new.key", "--trusted", "root.crt"];

#[test]
fn a_renewal_is_signed_with_the_old_pair_and_brings_the_same_names_for_a_new_key() {
    let ca = CmpCa::start(Quirk::None);
    let desk = with_pair(&ca);
    let old = desk.certificates("tls.crt").remove(0);
    desk.enroll(&ca, &RENEWAL).quietly_done();
    let new = desk.certificates("tls.crt").remove(0);
    assert!(desk.is_pair("tls.crt", "new.key") && !desk.is_pair("tls.crt", "tls.key"));
    assert_eq!((&new.common_name, &new.hosts), (&old.common_name, &old.hosts));
    assert_ne!(new, old);
    assert_eq!(ca.seen()[2..], [requested(KUR, false), Seen::Confirmed]);
}

#[test]
fn a_certificate_can_replace_a_password_in_any_request() {
    let ca = CmpCa::start(Quirk::None);
    let desk = with_pair(&ca);
    let signed = ["--cert", "tls.crt", "--key", "tls.key", "--trusted", "root.crt"];
    let first = ["--subject", "CN=other", "--key-out", "other.key"];
    desk.enroll(&ca, &[&signed[..], &first].concat()).quietly_done();
    assert_eq!(desk.names("tls.crt"), ["other", "issuing"]);
    assert_eq!(ca.seen()[2..], [requested(IR, false), Seen::Confirmed]);
}

#[test]
fn a_confirmation_is_left_out_only_where_that_was_asked_for_and_granted() {
    let ca = CmpCa::start(Quirk::Implicit);
    Desk::new().first(&ca, &["--implicit-confirm"]).quietly_done();
    assert_eq!(ca.seen(), [requested(IR, true)]);
    // What was not asked for is not taken, and what is not granted is not taken for granted.
    Desk::new().first(&ca, &[]).quietly_done();
    assert_eq!(ca.seen()[1..], [requested(IR, true), Seen::Confirmed]);
    let ca = CmpCa::start(Quirk::None);
    Desk::new().first(&ca, &["--implicit-confirm"]).quietly_done();
    assert_eq!(ca.seen(), [requested(IR, true), Seen::Confirmed]);
}

#[test]
fn what_is_not_there_yet_is_waited_for() {
    for quirk in [Quirk::Waits(2), Quirk::WaitsByError(2)] {
        let ca = CmpCa::start(quirk);
        let said = Desk::new().first(&ca, &[]).quietly_done();
        let line = "the server asks to wait 1 s: somebody has to approve it";
        assert_eq!(said.output.lines().filter(|it| *it == line).count(), 2, "{}", said.output);
        let polls = [Seen::Poll, Seen::Poll, Seen::Poll];
        assert_eq!(ca.seen(), [&[requested(IR, true)], &polls[..], &[Seen::Confirmed]].concat());
    }
    // The answer may be to the first message then, but only then.
    Desk::new().first(&CmpCa::start(Quirk::FirstNonce), &[]).quietly_done();
}

#[test]
fn a_server_that_is_unavailable_while_a_request_waits_is_polled_again() {
    let ca = CmpCa::start(Quirk::Waits(usize::MAX));
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| Desk::new().first(&ca, &[]));
        let seen = |what: &Seen| wait_until("the client", || ca.seen().contains(what));
        seen(&Seen::Poll);
        ca.behave(Quirk::Unavailable);
        seen(&Seen::TurnedAway);
        ca.behave(Quirk::Waits(0));
        said.join().expect("a client").quietly_done()
    });
    let reported = "answers 503 Service Unavailable; the server has the request, asking again in ";
    assert!(said.output.contains(reported), "{}", said.output);
    let requests = ca.seen().into_iter().filter(|seen| matches!(seen, Seen::Request { .. }));
    assert_eq!(requests.count(), 1, "{:?}", ca.seen());
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    let ca = CmpCa::start(Quirk::Waits(1000));
    let said = Desk::new().first(&ca, &["--timeout", "3s"]);
    assert_eq!(
        (said.status, said.error.as_str()),
        (1, "machine-config-server: no certificate within 3 s\n")
    );
    let ca = CmpCa::start(Quirk::WaitsAgain);
    // It has asked and polled by then.
    let said = Desk::new().first(&ca, &["--timeout", "20s"]);
    assert!(said.output.contains("the server asks to wait 60 s"), "{}", said.output);
    assert_eq!((said.status, ca.seen()), (1, vec![requested(IR, true), Seen::Poll]));
    let ca = CmpCa::start(Quirk::Silent);
    let said = Desk::new().first(&ca, &["--timeout", "1s"]);
    assert_eq!(
        (said.status, said.error.as_str()),
        (1, "machine-config-server: no certificate within 1 s\n")
    );
}

#[test]
fn a_certificate_that_was_changed_is_taken_and_reported() {
    let said = Desk::new().first(&CmpCa::start(Quirk::Mods), &[]).quietly_done();
    let reported = "the certificate differs from the request: granted with changes; the server says \"shorter\"";
    assert!(said.output.contains(reported), "{}", said.output);
}

#[test]
fn an_old_servers_sha1_is_taken_by_flag_alone() {
    let ca = CmpCa::start(Quirk::Sha1);
    let said = Desk::new().first(&ca, &[]);
    assert!(
        said.error.contains("the message is protected with SHA-1, which needs --allow-sha1"),
        "{}",
        said.error
    );
    Desk::new().first(&ca, &["--allow-sha1"]).quietly_done();
}

#[test]
fn https_trusts_the_given_ca_alone() {
    let (ca, other, desk) = (CmpCa::start_tls(), CmpCa::start(Quirk::None), Desk::new());
    desk.put("root.crt", &ca.root());
    desk.put("other.crt", &other.root());
    let url = format!("https://localhost:{}/pkix/servers", ca.address().port());
    let enroll = |flags: &[&str]| -> Said {
        let flags = [&FIRST[..], &["--out", "tls.crt"], flags].concat();
        Said::by(&mut desk.command(&url, &flags))
    };
    let said = enroll(&["--cacert", "other.crt"]);
    assert!(said.error.contains("invalid peer certificate"), "{}", said.error);
    let said = enroll(&[]);
    assert!(
        said.error.contains("--cacert (cacertRef) must name the CA of the server"),
        "{}",
        said.error
    );
    assert_eq!(ca.seen(), []);
    enroll(&["--cacert", "root.crt"]).quietly_done();
}

#[test]
fn a_key_is_on_disk_before_anything_is_asked_for_and_is_taken_again() {
    let (ca, desk) = (CmpCa::start(Quirk::Refuses), Desk::new());
    assert_eq!(desk.first(&ca, &[]).status, 1);
    let key = desk.read("tls.key");
    assert!(!desk.has("tls.crt"));
    desk.first(&CmpCa::start(Quirk::None), &[]).quietly_done();
    assert_eq!(desk.read("tls.key"), key);
    // What cannot be written is not asked for.
    let (ca, desk) = (CmpCa::start(Quirk::None), Desk::new());
    let flags = [&PASSWORD[..], &["--subject", "CN=a", "--key-out", "nowhere/tls.key"]].concat();
    assert!(desk.enroll(&ca, &flags).error.contains("nowhere/tls.key"));
    assert_eq!(ca.seen(), []);
}

/// The CA of these tests, held against a client that others have written.
#[test]
fn openssl_enrols_at_the_ca_of_these_tests() {
    let (ca, desk) = (CmpCa::start(Quirk::Waits(1)), Desk::new());
    desk.put("root.crt", &ca.root());
    desk.put("issuing.crt", &ca.issuing());
    openssl(
        desk.directory.path(),
        &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "a.key"],
    );
    openssl(
        desk.directory.path(),
        &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "b.key"],
    );
    let server = format!("{}", ca.address());
    let common = ["cmp", "-server", &server, "-path", "pkix/servers", "-recipient", "/CN=issuing"];
    let secret = format!("pass:{SECRET}");
    let by_password = ["-ref", REFERENCE, "-secret", &secret, "-mac", "hmacWithSHA256"];
    let first = ["-cmd", "ir", "-newkey", "a.key", "-subject", "/CN=a", "-certout", "a.crt"];
    openssl(desk.directory.path(), &[&common[..], &by_password, &first].concat());
    assert!(desk.is_pair("a.crt", "a.key"));
    let by_pair =
        ["-cert", "a.crt", "-key", "a.key", "-trusted", "root.crt", "-untrusted", "issuing.crt"];
    let renewal = ["-cmd", "kur", "-newkey", "b.key", "-certout", "b.crt"];
    openssl(desk.directory.path(), &[&common[..], &by_pair, &renewal].concat());
    assert!(desk.is_pair("b.crt", "b.key"));
    let polls = [Seen::Poll, Seen::Poll, Seen::Confirmed];
    assert_eq!(
        ca.seen(),
        [&[requested(IR, true)], &polls[..], &[requested(KUR, false)], &polls].concat()
    );
}
