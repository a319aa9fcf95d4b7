//! From power-on to Ready: a virtual machine that was never booted, with nothing but the user data of its pool and a console,
//! fetches its config from one of two servers, starts kubelet with the bootstrap kubeconfig that was served, is given a
//! certificate, and becomes a Node that runs a pod.
//!
//! API server, etcd, controller manager, kubelet and containerd are the real ones. `tests/machine/install` says when these
//! tests run.

mod cannot_join;
mod control_plane;
mod network;
mod outages;
mod own_token;
mod registry;
mod rotation;
mod site;

use serde_json::json;

pub(crate) use self::network::apart;
use self::site::Place;
pub(crate) use self::site::Site;
use crate::support::browser::Browser;
use crate::support::command::Store as _;
use crate::support::server::Server;
use crate::support::wait_until;

/// The image that the machine has.
const PAUSE: &str = "registry.k8s.io/pause:3.10";

#[test]
fn a_machine_becomes_a_node_that_runs_a_pod() {
    apart(|| {
        let site = Site::without_approval();
        let place = Place(11);
        let mut machine = Site::boot(&site.user_data("worker"), &place);
        let command = "kubectl certificate approve node-csr-";
        site.shows(&mut machine, &place, "booting", command);
        picture(&site, &place, "join-booting");
        let shown = site.machine(&place).expect("a machine");
        let why = shown["why"].as_str().expect("words");
        let command = why.split_once("kubectl ").expect("a command").1;
        site.plane.cluster.kubectl(&command.split(' ').collect::<Vec<_>>());
        site.joined(&mut machine, &place.node());
        site.run_pod(&place.node(), &json!({"image": PAUSE, "imagePullPolicy": "Never"}));
        let address = place.address().to_string();
        let words = format!("joined as Node {}, ", place.node());
        site.shows(&mut machine, &place, "joined", &words);
        assert!(site.server().page("/").contains(&words));
        picture(&site, &place, "join-joined");
        let listed = site.server().run(&["machines"]).done().output;
        assert!(listed.contains(&address) && listed.contains("joined"), "{listed}");
        let count = |server: &Server| server.metric("mcs_machines{state=\"joined\"}");
        wait_until("a server to count it", || {
            site.servers.iter().any(|server| count(server) >= 1.0)
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

/// Takes a picture of a machine's page, for the book.
fn picture(site: &Site, place: &Place, name: &str) {
    let path = format!("/machines/{}", place.address());
    Browser::start().photograph(site.server().metrics().address(), &path, 480, name);
}
