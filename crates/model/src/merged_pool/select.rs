//! Selects the MachineConfigs of a pool by their labels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::unmergeable::Unmergeable;
use crate::objects::{LabelSelector, Labels, MachineConfig, MachineConfigPool};

/// MachineConfigs grouped by their labels, for many pools: thousands of MachineConfigs have a few dozen sets of labels,
/// or one for each pool. A pool checks the sets that have a label that it requires, each once.
///
/// A copy shares the groups. A change replaces the group that it concerns, so that comparing pointers shows the pools
/// that select something new.
#[derive(Debug, Clone, Default)]
pub struct ByLabels {
    groups: BTreeMap<Arc<LabelSet>, Arc<LabelGroup>>,
    /// Labels of groups by a name and value that they have.
    by_label: HashMap<String, HashMap<String, Vec<Arc<LabelSet>>>>,
}

type LabelSet = Option<Labels>;

/// MachineConfigs with the same labels, by name.
#[derive(Debug, Clone, Default)]
pub struct LabelGroup {
    machine_configs: BTreeMap<Arc<str>, Arc<MachineConfig>>,
}

impl LabelGroup {
    /// The MachineConfigs in the order of their names.
    pub fn machine_configs(&self) -> impl Iterator<Item = &Arc<MachineConfig>> {
        self.machine_configs.values()
    }

    /// Returns `true` if both have the same MachineConfigs.
    pub(super) fn is_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let configs = |it: &Self| it.machine_configs().map(Arc::as_ptr).collect::<Vec<_>>();
        Arc::ptr_eq(self, other) || configs(self) == configs(other)
    }
}

impl ByLabels {
    /// Groups MachineConfigs.
    pub fn new<'a>(machine_configs: impl IntoIterator<Item = &'a Arc<MachineConfig>>) -> Self {
        let mut grouped = Self::default();
        machine_configs.into_iter().for_each(|config| grouped.insert(config));
        grouped
    }

    /// Adds a MachineConfig, in place of one with its name and labels.
    pub fn insert(&mut self, config: &Arc<MachineConfig>) {
        let labels = Arc::new(config.labels());
        if !self.groups.contains_key(&labels) {
            for (name, value) in labels.iter().flatten() {
                if let Some(value) = value {
                    let values = self.by_label.entry(name.clone()).or_default();
                    values.entry(value.clone()).or_default().push(Arc::clone(&labels));
                }
            }
        }
        let group = Arc::make_mut(self.groups.entry(labels).or_default());
        group.machine_configs.insert(Arc::clone(config.shared_name()), Arc::clone(config));
    }

    /// Removes a MachineConfig.
    pub fn remove(&mut self, config: &MachineConfig) {
        let labels = config.labels();
        let Some(group) = self.groups.get_mut(&labels).map(Arc::make_mut) else { return };
        group.machine_configs.remove(config.name());
        if !group.machine_configs.is_empty() {
            return;
        }
        self.groups.remove(&labels);
        for (name, value) in labels.iter().flatten() {
            let Some(values) = self.by_label.get_mut(name) else { continue };
            let Some(sets) = value.as_ref().and_then(|value| values.get_mut(value)) else {
                continue;
            };
            sets.retain(|set| **set != labels);
            if sets.is_empty() {
                values.retain(|_, sets| !sets.is_empty());
            }
            if values.is_empty() {
                self.by_label.remove(name);
            }
        }
    }

    /// The groups that `pool` selects, at least one.
    ///
    /// # Errors
    /// The selector is invalid, or selects none.
    pub fn select(&self, pool: &MachineConfigPool) -> Result<Vec<&Arc<LabelGroup>>, Unmergeable> {
        let selector = &pool.spec.machine_config_selector;
        selector.check()?;
        let selected = self.matching(selector);
        if selected.is_empty() { Err(Unmergeable::NoneSelected) } else { Ok(selected) }
    }

    /// The groups that a valid selector selects, in their order.
    fn matching(&self, selector: &LabelSelector) -> Vec<&Arc<LabelGroup>> {
        let Some(required) = selector.required_labels() else {
            let groups = self.groups.iter();
            let matching = groups.filter(|(labels, _)| selector.matches((***labels).as_ref()));
            return matching.map(|(_, group)| group).collect();
        };
        let sets =
            required.iter().filter_map(|(name, value)| self.by_label.get(*name)?.get(*value));
        let mut sets: Vec<_> =
            sets.flatten().filter(|labels| selector.matches((***labels).as_ref())).collect();
        if sets.len() > 1 {
            sets.sort_unstable();
            sets.dedup();
        }
        sets.into_iter().filter_map(|labels| self.groups.get(labels)).collect()
    }

    /// All MachineConfigs.
    pub fn machine_configs(&self) -> impl Iterator<Item = &Arc<MachineConfig>> {
        self.groups.values().flat_map(|group| group.machine_configs())
    }

    /// Number of all MachineConfigs.
    pub fn count(&self) -> usize {
        self.groups.values().map(|group| group.machine_configs.len()).sum()
    }

    /// The group of a MachineConfig.
    pub fn group(&self, config: &MachineConfig) -> Option<&Arc<LabelGroup>> {
        self.groups.get(&config.labels())
    }

    /// The names of the MachineConfigs that are in none of the groups `selected`, and that none of the pools `others` selects
    /// or names, sorted.
    pub fn unselected<'s, 'p>(
        &self,
        selected: impl IntoIterator<Item = &'s Arc<LabelGroup>>,
        others: impl IntoIterator<Item = &'p MachineConfigPool>,
    ) -> Vec<&str> {
        let mut selected: HashSet<_> = selected.into_iter().map(Arc::as_ptr).collect();
        let mut referred = HashSet::new();
        for pool in others {
            let selector = &pool.spec.machine_config_selector;
            if selector.check().is_ok() {
                selected.extend(self.matching(selector).into_iter().map(Arc::as_ptr));
            }
            referred.extend([pool.spec_configuration(), pool.status_configuration()]);
        }
        let left = self.groups.values().filter(|group| !selected.contains(&Arc::as_ptr(group)));
        let names = left.flat_map(|group| group.machine_configs().map(|config| config.name()));
        let mut names: Vec<_> = names.filter(|name| !referred.contains(name)).collect();
        names.sort_unstable();
        names
    }
}
