//! `deploy/openshift`: its pods take the node's own ports, on nodes of the control plane alone.
//!
//! What admits them on OpenShift, an SCC, also gives them a user and a group out of the namespace's
//! range; here a patch does.

use std::fs;

use super::site::{HOST, NAMESPACE, NodeWithFolders, bootstrapper, example};
use crate::support::book::with;
use crate::support::http::Client;
use crate::support::pair::Pair;
use crate::support::{in_repository, wait_until};

/// What `hostnetwork-v2` makes of a pod.
const ADMITTED: &str = "
- target: {kind: DaemonSet, name: machine-config-server}
  patch: |-
    - op: add
      path: /spec/template/spec/securityContext
      value: {runAsUser: 1000650000, fsGroup: 1000650000}
";

#[test]
fn the_daemon_set_serves_on_the_ports_of_the_control_plane() {
    let site = NodeWithFolders::empty();
    let node = &site.node;
    for directory in ["deploy/kubernetes/namespaces.yaml", "deploy/kubernetes/crds"] {
        node.kubectl(&["apply", "-f", in_repository(directory).to_str().expect("text")]);
    }
    node.serves_all_kinds();
    // As on OpenShift, where the label is set from what the namespace's accounts may use.
    let privileged = "pod-security.kubernetes.io/enforce=privileged";
    node.kubectl(&["label", "--overwrite", "namespace", NAMESPACE, privileged]);
    site.apply_text(&bootstrapper());
    let directory = tempfile::tempdir().expect("a temporary folder");
    let pair = Pair::make(directory.path(), HOST);
    node.kubectl(&[
        "create",
        "secret",
        "tls",
        "machine-config-server-tls",
        &format!("--cert={}", pair.certificate.display()),
        &format!("--key={}", pair.key.display()),
        "-n",
        NAMESPACE,
    ]);
    let mine = example("tutorials/openshift.md", "# mine/kustomization.yaml");
    // After the last of the patches.
    let mine = with(&mine, "\nimages:", &format!("{ADMITTED}images:"));
    site.apply("mine", &mine);
    site.apply_sample();

    let daemon_set = ["daemonset/machine-config-server", "-n", NAMESPACE];
    wait_until("the DaemonSet to have looked", || {
        let status = &node.get(&daemon_set)["status"];
        status["observedGeneration"] == 1
    });
    assert_eq!(node.get(&daemon_set)["status"]["desiredNumberScheduled"], 0, "on any node");
    node.kubectl(&["label", "node/node", "node-role.kubernetes.io/master="]);
    wait_until("a pod", || node.get(&daemon_set)["status"]["desiredNumberScheduled"] == 1);
    site.rolled_out("daemonset/machine-config-server");

    let address = |port: u16| format!("10.88.0.1:{port}").parse().expect("an address");
    let tls =
        Client::tls(address(22623), fs::read(&pair.certificate).expect("the pair").as_slice());
    for client in [tls, Client::plain(address(22624))] {
        let answer = node.inside(|| client.get("/config/worker"));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
