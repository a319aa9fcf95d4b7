//! What the controller's account may do.

use super::{ControlledCluster, USER_DATA_NAMESPACE};
use crate::support::cluster::NAMESPACE;

#[test]
fn the_controllers_account_may_do_its_work_and_nothing_else() {
    let site = ControlledCluster::new();
    let own = "/secrets/machine-config-server-tls";
    let objects: [(&str, &str, &[&str]); 21] = [
        (own, NAMESPACE, &["get", "list", "watch", "create", "patch", "delete"]),
        (
            "/secrets/machine-config-server-ca",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/internal-release-image-tls",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/machine-config-server-access",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/machine-config-server-tokens",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        // A name that is yet to be made cannot be told in a rule.
        ("/secrets/other", NAMESPACE, &["create"]),
        ("/secrets", NAMESPACE, &["create"]),
        ("/secrets", "kube-system", &[]),
        ("/secrets", USER_DATA_NAMESPACE, &["list", "watch", "create", "patch"]),
        ("/configmaps/root-ca", "kube-system", &["get", "list", "watch"]),
        ("/configmaps", "kube-system", &[]),
        ("/pods", NAMESPACE, &[]),
        ("/nodes", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigs", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigpools", "", &["list", "watch"]),
        (
            "machineconfiguration.openshift.io/internalreleaseimages/cluster",
            "",
            &["get", "list", "watch"],
        ),
        ("machineconfiguration.openshift.io/internalreleaseimages", "", &[]),
        ("config.openshift.io/pkis/cluster", "", &["get", "list", "watch"]),
        ("config.openshift.io/pkis", "", &[]),
        ("aro.openshift.io/clusters/cluster", "", &["get"]),
        ("rbac.authorization.k8s.io/roles", NAMESPACE, &[]),
    ];
    for (object, namespace, allowed) in objects {
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "bind"] {
            let expected = allowed.contains(&verb);
            assert_eq!(
                site.may(verb, object, namespace),
                expected,
                "{verb} {object} in {namespace:?}"
            );
        }
    }
}
