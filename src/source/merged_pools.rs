//! Pools of a directory without a rendered config: merges the MachineConfigs that they select.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use model::inputs::Problem;
use model::merged_pool::{ByLabels, GENERATED_BY, MergedPools, Unmergeable};
use model::objects::{
    ControllerConfig, InvalidSelector, MachineConfig, MachineConfigPool, ROLE_LABEL,
};
use serde_json::Map;

use crate::common::pool_merges;

pub(super) type Pools = BTreeMap<String, Arc<MachineConfigPool>>;
pub(super) type MachineConfigs = BTreeMap<String, Arc<MachineConfig>>;

/// Merged pools across scans.
#[derive(Debug, Default)]
pub(super) struct LocalPools {
    merged: MergedPools,
    /// Last MachineConfig of each pool that could be merged.
    served: MachineConfigs,
    unselected: Vec<String>,
    /// MachineConfigs that count as rendered ones, though nothing shows that the render controller made them.
    taken_as_rendered: Vec<String>,
}

impl LocalPools {
    /// Merges the pools that name no configuration, and inserts the results. A failure is a problem of the pool, and
    /// its last result stays. A pool without one is not merged while the file `unread` may have a part of it.
    pub(super) fn resolve(
        &mut self,
        pools: &mut Pools,
        machine_configs: &mut MachineConfigs,
        controller_config: Option<&ControllerConfig>,
        unread: Option<&Path>,
    ) -> Vec<Problem> {
        let names_none = |pool: &&Arc<MachineConfigPool>| {
            pool.spec_configuration().is_empty() && pool.status_configuration().is_empty()
        };
        let unnamed: Vec<_> = pools.values().filter(names_none).cloned().collect();
        let local = unnamed.iter().map(|pool| &**pool);
        let all = machine_configs.values();
        let (rendered, sources): (Vec<_>, Vec<_>) = all.partition(|config| is_rendered(config));
        let sources = ByLabels::new(sources);
        pool_merges::update(&mut self.merged, local, &sources, controller_config);
        (self.unselected, self.taken_as_rendered) = if unnamed.is_empty() {
            (Vec::new(), Vec::new())
        } else {
            let unselected = sources.unselected(pools.values().map(|pool| &**pool));
            let unselected = unselected.into_iter().map(str::to_owned).collect();
            (unselected, without_evidence(pools, &rendered))
        };
        let mut before = std::mem::take(&mut self.served);
        let mut problems = Vec::new();
        for pool in unnamed {
            let name = pool.name().to_owned();
            let last = before.remove(&name);
            let served = match self.merged.get(&name) {
                Some(Ok(merged)) => match unread.filter(|_| last.is_none()) {
                    None => Some(Arc::clone(merged)),
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
                    last
                }
            };
            let Some(served) = served else { continue };
            pools.insert(name.clone(), Arc::new(pool.with_configuration(served.name())));
            machine_configs.insert(served.name().to_owned(), Arc::clone(&served));
            self.served.insert(name, served);
        }
        problems
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

    /// The names of the MachineConfigs that the pools are made of.
    pub(super) fn selected(&self) -> BTreeSet<&str> {
        self.merged.selected().collect()
    }
}

/// Rendered MachineConfigs that no pool names, and that no controller has signed.
fn without_evidence(pools: &Pools, rendered: &[&Arc<MachineConfig>]) -> Vec<String> {
    let named: BTreeSet<&str> = pools
        .values()
        .flat_map(|pool| [pool.spec_configuration(), pool.status_configuration()])
        .collect();
    let is_signed = |config: &MachineConfig| config.annotation(GENERATED_BY).is_some();
    let left = rendered.iter().filter(|it| !named.contains(it.name()) && !is_signed(it));
    left.map(|config| config.name().to_owned()).collect()
}

/// Returns `true` for a result of the render controller, which is no source of another one. It has no labels; with
/// labels, a MachineConfig is selected by them whatever its name is, as by the render controller.
fn is_rendered(config: &MachineConfig) -> bool {
    config.name().starts_with("rendered-") && config.labels().is_none_or(Map::is_empty)
}
