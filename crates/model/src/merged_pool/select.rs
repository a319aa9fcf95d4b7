//! Selects the MachineConfigs of a pool by their labels.

use std::collections::{BTreeMap, HashSet};
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
    let mut left: Vec<_> = ByLabels::new(machine_configs).0.into_values().collect();
    let mut referred = HashSet::new();
    for pool in pools {
        let selector = &pool.spec.machine_config_selector;
        if selector.check().is_ok() {
            left.retain(|it| !selector.matches(it.labels));
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
pub(super) struct ByLabels<'a>(BTreeMap<LabelSet<'a>, LabelGroup<'a>>);

type LabelSet<'a> = Option<Vec<(&'a str, Option<&'a str>)>>;

struct LabelGroup<'a> {
    labels: Option<&'a Map<String, Value>>,
    machine_configs: Vec<&'a Arc<MachineConfig>>,
}

impl<'a> ByLabels<'a> {
    pub(super) fn new(machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>) -> Self {
        let mut groups = BTreeMap::new();
        for config in machine_configs {
            let labels = config.labels();
            let texts = |(name, value): (&'a String, &'a Value)| (name.as_str(), value.as_str());
            let set: LabelSet<'_> = labels.map(|labels| labels.iter().map(texts).collect());
            let empty = || LabelGroup { labels, machine_configs: Vec::new() };
            groups.entry(set).or_insert_with(empty).machine_configs.push(config);
        }
        Self(groups)
    }

    /// The MachineConfigs that `pool` selects, at least one.
    pub(super) fn select(
        &self,
        pool: &MachineConfigPool,
    ) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
        let selector = &pool.spec.machine_config_selector;
        selector.check()?;
        let selected = self.0.values().filter(|it| selector.matches(it.labels));
        let selected: Vec<_> = selected.flat_map(|it| it.machine_configs.iter().copied()).collect();
        if selected.is_empty() { Err(Unmergeable::NoneSelected) } else { Ok(selected) }
    }
}
