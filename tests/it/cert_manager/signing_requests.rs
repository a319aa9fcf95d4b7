//! Kubernetes' own requests, for a signer's name of ours.

use pki::Certificate;
use serde_json::{Value, json};

use super::issuer::certificates;
use super::site::{IssuingCluster, request};
use crate::support::cert_manager::{Approver, condition, until};
use crate::support::wait_for;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn make_request(site: &IssuingCluster, name: &str, signer: &str, dns_name: &str) -> String {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": signer, "request": request(&[dns_name]), "expirationSeconds": 3600,
            "usages": ["digital signature", "client auth"],
        },
    });
    site.cluster.create(REQUESTS, &object);
    format!("{REQUESTS}/{name}")
}

fn approve(site: &IssuingCluster, name: &str) {
    site.cluster.kubectl(&["certificate", "approve", name]);
}

/// What an approved request gets.
pub(super) fn signed(
    site: &IssuingCluster,
    name: &str,
    signer: &str,
    dns_name: &str,
) -> Vec<Certificate> {
    let path = make_request(site, name, signer, dns_name);
    approve(site, name);
    let answer: Value = wait_for("a certificate", || {
        let object = site.cluster.get(&path)?;
        object["status"]["certificate"].is_string().then_some(object)
    });
    certificates(&answer, "certificate")
}

#[test]
fn approved_requests_of_kubernetes_are_signed_by_a_cluster_issuer() {
    let site = IssuingCluster::new(Approver::Off);
    let _controller = site.controller();
    let policy = json!({"dnsNames": ["*.apps.example.com"]});
    let spec = json!({"signer": {"machineConfigServer": {}}, "policy": policy});
    let issuer = site.issuer("", "mcs", &spec);
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    let signer = "clusterissuers.pki.machine-config-server.io/mcs";
    let unapproved = make_request(&site, "a-unapproved", signer, "a.apps.example.com");
    let others = make_request(&site, "b-others", "example.com/other", "a.apps.example.com");
    approve(&site, "b-others");
    let denied = make_request(&site, "c-denied", signer, "a.apps.example.com");
    site.cluster.kubectl(&["certificate", "deny", "c-denied"]);
    let refused = make_request(&site, "d-refused", signer, "a.example.com");
    approve(&site, "d-refused");
    let reported = until(&site.cluster, &refused, "Failed", "True", "Failed");
    let message = &condition(&reported, "Failed").expect("a condition")["message"];
    assert_eq!(*message, "the issuer's dnsNames do not cover a.example.com");

    let chain = signed(&site, "e-signed", signer, "a.apps.example.com");
    let answer = site.object(&format!("{REQUESTS}/e-signed"));
    assert_eq!(chain[0].hosts, ["a.apps.example.com".parse().expect("a host")].into());
    let length = chain[0].not_after - chain[0].not_before;
    assert!(length < time::Duration::hours(2), "{length}");
    assert!(condition(&answer, "Approved").is_some(), "what was said before stays: {answer}");
    for path in [unapproved, others, denied, refused] {
        let object = site.object(&path);
        assert!(object["status"]["certificate"].is_null(), "{object}");
    }
}
