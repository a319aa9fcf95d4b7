//! Merges of many pools, on all processors.

use model::merged_pool::{
    ByLabels, MergedPools, ParsedMachineConfig, ParsedMachineConfigs, shared_sources,
};
use model::objects::{ControllerConfig, MachineConfigPool};

use super::parallel;

/// Merges those of `pools` that select other or changed `machine_configs`. What several of them select is parsed once;
/// nothing parsed outlives the call, because it needs more memory than the text.
pub fn update<'a>(
    merged: &mut MergedPools,
    pools: impl IntoIterator<Item = &'a MachineConfigPool>,
    machine_configs: &ByLabels,
    controller_config: Option<&ControllerConfig>,
) {
    let due = merged.update(pools, machine_configs, controller_config);
    let shared = shared_sources(&due);
    let parsed = parallel::map(&shared, |config| ParsedMachineConfig::new(config));
    let shared: ParsedMachineConfigs<'_> =
        shared.iter().map(|config| config.name()).zip(parsed).collect();
    let results = parallel::map(&due, |due| due.merge(&shared, controller_config));
    drop(shared);
    merged.insert(due.into_iter().zip(results));
}
