//! Pools whose kernel arguments Ignition sets.

use serde_json::{Value, json};

use super::{RenderingCluster, machine_config, told, untold};
use crate::support::contract::config;
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::server::Server;
use crate::support::wait_until;

const ANNOTATION: &str = "machine-config-server.io/kernel-arguments";

impl RenderingCluster {
    fn annotate(&self, value: &Value) {
        let annotation = json!({"metadata": {"annotations": {ANNOTATION: value}}});
        self.cluster().patch(&format!("{POOLS}/worker"), &annotation);
    }
}

/// Kernel arguments for Ignition in the config that is served.
fn of_ignition(server: &Server) -> Value {
    config(&server.plain(), "worker", "3.4.0").json()["kernelArguments"]["shouldExist"].clone()
}

#[test]
fn the_annotation_of_a_pool_renders_it_again_and_what_is_wrong_with_it_is_reported() {
    let site = RenderingCluster::new();
    let mut with_argument = machine_config("60-marker", "/etc/marker", "one");
    with_argument["spec"]["kernelArguments"] = json!(["quiet"]);
    site.cluster().create(CONFIGS, &with_argument);
    let controller = site.start(&[]);
    let by_daemon = site.renamed("");
    let server = site.server();
    let arguments =
        |name: &str| site.config(name).expect("it is there")["spec"]["kernelArguments"].clone();
    assert_eq!((arguments(&by_daemon), of_ignition(&server)), (json!(["quiet"]), Value::Null));

    site.annotate(&json!("ignition"));
    let by_ignition = site.renamed(&by_daemon);
    assert_eq!(arguments(&by_ignition), json!([]));
    wait_until("Ignition's", || of_ignition(&server) == json!(["quiet"]));

    site.annotate(&json!("kubelet"));
    let reason = "\"kubelet\": expected machine-config-daemon or ignition";
    told(&controller, &format!("MachineConfigPool worker: {ANNOTATION}: {reason}"));
    server.reported(reason);
    assert_eq!(site.named().as_ref(), Some(&by_ignition), "the last good one stays");

    // A paused pool keeps what the daemon is to set, so that the annotation has no effect.
    site.annotate(&Value::Null);
    assert_eq!(site.renamed(&by_ignition), by_daemon);
    untold(&controller, "MachineConfigPool worker");
    site.cluster().patch(&format!("{POOLS}/worker"), &json!({"spec": {"paused": true}}));
    site.annotate(&json!("ignition"));
    let unused =
        format!("{ANNOTATION}: no effect: MachineConfig {by_daemon} was not rendered by it");
    server.reported(&unused);
}
