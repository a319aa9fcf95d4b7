//! The tutorial whose machine joins a cluster: `tests/machine/install` says when it is typed.

use super::cluster::assets;
use super::walk::{PAGE, Page, Terminal, walk};
use crate::join::{Site, apart};
use crate::support::in_repository;
use crate::support::virtual_machine::cache;

pub(super) const PAGES: &[Page] = &[Page {
    name: "docs/src/tutorials/join.md",
    files: &[("pool.yaml", "tutorials/join.md", "name: 50-kubelet")],
    before: &["ln -s \"$REPOSITORY/tests\" tests"],
    between: &[("kubectl get csr", ASKED)],
    filled_in: &[("HOST:8797", "\"$ADMINISTRATORS\"")],
    ..PAGE
}];

/// What a reader waits for on the status page.
const ASKED: &str = "until [ -n \"$(kubectl get csr -o name)\" ]; do sleep 1; done";

#[test]
fn a_machine_joins_as_the_tutorial_says() {
    apart(|| {
        let site = Site::without_approval();
        let cluster = &site.plane.cluster;
        let variables = [
            ("KUBECONFIG", cluster.admin().display().to_string()),
            ("KUBECACHEDIR", cluster.kubectl_cache().display().to_string()),
            ("REPOSITORY", in_repository("").display().to_string()),
            ("XDG_CACHE_HOME", cache()),
            ("ADMINISTRATORS", site.server().metrics().address().to_string()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        let programs = vec![assets("KUBEBUILDER_ASSETS").into()];
        walk(PAGES, &Terminal { programs, variables, ..Terminal::default() });
    });
}
