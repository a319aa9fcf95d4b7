//! Selects the MachineConfigs of a pool by their labels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::unmergeable::Unmergeable;
use crate::objects::{MachineConfig, MachineConfigPool};

/// The MachineConfigs that `pool` selects, at least one.
pub fn select<'a>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>,
) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
    ByLabels::new(machine_configs).select(pool)
}

/// The names of the MachineConfigs that none of these pools selects or names.
pub fn unselected<'a>(
    pools: impl IntoIterator<Item = &'a MachineConfigPool>,
    machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>,
) -> Vec<&'a str> {
    let mut left = ByLabels::new(machine_configs).0;
    let none = Map::new();
    let mut referred = HashSet::new();
    for pool in pools {
        let selector = pool.machine_config_selector();
        if selector.check().is_ok() {
            left.retain(|it| !selector.matches(it.labels.unwrap_or(&none)));
        }
        referred.extend([pool.spec_configuration(), pool.status_configuration()]);
    }
    let configs = left.into_iter().flat_map(|it| it.machine_configs);
    let mut names: Vec<_> =
        configs.map(|config| config.name()).filter(|name| !referred.contains(name)).collect();
    names.sort_unstable();
    names
}

/// MachineConfigs grouped by their labels: thousands have only a few dozen sets of labels, and each pool checks each
/// set once.
pub(super) struct ByLabels<'a>(Vec<LabelGroup<'a>>);

struct LabelGroup<'a> {
    labels: Option<&'a Map<String, Value>>,
    machine_configs: Vec<&'a Arc<MachineConfig>>,
}

impl<'a> ByLabels<'a> {
    pub(super) fn new(machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>) -> Self {
        let mut found: Vec<LabelGroup<'a>> = Vec::new();
        let mut places = HashMap::new();
        for config in machine_configs {
            let labels = config.labels();
            let texts = |(name, value): (&'a String, &'a Value)| (name.as_str(), value.as_str());
            let set: Option<Vec<_>> = labels.map(|labels| labels.iter().map(texts).collect());
            let place = *places.entry(set).or_insert(found.len());
            match found.get_mut(place) {
                Some(labelled) => labelled.machine_configs.push(config),
                None => found.push(LabelGroup { labels, machine_configs: vec![config] }),
            }
        }
        Self(found)
    }

    /// The MachineConfigs that `pool` selects, at least one.
    pub(super) fn select(
        &self,
        pool: &MachineConfigPool,
    ) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
        let selector = pool.machine_config_selector();
        selector.check()?;
        let none = Map::new();
        let selected = self.0.iter().filter(|it| selector.matches(it.labels.unwrap_or(&none)));
        let selected: Vec<_> = selected.flat_map(|it| it.machine_configs.iter().copied()).collect();
        if selected.is_empty() { Err(Unmergeable::NoneSelected) } else { Ok(selected) }
    }
}
