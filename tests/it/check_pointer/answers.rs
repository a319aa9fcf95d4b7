//! By what a server answers: tokens, pools, and nobody there.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Report, Served, check, merge, one_error};
use crate::support::access::{credential, unknown};
use crate::support::command::{Said, Store};
use crate::support::in_repository;
use crate::support::server::{Server, binary};
use crate::support::{wait_for, wait_until};

/// What is told of pointer configs where their tokens are asked for.
struct Enforced {
    served: Served,
    url: String,
}

impl Enforced {
    fn start() -> Self {
        let served = Served::with_flags(&["--access", "enforce"]);
        credential(&served.server, "worker");
        let url = merge(&mut served.config())["source"].as_str().expect("a URL").to_owned();
        Self { served, url }
    }

    /// A file for which the pointer config sends this.
    fn sends(&self, value: &str) -> PathBuf {
        self.served.with(|config| merge(config)["httpHeaders"][0]["value"] = value.into())
    }

    fn assert_proven(&self, file: &Path) {
        let (served, url) = (&self.served, &self.url);
        let Report { status, lines, error } = served.by_state(file);
        let by = format!("according to the certificates and tokens of {}", served.state);
        assert_eq!(lines, [format!("{}: boots from {url}, {by}", file.display())]);
        assert_eq!((status, &error[..]), (0, ""));
        assert_eq!(served.by_server(file).status, 0);
    }

    /// A server answers with `status`.
    fn assert_refused(&self, file: &Path, reason: &str, then: &str, status: u16) {
        let (served, url) = (&self.served, &self.url);
        let by = format!("according to the tokens of {}: {reason}: a machine {then}", served.state);
        let reported = format!("{}: no config from {url}, {by}", file.display());
        let said = served.by_state(file);
        assert_eq!((said.status, said.lines), (1, vec![reported]));
        assert_eq!(said.error, one_error(file, 1));
        let said = served.by_server(file);
        assert_eq!((said.status, said.lines.len()), (1, 1), "{:?}", said.lines);
        let answer = format!(" answers {status} for {url}");
        assert!(said.lines[0].contains(&answer), "{:?}", said.lines);
        assert_eq!(said.error, one_error(file, 1));
    }

    fn tokens(&self, arguments: &[&str]) -> String {
        let arguments = [&["tokens"], arguments].concat();
        self.served.server.state().run(&arguments).quietly_done().output
    }
}

#[test]
fn a_pointer_configs_token_is_judged_as_by_a_server_that_enforces() {
    let enforced = Enforced::start();
    let served = &enforced.served;
    enforced.assert_proven(&served.own());
    let without = served.with(|config| {
        merge(config).as_object_mut().expect("a fetch").remove("httpHeaders");
    });
    enforced.assert_refused(&without, "no token", "gives up", 401);
    let malformed = enforced.sends("Basic eA==");
    enforced.assert_refused(&malformed, "token malformed", "gives up", 401);
    let again = "retries until it is";
    let unknown = enforced.sends(&unknown());
    enforced.assert_refused(&unknown, "token unknown to this server", again, 503);

    // Whose keys servers have, and the folder has not.
    let signed = enforced.sends("Bearer e30.e30.c2ln");
    let Report { status, lines, .. } = served.by_state(&signed);
    assert_eq!((status, lines.len()), (0, 2), "{lines:?}");
    assert!(lines[0].contains(": warning: ") && lines[0].contains("another issuer"), "{lines:?}");

    let before = credential(&served.server, "worker");
    let kept = enforced.sends(&before);
    let listed = enforced.tokens(&["list"]);
    let of_worker = listed.lines().find(|line| line.contains(" worker ")).expect("a token");
    enforced.tokens(&["revoke", of_worker.split(' ').next().expect("an id")]);
    wait_until("another token", || served.by_server(&kept).status == 1);
    enforced.assert_refused(&kept, "token revoked", "gives up", 401);
    wait_until("another token in the pointer config", || {
        credential(&served.server, "worker") != before
    });
    enforced.assert_proven(&served.own());

    // What cannot be read says nothing.
    fs::write(served.server.state().join("access.json"), "[").expect("a writable folder");
    let Report { status, lines, error } = served.by_state(&served.own());
    assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
    assert!(error.contains("access.json") && error.contains("with --connect HOST:PORT"), "{error}");
}

#[test]
fn what_a_server_answers_is_what_a_machine_makes_of_it() {
    let mut served = Served::start();
    let url = "https://localhost:22623/config/nobody";
    let unknown =
        served.with(|config| config["ignition"]["config"]["merge"][0]["source"] = url.into());
    let Report { status, lines, error } = served.by_server(&unknown);
    let (name, address) = (unknown.display(), &served.address);
    let reported =
        format!("{name}: {address} answers 503 for {url}: a machine retries until it gets 200");
    assert_eq!((status, lines), (1, vec![reported]));
    assert_eq!(error, one_error(&unknown, 1));

    // No TLS there.
    let plain = served.server.insecure().to_string();
    let Report { status, lines, error } = check(&served.own(), &["--connect", &plain]);
    assert_eq!((status, lines.len()), (1, 0), "{lines:?}");
    assert!(
        error.starts_with(&format!("machine-config-server: --connect {plain}: TLS: ")),
        "{error}"
    );

    // Nobody there.
    served.server.terminate();
    served.server.ended();
    let Report { status, lines, error } = served.by_server(&served.own());
    assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
    assert!(
        error.contains(&format!("--connect {}: Connection refused", served.address)),
        "{error}"
    );
    assert_eq!(served.by_state(&served.own()).status, 0, "what is kept is judged as before");
}

#[test]
fn there_has_to_be_something_to_judge_by() {
    let served = Served::start();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let missing = empty.path().join("missing");
    for (state, expected) in
        [(missing.as_path(), "directory not found"), (empty.path(), "no serving certificate found")]
    {
        let said = check(&served.own(), &["--state-dir", state.to_str().expect("text")]);
        assert_eq!((said.status, said.error.lines().count()), (1, 1), "{}", said.error);
        assert!(said.error.contains(expected), "{}", said.error);
        assert!(
            said.error.ends_with("; check against a running server with --connect HOST:PORT\n")
        );
    }
    let usage = |arguments: &[&str]| -> String {
        let said = Said::by(binary().args(["certs", "check"]).args(arguments));
        assert_eq!(said.status, 1);
        said.error
    };
    for (arguments, expected) in [
        (&["--connect", "localhost:1"][..], "missing --pointer <FILE>"),
        (&["--pointer", "x", "--connect", "localhost"], "expected HOST:PORT"),
        (&["--pointer", "x", "--connect", "a:1", "--state-dir", "y"], "cannot be used with"),
    ] {
        let error = usage(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn pools_are_known_by_the_manifests_where_those_are_at_hand() {
    let manifests = in_repository("ignition-fixtures");
    let served = Served::start();
    let kept = served.copied();
    let mut gone = served.config();
    merge(&mut gone)["source"] = "https://localhost:1/config/gone".into();
    let gone = gone.to_string();
    fs::write(kept.pointer("gone"), &gone).expect("a writable folder");
    // Its own name is all that tells.
    assert_eq!((kept.check(&[]).status, kept.check_pointer("gone", &[]).status), (0, 0));
    let with = ["--manifests", manifests.to_str().expect("text")];
    let said = kept.check(&with);
    let name = kept.pointer("gone").display().to_string();
    let is_reported = |lines: &[String]| {
        lines.iter().any(|it| it.starts_with(&name) && it.contains("pool gone not found"))
    };
    assert!(said.status == 1 && is_reported(&said.lines), "{:?}", said.lines);
    let said = kept.check_pointer("gone", &with);
    assert!(said.status == 1 && is_reported(&said.lines), "{:?}", said.lines);
    assert_eq!(kept.check_pointer("worker", &with).status, 0);

    // The page of a server that has read them, and its log.
    let running = Server::serve_with_state(&manifests, &kept.state);
    let problem = wait_for("a problem of the pointer config", || {
        let overview = running.overview();
        let pointers = overview["pointers"].as_array().expect("a list").clone();
        let gone = pointers.into_iter().find(|it| it["name"] == name.as_str())?;
        gone["problem"].as_str().map(str::to_owned)
    });
    assert!(problem.contains("pool gone not found"), "{problem}");
    wait_until("the log", || running.log().contains("pool gone not found"));

    // One that an administrator puts next to them while it runs.
    fs::write(kept.pointer("late"), &gone).expect("a writable folder");
    wait_until("the readiness", || {
        let reported = running.metrics().get("/readyz").body;
        String::from_utf8_lossy(&reported).contains("locked out: 2")
    });
}
