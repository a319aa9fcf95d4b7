//! Pages about releases of the chart, with helm, in a cluster without anything else.

use super::cluster::{ClusterTerminal, assets};
use super::shell::apart;
use super::walk::{PAGE, Page};
use crate::support::cluster::Cluster;

pub(super) const PAGES: &[Page] = &[
    Page { name: "docs/src/how-to/helm.md", ..PAGE },
    Page {
        name: "docs/src/how-to/private-registry.md",
        before: &[
            "helm install mcs deploy/chart/machine-config-server --namespace machine-config-server \
                   --create-namespace --take-ownership --set server.apiServerUrl=https://api.example.com:6443",
        ],
        ..PAGE
    },
];

#[test]
fn the_commands_for_a_release_do_what_their_pages_say() {
    apart(|| ClusterTerminal::of(Cluster::empty(), Some(assets("HELM").into())).walk(PAGES));
}
