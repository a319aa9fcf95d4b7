//! From power-on to Ready: a virtual machine that was never booted, with nothing but the user data of its pool and a console,
//! fetches its config from one of two servers, starts kubelet with the bootstrap kubeconfig that was served, is given a
//! certificate, and becomes a Node that runs a pod.
//!
//! API server, etcd, controller manager, kubelet and containerd are the real ones. `tests/machine/install` says when these
//! tests run.

mod control_plane;
mod network;
mod site;

use serde_json::json;

use self::network::apart;
use self::site::{Place, Site};
use crate::support::command::Store as _;
use crate::support::server::Server;
use crate::support::wait_for;

#[test]
fn a_machine_becomes_a_node_that_runs_a_pod() {
    apart(|| {
        let site = Site::start();
        let place = Place(11);
        let mut machine = Site::boot(&site.user_data("worker"), &place);
        site.joined(&mut machine, &place.node());
        run_pod(&site, &place.node());
        let address = place.address().to_string();
        let words = format!("joined as Node {}, ", place.node());
        wait_for("the ledger to say so", || {
            let machine = site.machine(&place)?;
            let is_joined = machine["standing"] == "joined";
            (is_joined && machine["why"].as_str()?.starts_with(&words)).then_some(())
        });
        assert!(site.server().page("/").contains(&words));
        let listed = site.server().run(&["machines"]).done().output;
        assert!(listed.contains(&address) && listed.contains("joined"), "{listed}");
        let count = |server: &Server| server.metric("mcs_machines{state=\"joined\"}");
        wait_for("a server to count it", || {
            site.servers.iter().any(|server| count(server) >= 1.0).then_some(())
        });
    });
}

#[test]
fn a_machine_without_a_bootstrap_kubeconfig_is_refused_with_that_reason_until_there_is_one() {
    apart(|| {
        let site = Site::without_token();
        let place = Place(11);
        let mut machine = Site::boot(&site.user_data("worker"), &place);
        machine.wait_for("the ledger to show the machine as stuck", |_| {
            (site.machine(&place)?["standing"] == "stuck").then_some(())
        });
        let words =
            "is refused with 503: cannot make the kubeconfig for new machines; Ignition retries";
        assert_eq!(site.machine(&place).expect("a machine")["why"], words);
        assert!(site.server().page("/").contains(words));
        let listed = site.server().run(&["machines"]);
        assert_eq!(listed.status, 1);
        assert!(listed.output.contains(words), "{}", listed.output);
        assert_eq!(site.node(&place.node()), None);
        // It was for this reason alone.
        site.mount_token();
        machine.wait_for("the machine to fetch its config", |_| {
            let machine = site.machine(&place)?;
            machine["why"].as_str()?.starts_with("fetched its config ").then_some(())
        });
    });
}

/// Runs a pod of the image that the machine has.
fn run_pod(site: &Site, node: &str) {
    let pods = "/api/v1/namespaces/default/pods";
    wait_for("the account of pods", || {
        site.plane.cluster.get("/api/v1/namespaces/default/serviceaccounts/default")
    });
    let pod = json!({
        "metadata": {"name": "first"},
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "Never",
            }],
        },
    });
    site.plane.cluster.create(pods, &pod);
    wait_for("the pod to run", || {
        let pod = site.plane.cluster.get(&format!("{pods}/first"))?;
        (pod["status"]["phase"] == "Running").then_some(())
    });
}
