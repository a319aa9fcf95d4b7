//! Approval by an annotation of the pool, which all servers follow.

use std::path::Path;

use serde_json::{Value, json};

use super::ServedCluster;
use crate::support::access::get;
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::http::loopback;
use crate::support::manifests::first_boot_machine;
use crate::support::rendered::POOLS;
use crate::support::server::{Server, binary};
use crate::support::{wait_for, wait_until};

fn status(server: &Server, last: u8) -> u16 {
    get(&server.plain().from(loopback(last)), "worker", None).status
}

fn until(wanted: u16, server: &Server, last: u8) {
    wait_until("the answer", || status(server, last) == wanted);
}

#[test]
fn an_approval_counts_at_all_servers_for_one_machine_until_it_ends() {
    let site = ServedCluster::with_worker();
    let pool = format!("{POOLS}/worker");
    let annotate = |key: &str, value: &str| {
        site.cluster.patch(&pool, &json!({"metadata": {"annotations": {key: value}}}));
    };
    annotate("machine-config-server.io/approval", "required");
    let other = site.start(&[]).until_ready();
    let peers = other.metrics().address().to_string();
    let server = site.start(&["--peers", &peers]).until_ready();
    for (server, last) in [(&server, 2), (&other, 2), (&other, 3)] {
        assert_eq!(status(server, last), 503);
    }
    let waiting = wait_for("who waits at both", || {
        let overview = server.overview();
        let list = overview["waiting_machines"].as_array().expect("a list").clone();
        (list.len() == 2).then_some(list)
    });
    assert_eq!(
        (&waiting[0]["address"], &waiting[1]["address"]),
        (&json!("127.0.0.2"), &json!("127.0.0.3"))
    );
    // One that ended long ago goes when there is another.
    let old = "approved.machine-config-server.io/192.0.2.1";
    annotate(old, "2026-01-01T00:00:00Z");
    let approve = |arguments: &[&str]| {
        let from = server.metrics().address().to_string();
        let mut command = binary();
        command.args(["machines", "approve", "--from", &from, "--kubeconfig"]);
        command.arg(site.cluster.admin()).args(arguments);
        command.output().expect("the built binary")
    };
    // A server that is asked for its ledger may be too slow once.
    wait_until("an approval", || approve(&["127.0.0.3"]).status.success());
    for server in [&server, &other] {
        until(200, server, 3);
        assert_eq!(status(server, 2), 503);
    }
    let annotations = site.cluster.get(&pool).expect("the pool")["metadata"]["annotations"].clone();
    assert!(annotations[old].is_null(), "{annotations}");
    let given = "approved.machine-config-server.io/127.0.0.3";
    assert!(annotations[given].is_string(), "{annotations}");
    let refused = approve(&["127.0.0.2", "--pool", "nothing"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("MachineConfigPool nothing"), "{said}");
    let ipv6 = approve(&["2001:db8::1", "--pool", "worker"]);
    assert!(ipv6.status.success(), "{}", String::from_utf8_lossy(&ipv6.stderr));
    // A server that starts now knows it too, and one whose grant has ended does not.
    drop(other);
    let third = site.start(&[]).until_ready();
    assert_eq!((status(&third, 3), status(&third, 2)), (200, 503));
    annotate(given, "2026-01-01T00:00:00Z");
    until(503, &third, 3);
}

/// A service account with the rights of the ClusterRole of its name.
fn bound(cluster: &Cluster, account: &str) -> std::path::PathBuf {
    let metadata = json!({"name": account, "namespace": NAMESPACE});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    cluster.create(&path, &json!({"metadata": metadata}));
    let (role, account_of) =
        (format!("--clusterrole={account}"), format!("--serviceaccount={NAMESPACE}:{account}"));
    cluster.kubectl(&["create", "clusterrolebinding", account, &role, &account_of]);
    let pools = "machineconfiguration.openshift.io/machineconfigpools";
    wait_until("the binding to count", || cluster.may(account, "patch", pools, ""));
    cluster.kubeconfig_of(account, NAMESPACE, cluster.address())
}

/// An editor of pools and machines, and a machine that needs approval.
fn with_policy(cluster: &Cluster) -> [std::path::PathBuf; 2] {
    for component in ["first-boot-machines", "approval"] {
        let component = format!("deploy/components/{component}");
        cluster.apply_overlay("deploy/openshift", &[&component]);
        cluster.serves_all_kinds();
    }
    let editor = json!({
        "metadata": {"name": "editor"},
        "rules": [{
            "apiGroups": ["machineconfiguration.openshift.io", "machine-config-server.io"],
            "resources": ["machineconfigpools", "firstbootmachines"],
            "verbs": ["get", "patch", "create"],
        }],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &editor);
    ["editor", "machine-config-server-approver"].map(|name| bound(cluster, name))
}

fn the_right_can_be_of_one_pool(cluster: &Cluster) {
    let right = |resource: &str, verbs: Value, names: Value| {
        json!({"apiGroups": ["machineconfiguration.openshift.io"], "resources": [resource],
               "verbs": verbs, "resourceNames": names})
    };
    let role = json!({
        "metadata": {"name": "of-worker"},
        "rules": [right("machineconfigpools", json!(["get", "patch"]), json!([])),
                  right("machineconfigpools/approval", json!(["update"]), json!(["worker"]))],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    let by = bound(cluster, "of-worker");
    cluster.create(
        POOLS,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "edge"}, "spec": {},
        }),
    );
    let approve = |pool: &str| {
        let annotation = "approved.machine-config-server.io/192.0.2.9=2026-11-25T12:00:00Z";
        let annotate = ["annotate", "machineconfigpool", pool, annotation];
        cluster.kubectl_by(&by, &annotate, &Value::Null)
    };
    approve("worker").expect("the right");
    let said = approve("edge").expect_err("a refusal");
    assert!(said.contains("machineconfigpools/approval"), "{said}");
}

#[test]
fn with_the_policy_approvers_need_the_approval_right() {
    let site = ServedCluster::with_worker();
    let cluster = &site.cluster;
    let [editor, approver] = with_policy(cluster);
    let mut machine =
        first_boot_machine("rack-7", &json!({"pool": "worker", "approval": "required"}));
    machine["metadata"]["namespace"] = json!(NAMESPACE);
    let create = ["create", "-f", "-"];
    cluster.kubectl_by(&editor, &create, &machine).expect("a right to create");
    let objects = [
        ("machineconfigpool/worker", "approved.machine-config-server.io/192.0.2.7", "pools"),
        ("firstbootmachine/rack-7", "machine-config-server.io/approved", "machines"),
    ];
    let patch = |by: &Path, object: &str, change: &Value| {
        let change = change.to_string();
        let patch = ["-n", NAMESPACE, "patch", object, "--type=merge", "-p", &change];
        cluster.kubectl_by(by, &patch, &Value::Null)
    };
    let annotated = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let mut minute = 0;
    for (object, key, kind) in objects {
        let said = wait_for("the policy to be in force", || {
            minute += 1;
            let time = format!("2026-11-25T12:{minute:02}:00Z");
            patch(&editor, object, &annotated(key, json!(time))).err()
        });
        assert!(said.contains("needs the right to update") && said.contains(kind), "{said}");
        // Everything else is as before, also taking an approval back.
        patch(&editor, object, &annotated("other", json!("a"))).expect("no approval");
        patch(&approver, object, &annotated(key, json!("2026-11-25T14:00:00Z")))
            .expect("the right");
        patch(&editor, object, &annotated("other", json!("b"))).expect("the approval stays");
        patch(&editor, object, &annotated(key, Value::Null)).expect("less than before");
    }
    the_right_can_be_of_one_pool(cluster);
    let required = |value: &str| annotated("machine-config-server.io/approval", json!(value));
    patch(&editor, objects[0].0, &required("required")).expect("more than before");
    patch(&editor, objects[0].0, &required("off")).expect_err("a refusal");
    patch(&editor, objects[1].0, &json!({"spec": {"approval": null}})).expect_err("a refusal");
    patch(&approver, objects[0].0, &required("off")).expect("the right");
    let mut other = machine;
    other["metadata"]["name"] = json!("rack-8");
    other["metadata"]["annotations"] =
        json!({"machine-config-server.io/approved": "2026-11-25T12:00:00Z"});
    cluster.kubectl_by(&editor, &create, &other).expect_err("a refusal");

    // The command needs the ClusterRole and nothing else.
    let run = |by: &Path, machine: &str| {
        let mut command = binary();
        command.args(["machines", "approve", machine, "--kubeconfig"]).arg(by);
        command.args(if machine.contains('.') { &["--pool", "worker"][..] } else { &[] });
        command.output().expect("the built binary")
    };
    for machine in ["192.0.2.7", "rack-7"] {
        let refused = run(&editor, machine);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("needs the right to update"), "{said}");
        let given = run(&approver, machine);
        assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
    }
}
