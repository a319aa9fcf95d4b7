//! Machines of each pool by what they came with: the version of Ignition, and the port.

use std::collections::BTreeMap;

use model::ignition_version::IgnitionVersion;

use super::machine_row::MachineLine;

/// Machines of one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolMachines {
    /// Oldest Ignition among them; `None` if none has come with Ignition.
    pub oldest_ignition: Option<IgnitionVersion>,
    /// Machines with an older Ignition than the pool's oldest.
    pub with_old_ignition: usize,
    /// Machines whose last request came by the port without TLS.
    pub without_tls: usize,
}

impl PoolMachines {
    /// The machines of all pools, by the pools' oldest accepted versions. Clients other than Ignition are no machines.
    pub fn by_pool(
        lines: &[MachineLine],
        min: impl Fn(&str) -> Option<IgnitionVersion>,
    ) -> BTreeMap<&str, Self> {
        let mut pools: BTreeMap<&str, Self> = BTreeMap::new();
        for line in lines {
            let (Some(requests), Some(version)) =
                (&line.machine.requests, line.machine.ignition_version())
            else {
                continue;
            };
            let pool = pools.entry(&requests.pool).or_default();
            let oldest = pool.oldest_ignition.map_or(version, |oldest| oldest.min(version));
            pool.oldest_ignition = Some(oldest);
            pool.with_old_ignition +=
                usize::from(min(&requests.pool).is_some_and(|min| version < min));
            pool.without_tls += usize::from(requests.without_tls);
        }
        pools
    }
}
