//! Compares the machines that two configs make.
//!
//! Empty objects, arrays and nulls are dropped. Contents of files are compared decoded and decompressed, those of
//! `*.json` files as JSON values, so that neither encoding nor the order of keys matters.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::resource;

/// Differences between the resulting machines, one for each line.
pub(crate) fn differences(first: &Value, second: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(&canonical(first), &canonical(second), "", &mut found);
    found
}

/// Drops null and empty values, from the leaves up. Items of arrays stay.
pub(crate) fn pruned(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, field)| (name, pruned(field)))
                .filter(|(_, field)| !says_nothing(field))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(pruned).collect()),
        other => other,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn canonical(config: &Value) -> Value {
    let mut config = config.clone();
    let files = config.pointer_mut("/storage/files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default().to_owned();
        if let Some(contents) = file.get_mut("contents") {
            decode(contents, &path);
        }
        // An array of resources in spec 3, a flag in spec 2.
        let fragments = file.get_mut("append").and_then(Value::as_array_mut);
        for fragment in fragments.into_iter().flatten() {
            decode(fragment, &path);
        }
    }
    pruned(config)
}

/// Returns true for a name that ends in `.json`.
#[allow(clippy::case_sensitive_file_extension_comparisons, reason = "paths are case-sensitive")]
fn is_json(path: &str) -> bool {
    path.ends_with(".json")
}

/// Replaces the source of a resource with its contents.
fn decode(resource: &mut Value, path: &str) {
    if !resource["source"].as_str().is_some_and(|source| source.starts_with("data:")) {
        return;
    }
    let Some(bytes) = resource::bytes(resource) else { return };
    let fields: &mut Map<String, Value> = resource.as_object_mut().expect("a resource");
    fields.remove("source");
    fields.remove("compression");
    if is_json(path)
        && let Ok(document) = serde_json::from_slice(&bytes)
    {
        fields.insert("json".into(), pruned(document));
        return;
    }
    fields.insert("length".into(), json!(bytes.len()));
    fields.insert("bytes_sha256".into(), json!(format!("{:x}", Sha256::digest(&bytes))));
}

fn compare(first: &Value, second: &Value, at: &str, found: &mut Vec<String>) {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let at = format!("{at}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => {
                        compare(a, b, &at, found);
                    }
                    (Some(a), None) => {
                        found.push(format!("{at}: only in the first: {}", short(a)));
                    }
                    (None, Some(b)) => {
                        found.push(format!("{at}: only in the second: {}", short(b)));
                    }
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                found.push(format!("{at}: {} items != {}", a.len(), b.len()));
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{at}[{index}]"), found);
            }
        }
        _ if first == second => {}
        _ => found.push(format!("{at}: {} != {}", short(first), short(second))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}
