//! Pools of a cluster, and their rendered configs.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::manifests::machine_config;

pub(crate) const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
pub(crate) const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

/// Creates an empty config of this name.
pub(crate) fn create_empty(cluster: &Cluster, name: &str) {
    let config = machine_config(name, &json!({"ignition": {"version": "3.4.0"}}));
    cluster.create(CONFIGS, &config);
}

/// Creates a pool with a rendered config that no machine has yet.
pub(crate) fn create_pool(cluster: &Cluster, name: &str, spec: &Value, rendered: &str) {
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": spec,
    });
    cluster.create(POOLS, &pool);
    let status = json!({"status": {"configuration": {"name": rendered}}});
    cluster.patch(&format!("{POOLS}/{name}/status"), &status);
}
