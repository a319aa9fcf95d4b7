//! cert-manager alone: that what the other tests rely on does what it does for everybody.

use pki::Certificate;
use serde_json::json;

use crate::support::cert_manager::{
    Approver, CLUSTER_RESOURCES, CertManager, collection, condition, make, until, value,
};
use crate::support::cluster::Cluster;
use crate::support::wait_for;

/// A self-signed cluster issuer, a CA by it, and an issuer that signs with that CA.
fn issuer_with_ca(cluster: &Cluster) {
    make(cluster, "", "ClusterIssuer", "self", &json!({"selfSigned": {}}));
    let ca = json!({
        "isCA": true, "commonName": "root", "secretName": "root",
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "issuerRef": {"name": "self", "kind": "ClusterIssuer", "group": "cert-manager.io"},
    });
    make(cluster, CLUSTER_RESOURCES, "Certificate", "root", &ca);
    make(cluster, CLUSTER_RESOURCES, "Issuer", "root", &json!({"ca": {"secretName": "root"}}));
}

#[test]
fn a_certificate_of_a_ca_issuer_becomes_a_secret() {
    let cluster = Cluster::empty();
    let _running = CertManager::new(&cluster, Approver::On);
    issuer_with_ca(&cluster);
    let issuer = format!("{}/root", collection(CLUSTER_RESOURCES, "issuers"));
    until(&cluster, &issuer, "Ready", "True", "KeyPairVerified");
    let spec = json!({
        "dnsNames": ["a.example.com"], "secretName": "leaf", "issuerRef": {"name": "root"},
    });
    make(&cluster, CLUSTER_RESOURCES, "Certificate", "leaf", &spec);
    let path = format!("{}/leaf", collection(CLUSTER_RESOURCES, "certificates"));
    until(&cluster, &path, "Ready", "True", "Ready");
    let secret = cluster.get(&format!("/api/v1/namespaces/{CLUSTER_RESOURCES}/secrets/leaf"));
    let secret = secret.expect("the secret");
    let certificates = |key| Certificate::read_all(value(&secret, key).as_bytes());
    let [leaf, ca] = ["tls.crt", "ca.crt"].map(|key| certificates(key).remove(0));
    assert!(leaf.is_issued_by(&ca));
    assert_eq!((ca.common_name.as_str(), leaf.hosts.len()), ("root", 1));
}

#[test]
fn without_its_approver_requests_wait_for_another_approver() {
    let cluster = Cluster::empty();
    let mut running = CertManager::new(&cluster, Approver::Off);
    make(&cluster, "", "ClusterIssuer", "self", &json!({"selfSigned": {}}));
    let spec = json!({
        "dnsNames": ["a.example.com"], "secretName": "leaf",
        "issuerRef": {"name": "self", "kind": "ClusterIssuer"},
    });
    make(&cluster, "default", "Certificate", "leaf", &spec);
    let requests = collection("default", "certificaterequests");
    let name = wait_for("a request", || {
        running.expect_running();
        let list = cluster.get(&requests)?;
        list["items"][0]["metadata"]["name"].as_str().map(str::to_owned)
    });
    let path = format!("{requests}/{name}");
    let request = cluster.get(&path).expect("the request");
    assert_eq!(condition(&request, "Approved"), None, "{request}");
    let now = "2026-01-01T00:00:00Z";
    let change = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "Test", "message": "by the test",
        "lastTransitionTime": now,
    }]}});
    cluster.patch(&format!("{path}/status"), &change);
    until(&cluster, &path, "Ready", "True", "Issued");
}
