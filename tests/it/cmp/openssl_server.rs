//! OpenSSL's own CMP server, which others have written: it answers with a certificate that it is given, and so proves
//! the protocol, not a CA.

use std::fs::{self};
use std::process::Command;

use super::{Desk, REFERENCE, SECRET};
use crate::support::command::Said;
use crate::support::logged::Logged;
use crate::support::openssl::{openssl, sign_serving};
use crate::support::wait_for;

/// It listens on all addresses, so it has a network of its own.
struct OpensslServer {
    desk: Desk,
    program: Logged,
    port: String,
}

impl OpensslServer {
    /// With these flags, and what signs its answers or not.
    fn start(by_password: bool, flags: &[&str]) -> Self {
        let desk = Desk::new();
        let directory = desk.directory.path();
        let ec = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"];
        openssl(directory, &[&ec[..], &["ca.key"]].concat());
        openssl(directory, &[&ec[..], &["tls.key"]].concat());
        let usage = ["-addext", "keyUsage=digitalSignature,keyCertSign"];
        let root =
            ["req", "-x509", "-key", "ca.key", "-subj", "/CN=ca", "-days", "30", "-out", "ca.crt"];
        openssl(directory, &[&root[..], &usage].concat());
        sign_serving(directory, "subjectAltName=DNS:localhost");
        openssl(
            directory,
            &["req", "-new", "-key", "tls.key", "-subj", "/CN=localhost", "-out", "tls.csr"],
        );
        fs::rename(desk.path("tls.crt"), desk.path("issued.crt")).expect("a writable folder");
        let secret = format!("pass:{SECRET}");
        let proof = if by_password {
            ["-srv_ref", REFERENCE, "-srv_secret", &secret]
        } else {
            ["-srv_cert", "ca.crt", "-srv_key", "ca.key"]
        };
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec openssl cmp \"$@\"",
            "openssl",
        ]);
        command.args(["-port", "0", "-srv_trusted", "ca.crt", "-rsp_cert", "issued.crt"]);
        command.args(["-rsp_capubs", "ca.crt"]).args(proof).args(flags).current_dir(directory);
        let program = Logged::start("unshare, of util-linux", &mut command);
        let port = wait_for("OpenSSL's server", || {
            let log = program.log();
            let (_, rest) = log.split_once("ACCEPT [::]:")?;
            Some(rest.split_once(' ')?.0.to_owned())
        });
        Self { desk, program, port }
    }

    /// From the server's network.
    fn enroll(&self, flags: &[&str]) -> Said {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let enroll = self.desk.command(&url, &["--allow-http", "--out", "tls.crt"]);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.program.pid())).arg(enroll.get_program());
        command.args(enroll.get_args()).args(flags).current_dir(&self.desk.directory);
        Said::by(&mut command)
    }
}

/// Its answers are protected by HMAC-SHA-1, and no flag of its changes that.
const PASSWORD: [&str; 5] =
    ["--secret-file", "password", "--sender-kid", REFERENCE, "--allow-sha1"];
const FIRST: [&str; 4] = ["--subject", "CN=localhost", "--key-out", "tls.key"];
const REQUEST: [&str; 2] = ["--csr", "tls.csr"];

#[test]
fn a_first_certificate_and_one_for_a_request_come_by_a_password() {
    let server = OpensslServer::start(true, &["-poll_count", "2", "-check_after", "1"]);
    for wanted in [&FIRST[..], &REQUEST] {
        let flags =
            [&PASSWORD[..], wanted, &["--cas-out", "cas.crt", "--trusted", "ca.crt"]].concat();
        let said = server.enroll(&flags).quietly_done();
        assert_eq!(server.desk.certificates("tls.crt"), server.desk.certificates("issued.crt"));
        assert!(said.output.starts_with("the server asks to wait 1 s\n"), "{}", said.output);
        // It sends CAs with the answer to a first request alone.
        if wanted == FIRST {
            assert_eq!(server.desk.names("cas.crt"), ["ca"]);
        }
        fs::remove_file(server.desk.path("tls.crt")).expect("a file");
    }
}

#[test]
fn a_request_and_a_renewal_are_signed_and_so_are_the_answers() {
    let server = OpensslServer::start(false, &["-grant_implicitconf"]);
    let trusted = ["--trusted", "ca.crt"];
    let signed = ["--cert", "issued.crt", "--key", "tls.key"];
    server.enroll(&[&signed[..], &trusted, &REQUEST].concat()).quietly_done();
    let renewal = ["--renew", "issued.crt", "--key", "tls.key", "--key-out", "tls.key"];
    server.enroll(&[&renewal[..], &trusted, &["--implicit-confirm"]].concat()).quietly_done();
    let unrelated = ["--trusted", "issued.crt"];
    let said = server.enroll(&[&renewal[..], &unrelated].concat());
    let reported = "no certificate of CN=ca in the message has the key that signed it";
    assert!(said.error.contains(reported), "{}", said.error);
}

#[test]
fn a_wrong_password_and_a_wrong_reference_are_refused() {
    let server = OpensslServer::start(true, &[]);
    server.desk.put("password", "a wrong one");
    let said = server.enroll(&[&PASSWORD[..], &FIRST].concat());
    assert_eq!(said.status, 1);
    assert!(
        said.error.contains("the message was protected with another password"),
        "{}",
        said.error
    );
    assert!(!server.desk.has("tls.crt"));
    assert!(server.program.log().contains("POST / HTTP/1.1"));
}

#[test]
fn its_statuses_and_failure_bits_are_reported_in_words() {
    let reasons = ["-failurebits", "8388612", "-statusstring", "no such machine"];
    let reported = "the server refuses: rejection: badRequest (the request is not permitted or not \
                supported), notAuthorized (the requester is not authorized); the server says \"no such machine\"";
    let server = OpensslServer::start(true, &[&reasons[..], &["-pkistatus", "2"]].concat());
    let said = server.enroll(&[&PASSWORD[..], &FIRST].concat());
    assert!(said.status == 1 && said.error.contains(reported), "{}", said.error);

    let server = OpensslServer::start(true, &["-send_error"]);
    let said = server.enroll(&[&PASSWORD[..], &FIRST].concat());
    assert!(
        said.status == 1 && said.error.contains("the server refuses: rejection"),
        "{}",
        said.error
    );

    let server = OpensslServer::start(true, &["-send_unprotected"]);
    let said = server.enroll(&[&PASSWORD[..], &FIRST].concat());
    assert!(
        said.error.contains("the answer is not trusted: the message is not protected"),
        "{}",
        said.error
    );
}
