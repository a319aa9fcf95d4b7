//! Formats the page of a pool: numbers of machines, the machine that its config makes, and the difference to the config before.

use askama::Template;
use inspect::{Change, ChangeKind, Machine, Section, facts, sections};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::frame::{Frame, machines_path, pool_path, slug, specs};
use super::machine_query::WITHOUT_TLS;
use super::when::{day, when};
use crate::overview::{Pool, Server};

/// Lines of a difference that are shown of one thing.
const MAX_LINES: usize = 300;

/// Contents of the page of one pool.
#[derive(Debug)]
pub struct PoolView<'a> {
    /// Time of this state.
    pub at: OffsetDateTime,
    /// Server that reports the state.
    pub server: &'a Server,
    /// State of the pool.
    pub pool: &'a Pool,
    /// Numbers of its machines by state.
    pub machines: &'a [(&'static str, usize)],
    /// Machine that its config makes; `None` while it serves nothing.
    pub machine: Option<&'a Machine>,
    /// The machine config before this one, and what differs; `None` where none is known.
    pub before: Option<(&'a str, &'a [Change])>,
}

/// The page of one pool.
///
/// # Errors
/// It cannot be formatted.
pub fn pool_page(view: &PoolView<'_>) -> Result<String, askama::Error> {
    let path = pool_path(&view.pool.name);
    let title = format!("Pool {}", view.pool.name);
    let frame = Frame { title: &title, path: &path, at: view.at, server: view.server };
    let facts = view.machine.map(facts).unwrap_or_default();
    let sections = view.machine.map(|it| sections(it, view.at)).unwrap_or_default();
    PoolPage { frame, view, facts, sections }.render()
}

#[derive(Template)]
#[template(path = "pool.html", config = "src/page/askama.toml")]
struct PoolPage<'a> {
    frame: Frame<'a>,
    view: &'a PoolView<'a>,
    facts: Vec<(&'static str, String)>,
    sections: Vec<Section>,
}

/// Reads a cell that is a date, with true if it is over.
fn date(cell: &str) -> Option<(OffsetDateTime, bool)> {
    let expired = cell.strip_suffix(" EXPIRED");
    Some((OffsetDateTime::parse(expired.unwrap_or(cell), &Rfc3339).ok()?, expired.is_some()))
}

fn sign(change: &Change) -> &'static str {
    match change.change {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Changed => "changed",
    }
}

/// Lines of a difference with their classes, as many as are shown, and the number of further ones.
fn diff_lines(change: &Change) -> (Vec<(&'static str, &str)>, usize) {
    let lines = || change.diff.iter().flat_map(|diff| diff.split_terminator('\n'));
    let shown = lines().take(MAX_LINES).map(|line| {
        let class = match line.chars().next() {
            Some('+') => "plus",
            Some('-') => "minus",
            Some('@') => "place",
            _ => "same",
        };
        (class, line)
    });
    (shown.collect(), lines().count().saturating_sub(MAX_LINES))
}
