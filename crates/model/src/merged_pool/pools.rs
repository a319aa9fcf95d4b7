//! Merged configurations of many pools, updated incrementally.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::merge::merge;
use super::parsed::ParsedMachineConfig;
use super::select::ByLabels;
use super::unmergeable::Unmergeable;
use crate::objects::{ControllerConfig, MachineConfig, MachineConfigPool};

/// Merged configurations of pools, with a cache: a pool is merged again only if something that it selects has changed.
#[derive(Debug, Default)]
pub struct MergedPools {
    parsed: BTreeMap<String, ParsedMachineConfig>,
    pools: BTreeMap<String, MergedPool>,
    merges: u64,
}

/// A pool's configuration with its inputs.
#[derive(Debug)]
struct MergedPool {
    selected: Vec<Arc<MachineConfig>>,
    images: [String; 2],
    outcome: Result<Arc<MachineConfig>, Unmergeable>,
}

impl MergedPool {
    fn is_made_of(&self, selected: &[Arc<MachineConfig>], images: &[String; 2]) -> bool {
        let same = || self.selected.iter().map(Arc::as_ptr).eq(selected.iter().map(Arc::as_ptr));
        self.images == *images && same()
    }
}

impl MergedPools {
    /// Merges those of `pools` that select other or changed MachineConfigs, and removes all pools that are not in
    /// `pools`.
    ///
    /// An unchanged MachineConfig must be the same `Arc`. `machine_configs` are those of administrators and
    /// controllers, without rendered ones.
    pub fn update<'a>(
        &mut self,
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        machine_configs: &BTreeMap<String, Arc<MachineConfig>>,
        controller_config: Option<&ControllerConfig>,
    ) {
        let machine_configs = ByLabels::new(machine_configs.values());
        let mut before = std::mem::take(&mut self.pools);
        for pool in pools {
            let last = before.remove(pool.name());
            let merged = self.merged(pool, &machine_configs, controller_config, last);
            self.pools.insert(pool.name().to_owned(), merged);
        }
        let used: BTreeSet<String> = self.selected().map(str::to_owned).collect();
        self.parsed.retain(|name, _| used.contains(name));
    }

    /// Names of the MachineConfigs that pools are made of, once for each of their pools.
    pub fn selected(&self) -> impl Iterator<Item = &str> {
        let selected = self.pools.values().flat_map(|pool| &pool.selected);
        selected.map(|config| config.name())
    }

    /// A pool's configuration, or the reason why it has none; `None` for a pool that was not in the last update. An
    /// unchanged one is the same `Arc` as before.
    pub fn get(&self, pool: &str) -> Option<Result<&Arc<MachineConfig>, &Unmergeable>> {
        self.pools.get(pool).map(|pool| pool.outcome.as_ref())
    }

    /// The names of the MachineConfigs that a pool is made of, sorted.
    pub fn sources(&self, pool: &str) -> BTreeSet<&str> {
        let selected = self.pools.get(pool).map(|pool| &pool.selected);
        selected.into_iter().flatten().map(|config| config.name()).collect()
    }

    /// How many times a pool was merged, by all updates together.
    pub fn merges(&self) -> u64 {
        self.merges
    }

    fn merged(
        &mut self,
        pool: &MachineConfigPool,
        machine_configs: &ByLabels<'_>,
        controller_config: Option<&ControllerConfig>,
        last: Option<MergedPool>,
    ) -> MergedPool {
        let images = controller_config.map_or_else(Default::default, |config| {
            [config.spec.base_os_image.clone(), config.spec.base_os_extensions_image.clone()]
        });
        let selected: Vec<_> = match machine_configs.select(pool) {
            Ok(selected) => selected.into_iter().cloned().collect(),
            Err(error) => return MergedPool { selected: Vec::new(), images, outcome: Err(error) },
        };
        let last = match last {
            Some(last) if last.is_made_of(&selected, &images) => return last,
            last => last.and_then(|last| last.outcome.ok()),
        };
        self.merges += 1;
        self.parse(&selected);
        let parsed = selected.iter().filter_map(|config| self.parsed.get(config.name()));
        let outcome = merge(pool.name(), &parsed.collect::<Vec<_>>(), controller_config);
        // The name contains a hash of the contents.
        let outcome = outcome.map(|merged| match last {
            Some(last) if last.same_metadata(&merged) => last,
            _ => Arc::new(merged),
        });
        MergedPool { selected, images, outcome }
    }

    /// Parses new and changed MachineConfigs.
    fn parse(&mut self, machine_configs: &[Arc<MachineConfig>]) {
        for config in machine_configs {
            let parsed = self.parsed.get(config.name());
            if parsed.is_none_or(|parsed| !Arc::ptr_eq(parsed.machine_config(), config)) {
                self.parsed.insert(config.name().to_owned(), ParsedMachineConfig::new(config));
            }
        }
    }
}
