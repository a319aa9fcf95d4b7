//! What applications take: the keystores and truststores that cert-manager makes of what our issuers answer. A
//! truststore that lacks a root refuses every client with a certificate by it, so that each has to have all of them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use pki::Certificate;
use serde_json::{Value, json};

use super::site::{IssuingCluster, issuers, of_cluster};
use crate::support::cert_manager::{
    Approver, Contents, bytes, collection, make, open_store, until, value,
};
use crate::support::wait_for;

/// What the example in the book has as the stores' password.
const PASSWORD: &str = "changeit";

/// What everything that a secret has for applications holds.
#[derive(Debug, PartialEq, Eq)]
struct Stores {
    chain: Vec<Certificate>,
    roots: Vec<Certificate>,
    keystore_jks: Contents,
    truststore_jks: Contents,
    keystore_p12: Contents,
    truststore_p12: Contents,
}

impl Stores {
    fn of(secret: &Value, password: &str) -> Self {
        let pem = |key| Certificate::read_all(value(secret, key).as_bytes());
        let store = |key| open_store(key, password, &bytes(secret, key));
        Self {
            chain: pem("tls.crt"),
            roots: pem("ca.crt"),
            keystore_jks: sorted(store("keystore.jks")),
            truststore_jks: sorted(store("truststore.jks")),
            keystore_p12: store("keystore.p12"),
            truststore_p12: sorted(store("truststore.p12")),
        }
    }

    /// What they hold where each has everything.
    fn complete(chain: &[Certificate], roots: &[Certificate]) -> Self {
        let stored = |chain: &[Certificate], trusted: &[Certificate]| {
            sorted(Contents { chain: chain.to_vec(), trusted: trusted.to_vec() })
        };
        Self {
            chain: chain.to_vec(),
            roots: roots.to_vec(),
            keystore_jks: stored(chain, roots),
            truststore_jks: stored(&[], roots),
            // There is one place for all certificates in it.
            keystore_p12: stored(&[chain, roots].concat(), &[]),
            truststore_p12: stored(&[], roots),
        }
    }
}

/// With what is trusted in an order of its own: the files have it in none.
fn sorted(mut contents: Contents) -> Contents {
    contents.trusted.sort_by_key(Certificate::fingerprint);
    contents
}

/// What OpenSSL makes of a truststore: its certificates, and the names under which Java has them.
fn read_by_openssl(store: &[u8], flags: &[&str]) -> (Vec<Certificate>, BTreeSet<String>) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), store).expect("a write");
    let mut command = Command::new("openssl");
    command.args(["pkcs12", "-nokeys", "-passin"]).arg(format!("pass:{PASSWORD}"));
    let output = command.args(flags).arg("-in").arg(file.path()).output().expect("openssl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl pkcs12 {flags:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("friendlyName: "));
    (Certificate::read_all(text.as_bytes()), names.map(str::to_owned).collect())
}

/// A site with the book's issuer, whose CA is the first.
fn site() -> IssuingCluster {
    let site = IssuingCluster::new(Approver::On);
    site.follow("how-to/issuer.md", "machineConfigServer: {}");
    site
}

#[test]
fn every_root_is_in_every_store_once_a_certificate_is_renewed_after_a_rotation() {
    let site = site();
    let _controller = site.controller();
    let first = site.roots(1);
    let issuer = format!("{}/machine-config-server", issuers(""));
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");
    site.follow("how-to/truststores.md", "keystores:");
    let certificate = format!("{}/java", collection("default", "certificates"));
    until(&site.cluster, &certificate, "Ready", "True", "Ready");
    let path = "/api/v1/namespaces/default/secrets/java-tls";
    let stores = Stores::of(&site.object(path), PASSWORD);
    assert_eq!(stores, Stores::complete(&stores.chain, &first));

    site.rotate();
    let both = site.roots(2);
    // As `cmctl renew` does.
    let renew = json!({"status": {"conditions": [{
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    site.cluster.patch(&format!("{certificate}/status"), &renew);
    let secret = wait_for("the renewed certificate", || {
        let secret = site.cluster.get(path)?;
        let chain = Certificate::read_all(value(&secret, "tls.crt").as_bytes());
        (chain[0] != stores.chain[0]).then_some(secret)
    });
    let stores = Stores::of(&secret, PASSWORD);
    assert_eq!(stores, Stores::complete(&stores.chain, &both));
    assert_eq!(stores.chain.len(), 2, "a leaf, and the new CA by the old one");

    let (certificates, names) = read_by_openssl(&bytes(&secret, "truststore.p12"), &[]);
    let read = sorted(Contents { chain: Vec::new(), trusted: certificates });
    assert_eq!(read, stores.truststore_p12, "as OpenSSL reads it");
    assert_eq!(names.len(), 2, "Java keeps one of those that have one name: {names:?}");
}

#[test]
fn stores_of_every_profile_have_every_root_also_by_a_password_in_the_certificate() {
    let site = site();
    let _controller = site.controller();
    site.roots(1);
    site.rotate();
    let both = site.roots(2);
    // What OpenSSL has to be told, where it can read the profile at all.
    let profiles: [(&str, Option<&[&str]>); 4] = [
        ("LegacyRC2", Some(&["-legacy"])),
        ("LegacyDES", Some(&[])),
        ("Modern2023", Some(&[])),
        ("Modern2026", None),
    ];
    for (profile, _) in profiles {
        let name = profile.to_lowercase();
        let spec = json!({
            "secretName": name, "dnsNames": ["web.apps.example.com"],
            "issuerRef": of_cluster("machine-config-server"),
            "keystores": {
                "jks": {"create": true, "password": PASSWORD},
                "pkcs12": {"create": true, "profile": profile, "password": PASSWORD},
            },
        });
        make(&site.cluster, "default", "Certificate", &name, &spec);
    }
    for (profile, flags) in profiles {
        let name = profile.to_lowercase();
        let path = format!("{}/{name}", collection("default", "certificates"));
        until(&site.cluster, &path, "Ready", "True", "Ready");
        let secret = site.object(&format!("/api/v1/namespaces/default/secrets/{name}"));
        let stores = Stores::of(&secret, PASSWORD);
        assert_eq!(stores, Stores::complete(&stores.chain, &both), "{profile}");
        let Some(flags) = flags else { continue };
        let (certificates, _) = read_by_openssl(&bytes(&secret, "truststore.p12"), flags);
        let read = sorted(Contents { chain: Vec::new(), trusted: certificates });
        assert_eq!(read, stores.truststore_p12, "{profile}, as OpenSSL reads it");
    }
}
