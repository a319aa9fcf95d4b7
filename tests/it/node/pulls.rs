//! The image comes from a registry with authentication, whose authority nobody knows but by
//! `deploy/node-ca`, and whose login the chart's secret has.
//!
//! Only kubelet and containerd pull: what they are told, and by which file, shows nowhere else.

use serde_json::{Value, json};

use super::site::{NAMESPACE, NodeWithFolders, bootstrapper, containerd_nodes};
use crate::support::node::{Node, assets};
use crate::support::registry::{PASSWORD, Registry, USER};
use crate::support::wait_for;

/// The node's own address, which nothing takes for a registry without TLS.
const HOST: &str = "10.88.0.1";
const PORT: u16 = 5443;
/// What `deploy/image` calls it.
const IMAGE: &str = "registry.example.com/machine-config-server:0.1.0";

#[test]
fn the_image_is_pulled_by_the_ca_of_node_ca_and_the_credential_of_the_chart() {
    let site = NodeWithFolders::empty();
    let node = &site.node;
    let registry = node.inside(|| {
        let program = std::process::Command::new(assets().join("docker-registry"));
        Registry::start(
            program,
            (HOST.parse::<std::net::IpAddr>().expect("an address"), PORT).into(),
            HOST,
        )
    });
    let image = format!("{}/machine-config-server", registry.name());
    push(node, &registry, &format!("{image}:0.1.0"));

    // Neither authority nor login.
    site.helm(&["install", "mcs"], &values(&image, false));
    site.apply_text(&bootstrapper());
    reported(node, "x509: certificate signed by unknown authority");

    node.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "merged-trusted-image-registry-ca", "namespace": "openshift-config-managed",
        },
        "data": {registry.name().replace(':', ".."): registry.ca()},
    }));
    site.apply("nodes", &containerd_nodes());
    reported(node, "401 Unauthorized");

    site.helm(&["upgrade", "mcs"], &values(&image, true));
    // A pod that is there has been given no login.
    let restart = ["rollout", "restart", "deployment/machine-config-server", "-n", NAMESPACE];
    node.kubectl(&restart);
    wait_for("a pod with the image", || {
        let pods = node.get(&["pods", "-l", "k8s-app=machine-config-server", "-n", NAMESPACE]);
        let mut pods = pods["items"].as_array().expect("pods").iter();
        let is_running = |pod: &&Value| {
            let container = &pod["status"]["containerStatuses"][0];
            container["state"]["running"].is_object()
                && container["image"].as_str().is_some_and(|it| it.starts_with(&image))
        };
        pods.find(is_running).map(|_| ())
    });
}

/// Waits until kubelet says so of a pull that failed.
fn reported(node: &Node, reason: &str) {
    wait_for(reason, || {
        let events = node.get(&["events", "-n", NAMESPACE]);
        let mut events = events["items"].as_array().expect("events").iter();
        events.find(|it| it["message"].as_str().is_some_and(|it| it.contains(reason))).map(|_| ())
    });
}

/// Has containerd push the image under another name, which it does not keep.
fn push(node: &Node, registry: &Registry, image: &str) {
    let ca = registry.cas().join("ca.crt");
    let ca = ca.to_str().expect("text");
    let credentials = Registry::credentials();
    node.run(&["ctr", "images", "tag", IMAGE, image]);
    node.run(&["ctr", "images", "push", "--tlscacert", ca, "--user", &credentials, image]);
    node.run(&["ctr", "images", "rm", image]);
}

fn values(image: &str, has_credential: bool) -> Value {
    let endpoint = json!({
        "auth": {
            "enabled": has_credential,
            "machine-config-server": {"username": USER, "password": PASSWORD},
        },
        "hosts": {"default": HOST},
        "port": {"registry": {"default": PORT}},
    });
    json!({
        "image": {"repository": image, "tag": "0.1.0", "pullPolicy": "Always"},
        "server": {"apiServerUrl": "https://api.example.com:6443", "replicas": 1},
        "endpoints": {"oci_image_registry": endpoint},
    })
}
