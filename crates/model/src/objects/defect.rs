//! Faults of objects, with and without quoted values.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fault of an object or a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectDefect {
    /// Full reason, which can quote a value.
    pub reason: String,
    /// Field and expected type, if they are known: names and types, no values of the object.
    pub outline: Option<String>,
}

impl ObjectDefect {
    /// Replaces the reason with the outline, for objects whose values are secret.
    pub(super) fn without_values(self) -> Self {
        let reason = self.outline.clone().unwrap_or_else(|| "cannot be read".to_owned());
        Self { reason, ..self }
    }
}

impl<T: Into<String>> From<T> for ObjectDefect {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), outline: None }
    }
}

/// Deserializes a value; the error names the field.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, ObjectDefect> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        let outline = belongs(&inner).map(|what| format!("{place}{what}"));
        ObjectDefect { reason: format!("{place}{inner}"), outline }
    })
}

/// The parts of a serde message that name types and fields, without the value at its beginning. Other parts may be
/// values too.
fn belongs(message: &str) -> Option<String> {
    if let Some(field) = message.strip_prefix("missing field ") {
        return Some(format!("{} is missing", field.trim_matches('`')));
    }
    let is_typed = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    // The last match: the value can contain these words, and the expected type cannot.
    let (_, expected) = message.rsplit_once(", expected ").filter(|_| is_typed)?;
    let expected = match expected {
        text if text.starts_with("struct ") || text == "a map" => "a mapping",
        "a sequence" => "a list",
        text if ["i32", "i64", "u32", "u64"].contains(&text) => "a number",
        text => text,
    };
    Some(format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is there to be read into")]
    struct Pool {
        spec: Spec,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is there to be read into")]
    struct Spec {
        configuration: std::collections::BTreeMap<String, String>,
        count: u32,
        names: Vec<String>,
    }

    #[test]
    fn an_outline_has_field_and_type_and_no_value() {
        let spec = |change: Value| {
            let mut spec = json!({"configuration": {}, "count": 1, "names": []});
            spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            json!({"spec": spec})
        };
        for (value, outline) in [
            (json!({"spec": "SECRET"}), "spec: expected a mapping"),
            (spec(json!({"configuration": "SECRET"})), "spec.configuration: expected a mapping"),
            (
                spec(json!({"configuration": "SECRET, expected x"})),
                "spec.configuration: expected a mapping",
            ),
            (spec(json!({"count": "SECRET"})), "spec.count: expected a number"),
            (spec(json!({"names": [1]})), "spec.names[0]: expected a string"),
            (spec(json!({"names": "SECRET"})), "spec.names: expected a list"),
            (json!({"spec": {"count": 1}}), "spec: configuration is missing"),
            (json!(["SECRET"]), "[0]: expected a mapping"),
        ] {
            let defect = read::<Pool>(value).unwrap_err();
            assert_eq!(defect.outline.as_deref(), Some(outline), "{}", defect.reason);
        }
        let defect = read::<Pool>(json!({"spec": "SECRET"})).unwrap_err();
        assert_eq!(defect.reason, "spec: invalid type: string \"SECRET\", expected struct Spec");
    }

    #[test]
    fn a_message_of_another_form_is_not_shown() {
        for message in
            ["SECRET", "unknown variant `SECRET`, expected `a` or `b`", "SECRET at line 1"]
        {
            assert_eq!(belongs(message), None);
        }
    }
}
