//! One manifest file's text, read into objects.

use serde_json::Value;

use crate::objects::{Object, ObjectError};

/// Why a file's text is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are no UTF-8 text.
    #[error("not UTF-8 text")]
    NotText,
    /// The text is neither YAML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// A document is malformed.
    #[error("document {number}: {error}")]
    Object {
        /// The document's place in the file, from 1.
        number: usize,
        /// What is wrong with it.
        error: ObjectError,
    },
}

/// Reads all documents of a file: YAML, or JSON one after the other. Lists (`kind: List`, as
/// `kubectl get -o yaml` prints them) are taken apart.
///
/// What is no manifest at all, such as a Kustomization or a chart's values, is passed over.
pub fn parse(bytes: &[u8]) -> Result<Vec<Object>, ManifestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut objects = Vec::new();
    for (index, document) in documents(text)?.into_iter().enumerate() {
        read_document(document, &mut objects)
            .map_err(|error| ManifestError::Object { number: index + 1, error })?;
    }
    Ok(objects)
}

/// Whether text may hold a manifest; a cheap test for files whose name does not say so.
#[must_use]
pub fn may_be_manifest(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.contains("kind") && text.contains("apiVersion"))
}

fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    // JSON is YAML too, but its own parser is ten times as fast.
    if text.trim_start().starts_with('{') {
        let json: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(documents) = json {
            return Ok(documents);
        }
    }
    let options = serde_saphyr::options! {
        // The API's own readers take YAML 1.1: `mode: 0644` is 420 there.
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_documents: 100_000,
            max_nodes: 10_000_000,
            max_events: 40_000_000,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ManifestError::Syntax(first_line(&error.to_string())))
}

fn read_document(document: Value, objects: &mut Vec<Object>) -> Result<(), ObjectError> {
    let Value::Object(mut fields) = document else {
        return Object::from_value(document).map(|_| ());
    };
    let is_list =
        fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    if is_list && let Some(Value::Array(items)) = fields.get_mut("items") {
        return std::mem::take(items).into_iter().try_for_each(|item| read_document(item, objects));
    }
    let is_manifest =
        ["kind", "apiVersion", "metadata"].iter().any(|key| fields.contains_key(*key));
    if is_manifest {
        objects.extend(Object::from_value(Value::Object(fields))?);
    }
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<&'static str> {
        parse(text.as_bytes())
            .unwrap()
            .iter()
            .map(|object| match object {
                Object::MachineConfigPool(_) => "pool",
                Object::MachineConfig(_) => "config",
                Object::ConfigMap(_) => "map",
                _ => "other",
            })
            .collect()
    }

    const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: master}\n";
    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: ns}\n";

    #[test]
    fn several_documents_of_a_file_are_read() {
        assert_eq!(kinds(&format!("{POOL}---\n# a comment\n---\n{MAP}")), ["pool", "map"]);
    }

    #[test]
    fn json_documents_are_read_one_after_the_other() {
        let json = r#"{"kind":"MachineConfigPool","metadata":{"name":"a"}}"#;
        assert_eq!(kinds(&format!("{json}\n{json}")), ["pool", "pool"]);
    }

    #[test]
    fn a_list_is_taken_apart() {
        let list = "kind: List\napiVersion: v1\nitems:\n- {kind: MachineConfigPool, metadata: {name: a}}\n- {kind: Pod, metadata: {name: b}}\n";
        assert_eq!(kinds(list), ["pool"]);
    }

    #[test]
    fn other_kinds_and_documents_that_are_no_manifests_are_passed_over() {
        assert!(
            kinds("a: 1\n---\nresources: [x]\n---\nkind: Deployment\nmetadata: {name: d}\n")
                .is_empty()
        );
    }

    #[test]
    fn an_error_is_one_line_that_names_the_place() {
        let error =
            parse(b"kind: MachineConfigPool\nmetadata: {name: a\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains('\n'), "{error}");
        let error =
            parse(b"a: 1\n---\nkind: MachineConfig\nmetadata: {}\n").unwrap_err().to_string();
        assert_eq!(error, "document 2: MachineConfig \"\": metadata.name is missing");
    }

    #[test]
    fn numbers_with_a_leading_zero_are_octal() {
        let text = "kind: MachineConfig\nmetadata: {name: a}\nspec: {config: {mode: 0644}}\n";
        let objects = parse(text.as_bytes()).unwrap();
        let [Object::MachineConfig(config)] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!(config.ignition(), Some(r#"{"mode":420}"#));
    }
}
