//! JSON as Go's `encoding/json` reads it into a struct, which is how Ignition reads every config.
//!
//! Go is more lenient than serde: invalid UTF-8 and lone surrogates become U+FFFD, unknown fields can have numbers of
//! any size and deep nesting, and of members with the same name, in any case, the later one overwrites the earlier one.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::Error;

/// Maximum nesting that Go reads.
const MAX_DEPTH: usize = 10_000;
/// Maximum nesting that is parsed here, deeper than any field of a spec.
const MAX_READ_DEPTH: usize = 32;

pub(super) fn read(bytes: &[u8]) -> Result<Value, Error> {
    let text = String::from_utf8_lossy(bytes);
    let text = whole_surrogates(&text);
    let document: &RawValue = serde_json::from_str(&text)?;
    if depth(document.get()) > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    value(document.get(), 0)
}

fn value(text: &str, depth: usize) -> Result<Value, Error> {
    Ok(match text.as_bytes().first() {
        _ if depth > MAX_READ_DEPTH => Value::Null,
        Some(b'{') => {
            let mut object = Map::new();
            for (name, member) in members(text)? {
                set_member(&mut object, &name, value(member, depth + 1)?);
            }
            Value::Object(object)
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            elements.into_iter().map(|it| value(it.get(), depth + 1)).collect::<Result<_, _>>()?
        }
        // Go refuses numbers beyond an integer, and a spec has no other numbers.
        Some(b'-' | b'0'..=b'9') => {
            text.parse::<i64>().map_or_else(|_| Value::from(0.5), Value::from)
        }
        _ => serde_json::from_str(text)?,
    })
}

/// Returns `true` if Go takes `name` for that of the field `field`.
pub fn names_field(name: &str, field: &str) -> bool {
    folded(name).eq_ignore_ascii_case(field)
}

/// Replaces the two non-ASCII letters that Go folds into ASCII; other letters keep their case.
fn folded(name: &str) -> String {
    name.replace('\u{17f}', "s").replace('\u{212a}', "k")
}

/// Adds a member, or overwrites the one whose name Go treats as the same as `name`.
fn set_member(object: &mut Map<String, Value>, name: &str, value: Value) {
    let name = folded(name);
    match object.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
        Some((_, earlier)) => overlay(earlier, value),
        None => _ = object.insert(name, value),
    }
}

/// Overwrites a value as Go does when it decodes another one into the same field.
fn overlay(earlier: &mut Value, later: Value) {
    match (earlier, later) {
        (Value::Object(earlier), Value::Object(later)) => {
            later.into_iter().for_each(|(name, value)| set_member(earlier, &name, value));
        }
        (Value::Array(earlier), Value::Array(later)) => {
            earlier.truncate(later.len());
            let mut later = later.into_iter();
            for (element, value) in earlier.iter_mut().zip(later.by_ref()) {
                overlay(element, value);
            }
            earlier.extend(later);
        }
        // Null does not change an object.
        (Value::Object(_), Value::Null) => {}
        (earlier, later) => *earlier = later,
    }
}

/// Replaces each escape of a lone surrogate with U+FFFD.
fn whole_surrogates(text: &str) -> Cow<'_, str> {
    let mut new = String::new();
    let mut end = 0;
    let mut at = 0;
    let unit = |at: usize| -> Option<u16> {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    while let Some(found) = text[at..].find('\\') {
        at += found;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                new += &text[end..at];
                new += "\\ufffd";
                at += 6;
                end = at;
            }
            // The character after a backslash is never one that starts an escape.
            _ => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if end == 0 { Cow::Borrowed(text) } else { Cow::Owned(new + &text[end..]) }
}

/// Nesting of objects and lists in a valid text.
fn depth(text: &str) -> usize {
    let (mut deepest, mut depth) = (0_usize, 0_usize);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'{' | b'[' if !is_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The members of an object as they are written, in their order.
///
/// # Errors
/// The text is no object.
pub fn members(text: &str) -> serde_json::Result<Vec<(String, &str)>> {
    serde_json::Deserializer::from_str(text).deserialize_map(Members)
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            members.push((name, value.get()));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_reads_is_read() {
        let deep = format!("{}{}", "[".repeat(9_999), "]".repeat(9_999));
        for (text, expected) in [
            (
                &br#"{"a": "\ud800", "b": "\ud83d\ude00\udc00\\ud800"}"#[..],
                json!({"a": "\u{fffd}", "b": "\u{1f600}\u{fffd}\\ud800"}),
            ),
            (b"{\"a\": \"\xff\"}", json!({"a": "\u{fffd}"})),
            (
                br#"{"a": 1e400, "b": 3, "c": 1.0, "d": 99999999999999999999}"#,
                json!({"a": 0.5, "b": 3, "c": 0.5, "d": 0.5}),
            ),
            (br#"{"a": {"b": 1, "c": 2}, "A": {"B": 3}}"#, json!({"a": {"b": 3, "c": 2}})),
            (br#"{"a": [{"b": 1}, 2], "a": [{"c": 3}]}"#, json!({"a": [{"b": 1, "c": 3}]})),
            (br#"{"a": [1], "a": [2, 3], "b": 1, "b": null}"#, json!({"a": [2, 3], "b": null})),
            (br#"{"a": {"b": -0}, "a": null}"#, json!({"a": {"b": 0}})),
            ("{\"\u{17f}ource\": 1}".as_bytes(), json!({"source": 1})),
            (format!("{{\"a\": {deep}, \"b\": 1}}").as_bytes(), json!({"b": 1})),
        ] {
            let mut read = read(text).unwrap();
            if expected.get("a").is_none() {
                read.as_object_mut().unwrap().remove("a");
            }
            assert_eq!(read, expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_001), "]".repeat(10_001));
        for text in [
            "",
            "{",
            "{}x",
            "\u{feff}{}",
            "{\"a\": \"\u{1}\"}",
            "{\"a\": \"\\x\"}",
            "{\"a\": 01}",
            "{\"a\": \"\\ud8\"}",
            &deep,
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
