//! Building blocks of several rules.

use std::collections::HashSet;
use std::hash::Hash;

use super::super::error::{Error, FieldPath};

pub(super) type Checked = Result<(), Error>;

/// Checks each item of a list at its place.
pub(super) fn each<T>(
    items: &[T],
    at: &FieldPath<'_>,
    check: impl Fn(&T, &FieldPath<'_>) -> Checked,
) -> Checked {
    items.iter().enumerate().try_for_each(|(i, item)| check(item, &at.item(i)))
}

/// Checks that no two items of a list have the same key.
pub(super) fn all_unique<'a, T, K: Hash + Eq>(
    items: &'a [T],
    at: &FieldPath<'_>,
    key: impl Fn(&'a T) -> K,
) -> Checked {
    unique(&mut HashSet::with_capacity(items.len()), items, at, key)
}

/// Checks uniqueness across lists that share `seen`.
pub(super) fn unique<'a, T, K: Hash + Eq>(
    seen: &mut HashSet<K>,
    items: &'a [T],
    at: &FieldPath<'_>,
    key: impl Fn(&'a T) -> K,
) -> Checked {
    match items.iter().position(|item| !seen.insert(key(item))) {
        Some(i) => Err(at.item(i).invalid("appears twice")),
        None => Ok(()),
    }
}

/// Checks for an absolute path without `.`, `..`, doubled or trailing slashes.
pub(super) fn check_path(path: &str, at: &FieldPath<'_>) -> Checked {
    let Some(relative) = path.strip_prefix('/') else {
        let reason = if path.is_empty() { "is empty" } else { "is not absolute" };
        return Err(at.invalid(reason));
    };
    let clean =
        relative.is_empty() || relative.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if clean { Ok(()) } else { Err(at.invalid(format!("{path} has an empty, '.' or '..' part"))) }
}

/// Cleans an absolute path, so that [`check_path`] accepts it.
pub(crate) fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Checks for permission bits, with setuid, setgid and sticky.
pub(super) fn check_mode(mode: Option<i64>, at: &FieldPath<'_>) -> Checked {
    match mode {
        Some(mode) if !(0..=0o7777).contains(&mode) => {
            Err(at.field("mode").invalid(format!("{mode} is not within 0 and 4095 (07777)")))
        }
        _ => Ok(()),
    }
}

/// Returns `true` if a text is set and not empty.
pub(super) fn says(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_of_what_says_nothing() {
        for (path, clean) in
            [("/", "/"), ("/a//b/./c/", "/a/b/c"), ("/a/../b", "/b"), ("/../a", "/a"), ("", "/")]
        {
            assert_eq!(clean_path(path), clean);
        }
    }
}
