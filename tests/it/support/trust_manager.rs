//! The controller of trust-manager in a test's cluster, as the program that `tests/trust-manager/install` builds.
//!
//! There is no webhook: what it refuses, an API server takes here.

use std::path::PathBuf;
use std::process::Command;

use super::cluster::Cluster;
use super::logged::Logged;

/// A running controller. It ends with this value.
pub(crate) struct TrustManager(Logged);

impl TrustManager {
    /// Makes trust-manager's kinds known to a cluster, and starts it there. Bundles have their sources in this namespace.
    pub(crate) fn new(cluster: &Cluster, namespace: &str) -> Self {
        let definitions = directory().join("crds");
        cluster.apply(&["-f", definitions.to_str().expect("text")]);
        cluster.serves_all_kinds();
        let mut command = Command::new(directory().join("controller"));
        command
            .arg("--kubeconfig")
            .arg(cluster.admin())
            .arg(format!("--trust-namespace={namespace}"));
        Self(Logged::start("trust-manager", &mut command))
    }

    /// Ends the test if it has ended.
    pub(crate) fn expect_running(&mut self) {
        self.0.expect_running();
    }
}

/// Where the program and the definitions are.
fn directory() -> PathBuf {
    let directory = std::env::var_os("TRUST_MANAGER").expect(
        "TRUST_MANAGER: run tests/run, or set it to what tests/trust-manager/install prints",
    );
    PathBuf::from(directory)
}
