//! Limits the size of parsed files, the same for JSON and YAML.
//!
//! A value in memory is many times as large as its text: `{"a":0}` has 7 bytes and takes some 500. JSON is measured by
//! its characters before it is parsed, YAML by its parser.

/// Limits for one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) nodes: usize,
    /// Maximum nesting of lists and mappings.
    pub(super) depth: usize,
    pub(super) documents: usize,
}

/// Maximum size of a manifest as JSON, in bytes: that of a file.
pub(super) const MAX_JSON_BYTES: usize = 64 << 20;

impl Budget {
    /// A MachineConfig has a node in 20 to 200 bytes: the limits fit a file of the maximum size full of them.
    pub(super) const FILE: Self = Self { nodes: 2_000_000, depth: 100, documents: 100_000 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The values and keys would take too much memory.
    #[error("has more than {0} values and keys")]
    Nodes(usize),
    /// The nesting would take too much stack.
    #[error("has lists or mappings nested more than {0} deep")]
    Depth(usize),
}

/// Checks that a JSON text is within the budget. `Ok(false)` means that it is no JSON; it can be YAML, which is limited
/// elsewhere.
///
/// Only tokens are checked, not the grammar.
pub(super) fn measure_json(text: &str, budget: Budget) -> Result<bool, TooLarge> {
    let bytes = text.as_bytes();
    let (mut nodes, mut depth, mut at) = (0, 0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        let length = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {
                at += 1;
                continue;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                Some(1)
            }
            b'"' => string(&bytes[at..]),
            _ => scalar(&bytes[at..]),
        };
        let Some(length) = length else { return Ok(false) };
        at += length;
        nodes += 1;
        if nodes > budget.nodes {
            return Err(TooLarge::Nodes(budget.nodes));
        }
        if depth > budget.depth {
            return Err(TooLarge::Depth(budget.depth));
        }
    }
    Ok(true)
}

/// The length of the string that a text begins with, quotes included.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The length of the number or literal that a text begins with.
fn scalar(text: &[u8]) -> Option<usize> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let length = text.iter().position(|byte| !is_part(byte)).unwrap_or(text.len());
    let is_scalar = match &text[..length] {
        b"true" | b"false" | b"null" => true,
        [b'-', digits @ ..] | digits => digits.first().is_some_and(u8::is_ascii_digit),
    };
    is_scalar.then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Budget = Budget { nodes: 9, depth: 4, documents: 1 };

    fn measured(text: &str) -> Result<bool, String> {
        measure_json(text, SMALL).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_json_is_left_to_yaml() {
        for text in ["", "{}", "[-1.5e+3,true , null]\n{\"a\\\"\": \"}\"}", "{\"a\": [1, {}]} 1"] {
            assert_eq!(measured(text), Ok(true), "{text}");
        }
        for text in ["{a: 1}", "{\"a\": 1}\n---\n", "{'a': 1}", "[*a]", "{} # x", "[\"a", "[\"a\\"]
        {
            assert_eq!(measured(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn values_and_keys_are_counted_over_all_documents() {
        let full = r#"{"a": 0} {"b,c": "[[[["} [[], {}]"#;
        assert_eq!(measured(full), Ok(true));
        let error = measured(&format!("{full} 1")).unwrap_err();
        assert_eq!(error, "has more than 9 values and keys");
    }

    #[test]
    fn lists_and_mappings_within_each_other_are_counted() {
        assert_eq!(measured(r#"[{"a": [[]]}] [[[[]]]]"#), Ok(true));
        let error = measured(r#"[{"a": [[[]]]}]"#).unwrap_err();
        assert_eq!(error, "has lists or mappings nested more than 4 deep");
        assert_eq!(measured("]]]]}"), Ok(true));
    }
}
