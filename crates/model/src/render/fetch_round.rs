//! Pools whose configs lead back to themselves: a machine would fetch them forever.

use std::collections::{BTreeSet, VecDeque};

use crate::inputs::{Inputs, served_configuration};

/// The shortest way of fetches from the config of `pool` back to it, beginning and ending with its name.
pub(super) fn fetch_round(inputs: &Inputs, pool: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![pool]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in fetched(inputs, way.last()?) {
            let way = [&way[..], &[next]].concat();
            if next == pool {
                return Some(way.into_iter().map(str::to_owned).collect());
            }
            if seen.insert(next) {
                ways.push_back(way);
            }
        }
    }
    None
}

/// Pools that the config of a pool fetches.
fn fetched<'a>(inputs: &'a Inputs, pool: &str) -> impl Iterator<Item = &'a str> {
    let pool = inputs.pools.get(pool);
    let config = pool.map(|pool| served_configuration(inputs.mode, pool));
    let config = config.and_then(|name| inputs.machine_configs.get(name));
    config.into_iter().flat_map(|config| config.fetched_pools()).map(String::as_str)
}

/// One who fetches, and what: `a fetches b, which fetches a`.
pub(super) fn fetches_in_words(way: &[String]) -> String {
    way.join(", which fetches ").replacen(", which", "", 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::objects::{MachineConfig, MachineConfigPool};

    /// Pools whose configs fetch these ones.
    fn inputs(pools: &[(&str, &[&str])]) -> Inputs {
        let pool = |name: &str| -> MachineConfigPool {
            let spec = json!({"configuration": {"name": format!("of-{name}")}});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let config = |name: &str, fetched: &[&str]| -> MachineConfig {
            let to = |pool: &&str| json!({"source": format!("https://h/config/{pool}")});
            let merge: Vec<_> = fetched.iter().map(to).collect();
            let config = json!({"ignition": {"version": "3.4.0", "config": {"merge": merge}}});
            let metadata = json!({"name": format!("of-{name}")});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"config": config}}))
                .unwrap()
        };
        let named = |(name, _): &(&str, &[&str])| ((*name).to_owned(), Arc::new(pool(name)));
        let configs = pools.iter().map(|(name, fetched)| config(name, fetched));
        Inputs {
            pools: Arc::new(pools.iter().map(named).collect()),
            machine_configs: Arc::new(
                configs.map(|it| (it.name().to_owned(), Arc::new(it))).collect(),
            ),
            ..Inputs::default()
        }
    }

    #[test]
    fn the_shortest_way_back_is_found_and_no_other_pool_is_blamed() {
        let inputs = inputs(&[
            ("a", &["b"]),
            ("b", &["c", "d"]),
            ("c", &["d"]),
            ("d", &["b", "gone"]),
            ("e", &["e"]),
            ("f", &["g", "h"]),
            ("g", &["h"]),
            ("h", &[]),
        ]);
        let found = |pool| fetch_round(&inputs, pool).map(|way| fetches_in_words(&way));
        assert_eq!(found("a"), None, "it only waits for b");
        assert_eq!(found("b").unwrap(), "b fetches d, which fetches b");
        assert_eq!(found("c").unwrap(), "c fetches d, which fetches b, which fetches c");
        assert_eq!(found("d").unwrap(), "d fetches b, which fetches d");
        assert_eq!(found("e").unwrap(), "e fetches e");
        for pool in ["f", "g", "h", "gone"] {
            assert_eq!(found(pool), None, "{pool}");
        }
    }
}
