//! Which machines have asked, of all servers, and which have joined.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::ServedCluster;
use crate::support::cluster::{ACCOUNT, Cluster};
use crate::support::http::loopback;
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/machine-config-server";

#[test]
fn the_ledger_has_the_machines_of_all_servers_and_which_joined() {
    let site = ServedCluster::new();
    site.machine_config("rendered-worker-1", "one");
    site.pool("worker", "rendered-worker-1");
    let other = site.start(&[]).until_ready();
    let peers = other.metrics().address().to_string();
    let server = site.start(&["--peers", &peers]).until_ready();
    let fetch = |server: &Server, last: u8| {
        let client = server.plain().from(loopback(last));
        let agent = [("User-Agent", "Ignition/2.14.0")];
        assert_eq!(client.request("GET", "/config/worker", &agent).status, 200);
    };
    fetch(&server, 2);
    fetch(&other, 3);
    let why = |last: u8| {
        let machine = server.metrics().get(&format!("/api/v1/machines/127.0.0.{last}"));
        if machine.status == 200 {
            machine.json()["why"].as_str().expect("words").to_owned()
        } else {
            String::new()
        }
    };
    for last in [2, 3] {
        wait_until("who has not joined", || {
            why(last).ends_with(" ago, no Node has this address yet")
        });
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-3"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "127.0.0.3"}, {"type": "Hostname", "address": "worker-3"},
        ]},
    });
    site.cluster.create("/api/v1/nodes", &node);
    wait_until("who has joined", || why(3).contains("Node worker-3"));
    assert!(why(2).contains("no Node has this address yet"));
    // Each server counts its own.
    let count =
        |server: &Server, state| server.metric(&format!("mcs_machines{{state=\"{state}\"}}"));
    wait_until("the other server to see the node", || count(&other, "joined") >= 1.0);
    let counts = |server: &Server| ["booting", "joined", "stuck"].map(|state| count(server, state));
    assert_eq!((counts(&server), counts(&other)), ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]));

    drop(other);
    let overview = wait_for("the other server to be missed", || {
        let overview = server.overview();
        let silent = overview["silent_servers"].as_array().expect("a list").len();
        (silent == 1).then_some(overview)
    });
    let silent = overview["silent_servers"][0].as_str().expect("words");
    assert!(silent.starts_with(&peers), "{silent}");
    assert_eq!(overview["machines"].as_array().expect("a list").len(), 1);
    let of_it = server.degraded_lines().into_iter().find(|line| line.contains(&peers));
    assert_eq!(of_it, None, "a silent server keeps this one from nothing");
}

/// Takes the right to a resource from the server's account. Returns the rules that it had.
fn take_right(cluster: &Cluster, group: &str, resource: &str) -> Value {
    let rules = cluster.get(ROLE).expect("the role")["rules"].clone();
    let all = rules.as_array().expect("rules");
    let less: Vec<_> = all.iter().filter(|rule| rule["resources"] != json!([resource])).collect();
    assert_eq!(less.len() + 1, all.len());
    cluster.patch(ROLE, &json!({"rules": less}));
    // The API server goes by a role's change some time after it has taken it.
    wait_until("the role to count", || {
        !cluster.may(ACCOUNT, "list", &format!("{group}/{resource}"), "")
    });
    rules
}

/// Asks for a kubelet's first certificate, as the kubelet of this node does.
fn ask_to_join(cluster: &Cluster, name: &str, node: &str) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let key = KeyPair::generate().expect("a key");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "request": BASE64.encode(request),
            "usages": ["digital signature", "client auth"],
        },
    });
    cluster.create("/apis/certificates.k8s.io/v1/certificatesigningrequests", &object);
}

#[test]
fn a_machine_that_waits_for_the_approval_of_its_certificate_says_so() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.plain().request("GET", "/config/worker", &agent).status, 200);
    let until = |is_right: &dyn Fn(&str) -> bool| {
        let mut seen = String::new();
        wait_for("the words", || {
            let machine = server.metrics().get("/api/v1/machines/127.0.0.1").json();
            machine["why"].as_str()?.clone_into(&mut seen);
            is_right(&seen).then_some(())
        });
        seen
    };
    let nobody = |why: &str| why.ends_with(", no Node has this address yet");
    until(&nobody);

    ask_to_join(&site.cluster, "csr-x", "worker-7");
    let why = until(&|why| why.contains("worker-7"));
    assert!(why.contains("; asked to join since: worker-7 waits for approval of csr-x, "), "{why}");
    let command = "kubectl certificate approve csr-x";
    assert!(why.ends_with(command), "{why}");
    let page = server.metrics().get("/machines/127.0.0.1");
    assert!(page.text().contains(command), "{}", page.text());
    let words: Vec<_> = command.split(' ').skip(1).collect();
    site.cluster.kubectl(&words);
    until(&nobody);

    ask_to_join(&site.cluster, "csr-y", "worker-8");
    site.cluster.kubectl(&["certificate", "deny", "csr-y"]);
    let why = until(&|why| why.contains("denied"));
    assert!(why.contains("; asked to join since: csr-y of worker-8 was denied: Kubectl"), "{why}");
    site.cluster.kubectl(&["delete", "csr", "csr-y"]);
    until(&nobody);
}

#[test]
fn a_server_that_may_not_see_who_asks_to_join_logs_it_once() {
    let site = ServedCluster::with_worker();
    let rules = take_right(&site.cluster, "certificates.k8s.io", "certificatesigningrequests");
    let server = site.start(&[]).until_ready();
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.plain().request("GET", "/config/worker", &agent).status, 200);
    let line = "the boot ledger does not show who waits for approval";
    wait_until("the line", || server.log().contains(line));
    ask_to_join(&site.cluster, "csr-x", "worker-7");
    let why = || {
        let machine = server.metrics().get("/api/v1/machines/127.0.0.1").json();
        machine["why"].as_str().expect("words").to_owned()
    };
    wait_until("the nodes", || why().ends_with("no Node has this address yet"));
    let mut degraded = server.degraded_lines();
    degraded.retain(|line| !line.contains(": unauthenticated clients can read "));
    assert_eq!(degraded, [""; 0]);

    site.cluster.patch(ROLE, &json!({"rules": rules}));
    wait_until("it to see them", || why().contains("worker-7 waits for"));
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
}

#[test]
fn a_server_that_may_not_see_nodes_serves_and_says_so() {
    let site = ServedCluster::new();
    site.machine_config("rendered-worker-1", "one");
    site.pool("worker", "rendered-worker-1");
    let rules = take_right(&site.cluster, "", "nodes");
    let server = site.start(&[]).until_ready();
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.plain().request("GET", "/config/worker", &agent).status, 200);
    let of_nodes = || server.degraded_lines().into_iter().find(|line| line.starts_with("nodes: "));
    let line = wait_for("it to say so", of_nodes);
    assert!(line.starts_with("nodes: cannot be watched: ") && line.contains("forbidden"), "{line}");
    assert!(server.metric("mcs_watch_failures_total{kind=\"nodes\"}") >= 1.0);
    let machine = server.metrics().get("/api/v1/machines/127.0.0.1").json();
    let why = machine["why"].as_str().expect("text");
    assert!(why.ends_with("this server knows no nodes"), "{why}");

    site.cluster.patch(ROLE, &json!({"rules": rules}));
    wait_until("it to see them", || of_nodes().is_none());
}

#[test]
fn a_failed_first_boot_becomes_an_event_of_the_pool_where_that_is_allowed() {
    let site = ServedCluster::with_worker();
    site.cluster.apply(&["-f", "deploy/components/failure-reports/rbac.yaml"]);
    let server = site.start(&["--failure-reports", "on"]).until_ready();
    let client = server.plain();
    assert_eq!(
        client.request("GET", "/config/worker", &[("User-Agent", "Ignition/2")]).status,
        200
    );
    let report = |pool: &str, status: u16| {
        let body =
            json!({"pool": pool, "nodeID": "rack-7", "stage": "pull", "errorMessage": "no route"});
        let body = body.to_string();
        let head = "POST /v1/node-failure HTTP/1.1\r\nHost: localhost\r\nConnection: close";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = client.exchange(request.as_bytes()).expect("an answer");
        assert_eq!(answer.status, status);
    };
    report("worker,metadata.name!=other", 404);
    report("worker", 202);
    let words = "node rack-7 reports that its first boot failed at stage \"pull\": no route";
    wait_until("the event", || {
        let described = site.cluster.kubectl(&["describe", "machineconfigpool", "worker"]);
        described.contains(words)
    });
    let events = site.cluster.events();
    assert_eq!(events.matches("FirstbootFailed").count(), 1, "{events}");
}
