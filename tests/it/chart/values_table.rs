//! The tables in the chart's README are made from `values.yaml`: a comment belongs to the key below it.

use std::fs;

use serde_json::Value;

use super::chart;
use super::values::defaults;

const BEGIN: &str = "<!-- values -->\n";
const END: &str = "<!-- end of values -->\n";

/// A key of the values with the comment above it.
struct Key {
    path: String,
    comment: String,
}

/// The keys of a text, in its sequence.
fn keys(text: &str) -> Vec<Key> {
    let (mut keys, mut parents, mut comment) = (Vec::new(), Vec::<&str>::new(), Vec::new());
    for line in text.lines() {
        let content = line.trim_start();
        if content.is_empty() {
            comment.clear();
        } else if let Some(said) = content.strip_prefix("# ") {
            comment.push(said);
        } else {
            let (name, _) = content.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
            parents.truncate((line.len() - content.len()) / 2);
            parents.push(name);
            keys.push(Key { path: parents.join("."), comment: comment.join(" ") });
            comment.clear();
        }
    }
    keys
}

/// A table for each key at the top, under its comment.
fn tables(text: &str, values: &Value) -> String {
    let mut tables = String::new();
    for Key { path, comment } in keys(text) {
        let value = values.pointer(&format!("/{}", path.replace('.', "/"))).expect("a value");
        let is_mapping = value.as_object().is_some_and(|it| !it.is_empty());
        if !path.contains('.') {
            let introduction = if is_mapping { format!("{comment}\n\n") } else { String::new() };
            assert!(!comment.is_empty(), "{path} has no comment");
            let head = format!("\n## {path}\n\n{introduction}| value | default | what it is |\n");
            tables.extend([head.as_str(), "| --- | --- | --- |\n"]);
        }
        if !is_mapping {
            assert!(!comment.is_empty(), "{path} has no comment");
            let default = match value {
                Value::String(text) if !text.is_empty() => text.clone(),
                value => value.to_string(),
            };
            let comment = comment.replace('|', "\\|");
            tables.extend([format!("| `{path}` | `{default}` | {comment} |\n")]);
        }
    }
    tables
}

#[test]
fn the_charts_readme_has_every_value_with_its_default_and_comment() {
    let values = fs::read_to_string(chart().join("values.yaml")).expect("the values");
    let tables = tables(&values, &defaults());
    let path = chart().join("README.md");
    let readme = fs::read_to_string(&path).expect("the README");
    let (before, rest) = readme.split_once(BEGIN).expect("a beginning");
    let (_, after) = rest.split_once(END).expect("an end");
    let expected = format!("{before}{BEGIN}{tables}\n{END}{after}");
    if std::env::var_os("WRITE_VALUES").is_some() {
        fs::write(&path, &expected).expect("a writable file");
    } else {
        assert!(
            readme == expected,
            "{} is behind values.yaml: WRITE_VALUES=yes tests/run chart::values_table",
            path.display()
        );
    }
}
