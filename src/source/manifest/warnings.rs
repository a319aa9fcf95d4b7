//! Fields of a manifest that have no effect, and are reported.

use ignition::ignored;
use model::escape::{REASON, cut};
use model::objects::{MachineConfigSpec, unread_fields, unread_kind, unread_version};
use model::registry_ca;
use serde_json::{Map, Value};

/// Maximum number of fields that are named for one object; others are counted.
const MAX_NAMED: usize = 20;

/// Fields of a document that have no effect, one line each, with the object's kind and name.
pub(super) fn warnings(document: &Map<String, Value>) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = text(document.get("kind"));
    let metadata = |key| text(document.get("metadata").and_then(|metadata| metadata.get(key)));
    let (name, namespace) = (metadata("name"), metadata("namespace"));
    let version = text(document.get("apiVersion"));
    let mut reasons = Vec::new();
    reasons.extend(unread_version(&kind, &version).map(|reason| format!("apiVersion: {reason}")));
    reasons.extend(unread_kind(&kind, &version).map(|reason| format!("kind: {reason}")));
    reasons.extend(unread_fields(document));
    if kind == "ConfigMap" && version == "v1" {
        reasons.extend(registry_ca::misplaced(&namespace, &name));
    }
    if kind == "MachineConfig"
        && let Some(Value::Object(spec)) = document.get("spec")
    {
        reasons.extend(of_machine_config(spec));
        let reason = || "metadata.name: has capitals, which an API server refuses".to_owned();
        reasons.extend(name.contains(|c: char| c.is_ascii_uppercase()).then(reason));
    }
    let line = |reason: String| format!("{kind} {}: {}", cut(&name, REASON), cut(&reason, REASON));
    bounded(reasons).into_iter().map(line).collect()
}

/// Fields without effect in an Ignition config, for an object that the API server has checked.
pub(crate) fn of_config(config: &str) -> Vec<String> {
    let config = serde_json::from_str(config).unwrap_or_default();
    bounded(of_ignition(&config))
}

fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_NAMED);
    lines.truncate(MAX_NAMED);
    lines.extend((more > 0).then(|| format!("and {more} more such fields")));
    lines
}

fn of_machine_config(spec: &Map<String, Value>) -> Vec<String> {
    // Names of the fields when serialized.
    let known = serde_json::to_value(MachineConfigSpec::default()).unwrap_or_default();
    let unknown = spec.iter().filter(|(name, value)| known.get(name).is_none() && !value.is_null());
    let mut lines: Vec<_> =
        unknown.map(|(name, _)| format!("spec.{name}: unknown field, ignored")).collect();
    if let Some(config) = spec.get("config") {
        lines.extend(of_ignition(config).into_iter().map(|line| format!("spec.config.{line}")));
    }
    lines
}

fn of_ignition(config: &Value) -> Vec<String> {
    // An invalid config is reported when it is rendered.
    let ignored = ignored(config).unwrap_or_default();
    ignored.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn so_many_fields_are_named_and_the_others_counted() {
        let fields = |many: usize| {
            let fields = (0..many).map(|it| (format!("x{it:02}"), Value::from(1)));
            fields.collect::<Map<_, _>>()
        };
        for (many, more) in [(MAX_NAMED, None), (MAX_NAMED + 3, Some("and 3 more such fields"))] {
            let mut config = fields(many);
            config.insert("ignition".to_owned(), json!({"version": "3.4.0"}));
            let lines = of_config(&Value::Object(config).to_string());
            assert_eq!(lines.len(), MAX_NAMED + usize::from(more.is_some()), "{lines:?}");
            assert_eq!(lines.get(MAX_NAMED).map(String::as_str), more);
            let object = json!({
                "kind": "MachineConfig", "metadata": {"name": "a"}, "spec": fields(many),
                "apiVersion": "machineconfiguration.openshift.io/v1",
            });
            let lines = warnings(object.as_object().unwrap());
            assert_eq!(lines.len(), MAX_NAMED + usize::from(more.is_some()), "{lines:?}");
            let last = more.map(|more| format!("MachineConfig a: {more}"));
            assert_eq!(lines.get(MAX_NAMED), last.as_ref());
        }
    }
}
