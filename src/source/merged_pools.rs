//! Pools of a directory without a rendered config: merges the MachineConfigs that they select.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use common::pool_merges;
use model::inputs::Problem;
use model::merged_pool::{
    ByLabels, GENERATED_BY, KERNEL_ARGUMENTS_ANNOTATION, MergedPools, Unmergeable,
};
use model::objects::{
    ControllerConfig, InvalidSelector, MachineConfig, MachineConfigPool, ObjectKind, ROLE_LABEL,
};

use super::object_set::ObjectSet;

pub(super) type Pools = BTreeMap<String, Arc<MachineConfigPool>>;
pub(super) type MachineConfigs = BTreeMap<String, Arc<MachineConfig>>;

/// Merged pools across scans.
#[derive(Debug, Default)]
pub(super) struct LocalPools {
    merged: MergedPools,
    served: BTreeMap<String, ServedPool>,
    unselected: Vec<String>,
    /// MachineConfigs that count as rendered ones, though nothing shows that the render controller made them.
    taken_as_rendered: Vec<String>,
}

/// A pool that could be merged.
#[derive(Debug)]
struct ServedPool {
    /// Its last MachineConfig.
    config: Arc<MachineConfig>,
    pool: Arc<MachineConfigPool>,
    /// The pool with the name of the MachineConfig.
    resolved: Arc<MachineConfigPool>,
}

impl ServedPool {
    fn new(config: &Arc<MachineConfig>, pool: &Arc<MachineConfigPool>, last: Option<Self>) -> Self {
        let is_same = |it: &Self| Arc::ptr_eq(&it.config, config) && Arc::ptr_eq(&it.pool, pool);
        last.filter(is_same).unwrap_or_else(|| Self {
            config: Arc::clone(config),
            pool: Arc::clone(pool),
            resolved: Arc::new(pool.with_configuration(config.name())),
        })
    }
}

fn is_merged(pool: &MachineConfigPool) -> bool {
    pool.spec_configuration().is_empty() && pool.status_configuration().is_empty()
}

impl LocalPools {
    /// Merges the pools that name no configuration, and names the results in them. Returns the MachineConfigs that pools
    /// name. A failure is a problem of the pool, and its last result stays. A pool without one is not merged while the
    /// file `unread` may have a part of it.
    pub(super) fn resolve(
        &mut self,
        pools: &mut Pools,
        set: &ObjectSet,
        controller_config: Option<&ControllerConfig>,
        unread: Option<&Path>,
    ) -> (MachineConfigs, Vec<Problem>) {
        let all = || pools.values().map(|pool| &**pool);
        let merged = all().filter(|pool| is_merged(pool));
        pool_merges::update(&mut self.merged, merged, &set.sources, controller_config);
        (self.unselected, self.taken_as_rendered) = if all().any(is_merged) {
            let others = all().filter(|pool| !is_merged(pool));
            let unselected = set.sources.unselected(self.merged.selected(), others);
            let unselected = unselected.into_iter().map(str::to_owned).collect();
            (unselected, without_evidence(pools, set))
        } else {
            (Vec::new(), Vec::new())
        };
        let mut before = std::mem::take(&mut self.served);
        let (mut machine_configs, mut problems) = (MachineConfigs::new(), Vec::new());
        for (name, pool) in pools {
            if !is_merged(pool) {
                let named = [pool.spec_configuration(), pool.status_configuration()];
                let found = named.into_iter().filter_map(|name| set.machine_config(name));
                machine_configs.extend(found.map(|it| (it.name().to_owned(), Arc::clone(it))));
                continue;
            }
            let last = before.remove(name);
            let served = match self.merged.get(name) {
                Some(Ok(merged)) => match unread.filter(|_| last.is_none()) {
                    None => Some(ServedPool::new(merged, pool, last)),
                    Some(file) => {
                        let place = format!("MachineConfigPool {name}");
                        let file = file.file_name().unwrap_or_default().to_string_lossy();
                        let reason =
                            format!("{file} cannot be read and may have a part of its config");
                        problems.push(Problem::part(&place, &reason));
                        None
                    }
                },
                // A pool without a selector selects nothing on purpose.
                None | Some(Err(Unmergeable::Selector(InvalidSelector::Empty))) => None,
                Some(Err(error)) => {
                    let place = format!("MachineConfigPool {name}");
                    problems.push(Problem::part(&place, &error.to_string()));
                    last.map(|last| ServedPool::new(&Arc::clone(&last.config), pool, Some(last)))
                }
            };
            let Some(served) = served else { continue };
            *pool = Arc::clone(&served.resolved);
            let config = &served.config;
            machine_configs.insert(config.name().to_owned(), Arc::clone(config));
            self.served.insert(name.clone(), served);
        }
        (machine_configs, problems)
    }

    /// Manifests that each pool's config is made of, those with its object and its MachineConfigs. Pools that need anything
    /// else are not in it.
    pub(super) fn files<'a>(&self, set: &'a ObjectSet) -> BTreeMap<String, BTreeSet<&'a Path>> {
        let [of_pools, of_configs] = [ObjectKind::MACHINE_CONFIG_POOL, ObjectKind::MACHINE_CONFIG]
            .map(|kind| set.manifests_of(kind.name));
        let of_pool = |pool: &Arc<MachineConfigPool>| {
            let name = pool.name();
            let configs: BTreeSet<&str> = if let Some(merged) = self.merged.get(name) {
                merged.map(|_| self.merged.sources(name)).ok()?
            } else {
                let named = [pool.spec_configuration(), pool.status_configuration()];
                named.into_iter().filter(|name| !name.is_empty()).collect()
            };
            let files = configs.into_iter().map(|config| *of_configs.get(config)?);
            let files: Option<_> = files.chain([*of_pools.get(name)?]).collect();
            Some((name.to_owned(), files?))
        };
        set.pools.values().filter_map(of_pool).collect()
    }

    /// Annotations about merging of pools that are not merged.
    pub(super) fn unused_annotations(&self, pools: &Pools) -> Vec<Problem> {
        let is_unused = |pool: &&Arc<MachineConfigPool>| {
            pool.annotation_or_empty(KERNEL_ARGUMENTS_ANNOTATION).is_some()
                && self.merged.get(pool.name()).is_none()
        };
        let reason = format!(
            "metadata.annotations: {KERNEL_ARGUMENTS_ANNOTATION}: no effect: the pool names its configuration"
        );
        let unused = pools.values().filter(is_unused);
        unused
            .map(|pool| Problem::part(&format!("MachineConfigPool {}", pool.name()), &reason))
            .collect()
    }

    /// MachineConfigs of manifests that are part of no pool, in a directory with pools that are merged.
    pub(super) fn unselected(&self, is_file: impl Fn(&str) -> bool) -> Vec<Problem> {
        let reason = format!("no pool selects its labels; {ROLE_LABEL} is the one of a role");
        let names = self.unselected.iter().filter(|name| !is_file(name));
        let unselected = names.map(|name| (name, reason.as_str()));
        let rendered =
            "no pool uses it: without labels, its name makes it the result of a render controller";
        let rendered = self.taken_as_rendered.iter().map(|name| (name, rendered));
        let dropped = unselected.chain(rendered);
        dropped
            .map(|(name, reason)| Problem::whole(&format!("MachineConfig {name}"), reason))
            .collect()
    }

    /// A check if pools are made of a MachineConfig.
    pub(super) fn selects<'a>(
        &self,
        sources: &'a ByLabels,
    ) -> impl Fn(&MachineConfig) -> bool + 'a {
        let selected: HashSet<_> = self.merged.selected().map(Arc::as_ptr).collect();
        move |config| sources.group(config).is_some_and(|it| selected.contains(&Arc::as_ptr(it)))
    }

    /// How many times a pool was merged.
    #[cfg(test)]
    pub(super) fn merges(&self) -> u64 {
        self.merged.merges()
    }
}

/// Rendered MachineConfigs that no pool names, and that no controller has signed.
fn without_evidence(pools: &Pools, set: &ObjectSet) -> Vec<String> {
    let named: BTreeSet<&str> = pools
        .values()
        .flat_map(|pool| [pool.spec_configuration(), pool.status_configuration()])
        .collect();
    let is_signed = |config: &MachineConfig| config.annotation(GENERATED_BY).is_some();
    let rendered = set.rendered.values();
    let left = rendered.filter(|it| !named.contains(it.name()) && !is_signed(it));
    left.map(|config| config.name().to_owned()).collect()
}
