//! What is deployed, and what the server's account may do.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ServedCluster;
use crate::support::cluster::{ACCOUNT, Cluster, MANAGED, NAMESPACE};
use crate::support::contract::marker;

const VERBS: [&str; 11] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "escalate",
    "bind",
];

/// What is asked of, where, and what may be done to it.
fn objects() -> Vec<(String, &'static str, &'static [&'static str])> {
    let group = "machineconfiguration.openshift.io";
    let registry = "openshift-image-registry";
    vec![
        (format!("{group}/machineconfigpools"), "", &["list", "watch"][..]),
        (format!("{group}/machineconfigs"), "", &["get", "list", "watch"]),
        (format!("{group}/machineosconfigs"), "", &["list", "watch"]),
        (format!("{group}/machineosbuilds"), "", &["list", "watch"]),
        (format!("{group}/controllerconfigs/machine-config-controller"), "", &["list", "watch"]),
        (format!("{group}/controllerconfigs/other"), "", &[]),
        (format!("{group}/controllerconfigs"), "", &[]),
        ("config.openshift.io/apiservers/cluster".to_owned(), "", &["list", "watch"]),
        ("config.openshift.io/apiservers/other".to_owned(), "", &[]),
        ("/configmaps/kubeconfig-data".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/configmaps/other".to_owned(), NAMESPACE, &[]),
        ("/configmaps/merged-trusted-image-registry-ca".to_owned(), MANAGED, &["list", "watch"]),
        ("/configmaps/image-registry-ca".to_owned(), MANAGED, &[]),
        ("/configmaps/merged-trusted-image-registry-ca".to_owned(), NAMESPACE, &[]),
        ("/configmaps".to_owned(), "kube-system", &[]),
        ("/services".to_owned(), registry, &["list", "watch"]),
        ("/services".to_owned(), "default", &[]),
        ("route.openshift.io/routes".to_owned(), registry, &["list", "watch"]),
        ("route.openshift.io/routes".to_owned(), "default", &[]),
        ("/secrets".to_owned(), NAMESPACE, &[]),
        ("/secrets/machine-config-server-access".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/secrets/machine-config-server-tls".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/secrets/machine-config-server-tokens".to_owned(), NAMESPACE, &[]),
        ("/secrets/machine-config-server-ca".to_owned(), NAMESPACE, &[]),
        ("/secrets/pull-secret".to_owned(), "openshift-config", &[]),
        ("/secrets".to_owned(), "kube-system", &[]),
        ("/pods".to_owned(), NAMESPACE, &[]),
        ("/nodes".to_owned(), "", &["list", "watch"]),
        ("/serviceaccounts".to_owned(), NAMESPACE, &[]),
        ("rbac.authorization.k8s.io/clusterroles".to_owned(), "", &[]),
        ("coordination.k8s.io/leases".to_owned(), NAMESPACE, &[]),
        ("/events".to_owned(), NAMESPACE, &[]),
    ]
}

#[test]
fn the_service_account_may_do_what_the_server_does_and_nothing_else() {
    let site = ServedCluster::new();
    for (object, namespace, allowed) in objects() {
        for verb in VERBS {
            let expected = allowed.contains(&verb);
            let may = site.cluster.may(ACCOUNT, verb, &object, namespace);
            assert_eq!(may, expected, "{verb} {object} in {namespace:?}");
        }
    }

    // The roles are all that the account is bound to, so that nothing hides beside the list. The
    // last one lets its pods use the host's network, on OpenShift.
    let bindings = site.cluster.kubectl(&[
        "get",
        "clusterrolebindings,rolebindings",
        "--all-namespaces",
        "-o",
        "json",
    ]);
    let bindings: Value = serde_json::from_str(&bindings).expect("JSON");
    let is_bound = |binding: &&Value| {
        binding["subjects"].as_array().is_some_and(|s| s.iter().any(|s| s["name"] == ACCOUNT))
    };
    let roles = bindings["items"].as_array().expect("items").iter().filter(is_bound);
    let roles: BTreeSet<&str> =
        roles.map(|binding| binding["roleRef"]["name"].as_str().expect("a name")).collect();
    assert_eq!(roles, [ACCOUNT, "machine-config-server-host-network"].into());
}

#[test]
fn what_is_to_be_deployed_is_taken_by_the_api_server() {
    // OpenShift's: with its own definitions, as part of every other test here.
    let openshift = Cluster::openshift();
    openshift.kubectl(&["get", "daemonset", ACCOUNT, "--namespace", NAMESPACE]);

    let cluster = Cluster::kubernetes();
    cluster.kubectl(&["get", "deployment", ACCOUNT, "--namespace", NAMESPACE]);
    let site = ServedCluster::of(cluster);
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
}
