//! What a README shows, as an administrator who follows it would take it over.

use std::fs;

use super::in_repository;

/// The first example that has this part in it.
pub(crate) fn example(readme: &str, part: &str) -> String {
    let text = fs::read_to_string(in_repository(readme)).expect("a README");
    let mut examples = text.split("```").skip(1).step_by(2).filter(|text| text.contains(part));
    let found = examples.next().unwrap_or_else(|| panic!("{readme}: no example with {part:?}"));
    let (_, text) = found.split_once('\n').expect("lines");
    text.to_owned()
}

/// Replaces what has to be there.
pub(crate) fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "no {old:?} in:\n{text}");
    text.replace(old, new)
}
