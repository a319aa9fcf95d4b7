//! Pools and their configs: followed through their life, also when they cannot be decoded or their definition goes.

use std::fs;

use serde_json::{Value, json};

use super::{GROUP, ServedCluster, healthy, machine_config, pointer, write_definition};
use crate::support::cluster::{ACCOUNT, controller_config};
use crate::support::contract::{config, is_served, marker, marker_soon, served_soon};
use crate::support::machine::Machine;
use crate::support::manifests::pool;
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::server::binary;
use crate::support::wait_until;

#[test]
fn a_machine_boots_and_its_pool_is_followed_through_its_life() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();

    let machine = Machine::new();
    machine.boot(&pointer(&server, &site.pair, "worker"));
    let on_disk = |path: &str| fs::read_to_string(machine.root().join(path)).expect("a file");
    assert_eq!(on_disk("etc/marker"), "one");
    assert_eq!(on_disk("etc/kubernetes/kubelet-ca.crt"), "kubelet CA");
    let encapsulated: Value =
        serde_json::from_str(&on_disk("etc/ignition-machine-config-encapsulated.json"))
            .expect("JSON");
    assert_eq!(encapsulated["metadata"]["name"], "rendered-1");
    assert_eq!(encapsulated["kind"], "MachineConfig");

    // A new config is served once a machine runs it.
    site.machine_config("rendered-2", "two");
    let pool = format!("{POOLS}/worker");
    site.cluster.patch(&pool, &json!({"spec": {"configuration": {"name": "rendered-2"}}}));
    site.cluster.patch(&pool, &json!({"spec": {"paused": true}}));
    site.machine_config("other", "seen");
    site.pool("other", "other");
    marker_soon(&server, "other", Ok("seen"));
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()), "it is not proven yet");
    site.cluster.patch(&pool, &json!({"spec": {"paused": false}}));
    site.status("worker", "rendered-1", 1);
    marker_soon(&server, "worker", Ok("two"));

    // A config that changes in place, as none does that was rendered.
    let files = machine_config("rendered-2", "two-again", 0)["spec"].clone();
    site.cluster.patch(&format!("{CONFIGS}/rendered-2"), &json!({"spec": files}));
    marker_soon(&server, "worker", Ok("two-again"));

    // The ControllerConfig's authorities reach a pool that nobody renders anew.
    let cas = controller_config("another CA")["spec"]["kubeAPIServerServingCAData"].clone();
    site.cluster.patch(
        &format!("{GROUP}/controllerconfigs/machine-config-controller"),
        &json!({"spec": {"kubeAPIServerServingCAData": cas}}),
    );
    served_soon(&server, "worker", "/etc/kubernetes/kubelet-ca.crt", Ok("another CA"));

    // What the pool refers to gets lost: the last good config stays, and readiness says so.
    site.cluster.delete(&format!("{CONFIGS}/rendered-2"));
    server.reported("pool worker: MachineConfig rendered-2 not found");
    assert_eq!(server.readiness().0, 503);
    assert_eq!(marker(&server, "worker"), Ok("two-again".to_owned()));
    site.machine_config("rendered-2", "two-made-again");
    marker_soon(&server, "worker", Ok("two-made-again"));
    healthy(&server);

    // The pool itself goes and comes back.
    site.cluster.delete(&pool);
    marker_soon(&server, "worker", Err(503));
    site.pool("worker", "rendered-1");
    marker_soon(&server, "worker", Ok("one"));
    healthy(&server);
}

#[test]
fn what_cannot_be_decoded_leaves_the_last_good_one_and_is_named_once() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));

    // Kinds that take any object have no definition that would keep bad ones out.
    for kind in ["MachineConfigPool", "MachineConfig"] {
        let definition = write_definition(&site, kind, "machineconfiguration.openshift.io");
        site.cluster.kubectl(&["replace", "-f", &definition]);
    }
    let config = format!("{CONFIGS}/rendered-1");
    let broken = json!({"spec": {"fips": "perhaps"}});
    // A definition takes a moment to be in force.
    wait_until("the lenient definition", || {
        let kind = "application/merge-patch+json";
        site.cluster.request("PATCH", &config, kind, &broken).status == 200
    });
    let line = server.reported("MachineConfig rendered-1: ");
    assert!(line.contains("perhaps"), "{line}");
    assert_eq!(server.readiness().0, 503);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    assert!(server.metric("mcs_input_problems") > 0.0);

    let wrong = json!({"status": {"updatedMachineCount": "some"}});
    wait_until("the lenient definition", || {
        let kind = "application/merge-patch+json";
        let path = format!("{POOLS}/worker");
        site.cluster.request("PATCH", &path, kind, &wrong).status == 200
    });
    server.reported("MachineConfigPool worker: ");
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));

    site.cluster.patch(&config, &json!({"spec": {"fips": false}}));
    let sound = json!({"status": {"updatedMachineCount": 0}});
    site.cluster.patch(&format!("{POOLS}/worker"), &sound);
    healthy(&server);
    let log = server.log();
    for name in ["\"MachineConfig rendered-1\"", "\"MachineConfigPool worker\""] {
        let lines = log.lines().filter(|l| l.contains("ERROR") && l.contains(name));
        assert_eq!(lines.count(), 1, "{name}: {log}");
    }
}

#[test]
fn a_definition_that_is_deleted_and_made_again_is_survived() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    let name = "machineconfigpools.machineconfiguration.openshift.io";
    site.cluster.delete(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"));
    wait_until("the pools to be gone", || marker(&server, "worker") == Err(503));
    server.reported("machineconfigpools: cannot be watched");
    let definition =
        write_definition(&site, "MachineConfigPool", "machineconfiguration.openshift.io");
    // The old one's end takes a moment.
    wait_until("the old definition's end", || {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        site.cluster.request("GET", &path, "application/json", &json!({})).status == 404
    });
    site.cluster.apply(&["-f", &definition]);
    site.cluster.kubectl(&["wait", "--for=condition=Established", &format!("crd/{name}")]);
    site.cluster.create(POOLS, &pool("worker", "rendered-1"));
    is_served(&server, "worker", "one");
    healthy(&server);
}

#[test]
fn what_is_rendered_without_a_server_is_what_one_serves() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    let render = |pool: &str, flags: &[&str]| {
        let mut command = binary();
        command.args(["render", pool, "--kubeconfig"]);
        command.arg(site.cluster.account_kubeconfig(site.cluster.address()));
        command.args(["--apiserver-url", "https://api-int.example.com:6443"]);
        command.arg("--bootstrap-token-dir").arg(site.token()).args(flags);
        command.output().expect("the built binary")
    };
    let rendered = render("worker", &["--spec", "3.4"]);
    let text = String::from_utf8_lossy(&rendered.stderr);
    assert!(rendered.status.success(), "{text}");
    let body = config(&server.plain(), "worker", "3.4.0").body;
    assert_eq!(rendered.stdout.strip_suffix(b"\n"), Some(&body[..]));

    let unknown = render("nobody", &[]);
    assert_eq!((unknown.status.code(), &unknown.stdout[..]), (Some(1), &b""[..]));
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(text.contains("no pool has the name nobody; known pools: worker"), "{text}");
}

#[test]
fn a_pool_that_a_machine_asks_for_is_served_before_all_is_read() {
    let site = ServedCluster::with_worker();
    site.machine_config("rendered-2", "two");
    site.pool("edge", "rendered-2");
    // Without this right a server never knows all MachineConfigs.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/machine-config-server";
    let mut rules = site.cluster.get(role).expect("the role")["rules"].clone();
    let of_configs = |rule: &&mut Value| rule["resources"] == json!(["machineconfigs"]);
    let found = rules.as_array_mut().expect("rules").iter_mut().find(of_configs);
    found.expect("a rule of MachineConfigs")["verbs"] = json!(["get"]);
    site.cluster.patch(role, &json!({"rules": rules}));
    wait_until("the role to count", || {
        let configs = "machineconfiguration.openshift.io/machineconfigs";
        !site.cluster.may(ACCOUNT, "list", configs, "")
    });
    let server = site.start(&[]);
    let ask = |pool: &str| config(&server.plain(), pool, "3.4.0");
    wait_until("its pool", || ask("edge").status == 200);
    assert_eq!(marker(&server, "edge"), Ok("two".to_owned()));
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));

    // What is not known may still come, and balancers wait until all is.
    let unknown = ask("other");
    let reason = "the inputs have not been read yet";
    assert_eq!((unknown.status, unknown.text()), (503, format!("pool other: {reason}\n")));
    assert_eq!(server.plain().get("/readyz/serving").status, 503);
    let (status, text) = server.readiness();
    assert!(status == 503 && text.contains(reason), "{text}");
    assert!(text.contains("machineconfigs: cannot be watched: "), "{text}");
}
