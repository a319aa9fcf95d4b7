//! Machines boot while pods come and go. A machine that is refused asks again some seconds later, so
//! that a lost request is no lost machine; but with hundreds of machines in a rack, each one is seen.
//!
//! A roll-out is where requests get lost: a pod that is told to stop learns it before the nodes
//! learn not to send anybody to it, and a new one is sent machines as soon as it says that it is ready.

use crate::support::http::Client;
use crate::support::{wait_for, wait_until};

use super::site::{NAMESPACE, NodeWithFolders};
use super::storm::Storm;

/// How many roll-outs it takes; `NODE_ROLL_OUTS` for more of them.
const ROLL_OUTS: u32 = 1;

#[test]
fn no_boot_fails_while_pods_are_replaced_or_kubelet_starts_again() {
    let site = NodeWithFolders::kubernetes();

    let rounds = std::env::var("NODE_ROLL_OUTS").ok();
    let rounds = rounds.map_or(ROLL_OUTS, |text| text.parse().expect("a number"));
    for round in 1..=rounds {
        let before = site.pods();
        let storm = Storm::start(&site);
        kubectl(&site, &["rollout", "restart", "deployment/machine-config-server"]);
        site.rolled_out("deployment/machine-config-server");
        gone(&site, &before);
        storm.end(&format!("roll-out {round} of {rounds}"));
        assert!(site.pods().iter().all(|pod| !before.contains(pod)), "nothing was rolled out");
    }

    let before = site.pods();
    let storm = Storm::start(&site);
    let image = "machine-config-server=registry.example.com/machine-config-server:none";
    kubectl(&site, &["set", "image", "deployment/machine-config-server", image]);
    wait_until("a pod without an image", || {
        let pods = site.node.get(&["pods", "-n", NAMESPACE]).to_string();
        pods.contains("ErrImagePull") || pods.contains("ImagePullBackOff")
    });
    kubectl(&site, &["rollout", "undo", "deployment/machine-config-server"]);
    site.rolled_out("deployment/machine-config-server");
    storm.end("an update that cannot start, and the way back");
    assert_eq!(site.pods(), before, "pods that served were replaced");

    let storm = Storm::start(&site);
    site.node.kill("kubelet");
    site.node.inside(|| {
        let health = Client::plain("127.0.0.1:10248".parse().expect("an address"));
        wait_for("kubelet to be back", || {
            let answer = health.try_request("GET", "/healthz", &[]).ok()?;
            (answer.status == 200).then_some(())
        });
    });
    // What it counts, it counts from its start.
    wait_for("kubelet to have asked every pod whether it is ready", || {
        let counted = ["kubectl", "get", "--raw", "/api/v1/nodes/node/proxy/metrics/probes"];
        let counted = site.node.try_run(&counted).ok()?;
        let is_ready = |pod: &String| {
            counted.lines().any(|line| {
                [pod.as_str(), "probe_type=\"Readiness\"", "result=\"successful\""]
                    .iter()
                    .all(|part| line.contains(part))
            })
        };
        before.iter().all(is_ready).then_some(())
    });
    storm.end("kubelet's start");
    assert_eq!(site.pods(), before, "pods were replaced");
}

fn kubectl(site: &NodeWithFolders, arguments: &[&str]) {
    site.node.kubectl(&[&["-n", NAMESPACE], arguments].concat());
}

/// Waits until these pods have ended.
pub(super) fn gone(site: &NodeWithFolders, pods: &[String]) {
    if pods.is_empty() {
        return;
    }
    let pods = pods.iter().map(|pod| format!("pod/{pod}")).collect::<Vec<_>>();
    let pods = pods.iter().map(String::as_str);
    let wait = ["wait", "--for=delete", "--timeout=180s"].into_iter().chain(pods);
    kubectl(site, &wait.collect::<Vec<_>>());
}
