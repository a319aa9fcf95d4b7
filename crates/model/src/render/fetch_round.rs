//! Pools whose configs fetch each other: Ignition would follow them for ever.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::select::select;
use crate::inputs::Inputs;

/// Rounds of pools that fetch each other, each once, beginning with its first pool by name. A server has many names,
/// so that only paths of URLs count.
pub fn fetch_rounds(inputs: &Inputs) -> Vec<Vec<String>> {
    let fetched = |pool: &String| (pool.clone(), fetched(inputs, pool));
    let fetched: BTreeMap<String, Vec<String>> = inputs.pools.keys().map(fetched).collect();
    fetched.keys().filter_map(|pool| round(&fetched, pool)).collect()
}

/// Pools that the config of a pool fetches.
fn fetched(inputs: &Inputs, pool: &str) -> Vec<String> {
    let selected = select(inputs, pool).ok();
    let text = selected.as_ref().and_then(|it| it.machine_config.ignition());
    // Parsing all configs takes long, and nearly none has such a URL.
    let text = text.filter(|text| text.contains("/config/"));
    let config: Value = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let referred = &config["ignition"]["config"];
    let merged = ["merge", "append"].map(|list| referred[list].as_array());
    let all = merged.into_iter().flatten().flatten().chain([&referred["replace"]]);
    let pool_in = |source: &str| {
        let url = source.split(['?', '#']).next()?.trim_end_matches('/');
        let (before, pool) = url.rsplit_once('/')?;
        let pool = percent_decode_str(pool).decode_utf8_lossy().into_owned();
        (before.ends_with("/config") && inputs.pools.contains_key(&pool)).then_some(pool)
    };
    all.filter_map(|resource| pool_in(resource["source"].as_str()?)).collect()
}

/// A way from `start` back to it by pools that come after it.
fn round(fetched: &BTreeMap<String, Vec<String>>, start: &String) -> Option<Vec<String>> {
    let mut ways = vec![vec![start.clone()]];
    let mut seen = vec![start.clone()];
    while let Some(way) = ways.pop() {
        for next in way.last().and_then(|last| fetched.get(last)).into_iter().flatten() {
            if next == start {
                return Some([way, vec![start.clone()]].concat());
            }
            if next > start && !seen.contains(next) {
                seen.push(next.clone());
                ways.push([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}
