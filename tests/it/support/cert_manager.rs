//! The controllers of cert-manager in a test's cluster, as the program that `tests/cert-manager/install` builds.
//!
//! They handle all that certificates of issuers need. There is no webhook: objects that it would refuse are accepted,
//! and anyone can approve a request.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Certificate;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::logged::Logged;
use super::wait_for;

/// Namespace of the Secrets of cluster issuers.
pub(crate) const CLUSTER_RESOURCES: &str = "cert-manager";
/// The path of cert-manager's API.
const API: &str = "/apis/cert-manager.io/v1";

/// Automatic approval of all requests by cert-manager, which is its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approver {
    On,
    Off,
}

/// Running controllers, which end when the value is dropped.
pub(crate) struct CertManager(Logged);

impl CertManager {
    /// Defines cert-manager's kinds in a cluster.
    pub(crate) fn define(cluster: &Cluster) {
        let definitions =
            std::env::var("CERT_MANAGER_KINDS").expect("CERT_MANAGER_KINDS: run tests/run");
        cluster.apply(&["-f", &definitions]);
        cluster.serves_all_kinds();
        let namespace = json!({"metadata": {"name": CLUSTER_RESOURCES}});
        cluster.create("/api/v1/namespaces", &namespace);
    }

    /// Starts the controllers in a cluster that knows their kinds.
    pub(crate) fn start(cluster: &Cluster, approver: Approver) -> Self {
        let mut command = Command::new(directory().join("controllers"));
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

    /// Fails the test if they have ended.
    pub(crate) fn expect_running(&mut self) {
        self.0.expect_running();
    }
}

/// Path of cert-manager's objects of one plural, in a namespace or (empty) in the whole cluster.
pub(crate) fn collection(namespace: &str, plural: &str) -> String {
    match namespace {
        "" => format!("{API}/{plural}"),
        namespace => format!("{API}/namespaces/{namespace}/{plural}"),
    }
}

/// Creates an object of cert-manager.
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

/// A value of a Secret, as text.
pub(crate) fn value(secret: &Value, key: &str) -> String {
    String::from_utf8(bytes(secret, key)).expect("text")
}

/// A value of a Secret.
pub(crate) fn bytes(secret: &Value, key: &str) -> Vec<u8> {
    BASE64.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64")
}

/// Contents of a keystore or a truststore.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Certificate of the key with its chain. The key is verified to match.
    pub(crate) chain: Vec<Certificate>,
    pub(crate) trusted: Vec<Certificate>,
}

/// Opens a store by its name in a Secret.
///
/// It is read with cert-manager's packages, so that JKS needs no other program.
pub(crate) fn open_store(name: &str, password: &str, store: &[u8]) -> Contents {
    let mut child = Command::new(directory().join("stores"))
        .args([name, password])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program that tests/cert-manager/install builds");
    // A program that ends without reading reports why.
    let _ = child.stdin.take().expect("a pipe").write_all(store);
    let output = child.wait_with_output().expect("a child of this process");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    let reported: Value = serde_json::from_slice(&output.stdout).expect("an answer in JSON");
    let certificates = |field: &str| {
        let all = reported[field].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let der = all.map(|one| BASE64.decode(one.as_str().expect("text")).expect("base64"));
        der.map(|der| Certificate::from_der(&der).expect("a certificate")).collect()
    };
    Contents { chain: certificates("chain"), trusted: certificates("trusted") }
}

/// Directory of the programs.
fn directory() -> PathBuf {
    let directory = std::env::var_os("CERT_MANAGER")
        .expect("CERT_MANAGER: run tests/run, or set it to what tests/cert-manager/install prints");
    Path::new(&directory).to_owned()
}
