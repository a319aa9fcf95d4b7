//! Merged configurations of many pools, updated incrementally.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::argument_setter::ArgumentSetter;
use super::merge::merge;
use super::parsed::ParsedMachineConfig;
use super::select::{ByLabels, LabelGroup};
use super::unmergeable::Unmergeable;
use crate::objects::{ControllerConfig, MachineConfig, MachineConfigPool};

/// Merged configurations of pools. A pool is merged again only if something that it selects has changed.
#[derive(Debug, Default)]
pub struct MergedPools {
    pools: BTreeMap<String, MergedPool>,
    updates: u64,
    merges: u64,
}

type Selected<'a> = Vec<&'a Arc<LabelGroup>>;

/// A pool's configuration with its inputs.
#[derive(Debug)]
struct MergedPool {
    selected: Vec<Arc<LabelGroup>>,
    images: Arc<[String; 2]>,
    /// `None` if the pool's annotation names none.
    setter: Option<ArgumentSetter>,
    outcome: Result<Arc<MachineConfig>, Unmergeable>,
    /// Number of the last update with the pool.
    seen_in: u64,
}

impl MergedPool {
    fn is_made_of(
        &self,
        selected: &[&Arc<LabelGroup>],
        images: &[String; 2],
        setter: ArgumentSetter,
    ) -> bool {
        let is_same = |(before, now): (&Arc<LabelGroup>, &&Arc<LabelGroup>)| before.is_same(now);
        *self.images == *images
            && self.setter == Some(setter)
            && self.selected.len() == selected.len()
            && self.selected.iter().zip(selected).all(is_same)
    }
}

/// A pool that is to be merged.
#[derive(Debug)]
pub struct DueMerge {
    pool: String,
    selected: Vec<Arc<LabelGroup>>,
    images: Arc<[String; 2]>,
    setter: ArgumentSetter,
    /// Its configuration before.
    last: Option<Arc<MachineConfig>>,
}

/// Parsed MachineConfigs by their names.
pub type ParsedMachineConfigs<'a> = HashMap<&'a str, ParsedMachineConfig>;

/// The MachineConfigs that several of these pools select, to be parsed once for all of them.
pub fn shared_sources(due: &[DueMerge]) -> Vec<&Arc<MachineConfig>> {
    let (mut seen, mut shared) = (HashSet::new(), BTreeMap::new());
    for config in due.iter().flat_map(DueMerge::sources) {
        if !seen.insert(config.name()) {
            shared.insert(config.name(), config);
        }
    }
    shared.into_values().collect()
}

impl DueMerge {
    fn sources(&self) -> impl Iterator<Item = &Arc<MachineConfig>> {
        self.selected.iter().flat_map(|group| group.machine_configs())
    }

    /// Merges the pool. MachineConfigs that are not among `shared` are parsed.
    ///
    /// # Errors
    /// A MachineConfig is faulty, or two of them conflict.
    pub fn merge(
        &self,
        shared: &ParsedMachineConfigs<'_>,
        controller_config: Option<&ControllerConfig>,
    ) -> Result<Arc<MachineConfig>, Unmergeable> {
        let others = self.sources().filter(|it| !shared.contains_key(it.name()));
        let others: Vec<_> = others.map(ParsedMachineConfig::new).collect();
        let of_shared = self.sources().filter_map(|it| shared.get(it.name()));
        let sources: Vec<_> = of_shared.chain(&others).collect();
        let merged = merge(&self.pool, &sources, controller_config, self.setter)?;
        // The name contains a hash of the contents.
        Ok(match &self.last {
            Some(last) if last.same_metadata(&merged) => Arc::clone(last),
            _ => Arc::new(merged),
        })
    }
}

/// The MachineConfigs that a pool selects, and who sets their kernel arguments; or why it cannot be merged.
fn inputs<'a>(
    pool: &MachineConfigPool,
    machine_configs: &'a ByLabels,
) -> Result<(Selected<'a>, ArgumentSetter), (Selected<'a>, Unmergeable)> {
    let selected = machine_configs.select(pool).map_err(|error| (Vec::new(), error))?;
    match ArgumentSetter::of(pool) {
        Ok(setter) => Ok((selected, setter.unwrap_or_default())),
        Err(error) => Err((selected, error.into())),
    }
}

fn shared(selected: Selected<'_>) -> Vec<Arc<LabelGroup>> {
    selected.into_iter().cloned().collect()
}

impl MergedPools {
    /// Returns those of `pools` that select other or changed MachineConfigs, to be merged and inserted, and removes all
    /// that are not in `pools`.
    ///
    /// An unchanged MachineConfig must be the same `Arc`; groups that are the same are compared at once.
    /// `machine_configs` are those of administrators and controllers, without rendered ones.
    pub fn update<'a>(
        &mut self,
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        machine_configs: &ByLabels,
        controller_config: Option<&ControllerConfig>,
    ) -> Vec<DueMerge> {
        let images = controller_config.map_or_else(Default::default, |config| {
            [config.spec.base_os_image.clone(), config.spec.base_os_extensions_image.clone()]
        });
        let images = Arc::new(images);
        self.updates += 1;
        let seen_in = self.updates;
        let mut due = Vec::new();
        for pool in pools {
            let (name, images) = (pool.name(), Arc::clone(&images));
            let (selected, setter) = match inputs(pool, machine_configs) {
                Ok(inputs) => inputs,
                Err((selected, error)) => {
                    let (selected, outcome) = (shared(selected), Err(error));
                    let merged = MergedPool { selected, images, setter: None, outcome, seen_in };
                    self.pools.insert(name.to_owned(), merged);
                    continue;
                }
            };
            match self.pools.get_mut(name) {
                Some(known) if known.is_made_of(&selected, &images, setter) => {
                    (known.selected, known.seen_in) = (shared(selected), seen_in);
                }
                known => {
                    let last = known.and_then(|known| known.outcome.clone().ok());
                    let (pool, selected) = (name.to_owned(), shared(selected));
                    due.push(DueMerge { pool, selected, images, setter, last });
                }
            }
        }
        self.pools.retain(|_, pool| pool.seen_in == seen_in);
        due
    }

    /// Adds pools with the results of [`DueMerge::merge`].
    pub fn insert(
        &mut self,
        merged: impl IntoIterator<Item = (DueMerge, Result<Arc<MachineConfig>, Unmergeable>)>,
    ) {
        for (DueMerge { pool, selected, images, setter, .. }, outcome) in merged {
            self.merges += 1;
            let (setter, seen_in) = (Some(setter), self.updates);
            self.pools.insert(pool, MergedPool { selected, images, setter, outcome, seen_in });
        }
    }

    /// The groups that pools are made of, once for each of their pools.
    pub fn selected(&self) -> impl Iterator<Item = &Arc<LabelGroup>> {
        self.pools.values().flat_map(|pool| &pool.selected)
    }

    /// A pool's configuration, or the reason why it has none; `None` for a pool that was not in the last update. An
    /// unchanged one is the same `Arc` as before.
    pub fn get(&self, pool: &str) -> Option<Result<&Arc<MachineConfig>, &Unmergeable>> {
        self.pools.get(pool).map(|pool| pool.outcome.as_ref())
    }

    /// The names of the MachineConfigs that a pool is made of, sorted.
    pub fn sources(&self, pool: &str) -> BTreeSet<&str> {
        let selected = self.pools.get(pool).into_iter().flat_map(|pool| &pool.selected);
        selected.flat_map(|group| group.machine_configs()).map(|config| config.name()).collect()
    }

    /// How many times a pool was merged, by all updates together.
    pub fn merges(&self) -> u64 {
        self.merges
    }
}
