//! `deploy/node-ca`: its pods are root's and mount a folder of the host, so that only a kubelet shows
//! whether they may, and whether what they write is what the host sees.

use std::fs;

use serde_json::json;

use super::site::{NodeWithFolders, containerd_nodes, example};
use crate::support::{in_repository, manifests, wait_for};

const NAMESPACE: &str = "machine-config-server-node-ca";

#[test]
fn nodes_get_the_registries_cas_in_either_layout() {
    let site = NodeWithFolders::empty();
    let node = &site.node;
    for file in ["deploy/kubernetes/namespaces.yaml", "ignition-fixtures/registries.yaml"] {
        node.kubectl(&["apply", "-f", in_repository(file).to_str().expect("text")]);
    }
    let fixtures = manifests::fixtures();
    let map = manifests::one(&fixtures, "ConfigMap", "merged-trusted-image-registry-ca");
    let mirror = map["data"]["mirror.example.com..5000"].as_str().expect("a CA bundle");
    // Of the host, as the next pull would read it.
    let becomes = |path: &str, text: &str| {
        node.inside(|| {
            wait_for(path, || (fs::read_to_string(path).ok()? == text).then_some(()));
        });
    };

    site.apply("nodes", &example("how-to/node-ca.md", "# nodes/kustomization.yaml"));
    rolled_out(&site);
    becomes("/etc/docker/certs.d/mirror.example.com:5000/ca.crt", mirror);

    site.apply("nodes", &containerd_nodes());
    rolled_out(&site);
    becomes("/etc/containerd/certs.d/mirror.example.com:5000/ca.crt", mirror);
    node.inside(|| {
        let hosts = "/etc/containerd/certs.d/mirror.example.com:5000/hosts.toml";
        assert!(fs::read_to_string(hosts).expect("the file").contains("ca.crt"));
    });

    // A change arrives where the node looks for it.
    let mut changed = map.clone();
    let other = map["data"]["registry.example.com"].clone();
    changed["data"] = json!({"mirror.example.com..5000": other});
    node.apply(&changed);
    becomes(
        "/etc/containerd/certs.d/mirror.example.com:5000/ca.crt",
        other.as_str().expect("a CA bundle"),
    );
}

fn rolled_out(site: &NodeWithFolders) {
    let status = ["rollout", "status", "daemonset/node-ca", "--timeout=300s", "-n", NAMESPACE];
    site.node.kubectl(&status);
}
