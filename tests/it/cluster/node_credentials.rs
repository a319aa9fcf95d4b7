//! `node-ca --registry-auth` in a cluster: a real kube-apiserver, the built binary as the service
//! account that `deploy/node-ca` gives it, with and without the component `node-registry-auth`.

use std::fs::{self};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::{Cluster, kustomized};
use crate::support::logged::Logged;
use crate::support::manifests::write;
use crate::support::server::binary;
use crate::support::{wait_for, wait_until};

const NAMESPACE: &str = "machine-config-server-node-ca";
const SECRETS: &str = "/api/v1/namespaces/openshift-config/secrets";
const COMPONENT: &str = "deploy/components/node-registry-auth";

fn deployed(components: &[&str]) -> Cluster {
    let cluster = Cluster::empty();
    for (directory, components) in [("deploy/kubernetes", &[][..]), ("deploy/node-ca", components)]
    {
        cluster.apply_overlay(directory, components);
    }
    cluster
}

fn secret(auths: &Value) -> Value {
    let text = json!({"auths": auths}).to_string();
    json!({
        "metadata": {"name": "pull-secret"}, "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": BASE64.encode(text)},
    })
}

fn credential(user: &str) -> Value {
    json!({"auth": BASE64.encode(format!("{user}:secret"))})
}

/// A node's folders, and its agent.
struct Node {
    directory: TempDir,
    agent: Logged,
}

impl Node {
    fn start(cluster: &Cluster) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let file = directory.path().join("kubelet/config.json");
        let theirs = json!({"auths": {"their.example": credential("them")}});
        write(directory.path(), "kubelet/config.json", theirs);
        let kubeconfig = cluster.kubeconfig_of("node-ca", NAMESPACE, cluster.address());
        let mut command = binary();
        command.arg("node-ca").arg("--dir").arg(directory.path().join("certs.d"));
        command.arg("--kubeconfig").arg(&kubeconfig);
        command.arg("--registry-auth").arg("--registry-auth-file").arg(file);
        let agent = Logged::observed("node-ca", &mut command);
        Self { directory, agent }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("kubelet/config.json")
    }

    fn until(&self, auths: &Value) {
        wait_for(&format!("the file to have {auths}"), || {
            let text = fs::read(self.path()).ok()?;
            let file: Value = serde_json::from_slice(&text).expect("a whole file");
            (file["auths"] == *auths).then_some(())
        });
    }

    /// Waits until `/readyz` has this status and a line with this in it.
    fn until_reported(&self, status: u16, part: &str) {
        wait_until(part, || {
            let (found, text) = self.agent.readiness();
            found == status && text.contains(part)
        });
    }
}

#[test]
fn a_nodes_credentials_follow_the_secret_and_those_of_others_stay() {
    let cluster = deployed(&[COMPONENT]);
    let node = Node::start(&cluster);
    node.until_reported(
        200,
        "Secret openshift-config/pull-secret: not found; the credentials on the node remain",
    );
    let them = credential("them");
    cluster.create(
        SECRETS,
        &secret(&json!({"a.example": credential("a"), "b.example": credential("a")})),
    );
    node.until(
        &json!({"their.example": them, "a.example": credential("a"), "b.example": credential("a")}),
    );
    cluster.patch(
        &format!("{SECRETS}/pull-secret"),
        &secret(&json!({"a.example": credential("new")})),
    );
    node.until(&json!({"their.example": them, "a.example": credential("new")}));
    assert_eq!(node.agent.metric("mcs_node_ca_logins"), 1);
    assert_eq!(node.agent.metric("mcs_node_ca_login_changes_total"), 4);

    // Drift is mended, and what is not understood is told.
    fs::write(node.path(), json!({"auths": {"their.example": them}}).to_string()).expect("a write");
    node.until(&json!({"their.example": them, "a.example": credential("new")}));
    fs::write(node.path(), "SECRET").expect("a write");
    node.until_reported(503, "not JSON (line 1, column 1); not changed");
    assert_eq!(node.agent.metric("mcs_node_ca_login_problems"), 1);
    fs::write(node.path(), "{}").expect("a write");
    node.until(&json!({"a.example": credential("new")}));
    let broken = json!({"data": {".dockerconfigjson": BASE64.encode("{\"auths\": \"SECRET\"}")}});
    cluster.patch(&format!("{SECRETS}/pull-secret"), &broken);
    node.until_reported(
        200,
        "key \".dockerconfigjson\": has no object `auths`; the credentials on the node remain",
    );
    node.until(&json!({"a.example": credential("new")}));
    cluster.patch(&format!("{SECRETS}/pull-secret"), &secret(&json!({})));
    node.until(&json!({}));
    let reported = node.agent.log() + &node.agent.metrics();
    for secret in [
        "SECRET",
        credential("a")["auth"].as_str().expect("text"),
        credential("new")["auth"].as_str().expect("text"),
    ] {
        assert!(!reported.contains(secret), "{reported}");
    }
}

#[test]
fn without_the_right_a_node_keeps_what_it_has_and_tells() {
    let cluster = deployed(&[]);
    cluster.create(SECRETS, &secret(&json!({"a.example": credential("a")})));
    let node = Node::start(&cluster);
    node.until_reported(200, "Secret openshift-config/pull-secret: cannot be watched (");
    node.until(&json!({"their.example": credential("them")}));
    assert!(node.agent.metric("mcs_watch_failures_total{kind=\"secrets\"}") > 0);
}

#[test]
fn the_component_mounts_the_directory_and_gives_the_right_to_one_secret() {
    let objects = kustomized("deploy/node-ca", &[COMPONENT]);
    let agent = objects.iter().find(|object| object["kind"] == "DaemonSet");
    let pod = &agent.expect("the DaemonSet")["spec"]["template"]["spec"];
    let flag = json!("--registry-auth=openshift-config/pull-secret");
    assert!(pod["containers"][0]["args"].as_array().expect("flags").contains(&flag));
    assert_eq!(pod["containers"][0]["volumeMounts"][1]["mountPath"], "/var/lib/kubelet");
    assert_eq!(pod["volumes"][1]["hostPath"]["path"], "/var/lib/kubelet");
    let is_of_secrets = |object: &&Value| {
        object["kind"] == "Role" && object["metadata"]["namespace"] == "openshift-config"
    };
    let role = objects.iter().find(is_of_secrets);
    assert_eq!(
        role.expect("the Role")["rules"],
        json!([
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pull-secret"],
             "verbs": ["list", "watch"]},
        ])
    );
}
