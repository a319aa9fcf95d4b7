//! Rendered MachineConfigs that are deleted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::state::{PoolState, RenderedConfig, RenderedConfigs};

/// Maximum number of a pool's rendered MachineConfigs that are kept without a name in a pool or ledger: the latest ones.
pub const MAX_UNNAMED: usize = 10;

/// Rendered MachineConfigs of this controller that nothing names, except for the latest of each pool. `pools` has all
/// pools of the cluster; `served` has the MachineConfigs in boot ledgers.
pub fn expired<'a>(
    pools: &[PoolState],
    configs: &'a RenderedConfigs,
    served: &BTreeSet<String>,
) -> Vec<&'a str> {
    let merged = pools.iter().filter_map(|pool| pool.merged.as_ref().ok());
    let mut named: BTreeSet<&str> = merged.map(|merged| merged.name()).collect();
    named.extend(pools.iter().flat_map(|pool| [&*pool.spec, &*pool.status]));
    named.extend(served.iter().map(String::as_str));
    let mut unnamed: BTreeMap<&str, Vec<(Reverse<u64>, &str)>> = BTreeMap::new();
    for (name, config) in configs {
        if let RenderedConfig::Own { pool_uid, revision, .. } = config
            && !named.contains(name.as_str())
        {
            unnamed.entry(pool_uid).or_default().push((Reverse(*revision), name));
        }
    }
    let mut expired = Vec::new();
    for (pool_uid, mut configs) in unnamed {
        configs.sort();
        let is_there = pools.iter().any(|pool| pool.uid == pool_uid);
        let kept = if is_there { MAX_UNNAMED } else { 0 };
        expired.extend(configs.into_iter().skip(kept).map(|(_, name)| name));
    }
    expired
}
