//! A cluster with cert-manager and an issuer in it, which runs as its own service account with the rights that
//! `deploy/` gives it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Certificate;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};

use crate::support::book::example;
use crate::support::cert_manager::{Approver, CertManager, collection};
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::logged::Logged;
use crate::support::server::binary;
use crate::support::wait_for;

/// The group of the issuers.
pub(super) const GROUP: &str = "pki.machine-config-server.io";
const ISSUER: &str = "machine-config-server-issuer";
const CONTROLLER: &str = "machine-config-server-controller";
const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";

pub(super) struct IssuingCluster {
    pub(super) cert_manager: CertManager,
    pub(super) issuer: Logged,
    pub(super) cluster: Cluster,
}

impl IssuingCluster {
    pub(super) fn new(approver: Approver) -> Self {
        let cluster = Cluster::prepared("cert-manager", |cluster| {
            cluster.become_openshift();
            cluster.apply_overlay("deploy/controller", &["deploy/components/issuer"]);
            CertManager::define(cluster);
        });
        let cert_manager = CertManager::start(&cluster, approver);
        let kubeconfig = cluster.kubeconfig_of(ISSUER, NAMESPACE, cluster.address());
        let issuer = started("issuer", &kubeconfig, &[]);
        Self { cert_manager, issuer, cluster }
    }

    /// Starts the controller, which makes the server's CA.
    pub(super) fn controller(&self) -> Logged {
        let kubeconfig = self.cluster.kubeconfig_of(CONTROLLER, NAMESPACE, self.cluster.address());
        started("controller", &kubeconfig, &["--host", "mcs.example.com"])
    }

    /// Waits until the server's CAs are so many, and returns them.
    pub(super) fn roots(&self, count: usize) -> Vec<Certificate> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machine-config-server-ca");
        wait_for(&format!("{count} CAs"), || {
            let map = self.cluster.get(&path)?;
            let roots = Certificate::read_all(map["data"]["ca-bundle.crt"].as_str()?.as_bytes());
            (roots.len() == count).then_some(roots)
        })
    }

    /// Asks the controller for another CA.
    pub(super) fn rotate(&self) {
        let ca = format!("/api/v1/namespaces/{NAMESPACE}/secrets/machine-config-server-ca");
        let change = json!({"metadata": {"annotations": {ROTATE: "again --force"}}});
        self.cluster.patch(&ca, &change);
    }

    /// Applies a page's example with this part, as an administrator who follows it does.
    pub(super) fn follow(&self, page: &str, part: &str) {
        self.cluster.apply_text(&example(page, part));
    }

    /// Makes an issuer: of the whole cluster where the namespace is empty.
    pub(super) fn issuer(&self, namespace: &str, name: &str, spec: &Value) -> String {
        let kind = if namespace.is_empty() { "ClusterIssuer" } else { "Issuer" };
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "metadata": {"name": name},
            "spec": spec,
        });
        let path = issuers(namespace);
        self.cluster.create(&path, &object);
        format!("{path}/{name}")
    }

    /// Makes a request of cert-manager, as its controllers do, with a new key.
    pub(super) fn request(&self, name: &str, issuer: &Value, dns_names: &[&str]) -> String {
        self.request_of(name, &json!({"issuerRef": issuer, "request": request(dns_names)}))
    }

    pub(super) fn request_of(&self, name: &str, spec: &Value) -> String {
        let object = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest",
            "metadata": {"name": name}, "spec": spec,
        });
        let path = collection("default", "certificaterequests");
        self.cluster.create(&path, &object);
        format!("{path}/{name}")
    }

    /// Says with the right to do so that a request is approved or denied.
    pub(super) fn judge(&self, path: &str, verdict: &str) {
        let change = json!({"status": {"conditions": [{
            "type": verdict, "status": "True", "reason": "Test", "message": "by the test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}});
        self.cluster.patch(&format!("{path}/status"), &change);
    }

    pub(super) fn object(&self, path: &str) -> Value {
        wait_for(path, || self.cluster.get(path))
    }

    /// Lets the issuer read the secrets of a namespace, as an administrator does.
    pub(super) fn allow_secrets(&self, namespace: &str) {
        let role = "--clusterrole=machine-config-server-issuer-secrets";
        let account = format!("--serviceaccount={NAMESPACE}:{ISSUER}");
        let arguments =
            ["create", "rolebinding", "issuer-secrets", "--namespace", namespace, role, &account];
        self.cluster.kubectl(&arguments);
    }
}

/// Where issuers are: of the whole cluster, where the namespace is empty.
pub(super) fn issuers(namespace: &str) -> String {
    match namespace {
        "" => format!("/apis/{GROUP}/v1alpha1/clusterissuers"),
        namespace => format!("/apis/{GROUP}/v1alpha1/namespaces/{namespace}/issuers"),
    }
}

/// A reference to an issuer of the whole cluster.
pub(super) fn of_cluster(name: &str) -> Value {
    json!({"group": GROUP, "kind": "ClusterIssuer", "name": name})
}

/// A request for these names, as an object has it.
pub(super) fn request(dns_names: &[&str]) -> String {
    let names: Vec<String> = dns_names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().expect("a key");
    let request = params.serialize_request(&key).expect("a request");
    BASE64.encode(request.pem().expect("PEM"))
}

/// One of the binary's commands that talk to a cluster.
fn started(command: &'static str, kubeconfig: &Path, flags: &[&str]) -> Logged {
    let mut program = binary();
    program.args([command, "--metrics-address", "off", "--kubeconfig"]).arg(kubeconfig).args(flags);
    Logged::start(command, &mut program)
}
