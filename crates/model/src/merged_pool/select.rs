//! Which MachineConfigs a pool is made of.

use std::sync::Arc;

use serde_json::Map;

use super::unmergeable::Unmergeable;
use crate::objects::{MachineConfig, MachineConfigPool};

/// The MachineConfigs that `pool` selects, at least one, in the order of `machine_configs`.
pub fn select<'a>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>,
) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
    let selector = pool.machine_config_selector();
    selector.check()?;
    let none = Map::new();
    let is_selected =
        |config: &&Arc<MachineConfig>| selector.matches(config.labels().unwrap_or(&none));
    let selected: Vec<_> = machine_configs.into_iter().filter(is_selected).collect();
    if selected.is_empty() { Err(Unmergeable::NoneSelected) } else { Ok(selected) }
}
