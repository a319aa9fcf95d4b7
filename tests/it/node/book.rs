//! The commands of the book that look at pods or need a node's container runtime, typed as their pages have them.

use std::fs;
use std::os::unix::fs::symlink;

use super::site::{NodeWithFolders, example};
use crate::support::book::{PAGES, commands, page};
use crate::support::http::Client;
use crate::support::{image, wait_for};

const NODE_CA: &str = "machine-config-server-node-ca";

/// The page, and the beginning of the command.
pub(crate) const TYPED: [(&str, &str); 6] = [
    ("how-to/image.md", "ctr "),
    ("how-to/status-page.md", "kubectl -n openshift-machine-config-operator port-forward"),
    ("runbook/index.md", "kubectl -n openshift-machine-config-operator logs"),
    ("runbook/index.md", "kubectl -n openshift-machine-config-operator port-forward"),
    ("runbook/alerts.md", "kubectl -n machine-config-server-node-ca get pods"),
    ("runbook/alerts.md", "kubectl -n machine-config-server-node-ca logs"),
];

/// Returns `true` if a command of a document, by its path in the repository, is typed here.
pub(crate) fn is_typed(document: &str, command: &str) -> bool {
    let page = document.strip_prefix(PAGES).and_then(|rest| rest.strip_prefix('/'));
    TYPED.iter().any(|(listed, begins)| page == Some(listed) && command.starts_with(begins))
}

#[test]
fn the_commands_for_pods_and_nodes_do_what_their_pages_say() {
    let site = NodeWithFolders::kubernetes();
    site.apply("nodes", &example("how-to/node-ca.md", "# nodes/kustomization.yaml"));
    let status = ["rollout", "status", "daemonset/node-ca", "--timeout=300s", "-n", NODE_CA];
    site.node.kubectl(&status);
    let directory = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(directory.path().join("target")).expect("a writable folder");
    symlink(image::archive(), directory.path().join("target/image.tar"))
        .expect("a writable folder");

    for (name, begins) in TYPED {
        let mut of_page = commands(&page(name)).into_iter().map(|(command, _)| command);
        let command = of_page.find(|command| command.starts_with(begins));
        let command = command.unwrap_or_else(|| panic!("{name}: no command like {begins}"));
        let pod = if begins.contains(NODE_CA) { pod_of_node_ca(&site) } else { server_pod(&site) };
        let command = command.replace("POD", &pod).replace("PORT", "9623");
        let typed = format!("cd {} && {command}", directory.path().display());
        if command.contains("port-forward") {
            forwards(&site, &typed);
        } else {
            let shown = site.node.run(&["bash", "-c", &typed]);
            assert!(!shown.is_empty(), "{command} shows nothing");
            println!("$ {command}\n{shown}");
        }
    }
}

/// Forwards the administrators' port of the server, and asks there.
fn forwards(site: &NodeWithFolders, typed: &str) {
    let typed = typed.trim_end_matches(" &").replace("&& kubectl", "&& exec kubectl");
    let _forwarding = site.node.start_in(&["bash", "-c", &typed]);
    site.node.inside(|| {
        let port = Client::plain(([127, 0, 0, 1], 9623).into());
        for (path, part) in
            [("/", "<h1>machine-config-server</h1>"), ("/readyz", ""), ("/metrics", "mcs_")]
        {
            let answer = wait_for(path, || port.try_request("GET", path, &[]).ok());
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert!(String::from_utf8_lossy(&answer.body).contains(part), "{path}: {answer:?}");
        }
    });
}

fn server_pod(site: &NodeWithFolders) -> String {
    site.pods().first().expect("a pod of the server").clone()
}

fn pod_of_node_ca(site: &NodeWithFolders) -> String {
    let pods = site.node.get(&["pods", "-n", NODE_CA]);
    pods["items"][0]["metadata"]["name"].as_str().expect("a pod of node-ca").to_owned()
}
