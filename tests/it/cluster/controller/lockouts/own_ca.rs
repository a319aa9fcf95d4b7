//! CAs that an administrator brings: what they do not allow, and those that cannot be used.

use std::fs;

use pki::{Certificate, TrustHolder, locked_out};
use serde_json::json;
use time::OffsetDateTime;

use super::super::{
    ControlledCluster, ROTATE, bundle, ca, pointer, secrets, server, serving, tls_secret, value,
};
use super::DISTRUST;
use crate::support::cluster::NAMESPACE;
use crate::support::machine::Machine;
use crate::support::openssl::openssl;
use crate::support::wait_until;

/// The administrator's own CA, which allows none below it, and its key.
fn own_ca(name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let now = OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(30);
    params.not_after = now + time::Duration::days(3650);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn a_rotation_that_a_custom_ca_does_not_allow_is_refused_until_it_is_forced() {
    let site = ControlledCluster::new();
    let (own, key) = own_ca("Example Corp CA");
    let secret =
        tls_secret("machine-config-server-ca", "kubernetes.io/tls", &own, &key, &json!({}));
    site.cluster.create(&secrets(NAMESPACE), &secret);
    // A CA that is known here, and signs nothing.
    let (other, _) = own_ca("Other CA");
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": format!("{own}{other}")},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let controller = site.start(&[]);
    let old = site.user_data("worker-user-data-managed");
    site.healthy(&controller);
    let before = site.serial(&serving());

    site.annotate(&ca(), &json!({ROTATE: "now"}));
    let reason = "allows 0 CAs below it (pathlen)";
    site.reported(&controller, "refused", reason);
    site.certs(&["rotate", "--ca"]).refused(&[reason]);
    // What is done meanwhile answers no request but its own.
    let other = Certificate::read_all(other.as_bytes()).remove(0);
    site.annotate(&ca(), &json!({DISTRUST: other.fingerprint()}));
    wait_until("the other one to leave", || !site.trusted().contains(&other));
    site.looked_at("infra");
    site.reported(&controller, "refused", reason);
    assert_eq!(site.serial(&ca()), own.as_bytes());
    assert_eq!(site.serial(&serving()), before);
    assert!(site.boots(&old));

    site.annotate(&ca(), &json!({ROTATE: "now --force"}));
    wait_until("a new pair", || site.serial(&serving()) != before);
    assert!(!site.boots(&old), "that is what was insisted on");
    site.reported(&controller, "locked-out", "cannot boot a machine");
    wait_until("user data to boot", || site.boots(&site.user_data("worker-user-data-managed")));
    // Who has no machine that trusts it alone says so, and all is in order.
    site.certs(&["distrust", "Example Corp CA", "--yes"]).done();
    site.healthy(&controller);
}

#[test]
fn a_ca_that_cannot_be_used_is_kept_and_reported_and_one_that_is_deleted_locks_nobody_out() {
    let site = ControlledCluster::new();
    let controller = site.start_healthy();
    let directory = site.directory.path();
    let secret = site.object(&ca());
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| value(&secret, name));
    fs::write(directory.join("key"), &key).expect("a write");
    let encrypt = ["pkcs8", "-topk8", "-v2", "aes256", "-passout", "pass:x"];
    openssl(directory, &[&encrypt[..], &["-in", "key", "-out", "encrypted"]].concat());
    let encrypted = fs::read(directory.join("encrypted")).expect("a file");
    let pair = site.serial(&serving());
    let bundle_before = site.bundle();
    let garbage = b"\0garbage".to_vec();
    for (certificate, key, reported) in [
        (&certificate, &encrypted, "its key is encrypted"),
        (&garbage, &garbage, "has no certificate"),
        (&Vec::new(), &Vec::new(), "empty"),
    ] {
        site.put_pair(&ca(), certificate, key);
        let reported = format!("the signing CA is not changed: {reported}");
        site.reported(&controller, "authority", &reported);
        let secret = site.object(&ca());
        let kept = ["tls.crt", "tls.key"].map(|name| value(&secret, name));
        assert_eq!([certificate, key], [&kept[0], &kept[1]], "nothing is written over it");
        // What else is lost comes back from what there is.
        site.cluster.delete(&bundle());
        wait_until("the bundle", || site.bundle() == bundle_before);
        assert_eq!(site.serial(&serving()), pair);
    }
    site.put_pair(&ca(), &certificate, &key);
    site.healthy(&controller);
    assert_eq!(site.serial(&serving()), pair);

    let (server, _) = server(&site);
    let old = pointer(&site, &server);
    site.cluster.delete(&ca());
    site.object(&ca());
    site.healthy(&controller);
    assert_eq!(site.serial(&serving()), pair, "nobody can lead to the old CA without its key");
    assert_eq!(site.trusted().len(), 2);
    let first = TrustHolder::of_one(&site.trusted()[0]);
    assert_eq!(locked_out(&site.chain(&serving()), &[first], OffsetDateTime::now_utc()), []);
    site.cluster.delete(&bundle());
    site.object(&bundle());
    site.healthy(&controller);
    assert_eq!(site.trusted().len(), 2);
    Machine::new().boot(&old);
    Machine::new().boot(&pointer(&site, &server));
    // The backup comes back, and with it all that it can sign.
    site.put_pair(&ca(), &certificate, &key);
    site.healthy(&controller);
    assert!(site.boots(old.as_bytes()));
}
