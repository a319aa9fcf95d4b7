//! `deploy/kubernetes` and `deploy/controller` on a cluster that knows none of OpenShift's kinds but those
//! of `deploy/kubernetes/crds`: pods that the Pod Security standard "restricted" admits, the
//! pair that the controller makes, and a machine that boots by its pointer config.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::site::{BALANCER, HOST, NAMESPACE, NodeWithFolders};
use super::storm::Storm;
use crate::support::http::Client;
use crate::support::machine::Machine;
use crate::support::{wait_for, wait_until};

#[test]
fn a_machine_boots_from_pods_and_continues_to_boot_when_their_pair_is_renewed() {
    let site = NodeWithFolders::kubernetes();
    let node = &site.node;

    // Nothing of this was admitted by chance.
    let privileged = ["kubectl", "run", "other", "--privileged", "--image=other", "-n", NAMESPACE];
    let refused = node.try_run(&privileged).expect_err("a privileged pod");
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    let kinds = node.kubectl(&["api-resources", "--no-headers", "-o", "name"]);
    assert!(!kinds.contains("infrastructures"), "the controller has to do without: {kinds}");

    let secret = node.get(&["secret/worker-user-data-managed", "-n", "openshift-machine-api"]);
    let pointer = BASE64.decode(secret["data"]["userData"].as_str().expect("text"));
    let pointer = String::from_utf8(pointer.expect("base64")).expect("JSON");
    let machine = Machine::new();
    node.inside(|| machine.boot(&pointer));
    let kubeconfig = fs::read_to_string(machine.root().join("etc/kubernetes/kubeconfig"));
    let kubeconfig = kubeconfig.expect("the machine's kubeconfig");
    assert!(kubeconfig.contains("https://api-int.prod.example.com:6443"), "{kubeconfig}");

    // A new pair, as the README asks for one. kubelet brings it to the pods, which take it over.
    let shown = |address: &str| {
        let client = Client::tls(
            format!("{address}:22623").parse().expect("an address"),
            site.cas().as_bytes(),
        );
        node.inside(|| client.named(HOST).shown_certificate().expect("a certificate"))
    };
    let before = shown(BALANCER);
    let storm = Storm::start(&site);
    let pair = "secret/machine-config-server-tls";
    let asked = "machineconfiguration.openshift.io/rotate-certificate=now";
    node.kubectl(&["-n", NAMESPACE, "annotate", "--overwrite", pair, asked]);
    let mounted = || {
        let find = "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/certs/tls.crt";
        node.run(&["sh", "-c", find])
    };
    let pods = node.get(&["pods", "-n", NAMESPACE, "-l", "k8s-app=machine-config-server"]);
    let pods = pods["items"].as_array().expect("pods");
    assert_eq!(pods.len(), 2, "{pods:?}");
    let old = mounted();
    for pod in pods {
        let address = pod["status"]["podIP"].as_str().expect("an address");
        wait_until("the new certificate", || shown(address) != before);
    }
    wait_until("the mounted secret to be the new one", || {
        let now = mounted();
        let secret = node.get(&[pair, "-n", NAMESPACE]);
        let made = BASE64.decode(secret["data"]["tls.crt"].as_str().expect("text"));
        let made = String::from_utf8(made.expect("base64")).expect("PEM");
        now != old && now == made.repeat(2)
    });
    storm.end("a new serving certificate");
    let machine = Machine::new();
    node.inside(|| machine.boot(&pointer));

    pages_are_seen_from_a_workstation(&site);
}

fn pages_are_seen_from_a_workstation(site: &NodeWithFolders) {
    let node = &site.node;
    for (deployment, port, title) in [
        ("machine-config-server", 9623, "<h1>machine-config-server</h1>"),
        ("machine-config-server-controller", 9624, "<h1>machine-config-server controller</h1>"),
    ] {
        let (deployment, ports) = (format!("deployment/{deployment}"), port.to_string());
        let forward = ["kubectl", "-n", NAMESPACE, "port-forward", &deployment, &ports];
        let _forwarding = node.start_in(&forward);
        node.inside(|| {
            let page = Client::plain(([127, 0, 0, 1], port).into());
            let page = wait_for("the page", || page.try_request("GET", "/", &[]).ok());
            assert!(String::from_utf8_lossy(&page.body).contains(title), "{page:?}");
        });
    }
}
