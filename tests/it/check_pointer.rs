//! `certs check --pointer`: what is told of a file before a machine gets it, by a state directory
//! and by a server that runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access::{credential, unknown};
use crate::support::clock::set_clock;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::openssl::openssl;
use crate::support::server::{Server, binary};
use crate::support::wait_for;

/// What a command said, and how it ended.
struct Said {
    status: i32,
    lines: Vec<String>,
    error: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let status = output.status.code().expect("an exit code");
        let lines = text(output.stdout).lines().map(str::to_owned).collect();
        Self { status, lines, error: text(output.stderr) }
    }
}

fn check(file: &Path, more: &[&str]) -> Said {
    let mut command = binary();
    command.args(["certs", "check", "--pointer"]).arg(file).args(more);
    command.output().expect("the built binary").into()
}

/// A server, and the pointer config that it has made for its workers.
struct Served {
    server: Server,
    folder: TempDir,
    state: String,
    address: String,
}

impl Served {
    fn start() -> Self {
        Self::with_flags(&[])
    }

    fn with_flags(flags: &[&str]) -> Self {
        let server = Server::serve(&in_repository("ignition-fixtures"), flags);
        let state = server.state().to_str().expect("text").to_owned();
        let address = format!("localhost:{}", server.secure().port());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = Self { server, folder, state, address };
        wait_for("the pointer config", || made.own().exists().then_some(()));
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
        let file = self.folder.path().join("other.ign");
        fs::write(&file, contents).expect("a writable folder");
        file
    }

    fn by_state(&self, file: &Path) -> Said {
        check(file, &["--state-dir", &self.state])
    }

    fn by_server(&self, file: &Path) -> Said {
        check(file, &["--connect", &self.address])
    }

    /// A copy of what is kept: the server writes its own pointer configs anew where it sees that they are not right.
    fn copied(&self) -> Kept {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        self.server.copy_state(&state);
        Kept { state, _folder: folder }
    }

    /// By both. Each names the same faults, which `expected` are parts of.
    fn assert_refused(&self, file: &Path, expected: &[&str]) {
        for said in [self.by_state(file), self.by_server(file)] {
            let Said { status, lines, error } = said;
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
    _folder: TempDir,
}

impl Kept {
    fn pointer(&self, pool: &str) -> PathBuf {
        self.state.join(format!("user-data/{pool}.ign"))
    }

    fn check(&self, more: &[&str]) -> Said {
        let mut command = binary();
        command.args(["certs", "check", "--state-dir"]).arg(&self.state).args(more);
        command.output().expect("the built binary").into()
    }

    fn check_pointer(&self, pool: &str, more: &[&str]) -> Said {
        let file = self.pointer(pool);
        self.check(&[&["--pointer", file.to_str().expect("text")], more].concat())
    }
}

fn one_error(file: &Path, faults: usize) -> String {
    let file = file.display();
    format!("machine-config-server: {file}: no machine would boot from it: faults: {faults}\n")
}

/// The entry of the only authorities.
fn authority(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["security"]["tls"]["certificateAuthorities"][0]
}

fn pem(config: &mut Value) -> String {
    let source = authority(config)["source"].as_str().expect("a source");
    let (_, encoded) = source.split_once("base64,").expect("a data URL in base64");
    String::from_utf8(BASE64.decode(encoded).expect("base64")).expect("PEM")
}

fn set_pem(config: &mut Value, pem: &str) {
    authority(config)["source"] = format!("data:;base64,{}", BASE64.encode(pem)).into();
}

#[test]
fn a_pointer_config_boots_by_what_is_kept_and_by_what_is_served_before_and_after_a_rotation() {
    let served = Served::start();
    let oldest = served.with(|_| {});
    let url = served.config()["ignition"]["config"]["merge"][0]["source"].clone();
    let url = url.as_str().expect("a URL");
    let mut rotate = binary();
    rotate.args(["certs", "rotate", "--ca", "--state-dir", &served.state]);
    for round in 0..2 {
        for file in [&oldest, &served.own()] {
            let name = file.display();
            let Said { status, lines, error } = served.by_state(file);
            assert_eq!((status, &error[..]), (0, ""), "{round}: {lines:?}");
            let by = format!("by the certificates of {}", served.state);
            assert_eq!(lines, [format!("{name}: boots from {url}, {by}")]);
            let Said { status, lines, error } = served.by_server(file);
            assert_eq!((status, &error[..]), (0, ""), "{round}: {lines:?}");
            let as_it = format!("as {} answers", served.address);
            assert_eq!(lines, [format!("{name}: boots from {url}, {as_it}")]);
        }
        let before = served.server.tls().shown_certificate().expect("a certificate");
        assert!(rotate.output().expect("the built binary").status.success());
        wait_for("the new pair", || {
            let shown = served.server.tls().shown_certificate().expect("a certificate");
            (shown != before).then_some(())
        });
    }
}

#[test]
fn whom_the_certificates_lock_out_is_told() {
    let served = Served::start();
    let elsewhere = served.with(|config| {
        let source = |host: &str| json!({"source": format!("https://{host}:22623/config/worker")});
        config["ignition"]["config"]["merge"] =
            [source("localhost"), source("192.0.2.1"), source("mcs.example.com")].into();
    });
    let unnamed = "could not boot a machine: the serving certificate does not name ";
    let Said { status, lines, error } = served.by_state(&elsewhere);
    assert_eq!((status, lines.len()), (1, 2), "{lines:?}");
    assert!(lines[0].ends_with(&format!("{unnamed}192.0.2.1")), "{lines:?}");
    assert!(lines[1].ends_with(&format!("{unnamed}mcs.example.com")), "{lines:?}");
    assert_eq!(error, one_error(&elsewhere, 2));
    // The server says the same, and that the first one would be answered.
    let Said { status, lines, error } = served.by_server(&elsewhere);
    assert_eq!((status, lines.len()), (1, 3), "{lines:?}");
    assert!(lines[2].contains("boots from https://localhost:22623/config/worker"), "{lines:?}");
    assert_eq!(error, one_error(&elsewhere, 2));

    let folder = served.folder.path();
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let names = ["-subj", "/CN=stranger", "-keyout", "key", "-out", "stranger.pem"];
    openssl(folder, &[&request[..], &names].concat());
    let stranger = fs::read_to_string(folder.join("stranger.pem")).expect("a certificate");
    let foreign = served.with(|config| set_pem(config, &stranger));
    served.assert_refused(&foreign, &["among the CAs that it trusts"]);

    // A machine of spec 2 reads the first one only.
    let both = |config: &mut Value| {
        let own = pem(config);
        set_pem(config, &format!("{stranger}{own}"));
    };
    assert_eq!(served.by_server(&served.with(both)).status, 0);
    let spec_2 = served.with(|config| {
        both(config);
        config["ignition"]["version"] = "2.2.0".into();
        let merge = config["ignition"]["config"]["merge"].take();
        config["ignition"]["config"] = json!({"append": merge});
    });
    for said in [served.by_state(&spec_2), served.by_server(&spec_2)] {
        assert_eq!((said.status, said.lines.len()), (1, 3), "{:?}", said.lines);
        assert!(said.lines[0].contains("reads only the first in spec 2"), "{:?}", said.lines);
        assert!(said.lines[1].contains("append[0].httpHeaders: unknown field"), "{:?}", said.lines);
        assert!(said.lines[2].contains("among the CAs that it trusts"), "{:?}", said.lines);
    }
}

#[test]
fn what_proves_who_asks_is_judged_as_a_server_that_enforces_judges_it() {
    let served = Served::with_flags(&["--access", "enforce"]);
    let credential = credential(&served.server, "worker");
    let url = served.config()["ignition"]["config"]["merge"][0]["source"].clone();
    let url = url.as_str().expect("a URL");
    let sends = |value: &str| {
        served.with(|config| {
            config["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"] = value.into();
        })
    };
    let proven = |file: &Path| {
        let Said { status, lines, error } = served.by_state(file);
        let by = format!("by the certificates and tokens of {}", served.state);
        assert_eq!(lines, [format!("{}: boots from {url}, {by}", file.display())]);
        assert_eq!((status, &error[..]), (0, ""));
        assert_eq!(served.by_server(file).status, 0);
    };
    let refused = |file: &Path, reason: &str, then: &str, status: u16| {
        let by = format!("by the tokens of {}: {reason}: a machine {then}", served.state);
        let told = format!("{}: no config from {url}, {by}", file.display());
        let said = served.by_state(file);
        assert_eq!((said.status, said.lines), (1, vec![told]));
        assert_eq!(said.error, one_error(file, 1));
        let said = served.by_server(file);
        assert_eq!((said.status, said.lines.len()), (1, 1), "{:?}", said.lines);
        assert!(
            said.lines[0].contains(&format!(" answers {status} for {url}")),
            "{:?}",
            said.lines
        );
        assert_eq!(said.error, one_error(file, 1));
    };
    proven(&served.own());
    let without = served.with(|config| {
        let fetch = config["ignition"]["config"]["merge"][0].as_object_mut().expect("a fetch");
        fetch.remove("httpHeaders");
    });
    refused(&without, "it has no token", "gives up", 401);
    refused(&sends("Basic eA=="), "its token is malformed", "gives up", 401);
    let again = "asks again until it is";
    refused(&sends(&unknown()), "its token is not known here", again, 503);

    // Whose keys servers have, and the folder has not.
    let signed = sends("Bearer e30.e30.c2ln");
    let Said { status, lines, .. } = served.by_state(&signed);
    assert_eq!((status, lines.len()), (0, 2), "{lines:?}");
    assert!(lines[0].contains(": warning: ") && lines[0].contains("another issuer"), "{lines:?}");

    let tokens = |arguments: &[&str]| -> String {
        let mut command = binary();
        command.arg("tokens").args(arguments).args(["--state-dir", &served.state]);
        let said = Said::from(command.output().expect("the built binary"));
        assert_eq!((said.status, &said.error[..]), (0, ""));
        said.lines.join("\n")
    };
    let kept = sends(&credential);
    let listed = tokens(&["list"]);
    let of_worker = listed.lines().find(|line| line.contains(" worker ")).expect("a token");
    tokens(&["revoke", of_worker.split(' ').next().expect("an id")]);
    wait_for("another token", || {
        let said = served.by_server(&kept);
        (said.status == 1).then_some(())
    });
    refused(&kept, "its token was revoked", "gives up", 401);
    wait_for("another token in the pointer config", || {
        let now = crate::access::credential(&served.server, "worker");
        (now != credential).then_some(())
    });
    proven(&served.own());

    // What cannot be read says nothing.
    fs::write(served.server.state().join("access.json"), "[").expect("a writable folder");
    let Said { status, lines, error } = served.by_state(&served.own());
    assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
    assert!(error.contains("access.json") && error.contains("; --connect HOST:PORT"), "{error}");
}

#[test]
fn a_clock_that_is_far_off_is_judged_by() {
    let served = Served::start();
    let at = |date: &str| -> Said {
        let mut command = binary();
        set_clock(&mut command, &format!("@{date} 00:00:00"));
        command.args(["certs", "check", "--state-dir", &served.state, "--pointer"]);
        command.arg(served.own()).output().expect("the built binary").into()
    };
    let Said { status, lines, .. } = at("2060-01-01");
    assert_eq!(status, 1);
    assert!(
        lines[0].contains("could not boot a machine: ") && lines[0].contains("expired at 20"),
        "{lines:?}"
    );
    let Said { status, lines, .. } = at("2020-01-01");
    assert_eq!(status, 1);
    assert!(lines[0].contains("is not valid before 20"), "{lines:?}");
}

#[test]
fn what_a_server_answers_is_what_a_machine_makes_of_it() {
    let mut served = Served::start();
    let url = "https://localhost:22623/config/nobody";
    let unknown =
        served.with(|config| config["ignition"]["config"]["merge"][0]["source"] = url.into());
    let Said { status, lines, error } = served.by_server(&unknown);
    let (name, address) = (unknown.display(), &served.address);
    let told =
        format!("{name}: {address} answers 503 for {url}: a machine asks again until that is 200");
    assert_eq!((status, lines), (1, vec![told]));
    assert_eq!(error, one_error(&unknown, 1));

    // No TLS there.
    let plain = served.server.insecure().to_string();
    let Said { status, lines, error } = check(&served.own(), &["--connect", &plain]);
    assert_eq!((status, lines.len()), (1, 0), "{lines:?}");
    assert!(
        error.starts_with(&format!("machine-config-server: --connect {plain}: TLS: ")),
        "{error}"
    );

    // Nobody there.
    served.server.terminate();
    served.server.ended();
    let Said { status, lines, error } = served.by_server(&served.own());
    assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
    assert!(
        error.contains(&format!("--connect {}: Connection refused", served.address)),
        "{error}"
    );
    assert_eq!(served.by_state(&served.own()).status, 0, "what is kept is judged as before");
}

#[test]
fn files_from_which_no_machine_boots_are_told_by_their_fault() {
    let served = Served::start();
    let config = served.config().to_string();
    for (contents, expected) in [
        (&b""[..], "it is empty"),
        (b"#!/bin/sh\necho hello\n", "it is no Ignition config, but a script"),
        (b"{\"ignition\": ", "not JSON: "),
        (BASE64.encode(&config).as_bytes(), "it is encoded in base64"),
        (b"{\"ignition\": {\"version\": \"3.9.0\"}}", "\"3.9.0\" is not a known Ignition spec"),
    ] {
        served.assert_refused(&served.file(contents), &[expected]);
    }
    let no_ca = served.with(|config| config["ignition"]["security"] = json!({}));
    served.assert_refused(&no_ca, &["it names no certificate authorities"]);
    let no_tls = served.with(|config| {
        config["ignition"]["config"]["merge"][0]["source"] =
            "http://localhost:22624/config/worker".into();
        set_pem(config, "no PEM");
    });
    served
        .assert_refused(&no_tls, &["certificateAuthorities[0] holds no certificate", "has no TLS"]);

    let missing = served.folder.path().join("missing");
    let large = served.file(&vec![b' '; 2 << 20]);
    for (file, expected) in [
        (missing.as_path(), "No such file or directory"),
        (served.folder.path(), "Is a directory"),
        (&large, "it has more than 1048576 bytes, which no platform takes as user data"),
        (Path::new("/dev/zero"), "it has more than 1048576 bytes"),
    ] {
        let Said { status, lines, error } = served.by_state(file);
        assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
        let file = file.display();
        assert!(
            error.starts_with(&format!("machine-config-server: --pointer {file}: ")),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_warning_keeps_nobody_from_booting() {
    let served = Served::start();
    let large = served.with(|config| config["x"] = "x".repeat(16 * 1024).into());
    for said in [served.by_state(&large), served.by_server(&large)] {
        assert_eq!((said.status, said.lines.len()), (0, 3), "{:?}", said.lines);
        let start = format!("{}: warning: it has ", large.display());
        assert!(said.lines[0].starts_with(&start), "{:?}", said.lines);
        assert!(said.lines[0].ends_with(" bytes, and EC2 takes 16384 of user data"));
        assert!(said.lines[1].ends_with("warning: x: unknown field, ignored"), "{:?}", said.lines);
        assert!(said.lines[2].contains(": boots from https://"), "{:?}", said.lines);
    }
}

#[test]
fn there_has_to_be_something_to_judge_by() {
    let served = Served::start();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let missing = empty.path().join("missing");
    for (state, expected) in [
        (missing.as_path(), "there is no such directory"),
        (empty.path(), "there is no serving pair"),
    ] {
        let said = check(&served.own(), &["--state-dir", state.to_str().expect("text")]);
        assert_eq!((said.status, said.error.lines().count()), (1, 1), "{}", said.error);
        assert!(said.error.contains(expected), "{}", said.error);
        assert!(said.error.ends_with("; --connect HOST:PORT asks a server that runs\n"));
    }
    let usage = |arguments: &[&str]| -> String {
        let mut command = binary();
        let output = command.args(["certs", "check"]).args(arguments).output();
        let said = Said::from(output.expect("the built binary"));
        assert_eq!(said.status, 1);
        said.error
    };
    for (arguments, expected) in [
        (&["--connect", "localhost:1"][..], "missing --pointer <FILE>"),
        (&["--pointer", "x", "--connect", "localhost"], "expected HOST:PORT"),
        (&["--pointer", "x", "--connect", "a:1", "--state-dir", "y"], "does not go with"),
    ] {
        let error = usage(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn the_real_ignition_gives_up_where_an_authority_is_faulty() {
    let served = Served::start();
    let whole = {
        let mut config = served.config();
        pem(&mut config)
    };
    let hash = format!("sha512-{}", "0".repeat(128));
    let faults: [&dyn Fn(&mut Value); 4] = [
        &|config| set_pem(config, &format!("{whole}\n")),
        &|config| set_pem(config, &whole[..200]),
        &|config| authority(config)["verification"] = json!({"hash": hash}),
        &|config| authority(config)["compression"] = "gzip".into(),
    ];
    for fault in faults {
        let file = served.with(fault);
        served.assert_refused(&file, &["certificateAuthorities[0] "]);
        let machine = Machine::new();
        let pointer = fs::read_to_string(&file).expect("a file");
        let mut stage = machine.start("fetch", &pointer);
        assert!(!stage.ended().success(), "{pointer}\n{}", stage.log());
        let log = stage.log();
        assert!(log.contains("Unable to") && log.contains(" CA ("), "{log}");
    }
}

type Change = fn(&mut Value);

#[test]
fn a_pointer_config_that_is_kept_and_broken_is_told_by_the_check() {
    let served = Served::start();
    let copy = served.copied();
    let kept = copy.pointer("worker");
    let check = || copy.check(&[]);
    assert_eq!(check().status, 0);
    let own = fs::read(&kept).expect("a file");
    let name = kept.display().to_string();
    let faults: [(Change, &str); 6] = [
        (|it| it["ignition"]["timeouts"] = json!({"httpTotal": -1}), "a machine gives up"),
        (|it| merge(it)["compression"] = "gzip".into(), "is to be unpacked with gzip"),
        (|it| merge(it)["httpHeaders"] = json!([{"name": "X"}]), "has no value"),
        (|it| merge(it)["source"] = "https://localhost:0/config/worker".into(), "port 0"),
        (|it| it["ignition"]["config"]["replace"] = json!({"source": ""}), "an empty source"),
        (|it| merge(it)["source"] = "https://localhost:1/config/nobody".into(), "no pool nobody"),
    ];
    for (change, expected) in faults {
        fs::write(&kept, &own).expect("a writable folder");
        fs::copy(served.with(change), &kept).expect("a writable folder");
        let Said { status, lines, .. } = check();
        assert_eq!(status, 1, "{expected}: {lines:?}");
        let start = format!("{name} could not boot a machine: ");
        let told = lines.iter().find(|line| line.starts_with(&start));
        assert!(told.is_some_and(|line| line.contains(expected)), "{expected}: {lines:?}");
    }
    for text in [&b"{\"ignition\": "[..], b"#!/bin/sh\n", b""] {
        fs::write(&kept, text).expect("a writable folder");
        let Said { status, lines, .. } = check();
        assert!(status == 1 && lines.iter().any(|line| line.starts_with(&name)), "{lines:?}");
    }
}

#[test]
fn nobody_boots_by_a_pair_that_cannot_be_served() {
    let served = Served::start();
    let kept = served.copied();
    let folder = served.folder.path();
    let new_key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    openssl(folder, &[&new_key[..], &["-out", "key"]].concat());
    let another = fs::read_to_string(folder.join("key")).expect("a key");
    let chain = fs::read_to_string(kept.state.join("tls.crt")).expect("a chain");
    for (pair, expected) in [
        (chain.clone(), "there is no key in it"),
        (another + &chain, "its key does not belong to its certificate"),
    ] {
        fs::write(kept.state.join("tls.key"), &pair).expect("a writable folder");
        let Said { status, lines, error } = kept.check_pointer("worker", &[]);
        assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
        let place = kept.state.join("tls.key").display().to_string();
        assert!(error.contains(&format!("{place}: {expected}")), "{error}");
        assert_eq!(kept.check(&[]).status, 1);
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
    let is_told = |lines: &[String]| {
        lines.iter().any(|it| it.starts_with(&name) && it.contains("no pool gone"))
    };
    assert!(said.status == 1 && is_told(&said.lines), "{:?}", said.lines);
    let said = kept.check_pointer("gone", &with);
    assert!(said.status == 1 && is_told(&said.lines), "{:?}", said.lines);
    assert_eq!(kept.check_pointer("worker", &with).status, 0);

    // The page of a server that has read them, and its log.
    let running = Server::serve_with_state(&manifests, &kept.state);
    let problem = wait_for("a problem of the pointer config", || {
        let overview = running.metrics().get("/api/v1/overview").json();
        let pointers = overview["pointers"].as_array().expect("a list").clone();
        let gone = pointers.into_iter().find(|it| it["name"] == name.as_str())?;
        gone["problem"].as_str().map(str::to_owned)
    });
    assert!(problem.contains("no pool gone"), "{problem}");
    wait_for("the log", || running.log().contains("there is no pool gone here").then_some(()));

    // One that somebody puts beside them while it runs.
    fs::write(kept.pointer("late"), &gone).expect("a writable folder");
    wait_for("the readiness", || {
        let told = running.metrics().get("/readyz").body;
        String::from_utf8_lossy(&told).contains("locked out: 2").then_some(())
    });
}

fn merge(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["config"]["merge"][0]
}

#[test]
fn what_is_secret_in_a_url_is_not_printed() {
    let served = Served::start();
    let file = served.with(|config| {
        let source = &mut config["ignition"]["config"]["merge"][0]["source"];
        let url = source.as_str().expect("a URL").replace("https://", "https://me:hunter2@");
        *source = json!(format!("{url}?token=s3cr3t-t0ken"));
    });
    let mut said = vec![served.by_state(&file), served.by_server(&file)];
    let compressed = served.with(|config| {
        let merge = merge(config);
        let url =
            merge["source"].as_str().expect("a URL").replace("https://", "https://me:hunter2@");
        merge["source"] = url.into();
        merge["compression"] = "gzip".into();
    });
    said.push(served.by_state(&compressed));
    for said in said {
        let text = said.lines.concat();
        assert!(text.contains("https://") && text.contains("/config/worker"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn what_has_no_effect_is_told_and_scripts_get_json() {
    let served = Served::start();
    let file = served.with(|config| {
        config["ignition"]["confg"] = json!({});
        config["storage"] = json!({"files": [{"path": "/a", "mode": 644}]});
    });
    let name = file.display().to_string();
    let ignored = [
        "ignition.confg: unknown field, ignored",
        "storage.files[0].mode: 644 is 1204 in octal; for 0644 write 420",
    ];
    for against in [["--state-dir", &served.state], ["--connect", &served.address]] {
        let json = |file: &Path| {
            let said = check(file, &[&against[..], &["--json"]].concat());
            let report: Value = serde_json::from_str(&said.lines.concat()).expect("JSON");
            (said, report)
        };
        let plain = check(&file, &against);
        assert_eq!((plain.status, plain.lines.len()), (0, 3), "{:?}", plain.lines);
        for (line, ignored) in plain.lines.iter().zip(ignored) {
            assert_eq!(*line, format!("{name}: warning: {ignored}"));
        }
        let (said, report) = json(&file);
        assert_eq!(said.status, 0, "{}", said.error);
        let expected = json!({
            "name": name, "boots": true, "faults": [], "warnings": [], "ignored": ignored,
            "from": [plain.lines[2]],
        });
        assert_eq!(report, expected);
        let strict = check(&file, &[&against[..], &["--strict"]].concat());
        assert_eq!((strict.status, &strict.lines), (1, &plain.lines));
        let refused = "--strict refuses what has no effect: 2";
        assert!(strict.error.contains(refused), "{}", strict.error);

        let own = check(&served.own(), &[&against[..], &["--strict"]].concat());
        assert_eq!(own.status, 0, "{:?} {}", own.lines, own.error);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let broken = folder.path().join("broken.ign");
        fs::write(&broken, "#!/bin/sh").expect("a write");
        let (said, report) = json(&broken);
        assert_eq!((said.status, said.error), (1, one_error(&broken, 1)));
        let fault = report["faults"][0].as_str().expect("a fault");
        assert!(report["boots"] == false && fault.contains("but a script"), "{report}");
    }
}
