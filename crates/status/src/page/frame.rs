//! Contains parts that several pages share.

use std::fmt;

use askama::filters::{Escaper, Html};
use escape::escaped;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use time::OffsetDateTime;

use super::machine_query::MachineQuery;
use crate::overview::{Pool, Server};

pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) path: &'a str,
    pub(super) at: OffsetDateTime,
    pub(super) server: &'a Server,
}

/// Characters that are escaped in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

pub(super) fn pool_path(pool: &str) -> String {
    format!("/pools/{}", utf8_percent_encode(pool, ESCAPED))
}

/// Path of the machines of a pool, those with this text in their row; empty for all.
pub(super) fn machines_path(pool: &Pool, text: &str) -> String {
    let (pool, text) = (pool.name.clone(), text.to_owned());
    let query = MachineQuery { pool, text, page: 1, ..MachineQuery::default() };
    format!("{}#machines", query.path())
}

pub(super) fn specs(pool: &Pool) -> String {
    if pool.specs.is_empty() { "none yet".to_owned() } else { pool.specs.join(", ") }
}

/// Identifier of a heading.
pub(super) fn slug(heading: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    format!("section-{}", heading.chars().map(word).collect::<String>())
}

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
