//! How text gets into HTML: words of others are one line, and never markup.

use std::fmt;

use askama::filters::{Escaper, Html};

use crate::escape::escaped;

/// Writes what ends a line, moves a cursor or turns the order of reading around as its escape, and the rest as HTML text.
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
