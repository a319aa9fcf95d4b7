//! Who gets a config: tokens that pointer configs carry, modes by flag and by pool, and what strangers
//! get.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::first_boot::pointer;
use crate::support::http::{Client, Response};
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::server::Server;
use crate::support::wait_for;

const IGNITION: (&str, &str) = ("User-Agent", "Ignition/2.14.0");
const ACCEPT: (&str, &str) = ("Accept", "application/vnd.coreos.ignition+json;version=3.3.0");
/// The annotation of a pool.
const ACCESS: &str = "machineconfiguration.openshift.io/access";

/// `Bearer` and the token that the pool's pointer config carries.
pub(crate) fn credential(server: &Server, pool: &str) -> String {
    wait_for("a token in the pointer config", || {
        let pointer: Value = serde_json::from_str(&pointer(server, pool)).ok()?;
        let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0];
        assert!(header.is_null() || header["name"] == "Authorization", "{header}");
        header["value"].as_str().map(str::to_owned)
    })
}

pub(crate) fn get(client: &Client, pool: &str, credential: Option<&str>) -> Response {
    let authorization = credential.map(|credential| ("Authorization", credential));
    let headers: Vec<_> = [IGNITION, ACCEPT].into_iter().chain(authorization).collect();
    client.request("GET", &format!("/config/{pool}"), &headers)
}

pub(crate) fn enforcing(flags: &[&str]) -> Server {
    let flags: Vec<_> = ["--access", "enforce"].iter().chain(flags).copied().collect();
    Server::serve(&in_repository("ignition-fixtures"), &flags)
}

/// A token that nobody has issued.
pub(crate) fn unknown() -> String {
    format!("Bearer mcs-{}", "A".repeat(43))
}

pub(crate) fn assert_refused(response: &Response) {
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    let body = String::from_utf8(response.body.clone()).expect("text");
    assert_eq!(
        body,
        "this config is not for everyone, and nothing that came with the request opens it\n"
    );
}

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
        client.from([127, 0, 0, last].into())
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
    machine.boot(&pointer(&server, "worker"));
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
fn where_access_is_audited_it_is_told_who_would_be_refused() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    let good = credential(&server, "worker");
    let from = |client: Client, last| client.from([127, 0, 0, last].into());
    for (client, credential) in [
        (from(server.tls(), 2), Some(&*good)),
        (from(server.tls(), 3), None),
        (from(server.plain(), 4), Some(&*good)),
        (from(server.tls(), 5), Some("Bearer x")),
    ] {
        assert_eq!(get(&client, "worker", credential).status, 200);
    }
    let told = |last| {
        let machine = server.metrics().get(&format!("/api/v1/machines/127.0.0.{last}")).json();
        machine["requests"]["would_be_refused"].clone()
    };
    assert_eq!(
        [2, 3, 4, 5].map(told),
        [Value::Null, json!("missing"), json!("plain-port"), json!("malformed")]
    );
    wait_for("the log to say so", || {
        server.log().contains("would be refused: it has no token").then_some(())
    });
}

#[test]
fn where_access_is_off_nothing_is_asked() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &["--access", "off"]);
    assert_eq!(get(&server.plain(), "worker", Some("nonsense")).status, 200);
    let pointer: Value = serde_json::from_str(&pointer(&server, "worker")).expect("JSON");
    assert_eq!(pointer.pointer("/ignition/config/merge/0/httpHeaders"), None);
    assert!(!server.metrics().get("/metrics").body.windows(10).any(|it| it == b"mcs_access"));
}

/// A folder of manifests with the sample cluster's, of which one pool says something of its access.
pub(crate) fn with_annotated_pool(pool: &str, access: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    for entry in walk(&sample) {
        let target = folder.path().join(entry.strip_prefix(&sample).expect("below"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a writable folder");
        fs::copy(&entry, target).expect("a copy");
    }
    annotate(folder.path(), pool, access);
    folder
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Has the sample's file of pools say so, replaced as a careful program does.
pub(crate) fn annotate(folder: &Path, pool: &str, access: &str) {
    let sample = fs::read_to_string(in_repository("ignition-fixtures/pools.yaml")).expect("text");
    let name = format!("  name: {pool}\n");
    assert!(sample.contains(&name));
    let annotated = format!("{name}  annotations:\n    {ACCESS}: {access}\n");
    let text = sample.replacen(&name, &annotated, 1);
    fs::write(folder.join(".pools.new"), text).expect("a writable folder");
    fs::rename(folder.join(".pools.new"), folder.join("pools.yaml")).expect("a rename");
}

#[test]
fn a_pool_says_itself_how_much_it_is_restricted() {
    let manifests = with_annotated_pool("worker", "enforce");
    let server = Server::serve(manifests.path(), &[]);
    let status = |pool: &str| get(&server.tls(), pool, None).status;
    assert_eq!([status("worker"), status("master")], [401, 200]);
    annotate(manifests.path(), "worker", "\"off\"");
    wait_for("it to be open", || (status("worker") == 200).then_some(()));
    annotate(manifests.path(), "worker", "enforce");
    wait_for("it to be closed", || (status("worker") == 401).then_some(()));
    // What is not understood changes nothing.
    annotate(manifests.path(), "worker", "enforced");
    let line = wait_for("it to be told", || {
        let overview = server.metrics().get("/api/v1/overview").json();
        let lines = overview["degraded"].as_array()?.clone();
        lines.iter().filter_map(Value::as_str).find(|line| line.contains(ACCESS)).map(str::to_owned)
    });
    assert!(
        line.contains("pool worker") && line.contains("expected off, audit or enforce"),
        "{line}"
    );
    wait_for("it to be closed still", || (status("worker") == 401).then_some(()));
}

#[test]
fn enforcing_waits_for_pointer_configs_that_lack_a_token() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    drop(Server::serve_with_state(&sample, state.path()));
    // A machine of an older installation has this one: it trusts this CA, and knows no headers.
    let own = fs::read_to_string(state.path().join("user-data/worker.ign")).expect("a pointer");
    let mut old: Value = serde_json::from_str(&own).expect("JSON");
    let resource = old["ignition"]["config"]["merge"][0].as_object_mut().expect("a fetch");
    resource.remove("httpHeaders");
    old["ignition"]["version"] = json!("3.0.0");
    old["storage"] = json!({"files": [{"path": "/etc/rack"}]});
    let path = state.path().join("user-data/rack-7.ign");
    fs::write(&path, old.to_string()).expect("a writable folder");
    let mut command = crate::support::server::binary();
    command.arg("serve").arg(&sample).arg("--state-dir").arg(state.path());
    command.args(["--host", "localhost", "--access", "enforce"]);
    let server = Server::prepared(command).until_ready();
    let state_client =
        Client::tls(server.secure(), &fs::read(state.path().join("ca.crt")).expect("CA"));
    assert_eq!(get(&state_client, "worker", None).status, 200, "it is audited");
    assert_refused(&get(&state_client, "master", None));
    let degraded = server.metrics().get("/api/v1/overview").json()["degraded"].to_string();
    assert!(degraded.contains("rack-7.ign: its Ignition spec 3.0.0 has no headers"), "{degraded}");
    let counts = |line: &str| {
        let page = server.metrics().get("/metrics").body;
        String::from_utf8(page).expect("text").lines().any(|it| it == line)
    };
    assert!(counts(r#"mcs_access_mode{pool="worker",asked="enforce",mode="audit"} 1"#));
    assert!(counts(r#"mcs_access_mode{pool="master",asked="enforce",mode="enforce"} 1"#));
    assert!(counts("mcs_tokens_attention 1"));
    assert_eq!(fs::read_to_string(&path).expect("text"), old.to_string(), "it is left as it is");

    // Once there is none, it is enforced; one that comes later opens nothing.
    fs::remove_file(&path).expect("a file");
    let refused = || (get(&state_client, "worker", None).status == 401).then_some(());
    wait_for("it to be enforced", refused);
    assert!(counts(r#"mcs_access_mode{pool="worker",asked="enforce",mode="enforce"} 1"#));
    assert!(!counts(r#"mcs_access_mode{pool="worker",asked="enforce",mode="audit"} 1"#));
    assert!(counts("mcs_tokens_attention 0"));
    fs::write(&path, old.to_string()).expect("a writable folder");
    wait_for("it to be told", || {
        let degraded = server.metrics().get("/api/v1/overview").json()["degraded"].to_string();
        degraded.contains("its machines are refused").then_some(())
    });
    assert_refused(&get(&state_client, "worker", None));
}

#[test]
fn a_pointer_config_of_ours_in_an_older_spec_is_lifted() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    drop(Server::serve_with_state(&sample, state.path()));
    let path = state.path().join("user-data/worker.ign");
    let own = fs::read_to_string(&path).expect("a pointer");
    let mut old: Value = serde_json::from_str(&own).expect("JSON");
    old["ignition"]["config"]["merge"][0].as_object_mut().expect("a fetch").remove("httpHeaders");
    old["ignition"]["version"] = json!("3.0.0");
    fs::write(&path, old.to_string()).expect("a writable folder");
    let server = Server::serve_with_state(&sample, state.path());
    wait_for("it to be lifted", || {
        let text = fs::read_to_string(&path).ok()?;
        let pointer: Value = serde_json::from_str(&text).expect("JSON");
        let resource = &pointer["ignition"]["config"]["merge"][0];
        (pointer["ignition"]["version"] == "3.1.0" && resource["httpHeaders"].is_array())
            .then_some(())
    });
    drop(server);
}

#[test]
fn a_server_that_starts_gives_nothing_out_before_it_knows_the_tokens() {
    let state = tempfile::tempdir().expect("a temporary folder");
    for start in 0..4 {
        let mut command = crate::support::server::binary();
        command.arg("serve").arg(in_repository("ignition-fixtures"));
        command.arg("--state-dir").arg(state.path());
        command.args(["--host", "localhost", "--access", "enforce"]);
        let mut server = Server::prepared(command);
        let mut seen = BTreeSet::new();
        wait_for("it to be ready", || {
            seen.insert(get(&server.plain(), "worker", None).status);
            (server.plain().get("/readyz").status == 200).then_some(())
        });
        assert!(seen.is_subset(&[401, 503].into()), "start {start}: {seen:?}");
        // What is broken is never taken for nothing.
        server.terminate();
        server.ended();
        if start == 2 {
            fs::write(state.path().join("access.json"), "{\"tokens\": [")
                .expect("a writable folder");
            let mut command = crate::support::server::binary();
            command.arg("serve").arg(in_repository("ignition-fixtures"));
            command.arg("--state-dir").arg(state.path());
            command.args(["--host", "localhost", "--access", "enforce"]);
            let server = Server::prepared(command).until_ready();
            assert_eq!(get(&server.plain(), "worker", None).status, 503);
            let degraded = server.metrics().get("/api/v1/overview").json()["degraded"].to_string();
            assert!(degraded.contains("access.json: EOF while parsing"), "{degraded}");
            let text = fs::read_to_string(state.path().join("access.json")).expect("text");
            assert_eq!(text, "{\"tokens\": [", "it is not written over");
            fs::remove_file(state.path().join("access.json")).expect("a file");
            wait_for("it to be mended", || {
                (get(&server.plain(), "worker", None).status == 401).then_some(())
            });
        }
    }
}

#[test]
fn who_fails_too_often_waits_and_who_has_a_token_does_not() {
    let server = enforcing(&[]);
    let good = credential(&server, "worker");
    let mut statuses = Vec::new();
    for _ in 0..130 {
        statuses.push(get(&server.tls(), "worker", None).status);
    }
    assert_eq!(statuses[..100], [401; 100]);
    assert!(statuses[100..].contains(&503), "{statuses:?}");
    assert_eq!(get(&server.tls(), "worker", Some(&good)).status, 200);
    let elsewhere = server.tls().from([127, 0, 0, 9].into());
    assert_refused(&get(&elsewhere, "worker", None));
}

/// Runs `tokens` on the folder where a server keeps its state.
fn tokens(server: &Server, arguments: &[&str]) -> std::process::Output {
    let mut command = crate::support::server::binary();
    command.arg("tokens").args(arguments).arg("--state-dir").arg(server.state());
    command.output().expect("the built binary")
}

fn printed(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn a_token_with_a_name_opens_its_pools_until_it_is_revoked() {
    let server = enforcing(&[]);
    credential(&server, "worker");
    let added = ["add", "rack-7", "--pool", "worker,edge", "--until", "30d"];
    let token = printed(&tokens(&server, &added));
    let bearer = format!("Bearer {}", token.trim());
    let status = |pool: &str| get(&server.tls(), pool, Some(&bearer)).status;
    wait_for("the server to know it", || (status("worker") == 200).then_some(()));
    assert_eq!([status("edge"), status("master")], [200, 401]);
    let list = printed(&tokens(&server, &["list"]));
    let line = list.lines().find(|line| line.contains("rack-7")).expect("a line");
    assert!(line.contains("edge,worker") && line.ends_with("valid"), "{line}");
    assert!(!list.contains(token.trim()) && list.contains("(pointer configs)"), "{list}");

    let again = tokens(&server, &added);
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(error.contains("rack-7: there is a token of this name"), "{error}");
    printed(&tokens(&server, &["revoke", "rack-7"]));
    wait_for("it to be refused", || (status("worker") == 401).then_some(()));
    let error = tokens(&server, &["revoke", "rack-7"]);
    assert!(!error.status.success());
    assert!(printed(&tokens(&server, &["list"])).contains("revoked"));
}

#[test]
fn a_rotation_replaces_tokens_and_those_before_go_on_for_a_while() {
    let server = enforcing(&["--token-overlap", "3s"]);
    let before = credential(&server, "worker");
    printed(&tokens(&server, &["rotate", "--pool", "worker"]));
    let after = wait_for("another token", || {
        let now = credential(&server, "worker");
        (now != before).then_some(now)
    });
    let status = |credential: &str| get(&server.tls(), "worker", Some(credential)).status;
    assert_eq!([status(&before), status(&after)], [200, 200]);
    wait_for("the one before to end", || (status(&before) == 401).then_some(()));
    assert_eq!(status(&after), 200);
    let log = server.log();
    let metric = "mcs_access_total{pool=\"worker\",mode=\"enforce\",verdict=\"expired\"}";
    assert!(server.metric(metric) >= 1.0, "{log}");
    let other = tokens(&server, &["rotate", "--pool", "nowhere"]);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(error.contains("pool nowhere: its pointer configs carry no tokens"), "{error}");
}

#[test]
fn a_token_that_leaked_is_replaced_at_once() {
    let server = enforcing(&[]);
    let leaked = credential(&server, "worker");
    let list = printed(&tokens(&server, &["list"]));
    let line = list.lines().find(|line| line.contains("worker")).expect("a line");
    let id = line.split_whitespace().next().expect("an id");
    printed(&tokens(&server, &["revoke", id]));
    wait_for("another token", || (credential(&server, "worker") != leaked).then_some(()));
    let refused = || (get(&server.tls(), "worker", Some(&leaked)).status == 401).then_some(());
    wait_for("it to be refused", refused);
    let now = credential(&server, "worker");
    assert_eq!(get(&server.tls(), "worker", Some(&now)).status, 200);
}

#[test]
fn what_strangers_can_read_is_told_by_the_check_of_certificates() {
    let manifests = with_annotated_pool("worker", "enforce");
    let server = Server::serve(manifests.path(), &[]);
    credential(&server, "worker");
    let mut command = crate::support::server::binary();
    command.args(["certs", "check", "--state-dir"]).arg(server.state());
    let lines = printed(&command.output().expect("the built binary"));
    assert_eq!(lines.lines().count(), 1, "{lines}");
    command.arg("--manifests").arg(manifests.path());
    let lines = printed(&command.output().expect("the built binary"));
    let master = lines.lines().find(|line| line.starts_with("pool master: ")).expect("a line");
    assert!(master.contains("whoever reaches the server can read"), "{master}");
    assert!(master.contains("/etc/kubernetes/kubeconfig (kubeconfig"), "{master}");
    assert!(!lines.contains("pool worker"), "it is enforced: {lines}");
}

#[test]
fn a_pool_that_appears_is_never_served_to_strangers() {
    let manifests = with_annotated_pool("worker", "enforce");
    let pools = manifests.path().join("pools.yaml");
    let whole = fs::read_to_string(&pools).expect("text");
    let (others, last) = whole.rsplit_once("\n---\n").expect("several pools");
    let name = last.split("  name: ").nth(1).and_then(|it| it.lines().next()).expect("a name");
    fs::write(&pools, others).expect("a writable folder");
    let server = Server::serve(manifests.path(), &["--access", "enforce"]);
    let strangers = || {
        for client in [server.tls(), server.plain()] {
            let status = get(&client, name, None).status;
            assert!(matches!(status, 401 | 503), "a stranger got {status}");
        }
    };
    strangers();
    fs::write(manifests.path().join(".new"), &whole).expect("a writable folder");
    fs::rename(manifests.path().join(".new"), &pools).expect("a rename");
    let path = server.state().join(format!("user-data/{name}.ign"));
    wait_for("a pointer config with a token that opens it", || {
        strangers();
        let text = fs::read_to_string(&path).ok()?;
        let pointer: Value = serde_json::from_str(&text).ok()?;
        let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
        (get(&server.tls(), name, Some(header.as_str()?)).status == 200).then_some(())
    });
    strangers();
}

#[test]
fn a_slip_of_the_pen_opens_no_pool_of_which_nothing_is_known() {
    for slip in ["enforced", "\"\"", "ENFORCE", "\"off \""] {
        let manifests = with_annotated_pool("worker", slip);
        let server = Server::serve(manifests.path(), &["--access", "off"]);
        let stranger = get(&server.tls(), "worker", None);
        assert_eq!((stranger.status, stranger.header("retry-after")), (503, Some("5")), "{slip}");
        assert_eq!(get(&server.tls(), "master", None).status, 200, "{slip}");
        let degraded = server.metrics().get("/api/v1/overview").json()["degraded"].to_string();
        assert!(degraded.contains("pool worker: its mode of access is not known"), "{degraded}");
        // Another change meanwhile does not make it clear.
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "extra"},
        });
        fs::write(manifests.path().join("extra.json"), pool.to_string())
            .expect("a writable folder");
        wait_for("the change", || {
            let pools = server.metrics().get("/api/v1/overview").json()["pools"].to_string();
            pools.contains("extra").then_some(())
        });
        assert_eq!(get(&server.tls(), "worker", None).status, 503, "{slip}");
        annotate(manifests.path(), "worker", "audit");
        wait_for("it to be open", || {
            (get(&server.tls(), "worker", None).status == 200).then_some(())
        });
    }
}
