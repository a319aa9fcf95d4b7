//! An RA of Siemens' CMP RA component, before a CA that issues: others have written all of it that speaks the protocol,
//! and it holds each message against it, proof of possession, nonces and confirmation too.
//!
//! It is a Java program, which `tests/run` builds: `--skip cmp::ra_component::` leaves these tests out.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;

use super::{Desk, FIRST, NAME, PASSWORD, REFERENCE, RENEWAL, SECRET};
use crate::support::clock::set_clock;
use crate::support::command::Said;
use crate::support::http::Client;
use crate::support::openssl::openssl;

/// The program, one for all tests of this process. It ends with its standard input.
static PROGRAM: LazyLock<Program> = LazyLock::new(Program::start);

struct Program {
    address: SocketAddr,
    /// The CA's root, in PEM.
    root: String,
    _input: ChildStdin,
    _child: Child,
}

impl Program {
    fn start() -> Self {
        let directory = std::env::var_os("CMP_RA")
            .expect("CMP_RA: run tests/run, or set it to what tests/cmp-ra/install prints");
        let directory = Path::new(&directory);
        let classes = std::env::join_paths([directory.join("classes"), directory.join("lib/*")]);
        let mut command = Command::new("java");
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]);
        // What it refuses, it warns about at length.
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error");
        command
            .arg("-cp")
            .arg(classes.expect("a path without a colon"))
            .args(["Ra", REFERENCE, SECRET]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java, which tests/cmp-ra/install looks for");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = output.lines().map(|line| line.expect("text"));
        let address = lines.next().expect("an address").parse().expect("an address");
        let mut root = String::new();
        for line in lines {
            root.extend([&line, "\n"]);
            if line.starts_with("-----END") {
                break;
            }
        }
        Self { address, root, _input: input, _child: child }
    }
}

/// An RA that answers in one manner of the program's, and is one test's alone by its name.
struct Ra {
    manner: &'static str,
    name: &'static str,
    desk: Desk,
}

impl Ra {
    fn new(manner: &'static str, name: &'static str) -> Self {
        let desk = Desk::new();
        desk.put("root.crt", &PROGRAM.root);
        Self { manner, name, desk }
    }

    /// Another RA of the same CA, with the same files.
    fn turn(&mut self, manner: &'static str) {
        self.manner = manner;
    }

    fn command(&self, flags: &[&str]) -> Command {
        let url = format!("http://{}/{}", PROGRAM.address, self.manner);
        let common = ["--ca-name", self.name, "--allow-http", "--out", "tls.crt"];
        self.desk.command(&url, &[&common[..], flags].concat())
    }

    fn enroll(&self, flags: &[&str]) -> Said {
        Said::by(&mut self.command(flags))
    }

    /// A first certificate by a password.
    fn first(&self, flags: &[&str]) -> Said {
        self.enroll(&[&FIRST[..], flags].concat())
    }

    /// Subject of the certificate.
    fn hosts(&self) -> Vec<String> {
        let certificate = self.desk.certificates("tls.crt").remove(0);
        certificate.hosts.iter().map(ToString::to_string).collect()
    }

    /// What the CA has seen by way of this RA.
    fn seen(&self) -> Vec<String> {
        let path = format!("/{}/{}", self.manner, self.name);
        let body = Client::plain(PROGRAM.address).get(&path).body;
        String::from_utf8(body).expect("text").lines().map(str::to_owned).collect()
    }
}

/// Refused in one line that has this reason, and nothing was written.
fn refused(ra: &Ra, said: &Said, reason: &str) {
    assert!(said.error.contains(reason), "{}", said.error);
    assert_eq!((said.status, said.error.lines().count(), said.output.as_str()), (1, 1, ""));
    assert!(!ra.desk.has("tls.crt"));
}

/// What every kind of key signs: the proof of possession of a first request.
#[test]
fn a_first_certificate_comes_by_a_password_for_every_kind_of_key() {
    let ra = Ra::new("password", "first");
    for kind in ["p256", "p384", "p521", "rsa2048"] {
        let key = format!("{kind}.key");
        let wanted = ["--subject", "CN=mcs.example.com,O=Example", "--key-out", &key];
        let names = ["--dns", "mcs.example.com", "--dns", "192.0.2.7", "--cas-out", "cas.crt"];
        let server = ["--key-algorithm", kind, "--recipient", NAME, "--trusted", "root.crt"];
        let said = ra.enroll(&[&PASSWORD[..], &wanted, &names, &server].concat()).quietly_done();
        assert!(said.output.starts_with("tls.crt: \"mcs.example.com\" by \"issuing\", until "));
        assert_eq!(ra.desk.names("tls.crt"), ["mcs.example.com", "issuing"]);
        assert_eq!(ra.desk.read("cas.crt"), ra.desk.read("root.crt"));
        assert_eq!(ra.hosts(), ["mcs.example.com", "192.0.2.7"]);
        assert!(ra.desk.is_pair("tls.crt", &key));
        let verify = ["verify", "-CAfile", "cas.crt", "-untrusted", "tls.crt", "tls.crt"];
        openssl(ra.desk.directory.path(), &verify);
    }
    assert_eq!(ra.seen(), ["ir", "confirmed"].repeat(4));
}

#[test]
fn a_signing_request_from_a_file_is_certified() {
    let ra = Ra::new("password", "signing");
    let directory = ra.desk.directory.path();
    let key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "their.key"];
    let request = ["req", "-new", "-subj", "/O=Example/CN=theirs", "-out", "their.csr"];
    let names = ["-addext", "subjectAltName=DNS:theirs.example.com"];
    openssl(directory, &[&request[..], &names, &key].concat());
    ra.enroll(&[&PASSWORD[..], &["--csr", "their.csr"]].concat()).quietly_done();
    assert_eq!(ra.desk.names("tls.crt"), ["theirs", "issuing"]);
    assert_eq!(ra.hosts(), ["theirs.example.com"]);
    assert!(ra.desk.is_pair("tls.crt", "their.key"));
    assert_eq!(ra.seen(), ["p10cr", "confirmed"]);
}

#[test]
fn an_answer_by_a_mac_that_is_not_known_here_is_not_believed() {
    let ra = Ra::new("pbmac1", "unknown");
    let reported = "the protection of the message is not supported (1.2.840.113549.1.5.14)";
    refused(&ra, &ra.first(&[]), reported);
    assert_eq!(ra.seen(), ["ir"]);
}

/// Each key signs the request for the next one.
#[test]
fn a_renewal_is_signed_with_the_old_pair_of_every_kind_and_so_is_its_answer() {
    let mut ra = Ra::new("password", "renewal");
    ra.first(&["--dns", "a.example.com"]).quietly_done();
    let old = ra.desk.certificates("tls.crt").remove(0);
    ra.turn("signed");
    let said = ra.enroll(&RENEWAL);
    assert!(
        said.error.contains("the message is from CN=ra, not from CN=issuing"),
        "{}",
        said.error
    );
    let mut key = "tls.key".to_owned();
    for kind in ["p384", "p521", "rsa2048", "p256"] {
        let next = format!("{kind}.key");
        let pair = ["--renew", "tls.crt", "--key", &key, "--key-out", &next];
        let server = ["--trusted", "root.crt", "--expect-sender", "CN=ra"];
        ra.enroll(&[&pair[..], &server, &["--key-algorithm", kind]].concat()).quietly_done();
        assert!(ra.desk.is_pair("tls.crt", &next));
        let new = ra.desk.certificates("tls.crt").remove(0);
        assert_eq!((&new.common_name, &new.hosts), (&old.common_name, &old.hosts));
        key = next;
    }
    assert_eq!(ra.seen(), [&["kur"][..], &["kur", "confirmed"].repeat(4)].concat());
}

#[test]
fn a_signature_may_answer_a_password_and_a_certificate_stand_for_one() {
    let ra = Ra::new("signed", "stands");
    let server = ["--trusted", "root.crt", "--expect-sender", "CN=ra"];
    ra.first(&server).quietly_done();
    let signed = ["--cert", "tls.crt", "--key", "tls.key"];
    let other = ["--subject", "CN=other", "--key-out", "other.key"];
    ra.enroll(&[&signed[..], &other, &server].concat()).quietly_done();
    assert_eq!(ra.desk.names("tls.crt"), ["other", "issuing"]);
    assert_eq!(ra.seen(), ["ir", "confirmed"].repeat(2));
}

#[test]
fn what_comes_later_is_asked_for_again() {
    let ra = Ra::new("later", "later");
    let said = ra.first(&["--recipient", NAME]).quietly_done();
    let line = "the server asks to wait 1 s";
    assert_eq!(said.output.lines().filter(|it| *it == line).count(), 1, "{}", said.output);
    assert_eq!(ra.desk.names("tls.crt"), ["mcs.example.com", "issuing"]);
    // The RA itself takes the confirmation of what came late.
    assert_eq!(ra.seen(), ["ir"]);
}

#[test]
fn a_confirmation_is_left_out_where_that_was_asked_for_and_granted() {
    let ra = Ra::new("password", "implicit");
    ra.first(&["--implicit-confirm"]).quietly_done();
    assert_eq!(ra.seen(), ["ir"]);
    ra.first(&[]).quietly_done();
    assert_eq!(ra.seen(), ["ir", "ir", "confirmed"]);
}

#[test]
fn a_wrong_password_and_a_wrong_reference_are_refused_and_reported() {
    let ra = Ra::new("password", "wrong");
    let wrong = [&["--secret-file", "password", "--sender-kid", "4712"][..], &FIRST[4..]].concat();
    let reported = "the server refuses: rejection: notAuthorized (the requester is not authorized); the server says \
                \"downstream: message is password protected but no shared secret is provided\"";
    refused(&ra, &ra.enroll(&wrong), reported);
    ra.desk.put("password", "a wrong one");
    let reported = "the message was protected with another password, or changed; it claims: rejection: \
                badMessageCheck (the integrity check failed: wrong password or key); \
                the server says \"downstream: PasswordBasedMac protection check failed\"";
    refused(&ra, &ra.first(&[]), reported);
    assert!(ra.seen().is_empty());
}

#[test]
fn an_unknown_client_is_refused_and_it_is_reported() {
    let ra = Ra::new("password", "stranger");
    let reported = "the server refuses: rejection: badCertTemplate (the requested names or \
        extensions are wrong or incomplete); the server says \"downstream: request refused by external inventory\"";
    let subject = ["--subject", "CN=stranger", "--key-out", "tls.key"];
    refused(&ra, &ra.enroll(&[&PASSWORD[..], &subject].concat()), reported);
    let request = ["req", "-new", "-key", "tls.key", "-subj", "/CN=stranger", "-out", "a.csr"];
    openssl(ra.desk.directory.path(), &request);
    refused(&ra, &ra.enroll(&[&PASSWORD[..], &["--csr", "a.csr"]].concat()), reported);
    assert!(ra.seen().is_empty());
}

#[test]
fn a_renewal_signed_by_an_untrusted_pair_is_refused_and_reported() {
    let ra = Ra::new("signed", "elses");
    let directory = ra.desk.directory.path();
    let pair = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=mcs.example.com"];
    openssl(directory, &[&pair[..], &["-keyout", "own.key", "-out", "own.crt"]].concat());
    let renewal = ["--renew", "own.crt", "--key", "own.key", "--key-out", "new.key"];
    let server = ["--trusted", "root.crt", "--expect-sender", "CN=ra"];
    let reported = "the server refuses: rejection: signerNotTrusted (the signer is unknown or not trusted); the server \
                says \"downstream: validating the protection certificate failed\"";
    refused(&ra, &ra.enroll(&[&renewal[..], &server].concat()), reported);
    assert!(ra.seen().is_empty());
}

#[test]
fn a_clock_that_is_far_from_the_servers_is_reported() {
    let ra = Ra::new("password", "clock");
    let mut command = ra.command(&FIRST);
    set_clock(&mut command, "-1h");
    let said = Said::by(&mut command);
    let reported = "the server refuses: rejection: badTime (the message's time is too far from the server's); the server \
                says \"downstream: message time out of allowed range\"";
    refused(&ra, &said, reported);
}

#[test]
fn an_untrusted_certificate_is_rejected_and_the_ca_is_informed() {
    let ra = Ra::new("password", "rejects");
    let directory = ra.desk.directory.path();
    let other = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=root"];
    openssl(directory, &[&other[..], &["-keyout", "other.key", "-out", "other.crt"]].concat());
    let reported = "the issued certificate is not trusted: ";
    refused(&ra, &ra.first(&["--trusted", "other.crt"]), reported);
    let seen = ra.seen();
    assert!(seen.len() == 2 && seen[1].starts_with(&format!("rejected: {reported}")), "{seen:?}");
}
