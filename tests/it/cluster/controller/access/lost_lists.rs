//! Lists of tokens that are lost, restored, broken or not kept by anybody: they open nothing.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::super::{ControlledCluster, USER_DATA_NAMESPACE, secrets, server_at, serving, value};
use super::{ACCESS, Enforcing, assert_closed, hashes, server_with};
use crate::support::access::without_headers;
use crate::support::cluster::NAMESPACE;
use crate::support::rendered::POOLS;
use crate::support::server::Server;
use crate::support::{wait_asking, wait_for, wait_until};

#[test]
fn a_list_of_tokens_that_is_lost_while_nobody_keeps_it_opens_nothing() {
    let Enforcing { site, mut controller, credential, cache } = Enforcing::start();
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let server = server_with(&site, &cache, &flags);
    controller.terminate();
    site.cluster.delete(&hashes());
    let gone = "machine-config-server-access: not found; the last tokens remain in use";
    let holds = |server: &Server| {
        wait_until("the server to say so", || server.degraded().contains(gone));
        assert_eq!(site.status(server, "worker", Some(&credential)), 200);
        assert_eq!(site.status(server, "worker", None), 401);
    };
    holds(&server);
    server.stop();
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    holds(&server.until_ready());
}

#[test]
fn a_list_of_tokens_that_was_never_there_opens_nothing() {
    let site = ControlledCluster::new();
    let mut controller = site.start(&[]);
    site.settled();
    site.object(&serving());
    let cache = site.directory.path().join("cache");
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    wait_asking("the reason", || {
        assert_closed(&site, &server, "worker");
        let line = "machine-config-server-access: not found: no tokens are known";
        server.degraded().contains(line).then_some(())
    });
    assert_eq!(site.status(&server, "worker", None), 503, "nobody is refused for good");
    // As the version before kept one that it had not found; and an empty one in the cluster.
    server.stop();
    let nothing = r#"{"tokens":[],"enforced":[],"lacking":{}}"#;
    fs::write(cache.join("access.json"), nothing).expect("a writable folder");
    let secret = json!({
        "metadata": {"name": "machine-config-server-access"},
        "data": {"access.json": BASE64.encode("{}")},
    });
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    let waits = |server: &Server| {
        assert_closed(&site, server, "worker");
        let line = "pool worker: it is unknown whether its pointer configs have tokens";
        server.degraded().contains(line).then_some(())
    };
    wait_for("the reason for the pool", || waits(&server));
    site.cluster.create(&secrets(NAMESPACE), &secret);
    wait_for("the list to be read", || {
        waits(&server)?;
        (!server.degraded().contains("not found")).then_some(())
    });
    // Once a controller keeps tokens, it is enforced.
    controller.terminate();
    let _controller = site.start(&["--access", "enforce"]);
    wait_asking("the pool to be enforced", || {
        assert_closed(&site, &server, "worker");
        (site.status(&server, "worker", None) == 401).then_some(())
    });
    let credential = site.credential("worker-user-data-managed");
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
}

#[test]
fn a_list_of_tokens_that_is_restored_opens_no_pool_that_was_enforced() {
    let Enforcing { site, mut controller, credential, cache } = Enforcing::start();
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let server = server_with(&site, &cache, &flags);
    controller.terminate();
    let mut older = site.known();
    older["enforced"] = json!([]);
    older["lacking"] =
        json!({"worker": ["rack-user-data: its Ignition spec 2.2.0 has no headers"]});
    let older = json!({"data": {"access.json": BASE64.encode(older.to_string())}});
    site.cluster.patch(&hashes(), &older);
    let holds = |server: &Server| {
        wait_asking("the server to say so", || {
            assert_closed(&site, server, "worker");
            server
                .degraded()
                .contains("pool worker: it was or could have been enforced")
                .then_some(())
        });
        assert_eq!(site.status(server, "worker", None), 503, "nobody is refused for good");
        assert_eq!(site.status(server, "worker", Some(&credential)), 200);
    };
    holds(&server);
    wait_for("the cache", || {
        let kept = fs::read_to_string(cache.join("access.json")).ok()?;
        kept.contains(r#""contested":["worker"]"#).then_some(())
    });
    server.stop();
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    holds(&server.until_ready());
}

#[test]
fn broken_lists_of_tokens_are_named_and_not_written_over() {
    let site = ControlledCluster::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let credential = site.credential("worker-user-data-managed");
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    site.enforced(&server);
    let sound = site.known();
    let broken = BASE64.encode("{\"tokens\": [");
    site.cluster.patch(&hashes(), &json!({"data": {"access.json": broken}}));
    let reported = wait_for("the controller to say so", || {
        let (_, lines) = controller.readiness();
        lines.lines().find(|line| line.contains("machine-config-server-access")).map(str::to_owned)
    });
    assert!(reported.contains("access.json: EOF"), "{reported}");
    wait_until("the server to say so", || {
        server.degraded().contains("machine-config-server-access: access.json: EOF")
    });
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
    assert_eq!(site.status(&server, "worker", None), 401);
    assert_eq!(site.object(&hashes())["data"]["access.json"], broken);
    let repaired = json!({"data": {"access.json": BASE64.encode(sound.to_string())}});
    site.cluster.patch(&hashes(), &repaired);
    // A slip in what a pool says opens nothing.
    let slip = json!({"metadata": {"annotations": {ACCESS: "enforcing"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &slip);
    wait_until("both to say so", || {
        let is_reported = controller.readiness().1.contains("expected off, audit or enforce");
        is_reported && server.degraded().contains("expected off, audit or enforce")
    });
    assert_eq!(site.known()["enforced"], json!(["worker"]));
    assert_eq!(site.status(&server, "worker", None), 401);
    let right = json!({"metadata": {"annotations": {ACCESS: null}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &right);
    // Deleted, it is made anew from what is there; nobody is let in nor locked out meanwhile.
    site.cluster.delete(&hashes());
    wait_asking("it to be made anew", || {
        assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
        assert_eq!(site.status(&server, "worker", None), 401);
        let secret = site.cluster.get(&hashes())?;
        String::from_utf8_lossy(&value(&secret, "access.json")).contains("worker").then_some(())
    });
    controller.terminate();
}

/// By this the API server asks a server that is not there, and then has an internal error.
fn hook_of_nobody() -> Value {
    json!({
        "metadata": {"name": "nobody"},
        "webhooks": [{
            "name": "nobody.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["UPDATE"],
            }],
            "matchConditions": [
                {"name": "user-data", "expression": "object.metadata.namespace == 'openshift-machine-api'"},
            ],
        }],
    })
}

#[test]
fn a_write_that_fails_opens_no_pool_and_one_that_is_refused_for_good_is_evidence() {
    let site = ControlledCluster::new();
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let mut controller = site.start(&[]);
    site.settled();
    controller.terminate();
    site.cluster.create(hooks, &hook_of_nobody());
    let controller = site.start(&["--access", "enforce"]);
    let server = || {
        let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
        server.until_ready()
    };
    let name = "worker-user-data-managed";
    wait_until("it to be told", || {
        let line = format!("{name}: has no token, and the last write of it failed");
        controller.readiness().1.contains(&line)
    });
    for _ in 0..2 {
        let server = server();
        wait_asking("the reason", || {
            assert_closed(&site, &server, "worker");
            server.degraded().contains("whether its pointer configs").then_some(())
        });
    }
    // Nobody can write this one, so that its machines would be locked out.
    site.cluster.delete(&format!("{hooks}/nobody"));
    let server = server();
    site.enforced(&server);
    let bare = without_headers(&site.user_data(name));
    let audit = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &audit);
    let fixed = json!({
        "metadata": {"name": "fixed-user-data"}, "immutable": true,
        "data": {"userData": BASE64.encode(bare.to_string())},
    });
    site.cluster.create(&secrets(USER_DATA_NAMESPACE), &fixed);
    wait_until("it to be known", || site.known()["lacking"].to_string().contains("immutable"));
    let enforce = json!({"metadata": {"annotations": {ACCESS: "enforce"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &enforce);
    wait_until("it to be open on evidence", || {
        let is_held = server.degraded().contains("fixed-user-data: ");
        is_held && site.status(&server, "worker", None) == 200
    });
}
