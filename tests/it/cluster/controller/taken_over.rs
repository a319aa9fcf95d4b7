//! Certificates that are there already, of the reference, of an old installation or of an older release.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::{
    ControlledCluster, NOT_AFTER, bundle, ca, read, rsa_pair, secrets, serving, tls_secret,
    trusted, user_data, user_data_config, value,
};
use crate::support::cluster::{LEASE, NAMESPACE};
use crate::support::openssl::openssl;
use crate::support::wait_until;

#[test]
fn what_the_reference_made_is_taken_over_without_a_write() {
    let site = ControlledCluster::new();
    let directory = site.directory.path();
    let name = format!("{NAMESPACE}_machine-config-server-ca@1700000000");
    rsa_pair(directory, &name);
    let dates = json!({
        "auth.openshift.io/certificate-not-before": "2026-01-01T00:00:00Z",
        NOT_AFTER: "2036-01-01T00:00:00Z",
        "auth.openshift.io/certificate-issuer": name,
        "certificates.openshift.io/refresh-period": "70080h0m0s",
    });
    let in_directory = |file: &str| read(&directory.join(file));
    let kind = "kubernetes.io/tls";
    for part in ["ca", "tls"] {
        let name = format!("machine-config-server-{part}");
        let [certificate, key] = ["crt", "key"].map(|end| in_directory(&format!("{part}.{end}")));
        let secret = tls_secret(&name, kind, &certificate, &key, &dates);
        site.cluster.create(&secrets(NAMESPACE), &secret);
    }
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": in_directory("ca.crt")},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let source = json!({
        "source": format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode(in_directory("ca.crt"))),
        "verification": {},
    });
    let mut managed = user_data_config("3.4.0", &source);
    managed["ignition"]["proxy"] = json!({});
    site.make_user_data("worker-user-data-managed", managed.to_string().as_bytes());
    let own = user_data_config("2.2.0", &source).to_string();
    site.make_user_data("worker-user-data", own.as_bytes());

    let paths = [
        ca(),
        serving(),
        bundle(),
        user_data("worker-user-data-managed"),
        user_data("worker-user-data"),
    ];
    let versions =
        || paths.clone().map(|path| site.object(&path)["metadata"]["resourceVersion"].clone());
    let before = versions();
    let controller = site.start(&[]);
    wait_until("the controller to be active", || controller.is_active());
    // A pool that comes shows that the controller has looked at everything.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    site.settled();
    assert_eq!(versions(), before, "{}", controller.log());
    // And its RSA key, in PKCS#1, signs the next authority.
    site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {NOT_AFTER: null}}}));
    wait_until("a rotation", || site.bundle().matches("BEGIN").count() == 2);
    site.settled();
    let chain = value(&site.object(&serving()), "tls.crt");
    fs::write(directory.join("chain"), chain).expect("a write");
    openssl(directory, &["verify", "-CAfile", "ca.crt", "-untrusted", "chain", "chain"]);
}

#[test]
fn an_opaque_pair_of_an_old_installation_gets_its_type_and_is_never_lost() {
    let site = ControlledCluster::new();
    let directory = site.directory.path();
    rsa_pair(directory, "root-ca");
    let in_directory = |file: &str| read(&directory.join(file));
    let opaque = tls_secret(
        "machine-config-server-tls",
        "Opaque",
        &in_directory("tls.crt"),
        &in_directory("tls.key"),
        &json!({}),
    );
    site.cluster.create(&secrets(NAMESPACE), &opaque);
    let root = json!({"metadata": {"name": "root-ca"}, "data": {"ca.crt": in_directory("ca.crt")}});
    site.cluster.create("/api/v1/namespaces/kube-system/configmaps", &root);
    let source =
        json!({"source": format!("data:;base64,{}", BASE64.encode(in_directory("ca.crt")))});
    site.make_user_data(
        "worker-user-data",
        user_data_config("3.1.0", &source).to_string().as_bytes(),
    );

    let pair = in_directory("tls.crt").into_bytes();
    let copy = format!("{}/machine-config-server-tls-retype", secrets(NAMESPACE));
    let holds_pair =
        |path: &str| site.cluster.get(path).is_some_and(|secret| value(&secret, "tls.crt") == pair);
    // Killed at any moment: from its start to after its last write, two lines of its log later each time.
    for round in 0..8 {
        let controller = site.start(&[]);
        let lines = || controller.log().lines().count();
        wait_until("a step", || lines() >= 2 * round || site.is_settled());
        drop(controller);
        // It may have been killed before it had one.
        if site.cluster.get(LEASE).is_some() {
            site.cluster.drop_lease();
        }
        assert!(holds_pair(&copy) || holds_pair(&serving()), "the pair is lost in round {round}");
    }
    let _controller = site.start(&[]);
    site.settled();
    let secret = site.object(&serving());
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(value(&secret, "tls.crt"), pair, "the old pair stays until its own renewal");
    assert!(site.cluster.get(&copy).is_none(), "the copy is gone");
    assert_eq!(site.bundle().matches("BEGIN").count(), 2, "old and new are trusted");
    assert_eq!(trusted(&site.user_data("worker-user-data")), site.bundle().as_bytes());
}

#[test]
fn previous_cas_under_their_old_key_are_taken_over_and_move_with_the_next_ca() {
    let site = ControlledCluster::new();
    let mut first = site.start_settled(&[]);
    let oldest = site.bundle();
    site.rotate("first");
    first.terminate();
    let previous = site.object(&ca())["data"]["previous-cas.pem"].clone();
    assert!(previous.is_string());
    // As older releases have stored it.
    let renamed = json!({"data": {"previous-cas.pem": null, "lineage.pem": previous}});
    site.cluster.patch(&ca(), &renamed);

    let versions = || {
        [ca(), serving(), bundle()]
            .map(|path| site.object(&path)["metadata"]["resourceVersion"].clone())
    };
    let before = versions();
    let _second = site.start(&[]);
    // A pool that comes shows that the controller has looked at everything.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    site.settled();
    assert_eq!(versions(), before, "taking it over writes nothing");

    site.rotate("second");
    let data = site.object(&ca())["data"].clone();
    assert!(data["previous-cas.pem"].is_string() && data["lineage.pem"].is_null());
    // Both older authorities are still followed.
    let directory = site.directory.path();
    fs::write(directory.join("oldest"), &oldest).expect("a write");
    fs::write(directory.join("chain"), site.serial(&serving())).expect("a write");
    openssl(directory, &["verify", "-CAfile", "oldest", "-untrusted", "chain", "chain"]);
}
