//! `health` of a cluster: what its Secrets and pools show, a right that is missing, and a server of it.

use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::health::{assert_named, findings};
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::command::{Said, Store};
use crate::support::manifests::{machine_config, pool, with_files};
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;

const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";

/// A pool with a config, one without, and a serving certificate with its pointer config.
fn filled(cluster: &Cluster, server: &Server) {
    let configs = format!("{GROUP}/machineconfigs");
    let mut config = machine_config("rendered", &with_files(&[]));
    config["spec"]["osImageURL"] = "".into();
    cluster.create(&configs, &config);
    let pools = format!("{GROUP}/machineconfigpools");
    for (name, configuration) in [("worker", "rendered"), ("infra", "rendered-infra")] {
        let mut pool = pool(name, configuration);
        pool["spec"]["machineConfigSelector"] = json!({});
        cluster.create(&pools, &pool);
    }
    let encoded = |name: &str| BASE64.encode(fs::read(server.state().join(name)).expect("a file"));
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let serving = json!({
        "metadata": {"name": "machine-config-server-tls"}, "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded("tls.crt"), "tls.key": encoded("tls.key")},
    });
    cluster.create(&secrets, &serving);
    let bundle = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": String::from_utf8(server.ca()).expect("text")},
    });
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &bundle);
    let user_data = json!({
        "metadata": {"name": "worker-user-data"},
        "data": {"userData": BASE64.encode(server.pointer("worker"))},
    });
    cluster.create("/api/v1/namespaces/openshift-machine-api/secrets", &user_data);
}

#[test]
fn the_pools_certificates_and_a_server_of_a_cluster_are_one_list() {
    let cluster = Cluster::openshift();
    let server = Server::sample_cluster(&[]);
    filled(&cluster, &server);
    let said = cluster.run(&["health", "--json"]);
    assert_eq!(said.status, 1, "{said:?}");
    assert_named(&said, "error", "rendered-infra", "correct the MachineConfigs");
    assert!(findings(&said, "pool worker").is_empty(), "{}", said.output);
    assert_named(&said, "warning", "servers of the cluster", "port-forward");
    assert_eq!(said.json()["checked"]["pools"], 2, "{}", said.output);
    // A certificate without its CA.
    assert_named(&said, "error", "machine-config-server-ca", "start the server");

    let from = server.metrics().address().to_string();
    let said = cluster.run(&["health", "--json", "--from", &from]);
    assert!(findings(&said, "servers of the cluster").is_empty(), "{}", said.output);
    assert!(!findings(&said, "pool edge").is_empty(), "the server reports it: {}", said.output);
    // Machines' network is not this one.
    drop(server);
    let said = cluster.run(&["health", "--json", "--from", &from]);
    assert_named(&said, "warning", "is not reached from here", "start the server");
    assert_named(&said, "error", "nothing listens there", "--from");
}

#[test]
fn a_right_that_is_missing_is_named_and_the_rest_is_judged() {
    let cluster = Cluster::openshift();
    let server = Server::sample_cluster(&[]);
    filled(&cluster, &server);
    // It may read the pools, and no key of a CA.
    let kubeconfig = cluster.account_kubeconfig(cluster.address());
    let mut command = binary();
    command.args(["health", "--json", "--kubeconfig"]).arg(kubeconfig);
    let said = Said::by(&mut command);
    assert_eq!((said.status, &*said.error), (1, ""), "{said:?}");
    let fix = "give this account the right that the reason names";
    let found = findings(&said, "cannot get resource");
    assert!(!found.is_empty(), "{}", said.output);
    for one in found {
        assert!(one["fix"].as_str().expect("text").contains(fix), "{one}");
    }
    assert_named(&said, "error", "rendered-infra", "correct the MachineConfigs");
}

#[test]
fn an_api_server_that_is_down_is_one_finding() {
    let mut cluster = Cluster::openshift();
    cluster.kill_api_server();
    let since = Stopwatch::start();
    let said = cluster.run(&["health", "--json"]);
    assert_eq!((said.status, &*said.error), (1, ""), "{said:?}");
    let report = said.json();
    assert_eq!((&report["errors"], &report["warnings"]), (&json!(1), &json!(1)), "{report}");
    assert_named(&said, "error", "cannot be read", "check the kubeconfig");
    since.within(Duration::from_secs(30), "the command");
}
