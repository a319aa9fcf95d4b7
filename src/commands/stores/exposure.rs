//! Finds secrets that unauthenticated clients can read in configs, and fields without effect, for `certs check`.

use std::collections::BTreeSet;
use std::path::Path;

use ignition::SpecVersion;
use kube::Client;
use kube::api::DynamicObject;
use kubernetes::ObjectName;
use kubernetes::apply::{list_custom, read_custom};
use model::inputs::{Inputs, ServingMode, served_configuration};
use model::objects::MachineConfigPool;
use model::render::{exposed, exposed_line};
use secrets::in_arguments;

use crate::commands::rendering::{read_manifests, rendered};
use crate::source::Butane;
use crate::source::manifest::config_warnings;

#[derive(Debug, Default)]
pub(crate) struct ConfigFindings {
    /// One line for each pool that is not enforced and has a secret in its config.
    pub(in crate::commands) exposed: Vec<String>,
    /// One line for each field without effect.
    pub(in crate::commands) ignored: Vec<String>,
}

/// Checks the configs of a directory. Rendering errors are reported elsewhere.
pub(in crate::commands) fn of_manifests(
    root: &Path,
    enforced: &BTreeSet<String>,
) -> anyhow::Result<ConfigFindings> {
    Ok(of_inputs(&read_manifests(root.to_owned(), Butane::default(), false)?, enforced))
}

/// Checks the configs of inputs.
pub(in crate::commands) fn of_inputs(
    inputs: &Inputs,
    enforced: &BTreeSet<String>,
) -> ConfigFindings {
    let open = inputs.pools.keys().filter(|pool| !enforced.contains(*pool));
    let exposed = open.filter_map(|pool| {
        let config = rendered(inputs, pool, SpecVersion::NEWEST).ok()?;
        exposed_line(pool, &exposed(&config).ok()?)
    });
    ConfigFindings {
        exposed: exposed.collect(),
        ignored: inputs.warnings.iter().map(ToString::to_string).collect(),
    }
}

/// Checks the configs of a cluster, by the MachineConfigs of its pools. Files that servers add, such as the bootstrap
/// kubeconfig, are in every config.
pub(in crate::commands) async fn of_cluster(
    client: &Client,
    enforced: &BTreeSet<String>,
) -> anyhow::Result<ConfigFindings> {
    let mut config_findings = ConfigFindings::default();
    let mut seen = BTreeSet::new();
    for (pool, found) in served_configs(client).await? {
        // The server reports a missing one.
        let Some(found) = found else { continue };
        let configuration = served_configuration(ServingMode::Cluster, &pool);
        let config = serde_json::to_string(&found.data["spec"]["config"])?;
        if seen.insert(configuration.to_owned()) {
            let ignored = config_warnings(&config).into_iter();
            config_findings
                .ignored
                .extend(ignored.map(|it| format!("MachineConfig {configuration}: {it}")));
        }
        if enforced.contains(pool.name()) {
            continue;
        }
        let arguments: Vec<String> =
            serde_json::from_value(found.data["spec"]["kernelArguments"].clone())
                .unwrap_or_default();
        let mut secrets = exposed(config.as_bytes()).unwrap_or_default();
        secrets.extend(in_arguments(&arguments));
        config_findings.exposed.extend(exposed_line(pool.name(), &secrets));
    }
    Ok(config_findings)
}

/// The pools of a cluster, each with the MachineConfig that it serves, if that exists.
pub(in crate::commands) async fn served_configs(
    client: &Client,
) -> anyhow::Result<Vec<(MachineConfigPool, Option<DynamicObject>)>> {
    let all = ObjectName::pool("*");
    let pools: Vec<DynamicObject> = list_custom(client, &all).await?;
    let mut served = Vec::new();
    for pool in pools {
        let pool: MachineConfigPool = serde_json::from_value(serde_json::to_value(pool)?)?;
        let configuration = served_configuration(ServingMode::Cluster, &pool);
        let object = ObjectName::machine_config(configuration);
        let found = match configuration {
            "" => None,
            _ => read_custom(client, &object).await?,
        };
        served.push((pool, found));
    }
    Ok(served)
}
