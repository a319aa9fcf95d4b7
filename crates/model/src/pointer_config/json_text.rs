//! Edits JSON as text, so that all other bytes stay the same.
//!
//! Only requested values are parsed: numbers of any size, any nesting and unknown fields are skipped.

use std::ops::Range;

use ignition::names_field;
use serde_json::value::RawValue;

/// The members of an object, in their order, `None` if the text is no object.
pub(super) fn members(text: &str) -> Option<Vec<(String, &str)>> {
    ignition::members(text).ok()
}

/// The elements of an array, in their order, `None` if the text is no array.
pub(super) fn elements(text: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// The value at a path of names, `None` if there is none. The last of several members with one name counts, and names
/// match as in Go's `encoding/json`.
pub(super) fn find<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(text, |text, name| {
        let members = members(text)?;
        members.into_iter().rev().find(|(own, _)| names_field(own, name)).map(|(_, value)| value)
    })
}

/// The decoded string, `None` if the text is none.
pub(super) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// The JSON value of a text, without white space around it.
pub(super) fn document(text: &str) -> Option<&str> {
    serde_json::from_str(text).ok().map(RawValue::get)
}

/// Byte range of `part` in `whole`, of which it is a slice.
pub(super) fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// Replaces these ranges of a text, which are sorted and disjoint.
pub(super) fn spliced(text: &str, changes: &[(Range<usize>, String)]) -> String {
    let mut new = String::with_capacity(text.len());
    let mut end = 0;
    for (place, contents) in changes {
        new += &text[end..place.start];
        new += contents;
        end = place.end;
    }
    new + &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_as_they_are_written() {
        let text =
            r#" {"a": {"b": [ 1.10 , 1e400,{"c":12345678901234567890123} ]}, "a\u0062": "x"} "#;
        assert_eq!(
            find(text, &["a", "b"]),
            Some(r#"[ 1.10 , 1e400,{"c":12345678901234567890123} ]"#)
        );
        let list = elements(find(text, &["a", "b"]).unwrap()).unwrap();
        assert_eq!(list, ["1.10", "1e400", r#"{"c":12345678901234567890123}"#]);
        assert_eq!(&text[place(text, list[0])], "1.10");
        assert_eq!(find(text, &["ab"]).and_then(string).as_deref(), Some("x"));
        assert_eq!(find(text, &[]), Some(text));
        for path in [&["b"][..], &["a", "b", "c"], &["a", "c"], &["ab", "x"]] {
            assert_eq!(find(text, path), None, "{path:?}");
        }
        assert_eq!(find(r#"{"a":1,"a":2}"#, &["a"]), Some("2"), "as Go reads it");
        assert_eq!(find("{\"\u{17f}ource\":1}", &["source"]), Some("1"), "as Go reads it");
        assert_eq!((members("[]"), elements("{}"), string("1")), (None, None, None));
    }

    #[test]
    fn a_document_is_one_value_and_no_more() {
        assert_eq!(document(" {\"a\": 1}\n"), Some("{\"a\": 1}"));
        for text in ["", " ", "{", "{} {}", "{}x", "{\"a\": nul}", "\u{feff}{}"] {
            assert_eq!(document(text), None, "{text:?}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(document(&deep), Some(&deep[..]), "no depth is too much");
    }

    #[test]
    fn a_splice_changes_its_places_alone() {
        let change = |place: Range<usize>, text: &str| (place, text.to_owned());
        assert_eq!(spliced("abcdef", &[]), "abcdef");
        assert_eq!(spliced("abcdef", &[change(1..2, "XY"), change(4..6, "")]), "aXYcd");
        assert_eq!(spliced("abcdef", &[change(0..3, ""), change(3..6, "")]), "");
    }
}
