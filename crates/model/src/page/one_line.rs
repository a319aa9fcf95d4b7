//! Escapes text for HTML: words of others are one line, and never markup.

use std::fmt;

use askama::filters::{Escaper, Html};

use crate::escape::escaped;

/// Escaper that writes the ends of lines, and characters that change the direction of reading, as escapes, and the rest as text of HTML.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneLine;

impl Escaper for OneLine {
    fn write_escaped_str<W: fmt::Write>(&self, mut to: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(&mut to, &escaped(text))
    }

    fn write_escaped_char<W: fmt::Write>(&self, to: W, c: char) -> fmt::Result {
        self.write_escaped_str(to, c.encode_utf8(&mut [0; 4]))
    }
}
