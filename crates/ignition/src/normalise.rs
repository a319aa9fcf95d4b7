//! Brings a parsed JSON value into the shape of a declared spec.
//!
//! The result has only fields of the spec, under their exact names and with values of the right type, so that
//! deserialization cannot fail. The leniency is Ignition's: unknown fields and the case of names are ignored, and
//! `null` is the same as absence.

use serde_json::{Map, Value};

use super::error::{Error, FieldPath};
use super::fields::{Shape, Spec, known};

/// Drops fields that `spec` lacks, and checks the types of the others.
pub(super) fn normalise(
    value: Value,
    shape: &Shape,
    spec: Spec,
    at: &FieldPath<'_>,
) -> Result<Value, Error> {
    match (shape, value) {
        (_, Value::Null) => Ok(absent(shape)),
        (Shape::Object(fields), Value::Object(members)) => {
            let mut kept = Map::with_capacity(members.len());
            for (name, value) in members {
                if let Some(field) = known(fields, &name)
                    && field.since <= spec
                    && !value.is_null()
                {
                    let value = normalise(value, field.shape, spec, &at.field(field.name))?;
                    kept.insert(field.name.to_owned(), value);
                }
            }
            Ok(Value::Object(kept))
        }
        (Shape::List(item), Value::Array(values)) => {
            let items = values.into_iter().enumerate();
            items.map(|(i, value)| normalise(value, item, spec, &at.item(i))).collect()
        }
        (Shape::Text, text @ Value::String(_)) => Ok(text),
        (Shape::Flag, flag @ Value::Bool(_)) => Ok(flag),
        (Shape::Integer, number) if number.is_i64() => Ok(number),
        (shape, value) => Err(Error::WrongType {
            path: at.to_string(),
            wanted: wanted(shape),
            found: type_of(&value),
        }),
    }
}

/// Replacement for `null` in a list, where it cannot be omitted.
fn absent(shape: &Shape) -> Value {
    match shape {
        Shape::Text => Value::String(String::new()),
        Shape::Integer => Value::from(0),
        Shape::Flag => Value::Bool(false),
        Shape::Object(_) => Value::Object(Map::new()),
        Shape::List(_) => Value::Array(Vec::new()),
    }
}

fn wanted(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text => "a string",
        Shape::Integer => "an integer",
        Shape::Flag => "true or false",
        Shape::Object(_) => "an object",
        Shape::List(_) => "a list",
    }
}

pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number with a fraction or exponent",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spec3;
    use super::*;

    fn normalised(value: Value, spec: Spec) -> Result<Value, String> {
        normalise(value, spec3::CONFIG, spec, &FieldPath::ROOT).map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_later_and_null_fields_are_dropped() {
        let config = json!({
            "ignition": {"version": "3.1.0", "proxy": null, "novelty": 1},
            "storage": {"luks": [{"name": "data"}], "files": [{"path": "/a", "mode": null}]},
        });
        let kept = json!({
            "ignition": {"version": "3.1.0"},
            "storage": {"files": [{"path": "/a"}]},
        });
        assert_eq!(normalised(config, (3, 1)), Ok(kept));
    }

    #[test]
    fn names_are_read_in_any_case_and_null_items_are_default_ones() {
        let config =
            json!({"Storage": {"FILES": [null]}, "passwd": {"users": [{"groups": [null]}]}});
        let read = json!({"storage": {"files": [{}]}, "passwd": {"users": [{"groups": [""]}]}});
        assert_eq!(normalised(config, (3, 6)), Ok(read));
    }

    #[test]
    fn a_wrong_type_is_named_with_its_place() {
        for (config, message) in [
            (json!([]), ": a list where the spec has an object"),
            (
                json!({"storage": {"files": {}}}),
                "storage.files: an object where the spec has a list",
            ),
            (
                json!({"storage": {"files": [{"mode": "0644"}]}}),
                "storage.files[0].mode: a string where the spec has an integer",
            ),
            (
                json!({"storage": {"files": [{"mode": 420.0}]}}),
                "storage.files[0].mode: a number with a fraction or exponent where the spec has an integer",
            ),
            (
                json!({"systemd": {"units": [{"name": true}]}}),
                "systemd.units[0].name: true or false where the spec has a string",
            ),
        ] {
            assert_eq!(normalised(config, (3, 6)), Err(message.to_owned()));
        }
    }
}
