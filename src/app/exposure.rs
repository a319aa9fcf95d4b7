//! What strangers can read in the configs of a cluster or a directory, for `certs check`.

use std::collections::BTreeSet;
use std::path::Path;

use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};

use super::rendering::{read_manifests, rendered};
use crate::ignition::SpecVersion;
use crate::ignition::secrets::in_arguments;
use crate::inputs::{Mode, served_configuration};
use crate::kube_client::{found, listed};
use crate::objects::MachineConfigPool;
use crate::render::{exposed, exposed_line};

/// One line for each pool of a directory that is not enforced and has something secret in its config.
/// What cannot be rendered is told elsewhere.
pub(super) fn of_manifests(
    root: &Path,
    enforced: &BTreeSet<String>,
) -> anyhow::Result<Vec<String>> {
    let inputs = read_manifests(root.to_owned(), false)?;
    let open = inputs.pools.keys().filter(|pool| !enforced.contains(*pool));
    Ok(open
        .filter_map(|pool| {
            let config = rendered(&inputs, pool, SpecVersion::NEWEST).ok()?;
            exposed_line(pool, &exposed(&config).ok()?)
        })
        .collect())
}

/// The same for a cluster, by the machine configs alone: what servers add, such as the kubeconfig that
/// machines join with, is in every config.
pub(super) async fn of_cluster(
    client: Client,
    enforced: &BTreeSet<String>,
) -> anyhow::Result<Vec<String>> {
    let kind = |kind| {
        let kind = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    };
    let (pools, configs) = (kind("MachineConfigPool"), kind("MachineConfig"));
    let mut lines = Vec::new();
    for pool in listed(pools.list(&ListParams::default()).await)? {
        let pool: MachineConfigPool = serde_json::from_value(serde_json::to_value(pool)?)?;
        let configuration = served_configuration(Mode::Cluster, &pool);
        if enforced.contains(pool.name()) || configuration.is_empty() {
            continue;
        }
        // One that is gone is told by the server.
        let Some(found) = found(configs.get(configuration).await)? else { continue };
        let config = serde_json::to_vec(&found.data["spec"]["config"])?;
        let arguments: Vec<String> =
            serde_json::from_value(found.data["spec"]["kernelArguments"].clone())
                .unwrap_or_default();
        let mut secrets = exposed(&config).unwrap_or_default();
        secrets.extend(in_arguments(&arguments));
        lines.extend(exposed_line(pool.name(), &secrets));
    }
    Ok(lines)
}
