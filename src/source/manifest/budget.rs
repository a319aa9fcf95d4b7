//! How much of a file is taken in, the same for JSON and for YAML.
//!
//! A value in memory is many times as large as its text: `{"a":0}` has 7 bytes and takes some 500.
//! JSON is measured before any of it is read into memory, by looking at its characters only; YAML
//! by its parser on the way.

/// How much is taken in of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Values and keys together.
    pub(super) nodes: usize,
    /// Lists and mappings within each other.
    pub(super) depth: usize,
    /// Documents one after the other.
    pub(super) documents: usize,
}

impl Budget {
    /// A machine config has a node in 20 to 200 bytes: in a file of the largest size there is room
    /// for as many as fit into it.
    pub(super) const FILE: Self = Self { nodes: 2_000_000, depth: 100, documents: 100_000 };
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// More values and keys than this: they would take too much memory.
    #[error("holds more than {0} values and keys")]
    Nodes(usize),
    /// Deeper than this: what reads it would take too much stack.
    #[error("has lists or mappings more than {0} deep within each other")]
    Depth(usize),
}

/// Whether a text is within the budget, as far as it is JSON: `Ok(false)` comes with the first
/// character that no JSON has there. It may be YAML, and within the budget of that.
///
/// Looks at tokens only: what has those of JSON may break its grammar.
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
        assert_eq!(error, "holds more than 9 values and keys");
    }

    #[test]
    fn lists_and_mappings_within_each_other_are_counted() {
        assert_eq!(measured(r#"[{"a": [[]]}] [[[[]]]]"#), Ok(true));
        let error = measured(r#"[{"a": [[[]]]}]"#).unwrap_err();
        assert_eq!(error, "has lists or mappings more than 4 deep within each other");
        assert_eq!(measured("]]]]}"), Ok(true));
    }
}
