//! What is made in the cluster: pools, a rendered MachineConfig for each, as many that pools get
//! later, and others that no pool ever names.
//!
//! Most rendered ones come to a few KB or some tens of them, so that etcd holds them easily; one is as
//! large as a real cluster's, 440 KB.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::manifests::{FILES, LINES_A_FILE, made_machine_config};

/// Requests that are under way at the same time.
const CONCURRENCY: usize = 32;

const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";

/// How many of each there are.
#[derive(Clone, Copy)]
pub(crate) struct Amounts {
    pub(crate) pools: u32,
    pub(crate) changes: u32,
    /// With those that pools name, now or later.
    pub(crate) machine_configs: u32,
}

/// A pool's name.
pub(crate) fn pool(index: u32) -> String {
    format!("pool-{index:04}")
}

/// The name of the MachineConfig that a pool begins with.
fn rendered(index: u32) -> String {
    format!("rendered-pool-{index:04}")
}

/// The name of the MachineConfig that a pool gets by a change.
pub(crate) fn changed(change: u32) -> String {
    format!("rendered-change-{change:04}")
}

/// Where a pool is.
pub(crate) fn pool_path(index: u32) -> String {
    format!("{GROUP}/machineconfigpools/{}", pool(index))
}

/// Makes all of them.
pub(crate) async fn make(cluster: &Cluster, amounts: Amounts) -> Result<()> {
    ensure!(amounts.changes < amounts.pools, "fewer pools than changes, and one that stays");
    let named = amounts.pools + amounts.changes;
    let ordinary = amounts.machine_configs.checked_sub(named);
    let ordinary = ordinary.with_context(|| format!("pools name {named} MachineConfigs"))?;
    cluster.create(&format!("{GROUP}/controllerconfigs"), &controller_config()).await?;

    let of_pools = (0..amounts.pools).map(|index| sized_config(&rendered(index), index));
    let of_changes = (0..amounts.changes).map(|index| sized_config(&changed(index), index + 1));
    let others = (0..ordinary).map(|index| {
        // A few lines, as an administrator writes them.
        made_machine_config(&format!("99-ordinary-{index:05}"), 1, 4)
    });
    let path = &format!("{GROUP}/machineconfigs");
    stream::iter(of_pools.chain(of_changes).chain(others))
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, async |config| cluster.create(path, &config).await)
        .await?;
    stream::iter(0..amounts.pools)
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, async |index| make_pool(cluster, index).await)
        .await
}

async fn make_pool(cluster: &Cluster, index: u32) -> Result<()> {
    let configuration = json!({"name": rendered(index)});
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": pool(index)},
        "spec": {"configuration": configuration},
    });
    cluster.create(&format!("{GROUP}/machineconfigpools"), &pool).await?;
    // A pool with machines: new ones get what its spec names.
    let status = json!({"status": {
        "configuration": configuration, "machineCount": 10, "updatedMachineCount": 10,
    }});
    cluster.patch(&format!("{}/status", pool_path(index)), &status).await
}

/// The first is as large as a real cluster's; the others come to between 2 and 56 KB.
fn sized_config(name: &str, index: u32) -> Value {
    if index == 0 {
        return made_machine_config(name, FILES, LINES_A_FILE);
    }
    // It widens.
    let index = index as usize;
    made_machine_config(name, 1 + index % 5, 8 + index * 7 % 40)
}

/// The certificate authority that every machine gets for kubelet, at first and after a change.
const SHARED: &str = "kubelet-CA-before";
pub(crate) const SHARED_CHANGE: &str = "kubelet-CA-after";

const CONTROLLER_CONFIG: &str = "machine-config-controller";

fn controller_config() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ControllerConfig",
        "metadata": {"name": CONTROLLER_CONFIG},
        "spec": {
            "clusterDNSIP": "10.3.0.10",
            "kubeAPIServerServingCAData": BASE64.encode(SHARED),
        },
    })
}

/// Has every machine get another certificate authority.
pub(crate) async fn change_shared(cluster: &Cluster) -> Result<()> {
    let change = json!({"spec": {"kubeAPIServerServingCAData": BASE64.encode(SHARED_CHANGE)}});
    cluster.patch(&format!("{GROUP}/controllerconfigs/{CONTROLLER_CONFIG}"), &change).await
}
