//! Pools whose configs an Ignition config fetches.
//!
//! A config of a pool that fetches the one of another pool is common; one that leads back to itself never ends.

use std::collections::BTreeMap;

use ignition::contents::{Contents, UnpackBudget};
use ignition::spec3::Resource;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;

/// Lists of `ignition.config` in spec 3 and in spec 2.
const LISTS: [&str; 2] = ["merge", "append"];
/// The config that takes the place of the whole one.
const REPLACE: &str = "replace";

/// Name of the pool whose config is at a URL, `/config/POOL` at any host: a server has many names.
pub fn fetched_pool(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once("://")?;
    if !["http", "https"].iter().any(|it| scheme.eq_ignore_ascii_case(it)) {
        return None;
    }
    let path = url.split(['?', '#']).next()?.trim_end_matches('/');
    let (before, pool) = path.rsplit_once('/')?;
    // The server decodes the name, and nothing else of the path.
    before.ends_with("/config").then(|| percent_decode_str(pool).decode_utf8_lossy().into_owned())
}

/// Pools that a config in JSON fetches, also by configs within it. A text that is no config fetches none.
pub fn fetched_pools(config: &str) -> Vec<String> {
    let mut budget = UnpackBudget::default();
    let (mut pools, mut texts) = (Vec::new(), Vec::new());
    let mut next = references(config);
    loop {
        for resource in next {
            match Contents::read(&resource, &mut budget) {
                Contents::Elsewhere(url) => pools.extend(fetched_pool(&url)),
                Contents::Bytes(bytes) => texts.push(bytes),
                Contents::Nothing | Contents::Unreadable(_) => {}
            }
        }
        let Some(text) = texts.pop() else { return pools };
        next = references(&String::from_utf8_lossy(&text));
    }
}

/// Configs that a config refers to.
fn references(config: &str) -> Vec<Resource> {
    // Nearly no config has one, and parsing takes long. A quote within a value is escaped.
    let is_key = |key: &&str| config.contains(&format!("\"{key}\""));
    if !LISTS.iter().chain([&REPLACE]).any(is_key) {
        return Vec::new();
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(config).unwrap_or_default();
    let ignition = members.get("ignition").map(|it| it.get()).unwrap_or_default();
    let ignition: Value = serde_json::from_str(ignition).unwrap_or_default();
    let referred = &ignition["config"];
    let listed = LISTS.iter().filter_map(|list| referred[list].as_array()).flatten();
    let resources = listed.chain([&referred[REPLACE]]).cloned();
    resources.filter_map(|resource| serde_json::from_value(resource).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(references: &Value) -> String {
        json!({"ignition": {"version": "3.4.0", "config": references}}).to_string()
    }

    #[test]
    fn a_pool_is_known_by_the_path_of_a_url() {
        for (url, pool) in [
            ("https://h:22623/config/rack", Some("rack")),
            ("HTTP://h/config/%72ack/?token=a/config/b#c", Some("rack")),
            ("https://h/behind/config/rack", Some("rack")),
            ("https://h/config/rack/1", None),
            ("https://h/config/", None),
            ("https://h/config", None),
            ("https://h/%63onfig/rack", None),
            ("tftp://h/config/rack", None),
            ("data:,https://h/config/rack", None),
            ("", None),
        ] {
            assert_eq!(fetched_pool(url).as_deref(), pool, "{url}");
        }
    }

    #[test]
    fn references_of_both_specs_and_of_configs_within_are_followed() {
        let to = |pool: &str| json!({"source": format!("https://h/config/{pool}")});
        let within =
            ignition::data_url::encode_base64(config(&json!({"merge": [to("e")]})).as_bytes());
        let all = json!({
            "merge": [to("a"), to("b"), {"source": null}, {"source": within}],
            "append": [to("c")],
            "replace": to("d"),
        });
        let mut found = fetched_pools(&config(&all));
        found.sort();
        assert_eq!(found, ["a", "b", "c", "d", "e"]);
        let escaped = config(&json!({"merge": [to("a")]})).replace('/', "\\/");
        assert_eq!(fetched_pools(&escaped), ["a"]);
        for none in
            ["", "{", "[\"merge\"]", r#"{"ignition": "merge"}"#, &config(&json!({"merge": {}}))]
        {
            assert_eq!(fetched_pools(none), [""; 0], "{none}");
        }
    }
}
