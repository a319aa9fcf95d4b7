//! Compares merged MachineConfigs with those of the reference's render controller, as values. The data is next to the
//! repository; the test passes without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::*;
use crate::objects::{ControllerConfig, MachineConfig};

#[derive(Deserialize)]
struct Cases {
    #[serde(rename = "controllerConfig")]
    controller_config: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    configs: Vec<Value>,
    expected: Value,
}

/// The directory with the reference's results, if it exists.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")?;
    let data = Path::new(&folder).join("../../../shared/conformance");
    data.join("merge.json").exists().then_some(data)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// MachineConfigs, with the files that their configs name.
fn parsed(data: &Path, configs: &[Value]) -> Vec<ParsedMachineConfig> {
    let parsed = configs.iter().map(|config| {
        let mut config = config.clone();
        if let Some(file) = config.pointer("/spec/config/$corpus").and_then(Value::as_str) {
            config["spec"]["config"] = read(&data.join("corpus").join(file));
        }
        // Parsed from text, like a manifest or an answer of the API.
        let config: MachineConfig = serde_json::from_str(&config.to_string()).unwrap();
        ParsedMachineConfig::new(&Arc::new(config))
    });
    parsed.collect()
}

/// Returns `true` if the reference cannot read the configs because of their spec.
fn is_newer(parsed: &[ParsedMachineConfig]) -> bool {
    let texts = parsed.iter().filter_map(|it| it.machine_config().ignition());
    texts
        .filter_map(|text| serde_json::from_str::<Value>(&text).ok())
        .any(|config| config.pointer("/ignition/version").and_then(Value::as_str) == Some("3.6.0"))
}

#[test]
fn every_case_is_merged_as_by_the_reference_in_any_order() {
    let Some(data) = data() else { return };
    let cases: Cases = serde_json::from_value(read(&data.join("merge.json"))).unwrap();
    let controller_config: ControllerConfig =
        serde_json::from_value(cases.controller_config).unwrap();
    let mut different = Vec::new();
    for Case { id, configs, expected } in &cases.cases {
        let parsed = parsed(&data, configs);
        let mut sources: Vec<_> = parsed.iter().collect();
        let merged = merge("p", &sources, Some(&controller_config), ArgumentSetter::Daemon);
        sources.reverse();
        let backwards = merge("p", &sources, Some(&controller_config), ArgumentSetter::Daemon);
        let answer = |merged: &Result<MachineConfig, Unmergeable>| match merged {
            Ok(merged) => json!(merged.spec),
            // What is refused here for what MachineConfigs say together.
            Err(error) => match error.merged() {
                Some(merged) => json!(merged.spec),
                None => json!({"error": error.to_string()}),
            },
        };
        let is_refused = expected.get("error").is_some();
        let is_same = match &merged {
            Ok(_) if is_refused => is_newer(&parsed),
            Err(error) if error.merged().is_none() => is_refused,
            _ => answer(&merged) == *expected,
        };
        if !is_same {
            different.push(format!("{id}: {} where {expected} is expected", answer(&merged)));
        }
        assert_eq!(answer(&merged), answer(&backwards), "{id}");
        if let Ok(merged) = merged {
            assert_eq!(merged.name(), backwards.unwrap().name(), "{id}");
            assert!(!origins(&sources, ArgumentSetter::Daemon).unwrap().is_empty(), "{id}");
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
