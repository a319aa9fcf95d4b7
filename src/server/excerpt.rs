//! What a client sent, as far as it is repeated to anybody: escaped, and no longer than it has to be.

use std::fmt;

/// A pool's name: no object's is longer.
pub(super) fn pool(name: &str) -> Excerpt<'_> {
    Excerpt { text: name, most: 253 }
}

/// A header of a request.
pub(super) fn header(value: &str) -> Excerpt<'_> {
    Excerpt { text: value, most: 256 }
}

/// The beginning of a text, of so many characters, on one line and without what a terminal obeys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excerpt<'a> {
    text: &'a str,
    most: usize,
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain =
            |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\');
        if self.text.len() <= self.most && self.text.bytes().all(is_plain) {
            return f.write_str(self.text);
        }
        let mut rest = self.text.chars();
        for character in rest.by_ref().take(self.most) {
            for escaped in character.escape_debug() {
                fmt::Write::write_char(f, escaped)?;
            }
        }
        if rest.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_escaped_and_cut() {
        assert_eq!(pool("worker").to_string(), "worker");
        assert_eq!(pool("a\n\u{1b}[31m\"").to_string(), "a\\n\\u{1b}[31m\\\"");
        let long = "ü".repeat(300);
        assert_eq!(pool(&long).to_string(), "ü".repeat(253) + "…");
        assert_eq!(header(&long[..512]).to_string(), "ü".repeat(256));
    }
}
