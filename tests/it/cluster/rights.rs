//! What the accounts of server and controller may do, and what the documents say of it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::cluster::{ACCOUNT, Cluster, MANAGED, NAMESPACE};
use crate::support::manifests::yaml_documents;
use crate::support::{book, in_repository};

/// A right: the resource, the object's name or none, where, and the verb.
type Right = [String; 4];

/// The rows of the book, but those of other files, which say with what they go.
fn rights_in_the_book() -> BTreeSet<Right> {
    let page = book::page("reference/rights.md");
    let section = page.split("\n## The server\n").nth(1).expect("a section");
    let table = section.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = table.take_while(|line| line.starts_with('|')).filter(|row| row.starts_with("| `"));
    let quoted = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, place, verbs] = cells[..] else { panic!("{row}") };
        let mut resources = quoted(what);
        let name = if what.contains(", only ") { resources.pop() } else { None };
        for resource in resources {
            for verb in verbs.split(", ") {
                let place = quoted(place).pop().unwrap_or_default();
                let name = name.clone().unwrap_or_default();
                rights.insert([resource.clone(), name, place, verb.to_owned()]);
            }
        }
    }
    rights
}

#[test]
fn the_book_has_the_rights_that_the_roles_give() {
    let roles = fs::read_to_string(in_repository("deploy/base/rbac.yaml")).expect("the roles");
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|it| it.as_str().expect("text").to_owned()).collect()
    };
    let mut given = BTreeSet::new();
    for role in yaml_documents(&roles) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for resource in texts(&rule["resources"]) {
                for (name, verb) in names
                    .iter()
                    .flat_map(|name| texts(&rule["verbs"]).into_iter().map(move |it| (name, it)))
                {
                    given.insert([resource.clone(), name.clone(), place.to_owned(), verb]);
                }
            }
        }
    }
    assert_eq!(rights_in_the_book(), given);
}

/// What is asked of, where, and what may be done to it.
fn of_the_server() -> Vec<(String, &'static str, &'static [&'static str])> {
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
        ("certificates.k8s.io/certificatesigningrequests".to_owned(), "", &["list", "watch"]),
        ("/serviceaccounts".to_owned(), NAMESPACE, &[]),
        ("rbac.authorization.k8s.io/clusterroles".to_owned(), "", &[]),
        ("coordination.k8s.io/leases".to_owned(), NAMESPACE, &[]),
        ("/events".to_owned(), NAMESPACE, &[]),
    ]
}

#[test]
fn the_servers_account_may_do_its_work_and_nothing_else() {
    let cluster = Cluster::openshift();
    cluster.kubectl(&["get", "daemonset", ACCOUNT, "--namespace", NAMESPACE]);
    for (object, namespace, allowed) in of_the_server() {
        cluster.assert_may_only(ACCOUNT, &object, namespace, allowed);
    }

    // The roles are all that the account is bound to, so that nothing hides beside the list. The
    // last one lets its pods use the host's network, on OpenShift.
    let bindings = cluster.kubectl(&[
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
fn the_controllers_account_may_do_its_work_and_nothing_else() {
    let cluster = Cluster::openshift_with_controller();
    let read = &["get", "list", "watch"][..];
    let made = &["get", "list", "watch", "create", "patch"][..];
    let objects: [(&str, &str, &[&str]); 21] = [
        (
            "/secrets/machine-config-server-tls",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        ("/secrets/machine-config-server-ca", NAMESPACE, made),
        ("/secrets/internal-release-image-tls", NAMESPACE, made),
        ("/secrets/machine-config-server-access", NAMESPACE, made),
        ("/secrets/machine-config-server-tokens", NAMESPACE, made),
        // A name that is yet to be made cannot be told in a rule.
        ("/secrets/other", NAMESPACE, &["create"]),
        ("/secrets", NAMESPACE, &["create"]),
        ("/secrets", "kube-system", &[]),
        ("/secrets", "openshift-machine-api", &["list", "watch", "create", "patch"]),
        ("/configmaps/root-ca", "kube-system", read),
        ("/configmaps", "kube-system", &[]),
        ("/pods", NAMESPACE, &[]),
        ("/nodes", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigs", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigpools", "", &["list", "watch"]),
        ("machineconfiguration.openshift.io/internalreleaseimages/cluster", "", read),
        ("machineconfiguration.openshift.io/internalreleaseimages", "", &[]),
        ("config.openshift.io/pkis/cluster", "", read),
        ("config.openshift.io/pkis", "", &[]),
        ("aro.openshift.io/clusters/cluster", "", &["get"]),
        ("rbac.authorization.k8s.io/roles", NAMESPACE, &[]),
    ];
    for (object, namespace, allowed) in objects {
        cluster.assert_may_only("machine-config-server-controller", object, namespace, allowed);
    }
}
