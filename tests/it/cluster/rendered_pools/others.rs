//! Others who write the same objects: the machine config operator, administrators, a second controller.

use serde_json::{Value, json};

use super::{RenderingCluster, machine_config, told, untold};
use crate::support::cluster::NAMESPACE;
use crate::support::contract::{is_served, marker_soon};
use crate::support::manifests::ROLE;
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::{wait_for, wait_until};

const OPERATOR: &str = "machine-config-controller";

fn deployments() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
}

impl RenderingCluster {
    /// Makes the operator's Deployment. Nothing runs it here.
    fn install_operator(&self) {
        let labels = json!({"k8s-app": OPERATOR});
        let deployment = json!({
            "metadata": {"name": OPERATOR},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "controller", "image": "registry.example.com/mco"}]},
                },
            },
        });
        self.cluster().create(&deployments(), &deployment);
    }

    /// Sets the pool to a MachineConfig as the operator does that has updated no machine yet.
    fn render_as_operator(&self, name: &str, marker: &str) {
        let mut config = machine_config(name, "/etc/marker", marker);
        config["metadata"] = json!({"name": name, "annotations": {
            "machineconfiguration.openshift.io/generated-by-controller-version": "4c1f2e",
        }});
        self.cluster().create(CONFIGS, &config);
        self.set(name);
        self.set_status(name);
    }

    fn set_status(&self, name: &str) {
        let status = json!({"configuration": {"name": name}, "updatedMachineCount": 0});
        self.cluster().patch(&format!("{POOLS}/worker/status"), &json!({"status": status}));
    }

    fn status(&self) -> Value {
        self.worker()["status"]["configuration"]["name"].clone()
    }

    fn set(&self, name: &str) {
        let spec = json!({"spec": {"configuration": {"name": name}}});
        self.cluster().patch(&format!("{POOLS}/worker"), &spec);
    }
}

#[test]
fn the_operator_takes_the_pools_over_and_gives_them_back() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "one");
    site.install_operator();

    // It refuses to begin.
    let controller = site.start(&[]);
    let (status, lines) = told(&controller, "rendered pools: ");
    assert_eq!(status, 503, "{lines}");
    let reason = format!("Deployment {NAMESPACE}/{OPERATOR}");
    assert!(lines.contains(&reason) && lines.contains("--render-pools"), "{lines}");
    assert_eq!(site.named(), None);

    // Scaled down to nothing, it renders nothing.
    let server = site.server();
    let operator = format!("{}/{OPERATOR}", deployments());
    site.cluster().patch(&operator, &json!({"spec": {"replicas": 0}}));
    is_served(&server, "worker", "one");
    untold(&controller, "rendered pools");

    // It comes back, and all that it does stays.
    site.cluster().patch(&operator, &json!({"spec": {"replicas": 1}}));
    told(&controller, &reason);
    site.render_as_operator("rendered-worker-theirs", "theirs");
    site.change("60-marker", "/etc/marker", "two");
    is_served(&server, "worker", "theirs");
    assert_eq!(site.named().as_deref(), Some("rendered-worker-theirs"));

    site.cluster().delete(&operator);
    is_served(&server, "worker", "two");
    untold(&controller, "rendered pools");
    assert!(site.config("rendered-worker-theirs").is_some(), "it is not ours to delete");
    // Nobody else writes the status that servers go by.
    assert_eq!(site.status().as_str(), site.named().as_deref());
    site.change("60-marker", "/etc/marker", "three");
    marker_soon(&server, "worker", Ok("three"));

    // A client that writes it nevertheless is not fought.
    site.set_status("rendered-worker-theirs");
    told(&controller, "set status.configuration back to MachineConfig rendered-worker-theirs");
    assert_eq!(site.status(), "rendered-worker-theirs");
    let paused = |is_paused: bool| json!({"spec": {"paused": is_paused}});
    site.cluster().patch(&format!("{POOLS}/worker"), &paused(true));
    untold(&controller, "MachineConfigPool worker");
    assert_eq!(site.status(), "rendered-worker-theirs");
    site.cluster().patch(&format!("{POOLS}/worker"), &paused(false));
    marker_soon(&server, "worker", Ok("three"));
}

#[test]
fn what_administrators_set_by_hand_is_kept_or_put_right_and_a_second_renderer_is_not_fought() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "one");
    let controller = site.start(&[]);
    let first = site.renamed("");

    // One that is not there.
    site.set("rendered-worker-nothing");
    wait_until("the right one", || site.named().as_ref() == Some(&first));
    // One that was deleted.
    site.cluster().delete(&format!("{CONFIGS}/{first}"));
    wait_for("it to be made again", || site.config(&first));

    // One that an administrator made.
    let mut custom = machine_config("custom", "/etc/marker", "custom");
    custom["metadata"]["labels"] = json!({});
    site.cluster().create(CONFIGS, &custom);
    site.set("custom");
    told(
        &controller,
        "spec.configuration names MachineConfig custom, which no controller rendered",
    );
    assert_eq!(site.named().as_deref(), Some("custom"));
    let none = json!({"spec": {"configuration": null}});
    site.cluster().patch(&format!("{POOLS}/worker"), &none);
    wait_until("the right one", || site.named().as_ref() == Some(&first));
    untold(&controller, "MachineConfigPool worker");

    site.render_as_operator("rendered-worker-theirs", "theirs");
    let held = "another controller set spec.configuration to MachineConfig rendered-worker-theirs";
    told(&controller, held);
    site.change("60-marker", "/etc/marker", "two");
    site.pool("other");
    told(&controller, "MachineConfigPool other");
    assert_eq!(site.named().as_deref(), Some("rendered-worker-theirs"));
    site.cluster().patch(&format!("{POOLS}/worker"), &none);
    wait_for("ours", || site.named().filter(|name| *name != first));
    untold(&controller, held);
}

#[test]
fn controllers_that_are_killed_leave_a_pool_that_names_a_config_that_is_there() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "0");
    let server = site.server();
    for round in 0..6 {
        let (first, second) = (site.start(&[]), site.start(&[]));
        wait_until("an active one", || first.is_active() || second.is_active());
        for edit in 0..10 {
            site.change("60-marker", "/etc/marker", &format!("{round}-{edit}"));
            let config = json!({"metadata": {"labels": {ROLE: if edit % 2 == 0 { "other" } else { "worker" }}}});
            if round > 0 {
                site.cluster().patch(&format!("{CONFIGS}/61-other"), &config);
            } else if edit == 0 {
                site.machine_config("61-other", "/etc/other", "other");
            }
            if let Some(named) = site.named() {
                assert!(site.config(&named).is_some(), "{named} is not there");
            }
        }
        // Killed, both, somewhere in the middle. Nobody gives the Lease back.
        drop((first, second));
        let named = site.named();
        assert!(named.is_none_or(|named| site.config(&named).is_some()));
        site.cluster().drop_lease();
    }
    let _last = site.start(&[]);
    is_served(&server, "worker", "5-9");
    site.change("60-marker", "/etc/marker", "done");
    marker_soon(&server, "worker", Ok("done"));
}
