//! Certificates of our own issuers, which cert-manager asks for.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Certificate;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::site::{GROUP, IssuingCluster, issuers, of_cluster};
use crate::support::cert_manager::{Approver, collection, condition, make, until, value};
use crate::support::cluster::NAMESPACE;
use crate::support::openssl::{openssl, verify};
use crate::support::wait_until;

/// The policy that the requests below keep to.
fn policy() -> Value {
    json!({"dnsNames": ["*.apps.example.com"]})
}

fn by_server() -> Value {
    json!({"signer": {"machineConfigServer": {}}, "policy": policy()})
}

/// The certificates of a field of a request's status.
pub(super) fn certificates(request: &Value, field: &str) -> Vec<Certificate> {
    let text = BASE64.decode(request["status"][field].as_str().expect("a field"));
    Certificate::read_all(&text.expect("base64"))
}

fn is_self_signed(certificate: &Certificate) -> bool {
    certificate.is_issued_by(certificate)
}

/// Whether OpenSSL takes a chain, trusting this root alone.
fn verifies(chain: &[Certificate], root: &Certificate) -> bool {
    let output = verify(&["-x509_strict"], chain, std::slice::from_ref(root));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

pub(super) fn message(object: &Value, type_: &str) -> String {
    let condition = condition(object, type_).expect("a condition");
    condition["message"].as_str().expect("text").to_owned()
}

#[test]
fn a_certificate_becomes_a_secret_with_leaf_chain_and_two_roots() {
    let site = IssuingCluster::new(Approver::On);
    let _controller = site.controller();
    site.roots(1);
    site.rotate();
    let both = site.roots(2);

    site.follow("how-to/issuer.md", "machineConfigServer: {}");
    let issuer = format!("{}/machine-config-server", issuers(""));
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    let path = format!("{}/web", collection("default", "certificates"));
    until(&site.cluster, &path, "Ready", "True", "Ready");

    let secret = site.object("/api/v1/namespaces/default/secrets/web-tls");
    let chain = Certificate::read_all(value(&secret, "tls.crt").as_bytes());
    let trusted = Certificate::read_all(value(&secret, "ca.crt").as_bytes());
    assert_eq!(trusted, both, "the whole bundle");
    assert!(trusted.iter().all(is_self_signed));
    assert_eq!(chain.len(), 2, "a leaf, and the new CA by the old one");
    assert!(!chain.iter().any(is_self_signed), "no root: {chain:?}");
    for root in &trusted {
        assert!(verifies(&chain, root), "{root:?}");
    }
    let leaf = &chain[0];
    let length = leaf.not_after - leaf.not_before;
    assert_eq!(length.whole_days(), 90, "{length}");
    assert_eq!(leaf.hosts, ["web.apps.example.com".parse().expect("a host")].into());
}

#[test]
fn requests_that_are_unapproved_or_denied_are_not_signed() {
    let mut site = IssuingCluster::new(Approver::Off);
    let _controller = site.controller();
    let issuer = site.issuer("", "mcs", &by_server());
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    let ask = |name: &str| site.request(name, &of_cluster("mcs"), &["a.apps.example.com"]);
    let (unapproved, denied) = (ask("first-unapproved"), ask("second-denied"));
    site.judge(&denied, "Denied");
    let reported = until(&site.cluster, &denied, "Ready", "False", "Denied");
    let failed: &str = reported["status"]["failureTime"].as_str().expect("a time");
    let failed = OffsetDateTime::parse(failed, &Rfc3339).expect("RFC 3339");
    assert!((OffsetDateTime::now_utc() - failed).abs() < time::Duration::minutes(5));
    assert!(reported["status"]["certificate"].is_null());

    // One after those, which a look that sees it sees them too.
    let approved = ask("third-approved");
    site.judge(&approved, "Approved");
    let answer = until(&site.cluster, &approved, "Ready", "True", "Issued");
    assert_eq!(certificates(&answer, "certificate").len(), 1);
    let left = site.object(&unapproved);
    assert!(left.get("status").is_none(), "{left}");

    // What has its answer keeps it, whatever is said later.
    let both = json!({"status": {"conditions": [condition(&reported, "Denied"), condition(&reported, "Ready"), {
        "type": "Approved", "status": "True", "reason": "Test", "message": "too late",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    site.cluster.patch(&format!("{denied}/status"), &both);
    site.judge(&unapproved, "Approved");
    until(&site.cluster, &unapproved, "Ready", "True", "Issued");
    assert!(site.object(&denied)["status"]["certificate"].is_null());
    site.cert_manager.expect_running();
}

/// A request whose key is too short.
fn weak_request() -> String {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let key = ["req", "-new", "-newkey", "rsa:1024", "-nodes", "-keyout", "key"];
    let rest = ["-subj", "/CN=a.apps.example.com", "-out", "csr"];
    openssl(directory.path(), &[&key[..], &rest].concat());
    BASE64.encode(fs::read(directory.path().join("csr")).expect("a request"))
}

#[test]
fn what_the_policy_does_not_cover_fails_with_all_reasons() {
    let site = IssuingCluster::new(Approver::On);
    let _controller = site.controller();
    let issuer = site.issuer("", "mcs", &by_server());
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    let all = json!({"dnsNames": ["*.example.com"]});
    let spec = json!({"signer": {"machineConfigServer": {}}, "policy": all});
    until(&site.cluster, &site.issuer("", "wide", &spec), "Ready", "True", "CanSign");
    let refused = |name: &str, spec: Value, expected: &str| {
        let path = site.request_of(name, &spec);
        let reported = until(&site.cluster, &path, "Ready", "False", "Failed");
        assert_eq!(message(&reported, "Ready"), expected, "{name}");
        assert!(reported["status"]["failureTime"].is_string(), "{reported}");
        assert!(reported["status"]["certificate"].is_null(), "{reported}");
    };
    let request = super::site::request(&["a.apps.example.com", "b.example.com"]);
    refused(
        "policy",
        json!({
            "issuerRef": of_cluster("mcs"), "request": request, "isCA": true, "duration": "2161h",
            "usages": ["digital signature", "code signing"],
        }),
        "the issuer's dnsNames do not cover b.example.com; the issuer's usages lack code signing; requests a CA certificate, and the issuer's policy does not have isCA: true; requests a validity of 2161h, \
         longer than the issuer's maxDuration, 2160h",
    );
    let broken = BASE64
        .encode("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n");
    refused(
        "broken",
        json!({"issuerRef": of_cluster("mcs"), "request": broken}),
        "cannot sign its request: not a certificate request (PKCS #10)",
    );
    refused(
        "another-usage",
        json!({
            "issuerRef": of_cluster("mcs"),
            "request": super::site::request(&["a.apps.example.com"]), "usages": ["netscape sgc"],
        }),
        "the issuer's usages lack netscape sgc",
    );

    refused(
        "weak",
        json!({"issuerRef": of_cluster("mcs"), "request": weak_request()}),
        "cannot sign its request: its signature is not from its key, or is of a refused kind: \
            RSA with less than 2048 bits, SHA-1",
    );

    // By a Certificate, whose owner reads the reason: machines know the server by this name.
    let spec = json!({
        "dnsNames": ["mcs.example.com"], "secretName": "leaf", "issuerRef": of_cluster("wide"),
    });
    make(&site.cluster, "default", "Certificate", "leaf", &spec);
    let path = format!("{}/leaf", collection("default", "certificates"));
    let reported = until(&site.cluster, &path, "Issuing", "False", "Failed");
    let reason = "the issuer's dnsNames do not cover mcs.example.com";
    assert!(message(&reported, "Issuing").contains(reason), "{reported}");
}

#[test]
fn an_issuer_without_its_secret_says_so_and_signs_once_it_is_there() {
    let site = IssuingCluster::new(Approver::On);
    let spec = json!({"signer": {"secret": {"name": "own"}}, "policy": policy()});
    let issuer = site.issuer("default", "own", &spec);
    let reported = until(&site.cluster, &issuer, "Ready", "False", "CannotSign");
    let account = format!("system:serviceaccount:{NAMESPACE}:machine-config-server-issuer");
    assert!(message(&reported, "Ready").contains(&account), "it may not read it: {reported}");
    site.allow_secrets("default");
    let absent = "Secret default/own not found";
    wait_until("the issuer to say what is missing", || {
        message(&site.object(&issuer), "Ready") == absent
    });
    let reference = json!({"group": GROUP, "kind": "Issuer", "name": "own"});
    let request = site.request("waits", &reference, &["a.apps.example.com"]);
    let reported = until(&site.cluster, &request, "Ready", "False", "Pending");
    let expected = format!("Issuer default/own is not ready: {absent}");
    assert_eq!(message(&reported, "Ready"), expected);

    // cert-manager makes the CA: an intermediate below a root of its own.
    let ca = |name: &str, issuer: Value| {
        let spec = json!({
            "isCA": true, "commonName": name, "secretName": name, "issuerRef": issuer,
            "privateKey": {"algorithm": "ECDSA", "size": 256},
        });
        make(&site.cluster, "default", "Certificate", name, &spec);
    };
    make(&site.cluster, "", "ClusterIssuer", "self", &json!({"selfSigned": {}}));
    ca("root", json!({"name": "self", "kind": "ClusterIssuer"}));
    make(&site.cluster, "default", "Issuer", "root", &json!({"ca": {"secretName": "root"}}));
    ca("own", json!({"name": "root"}));

    let answer = until(&site.cluster, &request, "Ready", "True", "Issued");
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    let (chain, roots) = (certificates(&answer, "certificate"), certificates(&answer, "ca"));
    let names: Vec<&str> = chain.iter().map(|it| it.common_name.as_str()).collect();
    assert_eq!(names, ["", "own"], "the leaf and the intermediate");
    assert_eq!(roots.len(), 1);
    assert_eq!(roots[0].common_name, "root");
    assert!(verifies(&chain, &roots[0]));
}

#[test]
fn an_issuer_of_a_namespace_does_not_sign_by_the_server_s_ca() {
    let site = IssuingCluster::new(Approver::On);
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Issuer", "metadata": {"name": "mcs"},
        "spec": by_server(),
    });
    let path = issuers("default");
    let answer = site.cluster.request("POST", &path, "application/json", &object);
    assert_eq!(answer.status, 422, "{answer:?}");
}

#[test]
fn the_issuer_s_account_may_do_what_it_does_and_nothing_else() {
    let site = IssuingCluster::new(Approver::Off);
    let account = "machine-config-server-issuer";
    let may = |verb, object, namespace| site.cluster.may(account, verb, object, namespace);
    assert!(may("list", "cert-manager.io/certificaterequests", "default"));
    assert!(may("list", "certificates.k8s.io/certificatesigningrequests", ""));
    assert!(may("get", "/secrets/machine-config-server-ca", NAMESPACE));
    for (verb, object, namespace) in [
        ("patch", "cert-manager.io/certificaterequests", "default"),
        ("create", "cert-manager.io/certificaterequests", "default"),
        ("approve", "cert-manager.io/signers", ""),
        ("get", "/secrets/any", NAMESPACE),
        ("get", "/secrets/any", "default"),
        ("list", "/secrets", "default"),
        ("patch", "/secrets/machine-config-server-ca", NAMESPACE),
        ("patch", "pki.machine-config-server.io/clusterissuers", ""),
    ] {
        assert!(!may(verb, object, namespace), "{verb} {object} in {namespace}");
    }
}
