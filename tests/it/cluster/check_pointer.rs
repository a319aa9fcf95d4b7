//! `certs check --pointer` by what a cluster keeps to be served.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::support::access::credential;
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::command::Store;
use crate::support::server::Server;

#[test]
fn a_pointer_config_is_judged_by_the_serving_pair_in_the_cluster() {
    let cluster = Cluster::openshift();
    let server = Server::sample_cluster(&[]);
    let made = server.state().join("user-data/worker.ign");
    credential(&server, "worker");
    let user_data = json!({
        "metadata": {"name": "worker-user-data"},
        "data": {"userData": BASE64.encode(fs::read(&made).expect("a file"))},
    });
    cluster.create("/api/v1/namespaces/openshift-machine-api/secrets", &user_data);
    // As the administrator takes it from there.
    let directory = tempfile::tempdir().expect("a temporary folder");
    let pointer = directory.path().join("worker.ign");
    let secret = ["-n", "openshift-machine-api", "get", "secret", "worker-user-data"];
    let encoded = cluster.kubectl(&[&secret[..], &["-o", "jsonpath={.data.userData}"]].concat());
    fs::write(&pointer, BASE64.decode(encoded).expect("base64")).expect("a writable folder");
    let pointer = pointer.to_str().expect("text");
    let check = || cluster.run(&["certs", "check", "--pointer", pointer]);

    let output = check();
    assert_eq!(output.status, 1);
    assert_eq!(
        output.error,
        "machine-config-server: the cluster: no serving certificate found; check against a running \
            server with --connect HOST:PORT\n"
    );

    let encoded = |name: &str| BASE64.encode(fs::read(server.state().join(name)).expect("a file"));
    let serving = json!({
        "metadata": {"name": "machine-config-server-tls"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded("tls.crt"), "tls.key": encoded("tls.key")},
    });
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &serving);
    let line = check().done().output;
    assert!(
        line.ends_with("/config/worker, according to the certificates of the cluster\n"),
        "{line}"
    );

    // What servers know of tokens is kept there too.
    let records = json!({"tokens": [], "enforced": ["worker"], "lacking": {}}).to_string();
    let access = json!({
        "metadata": {"name": "machine-config-server-access"},
        "data": {"access.json": BASE64.encode(records)},
    });
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &access);
    let output = check();
    assert_eq!(output.status, 1);
    let line = output.output;
    assert!(line.contains(": no config from https://") && line.lines().count() == 1, "{line}");
    assert!(
        line.contains("/config/worker, according to the tokens of the cluster: token "),
        "{line}"
    );
}
