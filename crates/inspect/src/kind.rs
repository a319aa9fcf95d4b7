//! Describes the contents of a file in a few words.

use std::collections::BTreeSet;

use pki::Certificate;
use secrets::SecretKind;

/// Describes contents: first by secrets in them, then by format.
pub(super) fn kind(
    bytes: &[u8],
    secret: &BTreeSet<SecretKind>,
    certificates: &[Certificate],
) -> String {
    let mut parts: Vec<String> = secret.iter().map(|kind| format!("SECRET: {kind}")).collect();
    match certificates.len() {
        0 => {}
        1 => parts.push("1 certificate".to_owned()),
        many => parts.push(format!("{many} certificates")),
    }
    if parts.is_empty() {
        parts.push(shape(bytes));
    }
    parts.join(", ")
}

fn shape(bytes: &[u8]) -> String {
    match bytes {
        [] => return "empty".to_owned(),
        [0x1f, 0x8b, ..] => return "gzip archive".to_owned(),
        [0x7f, b'E', b'L', b'F', ..] => return "program".to_owned(),
        _ => {}
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return "binary".to_owned() };
    if text.contains('\0') {
        return "binary".to_owned();
    }
    let first = text.lines().next().unwrap_or_default();
    if let Some(interpreter) = first.strip_prefix("#!") {
        let words =
            interpreter.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
        let name = words.filter(|word| *word != "env").find(|word| !word.starts_with('-'));
        return name.map_or_else(
            || "script without an interpreter".to_owned(),
            |name| format!("script, {name}"),
        );
    }
    if text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    {
        return "JSON".to_owned();
    }
    if let Some(kind) = text.lines().find_map(|line| line.strip_prefix("kind:")) {
        return format!("YAML, {}", kind.trim());
    }
    let lines = text.lines().count();
    if lines == 1 { "text, 1 line".to_owned() } else { format!("text, {lines} lines") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_by_what_they_look_like() {
        for (bytes, reported) in [
            (&b""[..], "empty"),
            (b"\x1f\x8b\x08", "gzip archive"),
            (b"\x7fELF\x02", "program"),
            (b"\xff\xfe", "binary"),
            (b"a\0b", "binary"),
            (b"#!/usr/bin/env bash\nexit\n", "script, bash"),
            (b"#!/bin/sh -e\n", "script, sh"),
            (b"#!\n", "script without an interpreter"),
            (b"{\"a\": 1}\n", "JSON"),
            (b"{a: 1}\n", "text, 1 line"),
            (b"apiVersion: v1\nkind: Config\n", "YAML, Config"),
            (b"a\nb\n", "text, 2 lines"),
        ] {
            assert_eq!(kind(bytes, &BTreeSet::new(), &[]), reported);
        }
        let secret = BTreeSet::from([SecretKind::PrivateKey]);
        assert_eq!(kind(b"x", &secret, &[]), "SECRET: private key");
    }
}
