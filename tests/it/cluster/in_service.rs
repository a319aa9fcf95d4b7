//! When machines are sent to a server: what kubelet and balancers ask, and the pair that it needs first.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::server::ServedCluster;
use crate::support::cluster::{ACCOUNT, Cluster, NAMESPACE, kustomized};
use crate::support::command::Store;
use crate::support::contract::{is_served, marker};
use crate::support::http::{Client, Response};
use crate::support::pair::Pair;
use crate::support::server::{Server, free_ports};
use crate::support::{in_repository, wait_for, wait_until};

const SECRET: &str = "openshift-machine-config-operator/machine-config-server-tls";

fn in_service(server: &Server) -> (u16, String) {
    let Response { status, body, .. } = server.plain().get("/readyz/serving");
    (status, String::from_utf8(body).expect("text"))
}

fn put_in_service(server: &Server) {
    wait_until("machines to be sent here", || in_service(server).0 == 200);
}

fn secret(pair: &Pair) -> Value {
    let encoded = |path| BASE64.encode(fs::read(path).expect("a file"));
    json!({
        "metadata": {"name": "machine-config-server-tls"}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded(&pair.certificate), "tls.key": encoded(&pair.key)},
    })
}

/// Whether a machine that trusts this pair gets an answer.
fn is_shown(server: &Server, pair: &Pair) -> Option<()> {
    let client = Client::tls(server.secure(), pair.pem.as_bytes());
    client.try_request("GET", "/healthz", &[]).is_ok().then_some(())
}

#[test]
fn a_pair_that_is_made_later_is_served_at_once_and_its_files_hold_once_they_are_there() {
    let site = ServedCluster::with_worker();
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let [made, mounted, later] = ["made", "mounted", "later"].map(|name| {
        let directory = elsewhere.path().join(name);
        fs::create_dir(&directory).expect("a new folder");
        Pair::make(&directory, "localhost")
    });
    let files = [&site.pair.certificate, &site.pair.key];
    for file in files {
        fs::remove_file(file).expect("a file");
    }

    let server = site.start(&["--pair-secret", SECRET]);
    is_served(&server, "worker", "one");
    // The pool is served before all is read.
    wait_until("the certificate alone to be missing", || {
        in_service(&server) == (503, "serving certificate: failed\n".to_owned())
    });
    assert_eq!(is_shown(&server, &made), None);
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    site.cluster.create(&secrets, &secret(&made));
    wait_for("the pair that was made", || is_shown(&server, &made));
    put_in_service(&server);
    wait_until("nothing to be missed", || {
        !server.metrics().get("/api/v1/overview").json().to_string().contains("serving certificate")
    });
    // One that cannot be used leaves the one before.
    let path = format!("{secrets}/machine-config-server-tls");
    let mixed = json!({"data": {"tls.key": secret(&later)["data"]["tls.key"]}});
    site.cluster.patch(&path, &mixed);
    let reported = wait_for("what is wrong to be told", || {
        let overview = server.overview();
        let lines = overview["degraded"].as_array().expect("a list").iter();
        let mut lines = lines.filter_map(Value::as_str).map(str::to_owned);
        lines.find(|line| line.contains("does not belong to the certificate"))
    });
    assert!(reported.starts_with(&format!("Secret {SECRET}: ")), "{reported}");
    assert_eq!(is_shown(&server, &made), Some(()));

    for (from, to) in
        [(&mounted.key, &site.pair.key), (&mounted.certificate, &site.pair.certificate)]
    {
        fs::copy(from, to).expect("a copy");
    }
    wait_for("the mounted pair", || is_shown(&server, &mounted));
    site.cluster.patch(&path, &json!({"data": secret(&later)["data"]}));
    for file in files {
        fs::remove_file(file).expect("a file");
    }
    server.reported("serving certificate: ");
    assert_eq!(is_shown(&server, &mounted), Some(()), "{}", server.log());
    assert_eq!(in_service(&server).0, 200, "machines boot");
}

#[test]
fn a_server_that_has_read_nothing_gets_no_machines_and_one_with_a_cache_does() {
    let site = ServedCluster::with_worker();
    let cache = site.directory.path().join("cache");
    let flags = ["--cache-dir", cache.to_str().expect("text")];
    let [nowhere] = free_ports();
    let server = site.start_through(nowhere, &flags);
    assert_eq!(in_service(&server), (503, "the inputs have not been read yet\n".to_owned()));
    drop(server);
    let server = site.start(&flags);
    put_in_service(&server);
    wait_for("the cache", || {
        let kept = fs::read_to_string(cache.join("objects.json")).ok()?;
        kept.contains("rendered-1").then_some(())
    });
    drop(server);
    let server = site.start_through(nowhere, &flags);
    put_in_service(&server);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
}

#[test]
fn a_pool_that_does_not_render_takes_no_server_from_the_others() {
    let site = ServedCluster::with_worker();
    site.pool("broken", "rendered-missing");
    let server = site.start(&[]);
    put_in_service(&server);
    assert_eq!(server.plain().get("/readyz").status, 503);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    assert_eq!(server.plain().request("POST", "/readyz/serving", &[]).status, 405);
    assert_eq!(server.plain().get("/readyz/other").status, 404);
}

#[test]
fn pods_take_nothing_from_a_config_map_and_are_asked_whether_they_serve() {
    for (base, kind) in [("openshift", "DaemonSet"), ("kubernetes", "Deployment")] {
        let objects = kustomized(&format!("deploy/{base}"), &[]);
        assert!(objects.iter().all(|it| it["kind"] != "ConfigMap"), "{base}");
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == ACCOUNT;
        let pod = &objects.iter().find(is_it).expect("the workload")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let environment = container["env"].as_array().expect("a list");
        assert!(environment.iter().all(|it| it["valueFrom"] == Value::Null), "{base}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz/serving", "{base}");
        let is_optional = |it: &&Value| it["secret"]["optional"] == true;
        let mut volumes = pod["volumes"].as_array().expect("a list").iter();
        let pair = volumes.find(is_optional).expect("the pair's volume");
        assert_eq!(
            format!("{NAMESPACE}/{}", pair["secret"]["secretName"].as_str().expect("text")),
            SECRET
        );
        let flags = container["args"].as_array().expect("a list");
        for flag in [format!("--pair-secret={SECRET}"), "--shutdown-delay=5s".to_owned()] {
            assert!(flags.contains(&json!(flag)), "{base}: {flag}");
        }
        // --shutdown-delay and --drain-timeout, which is 30 s, fit in.
        assert!(pod["terminationGracePeriodSeconds"].as_u64().expect("a number") > 35, "{base}");
    }
}

#[test]
fn a_cluster_without_openshifts_kinds_gets_certificates_and_servers() {
    let site = ServedCluster::of(Cluster::kubernetes());
    site.cluster.kubectl(&["get", "deployment", ACCOUNT, "--namespace", NAMESPACE]);
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    site.cluster.apply(&["-k", in_repository("deploy/controller").to_str().expect("text")]);
    let controller = super::controller::started(&site.cluster, &["--access", "audit"]);
    let pair = wait_for("a serving certificate", || {
        site.cluster
            .get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/machine-config-server-tls"))
    });
    assert_eq!(pair["type"], "kubernetes.io/tls");
    wait_until("the controller to be ready", || {
        let (status, lines) = controller.readiness();
        status == 200 && !lines.contains("cannot be watched")
    });
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    for log in [controller.log(), server.log()] {
        assert!(
            !log.contains("404 page not found")
                && !log.contains("could not find the requested resource"),
            "{log}"
        );
    }
}

#[test]
fn a_cluster_with_no_kinds_but_kubernetes_own_gets_certificates() {
    let cluster = Cluster::empty();
    let namespaces = in_repository("deploy/kubernetes/namespaces.yaml");
    cluster.apply(&["-f", namespaces.to_str().expect("text")]);
    cluster.apply(&["-k", in_repository("deploy/controller").to_str().expect("text")]);
    let controller = super::controller::started(&cluster, &["--access", "audit"]);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/machine-config-server-tls");
    wait_for("a serving certificate", || cluster.get(&path));
    wait_until("the controller to be ready", || controller.readiness().0 == 200);
    let log = controller.log();
    assert!(!log.contains("ERROR") && !log.contains("404 page not found"), "{log}");
    let check = wait_for("everything to be in order", || {
        let said = cluster.run(&["certs", "check"]);
        (said.status == 0).then(|| said.text())
    });
    assert!(!check.contains("not known"), "{check}");
}
