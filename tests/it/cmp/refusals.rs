//! What is not believed, and what is told of it: one line, and nothing is written but the key.

use super::{Desk, NAME, PASSWORD, Quirk, RENEWAL, Seen, with_pair};
use crate::support::cmp_ca::CmpCa;

/// An answer that is refused in a first enrolment by a password, with these flags more, and the reason.
fn refused(quirk: Quirk, flags: &[&str], reason: &str) -> Vec<Seen> {
    let (ca, desk) = (CmpCa::start(quirk), Desk::new());
    desk.put("root.crt", &ca.root());
    let said = desk.first(&ca, flags);
    let line = said.error.strip_prefix("machine-config-server: ").unwrap_or_default();
    assert!(line.contains(reason), "{quirk:?}: {line}");
    assert_eq!((said.status, line.lines().count(), said.output.as_str()), (1, 1, ""), "{quirk:?}");
    assert!(!desk.has("tls.crt") && !desk.has("cas.crt"), "{quirk:?}");
    ca.seen()
}

#[test]
fn an_answer_that_is_not_to_this_message_or_not_by_this_server_is_not_believed() {
    for (quirk, reason) in [
        (Quirk::WrongTransaction, "the answer is for another transaction"),
        (Quirk::NoTransaction, "the answer is for another transaction"),
        (Quirk::WrongNonce, "it does not repeat the nonce"),
        (Quirk::NoNonce, "it does not repeat the nonce"),
        (Quirk::WrongSender, "the message is from CN=somebody else, not from CN=issuing"),
        (Quirk::WrongSecret, "the message was protected with another password, or changed"),
        (Quirk::Changed, "the message was protected with another password, or changed"),
        (Quirk::Unprotected, "the message is not protected"),
        (Quirk::FewRounds, "hashed 99 times, which is not within 100 and 100000"),
        (Quirk::ManyRounds, "hashed 100001 times, which is not within 100 and 100000"),
    ] {
        let seen = refused(quirk, &["--recipient", NAME], reason);
        assert_eq!(seen.len(), 1, "{quirk:?}: nothing more is said");
    }
}

#[test]
fn a_sender_without_a_name_is_authenticated_by_the_password_and_another_one_by_a_flag() {
    Desk::new().first(&CmpCa::start(Quirk::NoSender), &["--recipient", NAME]).quietly_done();
    let flags = ["--recipient", NAME, "--expect-sender", "CN=somebody else"];
    Desk::new().first(&CmpCa::start(Quirk::WrongSender), &flags).quietly_done();
}

#[test]
fn a_refusal_is_reported_in_words() {
    let reported = "the server refuses: rejection: badRequest (the request is not permitted or not \
                supported), notAuthorized (the requester is not authorized); the server says \"no machine \
                of that name\"";
    for quirk in [Quirk::Refuses, Quirk::Error] {
        refused(quirk, &[], reported);
    }
    let claimed = "the message is not protected; it claims: rejection: badRequest";
    refused(Quirk::UnprotectedError, &[], claimed);
}

#[test]
fn a_wrong_password_is_reported() {
    let (ca, desk) = (CmpCa::start(Quirk::None), Desk::new());
    desk.put("password", "a wrong one");
    let said = desk.first(&ca, &[]);
    let reported = "the message was protected with another password, or changed; it claims: \
                rejection: badMessageCheck";
    assert!(said.error.contains(reported), "{}", said.error);
}

#[test]
fn a_certificate_for_another_key_or_from_another_issuer_is_rejected_and_the_server_is_informed() {
    let trusted = ["--trusted", "root.crt"];
    for (quirk, reason) in [
        (Quirk::WrongKey, "the issued certificate is for another key"),
        (Quirk::IssuedByUnknownCa, "the issued certificate is not trusted: "),
    ] {
        let seen = refused(quirk, &trusted, reason);
        assert!(
            matches!(&seen[1..], [Seen::Rejected(reported)] if reported.contains(reason)),
            "{seen:?}"
        );
    }
}

#[test]
fn an_answer_to_something_else_is_refused() {
    for (quirk, reason) in [
        (Quirk::NoCertificate, "sends no certificate"),
        (Quirk::TwoCertificates, "is not for exactly the requested certificate"),
        (Quirk::OtherRequest, "is not for exactly the requested certificate"),
        (Quirk::OtherKind, "of another kind than requested: number 8"),
        (Quirk::LaterUnasked, "of another kind than requested: number 26"),
        (Quirk::NeverConfirms, "of another kind than requested: number 26"),
    ] {
        refused(quirk, &[], reason);
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for (quirk, reason) in [
        (Quirk::NotFound, "/pkix/servers answers 404 Not Found"),
        (Quirk::Redirect, "answers 302 Found to \"http://127.0.0.1:1/\", which is not followed"),
        (Quirk::WrongType, "answers with \"text/html\", which is not a CMP message"),
        (Quirk::Garbage, "the answer is not a CMP message"),
        (Quirk::Trailing, "the answer is not a CMP message"),
        (Quirk::Huge, "length limit exceeded"),
        (Quirk::CutShort, "/pkix/servers: "),
    ] {
        refused(quirk, &[], reason);
    }
}

#[test]
fn a_signature_counts_by_the_right_name_and_from_a_ca_that_is_trusted() {
    for (quirk, reason) in [
        (Quirk::SignedByUnknownCa, "the signer is not trusted: "),
        (Quirk::SignedByMachine, "the message is from CN=machine, not from CN=issuing"),
        (Quirk::Changed, "has the key that signed it"),
        (Quirk::Unprotected, "the message is not protected"),
        (Quirk::NoSender, "the message is from nobody, not from CN=issuing"),
    ] {
        let ca = CmpCa::start(Quirk::None);
        let desk = with_pair(&ca);
        let old = desk.read("tls.crt");
        ca.behave(quirk);
        let said = desk.enroll(&ca, &RENEWAL);
        assert!(said.status == 1 && said.error.contains(reason), "{quirk:?}: {}", said.error);
        assert!(desk.read("tls.crt") == old, "{quirk:?}");
        ca.behave(Quirk::None);
        desk.enroll(&ca, &RENEWAL).quietly_done();
    }
}

#[test]
fn a_signed_request_needs_a_trusted_ca_for_the_answer() {
    let ca = CmpCa::start(Quirk::None);
    let desk = with_pair(&ca);
    let said = desk.enroll(&ca, &RENEWAL[..6]);
    assert!(
        said.error.contains("the message is signed, and --trusted (trustedRef) is not set"),
        "{}",
        said.error
    );
}

#[test]
fn a_command_line_that_does_not_say_enough_is_refused_before_anything_is_asked_for() {
    let (ca, desk) = (CmpCa::start(Quirk::None), Desk::new());
    let first = ["--subject", "CN=a", "--key-out", "a.key"];
    for (flags, reason) in [
        (&first[..], "--secret-file, --cert with --key, or --renew with --key is needed"),
        (&PASSWORD[..], "missing <--subject <NAME>|--csr <FILE>|--renew <CERT>>"),
        (&[&PASSWORD[..], &["--subject", "CN=a"]].concat()[..], "--key-out"),
        (&[&PASSWORD[..], &first[..], &["--csr", "a"]].concat()[..], "cannot be used with"),
        (&[&PASSWORD[..], &["--subject", "a", "--key-out", "a.key"]].concat()[..], "is not a name"),
    ] {
        let said = desk.enroll(&ca, flags);
        assert!(said.status == 1 && said.error.contains(reason), "{flags:?}: {}", said.error);
        assert_eq!(said.error.lines().count(), 1, "{}", said.error);
    }
    let flags = [&super::FIRST[..], &["--out", "tls.crt"]].concat();
    let url = format!("http://{}/pkix/servers", ca.address());
    let output = desk.command(&url, &flags).output().expect("the built binary");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("plain HTTP, which only --allow-http")
    );
    assert_eq!(ca.seen(), []);
    assert!(!desk.has("tls.key") && !desk.has("a.key"), "nothing is made either");
}
