//! Each machine that asked, what it got, and why it does not come up, as the administrators' API tells.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::access::get;
use crate::support::command::{Said, Store};
use crate::support::http::{ACCEPT, Client, IGNITION, loopback};
use crate::support::in_repository;
use crate::support::manifests::{self, machine_config, write};
use crate::support::pair::Pair;
use crate::support::server::{Server, binary, serving};
use crate::support::{wait_for, wait_until};

#[test]
fn a_machine_is_remembered_with_what_it_got_over_a_restart() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    let mut server = Server::serve_with_state(&sample, state.path());
    for (last, pool) in [(2, "worker"), (2, "master"), (3, "gpu")] {
        get(&server.plain().from(loopback(last)), pool, None);
    }
    let etag = server.plain().request("HEAD", "/config/master", &[IGNITION, ACCEPT]);
    let reported = |server: &Server| {
        let first = server.machine(2);
        assert_eq!(first["requests"]["pool"], "master");
        assert_eq!(first["requests"]["times"], 2);
        assert_eq!(first["requests"]["spec"], "3.3.0");
        let got = &first["requests"]["served"];
        let config = got["config"].as_str().expect("a name");
        assert!(config.starts_with("rendered-master-"), "{first}");
        let sha256 = format!("\"{}\"", got["sha256"].as_str().expect("a digest"));
        assert_eq!(etag.header("etag"), Some(&*sha256));
        let why = first["why"].as_str().expect("text");
        assert_eq!(first["standing"], "booting");
        assert!(why.starts_with("fetched its config ") && why.ends_with(UNKNOWN), "{why}");
        let refused = server.machine(3);
        assert_eq!(refused["standing"], "stuck");
        let why = "is refused with 503: no pool has this name; Ignition retries";
        assert_eq!(refused["why"], why);
        let foremost = &server.metrics().get("/api/v1/machines").json()[0];
        assert_eq!(foremost["address"], "127.0.0.3", "those that are stuck come first");
    };
    reported(&server);
    server.terminate();
    assert!(server.ended().success());
    reported(&Server::serve_with_state(&sample, state.path()));
}

/// What no directory tells.
const UNKNOWN: &str = " ago, this server knows no nodes";

/// `machines` with these arguments, at this width, of a server that answers in time: a busy machine's may not.
fn machines(server: &Server, columns: &str, arguments: &[&str]) -> Said {
    let mut command = server.command(&[&["machines"], arguments].concat());
    command.env("COLUMNS", columns);
    wait_for("an answer in time", || {
        Some(Said::by(&mut command)).filter(|said| !said.error.contains("no answer in time"))
    })
}

#[test]
fn a_terminal_gets_the_same_as_a_table_at_its_width() {
    let server = Server::sample_cluster(&[]);
    assert_eq!(machines(&server, "200", &[]).output, "no machine has requested a config yet\n");
    server.plain().from(loopback(2)).request("GET", "/config/worker", &[IGNITION, ACCEPT]);
    let Said { status, output: table, error } = machines(&server, "300", &[]);
    assert_eq!((status, &*error), (0, ""));
    let [head, row, "", pool] = &table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    assert_eq!(*pool, "pool worker: oldest Ignition 2.14.0, without TLS: 1");
    assert!(head.starts_with("ADDRESS    STATE    WHY"), "{table}");
    for cell in
        ["127.0.0.2", "booting", "fetched its config", "worker", "rendered-worker-", "3.3.0"]
    {
        assert!(row.contains(cell), "{cell} in {table}");
    }
    server.plain().from(loopback(3)).request("GET", "/config/gpu", &[IGNITION]);
    let Said { status, output: narrow, error } = machines(&server, "100", &[]);
    assert_eq!((status, &*error), (1, "machine-config-server: a machine is stuck\n"));
    assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
    assert!(narrow.lines().count() > 3, "{narrow}");
    let said = machines(&server, "100", &["127.0.0.3", "--json"]);
    assert_eq!((said.status, &said.json()[0]["standing"]), (1, &json!("stuck")));
    let advised = machines(&server, "300", &["127.0.0.3"]).output;
    let lines: Vec<_> = advised.lines().skip(2).collect();
    let [runbook] = lines[..] else { panic!("{advised}") };
    assert!(runbook.ends_with("/runbook/machines.html#the-pool-is-unknown"), "{runbook}");
    let Said { status, error, .. } = machines(&server, "100", &["192.0.2.1"]);
    assert_eq!(status, 1);
    assert!(error.ends_with("no request from 192.0.2.1\n"), "{error}");
    let gone = server.metrics().address().to_string();
    drop(server);
    let Said { status, error: said, .. } = Said::by(binary().args(["machines", "--from", &gone]));
    assert_eq!(status, 1);
    assert!(said.starts_with(&format!("machine-config-server: {gone}: ")), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn an_administrator_at_a_machines_address_changes_nothing_of_its_row() {
    let server = Server::sample_cluster(&[]);
    let machine = server.plain().from(loopback(2));
    machine.request("GET", "/config/gpu", &[IGNITION, ACCEPT]);
    let before = server.machine(2);
    assert_eq!((&before["standing"], &before["recovery"]), (&json!("stuck"), &Value::Null));
    assert!(before["fix"].as_str().is_some_and(|it| it.contains("MachineConfigPool")), "{before}");
    for user_agent in ["curl/8.0.0", "machine-config-server"] {
        machine.request("GET", "/config/worker", &[("User-Agent", user_agent)]);
        assert_eq!(server.machine(2), before, "{user_agent}");
    }
    let page = server.metrics().get("/machines/127.0.0.2").text();
    assert!(page.contains("curl/8.0.0"), "{page}");
}

#[test]
fn a_machine_that_does_not_trust_the_certificate_is_reported() {
    let server = Server::sample_cluster(&[]);
    let directory = tempfile::tempdir().expect("a temporary folder");
    let other = Pair::make(directory.path(), "localhost");
    let ca = fs::read(&other.certificate).expect("a certificate");
    let client = Client::tls(server.secure(), &ca).from(loopback(2));
    assert!(client.try_request("GET", "/config/worker", &[IGNITION]).is_err());
    let machine = wait_for("the handshake to be noted", || {
        let answer = server.metrics().get("/api/v1/machines/127.0.0.2");
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(machine["handshakes"]["failed"], "untrusted");
    assert_eq!(machine["standing"], "stuck");
    let why = machine["why"].as_str().expect("words");
    assert!(why.starts_with("does not trust the serving certificate: "), "{why}");
    assert!(server.metric("mcs_handshake_failures_total{reason=\"Untrusted\"}") >= 1.0);
}

/// In the ledger, over a restart, in the API, on the page and on a terminal; and nowhere in the answer.
#[test]
fn the_reason_of_a_refusal_is_shown_to_administrators_alone() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let server = || {
        let mut command = serving(&in_repository("ignition-fixtures"), state.path());
        command.args(["--access", "enforce", "--allow-from", "worker=127.0.0.0/29"]);
        Server::prepared(command).until_ready()
    };
    let run = |arguments: &[&str]| {
        let said = state.path().run(&[&["tokens"], arguments].concat()).done();
        format!("Bearer {}", said.output.trim())
    };
    let running = server();
    let add = |name, pool, until| run(&["add", name, "--pool", pool, "--until", until]);
    let (good, short) = (add("good", "worker", "never"), add("short", "worker", "2s"));
    let (other, revoked) = (add("other", "master", "never"), add("revoked", "worker", "never"));
    run(&["revoke", "revoked"]);
    let ca = fs::read(state.path().join("ca.crt")).expect("the CA");
    let ask = |server: &Server, last, credential: Option<&str>| {
        get(&Client::tls(server.secure(), &ca).from(loopback(last)), "worker", credential)
    };
    // Each from an address of its own: who is refused too often waits.
    let is_refused = |last, credential: &str| ask(&running, last, Some(credential)).status == 401;
    wait_until("what was revoked to be known", || is_refused(6, &revoked));
    wait_until("a token to end", || is_refused(7, &short));
    assert_eq!(ask(&running, 5, Some(&good)).status, 200);
    let cases = [
        (1, None, "no token"),
        (2, Some(&*short), "token expired"),
        (3, Some(&*other), "token for another pool"),
        (4, Some(&*revoked), "token revoked"),
        (9, Some(&*good), "network not allowed"),
    ];
    let mut bodies = BTreeSet::new();
    for (last, credential, _) in cases {
        let answer = ask(&running, last, credential);
        assert_eq!(answer.status, 401, "{answer:?}");
        bodies.insert(answer.body);
    }
    assert_eq!(bodies.len(), 1, "one answer for all");
    let reported = |server: &Server| {
        for (last, _, reason) in cases {
            refusal_is_reported(server, last, reason);
        }
    };
    reported(&running);
    running.stop();
    reported(&server());
}

/// In the API, on the page and on a terminal.
fn refusal_is_reported(server: &Server, last: u8, reason: &str) {
    let page = server.page("/");
    let table = machines(server, "400", &[]).output;
    let line = server.machine(last);
    assert_eq!(line["requests"]["refused"], json!({"status": 401, "reason": reason}));
    let why = format!("is refused with 401: {reason}; Ignition gives up");
    assert_eq!((&line["standing"], &line["why"]), (&json!("stuck"), &json!(why)));
    assert!(page.contains(&why), "{why} is not on the page");
    let address = format!("127.0.0.{last} ");
    let row = table.lines().find(|row| row.starts_with(&address)).expect("a row");
    assert!(row.contains(&why), "{row}");
}

#[test]
fn requests_for_unknown_machines_and_by_other_methods_are_refused() {
    let server = Server::sample_cluster(&[]);
    let status = |path: &str| server.metrics().get(path).status;
    assert_eq!(status("/api/v1/machines/127.0.0.9"), 404);
    assert_eq!(status("/api/v1/machines/x"), 400);
    assert_eq!(server.metrics().request("POST", "/api/v1/machines", &[]).status, 405);
    // Unauthenticated clients see nothing of it.
    assert_eq!(server.plain().get("/api/v1/machines").status, 404);
    assert_eq!(server.plain().get("/").status, 404);
}

#[test]
fn changes_are_reported_with_their_time() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let pool = |configuration: &str| {
        write(directory.path(), "pool.json", manifests::pool("worker", configuration));
    };
    for name in ["one", "two"] {
        let config = machine_config(name, &json!({"ignition": {"version": "3.4.0"}}));
        write(directory.path(), &format!("{name}.json"), config);
    }
    pool("one");
    write(directory.path(), "other.json", manifests::pool("other", "one"));
    let server = Server::serve(directory.path(), &[]);
    let reported = |what: &str| {
        wait_until(what, || {
            let overview = server.overview();
            let changes = overview["changes"].as_array().expect("a list");
            changes.iter().any(|change| change["what"] == what)
        });
    };
    reported("pool worker: serves one");
    pool("two");
    reported("pool worker: serves two instead of one");
    fs::remove_file(directory.path().join("pool.json")).expect("the file");
    reported("pool worker: removed");
    let overview = server.overview();
    assert_eq!(overview["not_ready"], json!([]));
}

/// Every path of the description answers, and every answer is as described.
#[test]
fn the_description_of_the_api_is_true() {
    let server = Server::sample_cluster(&[]);
    server.plain().from(loopback(2)).request("GET", "/config/worker", &[IGNITION]);
    server.plain().from(loopback(3)).request("GET", "/config/gpu", &[IGNITION]);
    let description = server.metrics().get("/api/v1/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths");
    let names: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    let expected = ["/api/v1/machines", "/api/v1/machines/{address}", "/api/v1/overview"];
    assert_eq!(names, BTreeSet::from(expected));
    for (path, described) in paths {
        let answer = server.metrics().get(&path.replace("{address}", "127.0.0.2")).json();
        let content = &described["get"]["responses"]["200"]["content"]["application/json"];
        conforms(&answer, &content["schema"], &description, path);
    }
}

/// Fails where a value is not what a schema says, or has more than it says.
fn conforms(value: &Value, schema: &Value, description: &Value, place: &str) {
    let mut known = BTreeSet::new();
    describe(value, schema, description, place, &mut known);
    if let Value::Object(fields) = value {
        for field in fields.keys() {
            assert!(known.contains(field), "{place}: {field} is not described");
        }
    }
}

fn describe(
    value: &Value,
    schema: &Value,
    description: &Value,
    place: &str,
    known: &mut BTreeSet<String>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = description.pointer(&reference[1..]).expect("a schema that is there");
        return describe(value, target, description, place, known);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        describe(value, part, description, place, known);
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        let fits = |alternative: &&Value| {
            let required = alternative["required"].as_array().into_iter().flatten();
            let is_null = alternative["type"] == "null";
            value.is_null() == is_null
                && required.into_iter().all(|it| value.get(it.as_str().expect("a name")).is_some())
        };
        let fitting = alternatives.iter().find(fits);
        let fitting = fitting.unwrap_or_else(|| panic!("{place}: {value} is not one of {schema}"));
        describe(value, fitting, description, place, known);
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().expect("a name");
        assert!(value.get(name).is_some(), "{place}: {name} is missing in {value}");
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        known.insert(name.clone());
        if let Some(value) = value.get(name) {
            conforms(value, schema, description, &format!("{place}.{name}"));
        }
    }
    if let (Some(items), Value::Array(values)) = (schema.get("items"), value) {
        for value in values {
            conforms(value, items, description, &format!("{place}[]"));
        }
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        Value::Null => return,
        one => vec![one.clone()],
    };
    let own = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(types.contains(&json!(own)), "{place}: {value} is no {types:?}");
}
