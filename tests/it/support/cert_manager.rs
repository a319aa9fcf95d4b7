//! The controllers of cert-manager in a test's cluster, as the program that `tests/cert-manager/install` builds.
//!
//! They do all that certificates of issuers take. There is no webhook: what it refuses an API server takes here, and
//! anybody may approve a request.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::logged::Logged;
use super::wait_for;

/// Where cluster issuers have their secrets.
pub(crate) const CLUSTER_RESOURCES: &str = "cert-manager";
/// The path of cert-manager's API.
const API: &str = "/apis/cert-manager.io/v1";

/// Whether cert-manager's controllers approve every request, as they do unless they are told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approver {
    On,
    Off,
}

/// Running controllers. They end with this value.
pub(crate) struct CertManager(Logged);

impl CertManager {
    /// Makes cert-manager's kinds known to a cluster.
    pub(crate) fn define(cluster: &Cluster) {
        let definitions = folder().join("crds");
        cluster.apply(&["-f", definitions.to_str().expect("text")]);
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]);
        let namespace = json!({"metadata": {"name": CLUSTER_RESOURCES}});
        cluster.create("/api/v1/namespaces", &namespace);
    }

    /// Starts the controllers in a cluster that knows their kinds.
    pub(crate) fn start(cluster: &Cluster, approver: Approver) -> Self {
        let mut command = Command::new(folder().join("controllers"));
        command
            .arg("--kubeconfig")
            .arg(cluster.admin())
            .arg(format!("--approve={}", approver == Approver::On))
            .arg(format!("--cluster-resource-namespace={CLUSTER_RESOURCES}"));
        Self(Logged::start("cert-manager", &mut command))
    }

    /// Defines the kinds, and starts the controllers.
    pub(crate) fn new(cluster: &Cluster, approver: Approver) -> Self {
        Self::define(cluster);
        Self::start(cluster, approver)
    }

    /// Ends the test if they have ended.
    pub(crate) fn expect_running(&mut self) {
        self.0.expect_running();
    }
}

/// Where cert-manager has its objects of one plural, of a namespace or (empty) of the whole cluster.
pub(crate) fn collection(namespace: &str, plural: &str) -> String {
    match namespace {
        "" => format!("{API}/{plural}"),
        namespace => format!("{API}/namespaces/{namespace}/{plural}"),
    }
}

/// Makes an object of cert-manager.
pub(crate) fn make(cluster: &Cluster, namespace: &str, kind: &str, name: &str, spec: &Value) {
    let object = json!({
        "apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let plural = format!("{}s", kind.to_lowercase());
    cluster.create(&collection(namespace, &plural), &object);
}

/// A condition of an object, by its type.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == type_)
}

/// Waits until the object at `path` has a condition with this status and reason, and returns the object.
pub(crate) fn until(
    cluster: &Cluster,
    path: &str,
    type_: &str,
    status: &str,
    reason: &str,
) -> Value {
    wait_for(&format!("{path} to be {type_}={status} {reason}"), || {
        let object = cluster.get(path)?;
        let found = condition(&object, type_)?;
        (found["status"] == status && found["reason"] == reason).then_some(())?;
        Some(object)
    })
}

/// One value of a secret, as text.
pub(crate) fn value(secret: &Value, key: &str) -> String {
    let value = BASE64.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64");
    String::from_utf8(value).expect("text")
}

/// Where the program and the definitions are.
fn folder() -> PathBuf {
    let folder = std::env::var_os("CERT_MANAGER")
        .expect("CERT_MANAGER: run tests/run, or set it to what tests/cert-manager/install prints");
    Path::new(&folder).to_owned()
}
