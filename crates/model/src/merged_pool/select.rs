//! Selects the MachineConfigs of a pool by their labels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::unmergeable::Unmergeable;
use crate::objects::{LabelSelector, MachineConfig, MachineConfigPool};

/// The MachineConfigs that `pool` selects, at least one.
pub fn select<'a>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>,
) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
    ByLabels::new(machine_configs).select(pool)
}

/// MachineConfigs grouped by their labels, for many pools: thousands of MachineConfigs have a few dozen sets of labels,
/// or one for each pool. A pool checks the sets that have a label that it requires, each once.
pub struct ByLabels<'a> {
    groups: Vec<LabelGroup<'a>>,
    /// Indices of groups by their labels.
    by_label: HashMap<(&'a str, &'a str), Vec<usize>>,
}

type LabelSet<'a> = Option<Vec<(&'a str, Option<&'a str>)>>;

struct LabelGroup<'a> {
    labels: Option<&'a Map<String, Value>>,
    machine_configs: Vec<&'a Arc<MachineConfig>>,
}

impl<'a> ByLabels<'a> {
    /// Groups MachineConfigs.
    pub fn new(machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>) -> Self {
        let mut grouped = Self { groups: Vec::new(), by_label: HashMap::new() };
        let mut indices: HashMap<LabelSet<'_>, usize> = HashMap::new();
        for config in machine_configs {
            let labels = config.labels();
            let texts = |(name, value): (&'a String, &'a Value)| (name.as_str(), value.as_str());
            let set: LabelSet<'_> = labels.map(|labels| labels.iter().map(texts).collect());
            let index = *indices.entry(set).or_insert_with(|| grouped.add_group(labels));
            grouped.groups[index].machine_configs.push(config);
        }
        grouped
    }

    fn add_group(&mut self, labels: Option<&'a Map<String, Value>>) -> usize {
        let index = self.groups.len();
        for (name, value) in labels.into_iter().flatten() {
            if let Some(value) = value.as_str() {
                self.by_label.entry((name, value)).or_default().push(index);
            }
        }
        self.groups.push(LabelGroup { labels, machine_configs: Vec::new() });
        index
    }

    /// The MachineConfigs that `pool` selects, at least one.
    ///
    /// # Errors
    /// The selector is invalid, or selects none.
    pub fn select(
        &self,
        pool: &MachineConfigPool,
    ) -> Result<Vec<&'a Arc<MachineConfig>>, Unmergeable> {
        let selector = &pool.spec.machine_config_selector;
        selector.check()?;
        let groups = self.matching(selector).into_iter().map(|index| &self.groups[index]);
        let selected: Vec<_> = groups.flat_map(|it| it.machine_configs.iter().copied()).collect();
        if selected.is_empty() { Err(Unmergeable::NoneSelected) } else { Ok(selected) }
    }

    /// Indices of the groups that a valid selector selects, in their order.
    fn matching(&self, selector: &LabelSelector) -> Vec<usize> {
        let mut found: Vec<usize> = match selector.required_labels() {
            Some(labels) => {
                let groups = labels.iter().filter_map(|label| self.by_label.get(label));
                groups.flatten().copied().collect()
            }
            None => (0..self.groups.len()).collect(),
        };
        found.retain(|index| selector.matches(self.groups[*index].labels));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The names of the MachineConfigs that none of these pools selects or names, sorted.
    pub fn unselected<'p>(
        &self,
        pools: impl IntoIterator<Item = &'p MachineConfigPool>,
    ) -> Vec<&'a str> {
        let (mut selected, mut referred) = (HashSet::new(), HashSet::new());
        for pool in pools {
            let selector = &pool.spec.machine_config_selector;
            if selector.check().is_ok() {
                selected.extend(self.matching(selector));
            }
            referred.extend([pool.spec_configuration(), pool.status_configuration()]);
        }
        let left = self.groups.iter().enumerate().filter(|(index, _)| !selected.contains(index));
        let names = left.flat_map(|(_, it)| it.machine_configs.iter().map(|config| config.name()));
        let mut names: Vec<_> = names.filter(|name| !referred.contains(name)).collect();
        names.sort_unstable();
        names
    }
}
