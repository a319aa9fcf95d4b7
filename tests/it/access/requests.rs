//! What a request gets by what it brings: with its token, without one, and too often without one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::access::{assert_refused, credential, enforcing, get, unknown};
use crate::support::http::{Client, IGNITION, loopback};
use crate::support::machine::Machine;
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

#[test]
fn a_pointer_config_carries_a_token_that_opens_its_pool_alone() {
    let server = enforcing(&[]);
    let (tls, plain) = (server.tls(), server.plain());
    let good = credential(&server, "worker");
    assert_eq!(get(&tls, "worker", Some(&good)).status, 200);
    for (client, pool, credential) in [
        (&tls, "worker", None),
        (&tls, "worker", Some("Bearer secret")),
        (&tls, "worker", Some("Basic c2VjcmV0")),
        (&tls, "worker", Some(&good[7..])),
        (&tls, "master", Some(&*good)),
        (&plain, "worker", Some(&*good)),
        (&plain, "worker", None),
    ] {
        assert_refused(&get(client, pool, credential));
    }
    // A pool that is not known may be in a moment, and open to all.
    for (client, credential) in [(&tls, None), (&tls, Some(&*good)), (&plain, None)] {
        let later = get(client, "nowhere", credential);
        assert_eq!((later.status, later.header("retry-after")), (503, Some("5")));
    }
    // Another server may have issued it a moment ago.
    let later = get(&tls, "worker", Some(&unknown()));
    assert_eq!((later.status, later.header("retry-after")), (503, Some("5")));
    for client in [&tls, &plain] {
        assert_eq!(client.get("/healthz").status, 200);
        assert_eq!(client.get("/readyz").status, 200);
    }
    let counted = |verdict: &str| {
        let labels = format!("pool=\"worker\",mode=\"enforce\",verdict=\"{verdict}\"");
        server.metric(&format!("mcs_access_total{{{labels}}}"))
    };
    for (verdict, times) in [
        ("token", 1.0),
        ("missing", 1.0),
        ("malformed", 3.0),
        ("plain-port", 2.0),
        ("unknown", 1.0),
    ] {
        assert!((counted(verdict) - times).abs() < 0.5, "{verdict}: {}", counted(verdict));
    }
}

#[test]
fn the_line_that_is_printed_to_try_brings_the_token_and_shows_it_to_nobody() {
    let server = enforcing(&[]);
    let line = wait_for("the line", || {
        let log = server.log();
        log.lines().find(|line| line.contains(" | curl ")).map(str::to_owned)
    });
    let pool = line.rsplit('/').next().expect("a pool");
    let good = credential(&server, pool);
    // As it is pasted, with a curl that tells what it is given: other users see arguments.
    let shell = |text: &str| {
        let output = Command::new("sh").args(["-c", text]).output().expect("a shell");
        String::from_utf8(output.stdout).expect("text")
    };
    let given = shell(&format!("curl() {{ printf '%s\\n' \"$@\"; echo; cat; }}\n{line}\n"));
    let (arguments, input) = given.split_once("\n\n").expect("arguments and input");
    let arguments: Vec<&str> = arguments.lines().collect();
    let ca = server.state().join("ca.crt").display().to_string();
    let ["--cacert", given_ca, "-H", "@-", "-H", accept, url] = arguments[..] else {
        panic!("{arguments:?}")
    };
    assert_eq!(given_ca, ca);
    assert_eq!(input, format!("Authorization: {good}\n"));
    assert_eq!(accept, "Accept: application/vnd.coreos.ignition+json;version=3.4.0");
    assert!(url.ends_with(&format!(":{}/config/{pool}", server.secure().port())), "{url}");
    let config: Value = serde_json::from_str(&shell(&line)).expect("a config, by the real curl");
    assert_eq!(config["ignition"]["version"], "3.4.0");
    assert_eq!(get(&server.tls(), pool, Some(&good)).status, 200);
    assert!(!server.log().contains("mcs-"), "{}", server.log());
}

#[test]
fn without_a_token_nothing_of_a_config_is_given_out_in_any_way() {
    let server = enforcing(&[]);
    let good = credential(&server, "worker");
    let config = get(&server.tls(), "worker", Some(&good));
    let etag = config.header("etag").expect("an ETag").to_owned();
    let versions = ["2.2.0", "3.0.0", "3.1.0", "3.4.0", "3.6.0", "9.9.9"];
    let mut accepts: Vec<String> = versions
        .map(|version| format!("application/vnd.coreos.ignition+json;version={version}"))
        .into();
    accepts.extend(["*/*".to_owned(), String::new(), "nonsense;;".to_owned()]);
    let mut last = 10;
    let mut from = |client: Client| {
        last += 1;
        client.from(loopback(last))
    };
    for client in [server.tls(), server.plain()] {
        for method in ["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "PATCH", "DELETE", "get"] {
            let client = from(client.clone());
            for path in [
                "worker",
                "worker/",
                "worker?token=x",
                "%77orker",
                "worker/?a=b",
                "./worker",
                "../config/worker",
            ] {
                let headers = [
                    ("Range", "bytes=0-99"),
                    ("If-None-Match", &*etag),
                    ("Accept", "*/*"),
                    ("X-Forwarded-For", "127.0.0.1"),
                ];
                let Ok(answer) = client.try_request(method, &format!("/config/{path}"), &headers)
                else {
                    continue;
                };
                assert!(answer.status >= 400, "{method} {path}: {answer:?}");
                assert_eq!((answer.header("etag"), answer.header("content-range")), (None, None));
                assert!(answer.body.len() < 200, "{method} {path}: {answer:?}");
            }
        }
        let client = from(client);
        for accept in &accepts {
            let answer = client.request("GET", "/config/worker", &[("Accept", accept), IGNITION]);
            assert_refused(&answer);
        }
    }
}

#[test]
fn a_machine_boots_by_its_pointer_config_where_access_is_enforced() {
    let server = enforcing(&[]);
    credential(&server, "worker");
    let machine = Machine::new();
    machine.boot(&server.pointer("worker"));
    let line = wait_for("the line of its request", || {
        let log = server.log();
        log.lines().find(|line| line.contains("by token")).map(str::to_owned)
    });
    assert!(line.contains("Pool worker requested"), "{line}");
    assert!(!server.log().contains("mcs-"), "no token is in the log");
}

#[test]
fn a_pointer_config_with_a_token_is_its_owners_alone() {
    let server = enforcing(&[]);
    credential(&server, "worker");
    for file in ["user-data/worker.ign", "tokens.json", "access.json"] {
        let mode = fs::metadata(server.state().join(file)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let access = fs::read_to_string(server.state().join("access.json")).expect("text");
    assert!(!access.contains("mcs-"), "servers keep hashes: {access}");
}

#[test]
fn in_audit_mode_machines_that_enforce_would_refuse_are_reported() {
    let server = Server::sample_cluster(&[]);
    let good = credential(&server, "worker");
    let from = |client: Client, last| client.from(loopback(last));
    for (client, credential) in [
        (from(server.tls(), 2), Some(&*good)),
        (from(server.tls(), 3), None),
        (from(server.plain(), 4), Some(&*good)),
        (from(server.tls(), 5), Some("Bearer x")),
    ] {
        assert_eq!(get(&client, "worker", credential).status, 200);
    }
    let reported = |last| {
        let machine = server.metrics().get(&format!("/api/v1/machines/127.0.0.{last}")).json();
        machine["requests"]["would_be_refused"].clone()
    };
    assert_eq!(
        [2, 3, 4, 5].map(reported),
        [Value::Null, json!("missing"), json!("plain-port"), json!("malformed")]
    );
    wait_until("the log to say so", || server.log().contains("would be refused: no token"));
}

#[test]
fn where_access_is_off_nothing_is_asked() {
    let server = Server::sample_cluster(&["--access", "off"]);
    assert_eq!(get(&server.plain(), "worker", Some("nonsense")).status, 200);
    let pointer: Value = serde_json::from_str(&server.pointer("worker")).expect("JSON");
    assert_eq!(pointer.pointer("/ignition/config/merge/0/httpHeaders"), None);
    assert!(!server.metrics().get("/metrics").body.windows(10).any(|it| it == b"mcs_access"));
}

#[test]
fn clients_that_fail_often_are_delayed_and_those_with_a_token_are_not() {
    let server = enforcing(&[]);
    let good = credential(&server, "worker");
    let started = Instant::now();
    let mut statuses = (0..1_000).map(|_| get(&server.tls(), "worker", None).status);
    assert!(statuses.by_ref().take(100).all(|status| status == 401));
    // One more a second is allowed.
    let more = statuses.position(|status| status == 503).expect("a delay");
    assert!(u64::try_from(more).expect("a number") <= 30 + started.elapsed().as_secs(), "{more}");
    assert_eq!(get(&server.tls(), "worker", Some(&good)).status, 200);
    let elsewhere = server.tls().from(loopback(9));
    assert_refused(&get(&elsewhere, "worker", None));
}
