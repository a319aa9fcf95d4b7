//! `certs check --pointer` by what a cluster keeps to be served.

use std::fs;
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::access::credential;
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::in_repository;
use crate::support::server::{Server, binary};

#[test]
fn a_pointer_config_is_judged_by_the_serving_pair_in_the_cluster() {
    let cluster = Cluster::openshift();
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
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
    let check = || -> Output {
        let mut command = binary();
        command.args(["certs", "check", "--kubeconfig"]).arg(cluster.admin());
        command.arg("--pointer").arg(&pointer).output().expect("the built binary")
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    let output = check();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
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
    let output = check();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let line = text(&output.stdout);
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
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stdout);
    assert!(line.contains(": no config from https://") && line.lines().count() == 1, "{line}");
    assert!(
        line.contains("/config/worker, according to the tokens of the cluster: token "),
        "{line}"
    );
}
