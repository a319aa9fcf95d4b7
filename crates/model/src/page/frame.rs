//! Contains parts that several pages share.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use time::OffsetDateTime;

use super::machine_query::{MachineQuery, WITHOUT_TLS};
use crate::overview::{Pool, Server};

/// Common data of all pages.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// Path of the page.
    pub(super) path: &'a str,
    pub(super) at: OffsetDateTime,
    pub(super) server: &'a Server,
}

/// Characters that are escaped in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Path of a pool's page.
pub(super) fn pool_path(pool: &str) -> String {
    format!("/pools/{}", utf8_percent_encode(pool, ESCAPED))
}

/// Path of the machines of a pool.
pub(super) fn machines_path(pool: &Pool) -> String {
    let query = MachineQuery { pool: pool.name.clone(), page: 1, ..MachineQuery::default() };
    format!("{}#machines", query.path())
}

/// Path of the machines of a pool that came by the port without TLS.
pub(super) fn without_tls_path(pool: &Pool) -> String {
    let (pool, text) = (pool.name.clone(), WITHOUT_TLS.to_owned());
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
