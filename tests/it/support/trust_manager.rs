//! The controller of trust-manager in a test's cluster, as the program that `tests/trust-manager/install` builds.
//!
//! There is no webhook: objects that it would refuse are accepted.

use std::path::PathBuf;
use std::process::Command;

use super::cluster::Cluster;
use super::logged::Logged;

/// A running controller, which ends when the value is dropped.
pub(crate) struct TrustManager(Logged);

impl TrustManager {
    /// Defines trust-manager's kinds in a cluster, and starts it there. Bundles have their sources in this namespace.
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

    /// Fails the test if it has ended.
    pub(crate) fn expect_running(&mut self) {
        self.0.expect_running();
    }
}

/// Directory of the program and the definitions.
fn directory() -> PathBuf {
    let directory = std::env::var_os("TRUST_MANAGER").expect(
        "TRUST_MANAGER: run tests/run, or set it to what tests/trust-manager/install prints",
    );
    PathBuf::from(directory)
}
