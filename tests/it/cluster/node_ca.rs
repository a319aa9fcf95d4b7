//! `node-ca` in a cluster: a real kube-apiserver, the built binary as the service account that
//! `deploy/node-ca` gives it, and a folder for each node.

use std::fs::{self};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::{Cluster, MANAGED};
use crate::support::events::{Event, Events};
use crate::support::logged::Logged;
use crate::support::manifests::registry_ca;
use crate::support::proxy::{Proxy, Way};
use crate::support::rest::becomes_idle;
use crate::support::server::binary;
use crate::support::{in_repository, wait_for, wait_until};

const NAMESPACE: &str = "machine-config-server-node-ca";
const ACCOUNT: &str = "node-ca";
const MAP: &str = "merged-trusted-image-registry-ca";

fn deployed(directory: &str) -> Cluster {
    Cluster::prepared(&directory.replace('/', "-"), |cluster| {
        for directory in ["deploy/kubernetes", directory] {
            cluster.apply(&["-k", in_repository(directory).to_str().expect("text")]);
        }
        cluster.serves_all_kinds();
    })
}

fn maps() -> String {
    format!("/api/v1/namespaces/{MANAGED}/configmaps")
}

fn create_map(cluster: &Cluster, data: &Value) {
    cluster.create(&maps(), &json!({"metadata": {"name": MAP}, "data": data}));
}

fn patch_map(cluster: &Cluster, data: &Value) {
    cluster.patch(&format!("{}/{MAP}", maps()), &json!({"data": data}));
}

/// A node's folder, and the agent that keeps it.
struct Node {
    directory: TempDir,
    kubeconfig: PathBuf,
    agent: Logged,
}

impl Node {
    fn start(cluster: &Cluster, address: SocketAddr) -> Self {
        Self::start_with(cluster.kubeconfig_of(ACCOUNT, NAMESPACE, address))
    }

    fn start_with(kubeconfig: PathBuf) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let agent = Logged::observed("node-ca", &mut agent(&directory, &kubeconfig));
        Self { directory, kubeconfig, agent }
    }

    /// Starts an agent that has ended again.
    fn restart(&mut self) {
        self.agent.restart(&mut agent(&self.directory, &self.kubeconfig));
    }

    fn certs(&self) -> PathBuf {
        self.directory.path().join("certs.d")
    }

    fn ca(&self, host: &str) -> Option<String> {
        fs::read_to_string(self.certs().join(host).join("ca.crt")).ok()
    }

    fn list(&self) -> Value {
        let text = fs::read(self.certs().join(".machine-config-server.json")).expect("the list");
        serde_json::from_slice(&text).expect("a list that is whole")
    }

    fn wait_for_ca(&self, host: &str, expected: Option<&String>) {
        let what = format!("{host} to be {expected:?}");
        wait_until(&what, || self.ca(host).as_ref() == expected);
    }

    fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text:?} in the log"), || self.agent.log().contains(text));
    }
}

fn agent(directory: &TempDir, kubeconfig: &Path) -> Command {
    let mut command = binary();
    command.arg("node-ca").arg("--dir").arg(directory.path().join("certs.d"));
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}

#[test]
fn a_node_agent_without_changes_is_idle() {
    let cluster = deployed("deploy/node-ca");
    create_map(&cluster, &json!({"registry.example.com": registry_ca("main")}));
    let node = Node::start(&cluster, cluster.address());
    wait_for("the CA", || node.ca("registry.example.com"));
    becomes_idle(node.agent.pid());
}

#[test]
fn a_node_is_in_step_from_the_first_ca_to_the_last() {
    let cluster = deployed("deploy/node-ca");
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let mut node = Node::start(&cluster, cluster.address());
    // That there is no map says nothing.
    node.wait_for_log("ConfigMap of registry CAs not found, keeping the files on the node");
    assert!(!node.certs().exists());

    create_map(&cluster, &json!({"a.example.com..5000": main, "b": main}));
    node.wait_for_ca("a.example.com:5000", Some(&main));
    node.wait_for_ca("b", Some(&main));
    let events = Events::changes_of(&node.certs());
    patch_map(&cluster, &json!({"a.example.com..5000": mirror, "c": main, "bad": "oops"}));
    node.wait_for_ca("c", Some(&main));
    node.wait_for_ca("a.example.com:5000", Some(&mirror));
    node.wait_for_log(r#"key \"bad\" has no certificate in PEM"#);
    patch_map(&cluster, &json!({"c": null, "bad": null}));
    node.wait_for_ca("c", None);
    // A CA that stays is never gone, and one that does not change is not touched.
    let seen = events.drain();
    let touches = |event: &&Event| event.directory.ends_with("b") || event.name == "b";
    assert!(!seen.iter().any(|event| touches(&event)), "{seen:?}");
    let removals =
        seen.iter().filter(|e| e.directory.ends_with("a.example.com:5000") && e.removes());
    assert_eq!(removals.count(), 0, "{seen:?}");

    // Drift is repaired while it runs.
    fs::write(node.certs().join("b/ca.crt"), "drift").expect("a write");
    node.wait_for_ca("b", Some(&main));
    fs::remove_dir_all(node.certs().join("b")).expect("a removal");
    node.wait_for_ca("b", Some(&main));

    // The map is deleted and made again, with no authority that goes meanwhile.
    let events = Events::changes_of(&node.certs());
    let reported = node.agent.log().matches("ConfigMap of registry CAs not found").count();
    cluster.delete(&format!("{}/{MAP}", maps()));
    wait_until("the loss to be noticed", || {
        node.agent.log().matches("ConfigMap of registry CAs not found").count() > reported
    });
    create_map(&cluster, &json!({"a.example.com..5000": mirror, "b": main, "d": main}));
    node.wait_for_ca("d", Some(&main));
    let removals = events.drain().into_iter().filter(Event::removes);
    let removals: Vec<_> = removals.filter(|event| !event.name.starts_with('.')).collect();
    assert!(removals.is_empty(), "{removals:?}");

    // One that is told to stop leaves all as it is; one that starts does not touch it.
    node.agent.signal(Signal::TERM);
    assert!(node.agent.ended().success());
    let events = Events::changes_of(&node.certs());
    node.restart();
    patch_map(&cluster, &json!({"e": main}));
    node.wait_for_ca("e", Some(&main));
    let seen = events.drain();
    assert!(!seen.iter().any(|event| touches(&event)), "{seen:?}");

    patch_map(&cluster, &json!({"a.example.com..5000": null, "b": null, "d": null, "e": null}));
    for host in ["a.example.com:5000", "b", "d", "e"] {
        node.wait_for_ca(host, None);
    }
}

#[test]
fn without_the_api_server_a_node_keeps_its_files() {
    let cluster = deployed("deploy/node-ca");
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    create_map(&cluster, &json!({"a": main}));
    let proxy = Proxy::to(cluster.address());
    let mut node = Node::start(&cluster, proxy.address());
    node.wait_for_ca("a", Some(&main));
    proxy.set(Way::Cut);
    node.wait_for_log("cannot watch the ConfigMap of registry CAs, retrying");
    patch_map(&cluster, &json!({"a": mirror, "b": main}));
    // Drift is repaired all the same.
    fs::remove_file(node.certs().join("a/ca.crt")).expect("a removal");
    node.wait_for_ca("a", Some(&main));
    // One that is started now knows nothing, and takes nothing away.
    node.agent.signal(Signal::KILL);
    node.agent.ended();
    node.restart();
    let lines =
        || node.agent.log().matches("cannot watch the ConfigMap of registry CAs, retrying").count();
    wait_until("the second one to try", || lines() == 2);
    assert_eq!(node.ca("a").as_ref(), Some(&main));
    proxy.set(Way::Open);
    node.wait_for_ca("a", Some(&mirror));
    node.wait_for_ca("b", Some(&main));
    node.wait_for_log("watch of the ConfigMap of registry CAs works again");
    assert_eq!(lines(), 2, "once is enough: {}", node.agent.log());
}

#[test]
fn what_differs_from_the_map_is_reported_to_administrators() {
    let cluster = deployed("deploy/node-ca");
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    let proxy = Proxy::to(cluster.address());
    let node = Node::start(&cluster, proxy.address());
    let readiness = |status: u16, line: &str| {
        wait_until(&format!("{status}: {line:?}"), || {
            let (found, text) = node.agent.readiness();
            found == status && text.contains(line) && text.is_empty() == line.is_empty()
        });
    };
    let metric = |name: &str| node.agent.metric(name);
    readiness(200, &format!("ConfigMap {MANAGED}/{MAP}: not found; the files on the node remain"));

    // A folder that another tool made is in the way.
    let theirs = node.certs().join("b");
    fs::create_dir_all(&theirs).expect("a folder");
    fs::write(theirs.join("ca.crt"), &mirror).expect("a file");
    create_map(&cluster, &json!({"a": main, "b": main, "bad": "oops"}));
    readiness(503, "another program made it");
    assert_eq!(metric("mcs_node_ca_problems"), 1);
    assert_eq!(metric("mcs_node_ca_registries"), 2);
    assert_eq!(metric("mcs_node_ca_changes_total"), 1, "a");
    assert_eq!(metric("mcs_registry_ca_refused{reason=\"NoCertificate\"}"), 1);
    fs::remove_dir_all(&theirs).expect("a removal");
    readiness(200, "");
    node.wait_for_ca("b", Some(&main));
    assert_eq!(metric("mcs_node_ca_problems"), 0);
    assert_eq!(metric("mcs_source_stale_since_timestamp_seconds"), 0);

    // The API server is away.
    proxy.set(Way::Cut);
    readiness(200, "cannot be watched");
    assert!(metric("mcs_source_stale_since_timestamp_seconds") > 1_600_000_000);
    assert!(metric("mcs_watch_failures_total{kind=\"configmaps\"}") >= 1);
    proxy.set(Way::Open);
    readiness(200, "");
    assert_eq!(metric("mcs_source_stale_since_timestamp_seconds"), 0);
}

#[test]
fn killed_at_any_point_a_node_has_the_old_or_the_new() {
    let cluster = deployed("deploy/node-ca");
    let pems = [registry_ca("main"), registry_ca("mirror")];
    create_map(&cluster, &json!({"stays": pems[0], "goes": pems[0]}));
    let mut node = Node::start(&cluster, cluster.address());
    node.wait_for_ca("stays", Some(&pems[0]));
    node.wait_for_ca("goes", Some(&pems[0]));
    for round in 1..=11_usize {
        let events = Events::changes_of(&node.certs());
        let gone = if round % 2 == 0 { json!(pems[0]) } else { Value::Null };
        patch_map(&cluster, &json!({"stays": pems[round % 2], "goes": gone}));
        events.wait_for_changes(1 + round * 5 % 11);
        node.agent.signal(Signal::KILL);
        node.agent.ended();
        let found = node.ca("stays").expect("it is always there");
        assert!(pems.contains(&found), "{round}");
        let goes = node.ca("goes");
        assert!(goes.is_none() || goes.as_ref() == Some(&pems[0]), "{round}");
        node.restart();
        node.wait_for_ca("stays", Some(&pems[round % 2]));
        node.wait_for_ca("goes", (round % 2 == 0).then_some(&pems[0]));
        // The list is what it does last: from here on it rests.
        let listed = if round % 2 == 0 { json!(["goes", "stays"]) } else { json!(["stays"]) };
        wait_until("the list", || node.list()["registries"] == listed);
    }
}

#[test]
fn the_component_for_containerd_is_taken_by_the_api_server() {
    let cluster = deployed("deploy/node-ca");
    cluster.apply_overlay("deploy/node-ca", &["deploy/components/containerd"]);
    let spec = &daemon_set(&cluster)["spec"]["template"]["spec"];
    let directory = "/etc/containerd/certs.d";
    assert_eq!(spec["volumes"].as_array().expect("volumes").len(), 1);
    assert_eq!(spec["volumes"][0]["hostPath"]["path"], directory);
    let container = &spec["containers"][0];
    assert_eq!(container["args"], json!(["node-ca", "--layout=containerd"]));
    assert_eq!(container["volumeMounts"].as_array().expect("mounts").len(), 1);
    assert_eq!(container["volumeMounts"][0]["mountPath"], directory);
}

fn daemon_set(cluster: &Cluster) -> Value {
    let text = cluster.kubectl(&["get", "daemonset", ACCOUNT, "-n", NAMESPACE, "-o", "json"]);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_service_account_may_read_one_config_map_and_nothing_else() {
    let cluster = deployed("deploy/node-ca");
    let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let rules = |namespace: &str| {
        cluster.kubectl(&["auth", "can-i", "--list", "--as", &account, "-n", namespace])
    };
    // What every account may do, and nothing beside it, in a namespace of no concern.
    let everybody: Vec<String> = rules("default").lines().map(str::to_owned).collect();
    for (namespace, expected) in [
        ("kube-system", None),
        (MANAGED, Some(format!("configmaps [] [{MAP}] [list watch]"))),
        (
            NAMESPACE,
            Some(
                "securitycontextconstraints.security.openshift.io [] [privileged] [use]".to_owned(),
            ),
        ),
    ] {
        let text = rules(namespace);
        let extra = text.lines().filter(|line| !everybody.contains(&(*line).to_owned()));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        // The columns are as wide as what is in them.
        let known: Vec<String> = everybody.iter().map(|line| words(line)).collect();
        let extra: Vec<String> = extra.map(words).filter(|line| !known.contains(line)).collect();
        assert_eq!(extra, expected.into_iter().collect::<Vec<_>>(), "{namespace}");
    }
    let daemon_set = daemon_set(&cluster);
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["node-ca", "--layout=crio"]));
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(container["securityContext"]["privileged"], Value::Null);
}
