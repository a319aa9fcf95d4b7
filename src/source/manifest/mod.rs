//! Parses a manifest file into objects.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod budget;
mod unique_keys;
mod warnings;

use bytes::Bytes;
use model::objects::{Object, ObjectDefect, ObjectError};
use serde_json::Value;
use serde_json::error::Category;
use serde_saphyr::budget::BudgetBreach;

use self::budget::{Budget, MAX_JSON_BYTES, measure_json};
use self::unique_keys::{UniqueKeys, is_twice};

pub use self::budget::TooLarge;
pub(crate) use self::warnings::of_config as config_warnings;

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("not UTF-8 text")]
    NotText,
    /// The text is neither YAML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// The contents would take too much memory or stack.
    #[error(transparent)]
    Large(#[from] TooLarge),
    #[error("document {number}: {error}")]
    Object {
        /// Position of the document, from 1.
        number: usize,
        error: ObjectError,
    },
}

impl ManifestError {
    /// The fault, with an outline for unauthenticated clients.
    pub fn defect(&self) -> ObjectDefect {
        let outline = match self {
            Self::Object { number, error } => {
                let outline = error.defect().outline;
                outline.map(|outline| format!("document {number}: {outline}"))
            }
            Self::NotText | Self::Large(_) => Some(self.to_string()),
            Self::Syntax(_) => None,
        };
        ObjectDefect { reason: self.to_string(), outline }
    }
}

#[derive(Debug, Default)]
pub struct Manifest {
    pub objects: Vec<Object>,
    /// Parts of the objects without effect, one line each, not escaped.
    pub warnings: Vec<String>,
    /// The same as JSON, which is read ten times as fast, if it is YAML.
    pub json: Option<Bytes>,
}

pub fn parse(bytes: &[u8]) -> Result<Vec<Object>, ManifestError> {
    read(bytes).map(|manifest| manifest.objects)
}

/// Parses all documents of a file: YAML, or a sequence of JSON. Lists (`kind: List`, as printed by `kubectl get -o
/// yaml`) are split.
///
/// Documents that are no manifest, such as a Kustomization or a chart's values, are ignored.
pub fn read(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = documents(text, Budget::FILE)?;
    let json = if is_json(text) { None } else { to_json(&documents) };
    let mut manifest = Manifest { json, ..Manifest::default() };
    for (index, document) in documents.into_iter().enumerate() {
        read_document(document, &mut manifest)
            .map_err(|error| ManifestError::Object { number: index + 1, error })?;
    }
    Ok(manifest)
}

/// Returns `true` if text can be a manifest; a cheap test for files whose name does not show it.
pub fn may_be_manifest(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.contains("kind") && text.contains("apiVersion"))
}

fn documents(text: &str, budget: Budget) -> Result<Vec<Value>, ManifestError> {
    // JSON is YAML too, but its own parser is ten times as fast.
    if is_json(text) && measure_json(text, budget)? {
        let json: Result<Vec<UniqueKeys>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        match json {
            Ok(documents) => return Ok(values(documents)),
            // Valid JSON with a duplicate key.
            Err(error) if error.classify() == Category::Data => {
                return Err(ManifestError::Syntax(error.to_string()));
            }
            Err(_) => {}
        }
    }
    let options = serde_saphyr::options! {
        // The API's own readers parse YAML 1.1: `mode: 0644` is 420 there.
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_documents: budget.documents,
            max_depth: budget.depth,
            max_nodes: budget.nodes,
            // Ends of lists, mappings and documents are events, too.
            max_events: 2 * (budget.nodes + budget.documents) + 2,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map(values)
        .map_err(|error| refused(&error, budget))
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// A sequence of JSON with the same objects, `None` if it is too large to be read again.
fn to_json(documents: &[Value]) -> Option<Bytes> {
    let mut json = Vec::new();
    for document in documents.iter().filter(|it| it.is_object()) {
        serde_json::to_writer(&mut json, document).ok()?;
        json.push(b'\n');
        if json.len() > MAX_JSON_BYTES {
            return None;
        }
    }
    Some(json.into()).filter(|json: &Bytes| !json.is_empty())
}

fn values(documents: Vec<UniqueKeys>) -> Vec<Value> {
    documents.into_iter().map(|UniqueKeys(value)| value).collect()
}

fn refused(error: &serde_saphyr::Error, budget: Budget) -> ManifestError {
    use serde_saphyr::Error;
    match error {
        Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } => {
            TooLarge::Nodes(budget.nodes).into()
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            TooLarge::Depth(budget.depth).into()
        }
        Error::DuplicateMappingKey { key: Some(key), location } => ManifestError::Syntax(format!(
            "{} at line {}, column {}",
            is_twice(key),
            location.line(),
            location.column()
        )),
        error => ManifestError::Syntax(first_line(&error.to_string())),
    }
}

/// Checks JSON of another server against the limits of a file.
pub(crate) fn check_json(text: &str) -> Result<(), TooLarge> {
    measure_json(text, Budget::FILE).map(|_| ())
}

/// Checks that no mapping in JSON has a key twice.
pub(crate) fn check_unique_keys(json: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<UniqueKeys>(json).map(|_| ())
}

fn read_document(document: Value, manifest: &mut Manifest) -> Result<(), ObjectError> {
    let Value::Object(mut fields) = document else {
        return Object::from_value(document).map(|_| ());
    };
    let is_list =
        fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    if is_list && let Some(Value::Array(items)) = fields.get_mut("items") {
        return std::mem::take(items)
            .into_iter()
            .try_for_each(|item| read_document(item, manifest));
    }
    let is_manifest =
        ["kind", "apiVersion", "metadata"].iter().any(|key| fields.contains_key(*key));
    if is_manifest {
        let warnings = warnings::warnings(&fields);
        manifest.objects.extend(Object::from_value(Value::Object(fields))?);
        manifest.warnings.extend(warnings);
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
    fn yaml_is_also_given_as_json_with_the_same_meaning() {
        let yaml = format!(
            "# nothing yet\n---\n{POOL}---\n---\n{MAP}data: {{a: \"é\\n\"}}\n\
             other: {{mode: 0644, big: 12345678901234567890}}\n"
        );
        let Manifest { objects, warnings, json } = read(yaml.as_bytes()).unwrap();
        let json = json.unwrap();
        let again = read(&json).unwrap();
        assert_eq!(format!("{:?}", again.objects), format!("{objects:?}"));
        assert_eq!((again.objects.len(), again.json), (2, None));
        assert_eq!((again.warnings, warnings.is_empty()), (warnings, false));
        assert!(std::str::from_utf8(&json).unwrap().contains(r#""mode":420"#));
    }

    #[test]
    fn yaml_that_is_too_large_as_json_is_not_given_as_such() {
        // A character of two bytes takes six in JSON.
        let yaml = format!("{POOL}other: \"{}\"\n", "\\a".repeat(MAX_JSON_BYTES / 6));
        let read = read(yaml.as_bytes()).unwrap();
        assert_eq!((read.objects.len(), read.json), (1, None));
    }

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

    const SMALL: Budget = Budget { nodes: 6, depth: 3, documents: 3 };

    #[test]
    fn json_and_yaml_have_the_same_budget() {
        for (json, yaml) in [
            (r#"{"a": [{"b": 1}]}"#, "a: [{b: 1}]"),
            (r#"{"a": [[1, ""]]}"#, "a:\n- - 1\n  - ''\n"),
            (r#"{"a": [0]} [0]"#, "a:\n- 0\n---\n- 0\n"),
        ] {
            let read = documents(json, SMALL).unwrap();
            assert_eq!(documents(yaml, SMALL).unwrap(), read, "{yaml}");
        }
        for (json, yaml, reason) in [
            (r#"{"a": [[1, "", 3]]}"#, "a:\n- [1, '', 3]\n", "more than 6 values"),
            (r#"{"a": [0]} [0, 1]"#, "a: [0]\n---\n[0, 1]\n", "more than 6 values"),
            (r#"{"a": [[[]]]}"#, "a: [[[]]]", "more than 3 deep"),
        ] {
            for text in [json, yaml] {
                let error = documents(text, SMALL).unwrap_err().to_string();
                assert!(error.contains(reason), "{text}: {error}");
            }
        }
    }

    #[test]
    fn what_aliases_repeat_counts_each_time() {
        let text = |count| format!("a: &a [0, 1]\nb: [{}]\n", "*a,".repeat(count));
        let budget = Budget { nodes: 20, ..SMALL };
        assert!(documents(&text(2), budget).is_ok());
        assert!(documents(&text(20), budget).is_err());
        let text = format!("a: &a '{}'\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(90));
        assert!(documents(&text, Budget::FILE).is_err(), "90 MiB of text");
    }

    #[test]
    fn a_text_of_the_whole_depth_is_read() {
        let depth = Budget::FILE.depth;
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[ # YAML\n", "]")] {
            let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(documents(&text, Budget::FILE).unwrap().len(), 1);
            let error = documents(&format!("[{text}]"), Budget::FILE).unwrap_err();
            assert!(matches!(error, ManifestError::Large(TooLarge::Depth(_))), "{error}");
        }
    }

    #[test]
    fn json_that_is_too_large_is_not_read_as_yaml() {
        // As YAML, the error would be the missing bracket.
        let error = documents("[0, 0, 0, 0, 0, 0, 0", SMALL).unwrap_err();
        assert!(matches!(error, ManifestError::Large(TooLarge::Nodes(6))), "{error}");
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_wherever_it_is() {
        for text in [
            r#"{"kind": "X", "a": {"b": 1, "b": 1}}"#,
            "kind: X\na: {b: 1, b: 1}\n",
            "kind: X\na:\n  - b: 1\n    \"b\": 1\n",
            r#"{"kind": "X"} {"a": [{"b": 1, "\u0062": 1}]}"#,
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            let expected = "the key \"b\" appears twice in one mapping at line ";
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        // The keys differ in YAML, and are the same text in JSON.
        let error = parse(b"kind: X\na: {1: x, '1': y}\n").unwrap_err().to_string();
        assert!(error.starts_with("the key \"1\" appears twice"), "{error}");
        // Merged keys are overridden.
        assert!(parse(b"x: &x {a: 1, b: 2}\ny: {<<: *x, a: 2}\n").is_ok());
    }

    #[test]
    fn a_key_is_cut_and_escaped_where_it_is_named() {
        let key = format!("\\u001b[31m\\n{}", "k".repeat(300));
        for text in
            [format!(r#"{{"{key}": 1, "{key}": 2}}"#), format!("\"{key}\": 1\n\"{key}\": 2\n")]
        {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            let expected =
                format!("the key \"\\u{{1b}}[31m\\n{}…\" appears twice", "k".repeat(238));
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn numbers_with_a_leading_zero_are_octal() {
        let text = "kind: MachineConfig\nmetadata: {name: a}\nspec: {config: {mode: 0644}}\n";
        let objects = parse(text.as_bytes()).unwrap();
        let [Object::MachineConfig(config)] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!(config.ignition().as_deref(), Some(r#"{"mode":420}"#));
    }
}
