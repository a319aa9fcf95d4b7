//! The node runs out of room, and kubelet ends the pod that takes most of it. It asks no pod to stop in its own
//! time then: what the pod was sending is cut off, and machines ask again.

use std::time::Duration;

use super::site::{NAMESPACE, NodeWithFolders};
use super::storm::Storm;
use crate::support::wait_for;

/// Ignition itself has no end of it. A connection to an address that has just gone with its pod is given up
/// after 30 s, and what follows may meet the same.
const TIMEOUT: Duration = Duration::from_secs(90);

#[test]
fn machines_boot_while_a_server_is_evicted() {
    let site = NodeWithFolders::kubernetes();
    let pods = site.node.get(&["pods", "-l", "k8s-app=machine-config-server", "-n", NAMESPACE]);
    let metadata = &pods["items"][0]["metadata"];
    let [name, id] = ["name", "uid"].map(|field| metadata[field].as_str().expect("text"));

    let storm = Storm::of_patient(&site, TIMEOUT);
    // Less than the volume's own limit, and all that there is.
    let cache = format!("/var/lib/kubelet/pods/{id}/volumes/kubernetes.io~empty-dir/cache");
    let fill =
        "room=$(df --output=avail \"$0\" | tail -n 1); fallocate -l $((room - 512))K \"$0/large\"";
    site.node.run(&["sh", "-c", fill, &cache]);
    wait_for("the eviction", || {
        let pod = site.node.get(&["pod", name, "-n", NAMESPACE]);
        let message = pod["status"]["message"].as_str().unwrap_or_default();
        (pod["status"]["reason"] == "Evicted")
            .then(|| assert!(message.contains("low on resource"), "{pod}"))
    });
    site.rolled_out("deployment/machine-config-server");
    storm.end("an eviction");
    assert!(!site.pods().is_empty());
}
