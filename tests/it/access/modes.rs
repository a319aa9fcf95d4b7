//! How much a pool is restricted: by flag, by its annotation, and before what it says is known.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::access::{
    ACCESS, annotate, assert_refused, credential, enforcing, get, with_annotated_pool,
    without_headers,
};
use crate::support::command::Said;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::server::{Server, binary, serving_with_access};
use crate::support::{wait_asking, wait_for, wait_until};

#[test]
fn a_pool_says_itself_how_much_it_is_restricted() {
    let manifests = with_annotated_pool("worker", "enforce");
    let server = Server::serve(manifests.path(), &[]);
    let status = |pool: &str| get(&server.tls(), pool, None).status;
    assert_eq!([status("worker"), status("master")], [401, 200]);
    annotate(manifests.path(), "worker", "\"off\"");
    wait_until("it to be open", || status("worker") == 200);
    annotate(manifests.path(), "worker", "enforce");
    wait_until("it to be closed", || status("worker") == 401);
    // What is not understood changes nothing.
    annotate(manifests.path(), "worker", "enforced");
    let line = wait_for("it to be told", || {
        let overview = server.overview();
        let lines = overview["degraded"].as_array()?.clone();
        lines.iter().filter_map(Value::as_str).find(|line| line.contains(ACCESS)).map(str::to_owned)
    });
    assert!(
        line.contains("pool worker") && line.contains("expected off, audit or enforce"),
        "{line}"
    );
    wait_until("it to be closed still", || status("worker") == 401);
    wait_for("it to be logged", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("cannot read a pool's access mode"))?;
        line.contains("fix=\"correct the annotation").then_some(())
    });
    let output = Said::by(binary().arg("validate").arg(manifests.path()));
    let judged = output.done().output;
    assert!(judged.contains(&format!("warning: pool worker: {ACCESS}: expected off")), "{judged}");
}

#[test]
fn a_pool_that_does_not_exist_is_logged_as_such() {
    let server = enforcing(&[]);
    let credential = credential(&server, "worker");
    for credential in [None, Some(&*credential)] {
        assert_eq!(get(&server.tls(), "wroker", credential).status, 503);
    }
    wait_until("both in the log", || {
        let log = server.log();
        let refused =
            |line: &&str| line.contains("wroker") && line.contains("pool unknown to this server");
        log.lines().filter(refused).count() == 2
    });
}

#[test]
fn enforcing_waits_for_pointer_configs_that_lack_a_token() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    drop(Server::serve_with_state(&sample, state.path()));
    // A machine of an older installation has this one: it trusts this CA, and knows no headers.
    let own = fs::read(state.path().join("user-data/worker.ign")).expect("a pointer");
    let mut old = without_headers(&own);
    old["ignition"]["version"] = json!("3.0.0");
    old["storage"] = json!({"files": [{"path": "/etc/rack"}]});
    let path = state.path().join("user-data/rack-7.ign");
    fs::write(&path, old.to_string()).expect("a writable folder");
    let server = Server::prepared(serving_with_access(&sample, state.path(), "enforce"));
    let server = server.until_ready();
    let state_client =
        Client::tls(server.secure(), &fs::read(state.path().join("ca.crt")).expect("CA"));
    assert_eq!(get(&state_client, "worker", None).status, 200, "it is audited");
    assert_refused(&get(&state_client, "master", None));
    let degraded = server.degraded();
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
    wait_until("it to be told", || {
        let degraded = server.degraded();
        degraded.contains("the requests of its machines are refused")
    });
    assert_refused(&get(&state_client, "worker", None));
}

#[test]
fn a_pointer_config_of_ours_in_an_older_spec_is_lifted() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    drop(Server::serve_with_state(&sample, state.path()));
    let path = state.path().join("user-data/worker.ign");
    let mut old = without_headers(&fs::read(&path).expect("a pointer"));
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
    let serve = || {
        let fixtures = in_repository("ignition-fixtures");
        Server::prepared(serving_with_access(&fixtures, state.path(), "enforce"))
    };
    for start in 0..4 {
        let server = serve();
        let mut seen = BTreeSet::new();
        wait_until("it to be ready", || {
            seen.insert(get(&server.plain(), "worker", None).status);
            server.plain().get("/readyz").status == 200
        });
        assert!(seen.is_subset(&[401, 503].into()), "start {start}: {seen:?}");
        // What is broken is never taken for nothing.
        server.stop();
        if start == 2 {
            fs::write(state.path().join("access.json"), "{\"tokens\": [")
                .expect("a writable folder");
            let server = serve().until_ready();
            assert_eq!(get(&server.plain(), "worker", None).status, 503);
            let degraded = server.degraded();
            assert!(degraded.contains("access.json: EOF while parsing"), "{degraded}");
            let text = fs::read_to_string(state.path().join("access.json")).expect("text");
            assert_eq!(text, "{\"tokens\": [", "it is not written over");
            fs::remove_file(state.path().join("access.json")).expect("a file");
            wait_until("it to be mended", || get(&server.plain(), "worker", None).status == 401);
        }
    }
}

#[test]
fn what_unauthenticated_clients_can_read_is_reported_by_the_check_of_certificates() {
    let manifests = with_annotated_pool("worker", "enforce");
    let server = Server::serve(manifests.path(), &[]);
    credential(&server, "worker");
    let mut command = binary();
    command.args(["certs", "check", "--state-dir"]).arg(server.state());
    let lines = Said::by(&mut command).done().output;
    assert_eq!(lines.lines().count(), 1, "{lines}");
    command.arg("--manifests").arg(manifests.path());
    let lines = Said::by(&mut command).done().output;
    let master = lines.lines().find(|line| line.starts_with("pool master: ")).expect("a line");
    assert!(master.contains("unauthenticated clients can read"), "{master}");
    assert!(master.contains("/etc/kubernetes/kubeconfig (kubeconfig"), "{master}");
    assert!(!lines.contains("pool worker"), "it is enforced: {lines}");
}

#[test]
fn a_pool_that_appears_is_never_served_to_unauthenticated_clients() {
    let manifests = with_annotated_pool("worker", "enforce");
    let pools = manifests.path().join("pools.yaml");
    let whole = fs::read_to_string(&pools).expect("text");
    let (others, last) = whole.rsplit_once("\n---\n").expect("several pools");
    let name = last.split("  name: ").nth(1).and_then(|it| it.lines().next()).expect("a name");
    fs::write(&pools, others).expect("a writable folder");
    let server = Server::serve(manifests.path(), &["--access", "enforce"]);
    let assert_refused_without_token = || {
        for client in [server.tls(), server.plain()] {
            let status = get(&client, name, None).status;
            assert!(matches!(status, 401 | 503), "an unauthenticated client got {status}");
        }
    };
    assert_refused_without_token();
    fs::write(manifests.path().join(".new"), &whole).expect("a writable folder");
    fs::rename(manifests.path().join(".new"), &pools).expect("a rename");
    let path = server.state().join(format!("user-data/{name}.ign"));
    wait_asking("a pointer config with a token that opens it", || {
        assert_refused_without_token();
        let text = fs::read_to_string(&path).ok()?;
        let pointer: Value = serde_json::from_str(&text).ok()?;
        let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
        (get(&server.tls(), name, Some(header.as_str()?)).status == 200).then_some(())
    });
    assert_refused_without_token();
}

#[test]
fn a_misspelt_access_mode_opens_no_pool() {
    for slip in ["enforced", "\"\"", "ENFORCE", "\"off \""] {
        let manifests = with_annotated_pool("worker", slip);
        let server = Server::serve(manifests.path(), &["--access", "off"]);
        let answer = get(&server.tls(), "worker", None);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{slip}");
        assert_eq!(get(&server.tls(), "master", None).status, 200, "{slip}");
        let degraded = server.degraded();
        assert!(degraded.contains("pool worker: its access mode is unknown"), "{degraded}");
        // Another change meanwhile does not make it clear.
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "extra"},
        });
        fs::write(manifests.path().join("extra.json"), pool.to_string())
            .expect("a writable folder");
        wait_until("the change", || {
            let pools = server.overview()["pools"].to_string();
            pools.contains("extra")
        });
        assert_eq!(get(&server.tls(), "worker", None).status, 503, "{slip}");
        annotate(manifests.path(), "worker", "audit");
        wait_until("it to be open", || get(&server.tls(), "worker", None).status == 200);
    }
}
