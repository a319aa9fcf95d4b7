//! A value without duplicate keys in its mappings.
//!
//! Readers of duplicate keys differ: some take the first, some the last, some merge both. The check is made on the
//! values, because keys that differ in YAML (`1` and `"1"`) are the same here.

use std::fmt;

use model::escape::quoted;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value, from JSON or YAML.
pub(super) struct UniqueKeys(pub(super) Value);

/// Message about a duplicate key.
pub(super) fn is_twice(key: &str) -> String {
    format!("the key {} appears twice in one mapping", quoted(key))
}

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor).map(Self)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        number(Number::from_i128(value))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        number(Number::from_u128(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        number(Number::from_f64(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueKeys(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(is_twice(&key)));
            }
            let UniqueKeys(value) = entries.next_value()?;
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

/// Converts a number to JSON; others would be lost.
fn number<E: Error>(number: Option<Number>) -> Result<Value, E> {
    number.map(Value::Number).ok_or_else(|| E::custom("a number that JSON cannot express"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_as_without_the_check() {
        let text = r#" {"a": [1, -1, 1.5, 18446744073709551615, "\u0061\n", true, null, {}],
                        "b": {"c": {"a": []}}, "$serde_json::private::RawValue": "1"} "#;
        let UniqueKeys(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value["a"][3], 18_446_744_073_709_551_615_u64);
        let keys: Vec<_> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["a", "b", "$serde_json::private::RawValue"]);
        let again: UniqueKeys = serde_json::from_str(&value.to_string()).unwrap();
        assert_eq!(again.0, value);
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_at_any_depth() {
        for (text, key) in [
            (r#"{"a": 1, "a": 1}"#, "\"a\""),
            (r#"{"x": [{"a": 1, "b": 2, "\u0061": 3}]}"#, "\"a\""),
            (r#"{"\n\u001b": 1, "\n\u001b": 2}"#, "\"\\n\\u{1b}\""),
        ] {
            let error =
                serde_json::from_str::<UniqueKeys>(text).map(|_| ()).unwrap_err().to_string();
            let expected = format!("the key {key} appears twice in one mapping at line 1");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(serde_json::from_str::<UniqueKeys>(r#"[{"a": 1}, {"a": {"a": 1}}]"#).is_ok());
    }
}
