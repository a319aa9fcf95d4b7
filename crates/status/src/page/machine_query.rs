//! Filters, sorts and pages machines by the query of the page's address, so that it works without a
//! script and can be sent to a colleague.

use std::cmp::Ordering;

use escape::NAME;
use form_urlencoded::Serializer;
use model::ledger::Severity;
use strum::{EnumString, IntoStaticStr};

use crate::overview::MachineLine;

/// Text that finds the machines whose last request came by the port without TLS.
pub(super) const WITHOUT_TLS: &str = "without TLS";

/// Machines on one page.
const MAX_ROWS: usize = 100;

/// Column by which machines are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Column {
    /// Urgency, the latest machine first.
    #[default]
    State,
    Address,
    Pool,
    Times,
    First,
    Last,
}

/// Filter, order and page of machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineQuery {
    /// Requested pool; empty for all.
    pub(super) pool: String,
    pub(super) state: Option<Severity>,
    /// Text in the row, in any case; empty for all.
    pub(super) text: String,
    pub(super) sort: Column,
    /// True for the reverse order.
    pub(super) is_reversed: bool,
    /// Page, counted from one.
    pub(super) page: usize,
}

pub(super) struct Selection<'a> {
    pub(super) rows: Vec<&'a MachineLine>,
    /// Number of all that match.
    pub(super) total: usize,
    /// Page, which is the last one if there are not so many.
    pub(super) page: usize,
    pub(super) pages: usize,
}

impl MachineQuery {
    /// Reads the query of an address. What is not understood is as if it were not there.
    pub fn parse(query: &str) -> Self {
        let mut parsed = Self { page: 1, ..Self::default() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let text = || value.trim().chars().take(NAME).collect::<String>();
            match &*name {
                "pool" => parsed.pool = text(),
                "text" => parsed.text = text(),
                "state" => parsed.state = value.parse().ok(),
                "sort" => parsed.sort = value.parse().unwrap_or_default(),
                "order" => parsed.is_reversed = value == "reverse",
                "page" => parsed.page = value.parse().unwrap_or(1).max(1),
                _ => {}
            }
        }
        parsed
    }

    /// The address of the page with this query.
    pub(super) fn path(&self) -> String {
        let mut query = Serializer::new(String::new());
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        };
        add("pool", &self.pool);
        add("state", self.state.map_or("", Severity::label));
        add("text", &self.text);
        add("sort", if self.sort == Column::default() { "" } else { self.sort.into() });
        add("order", if self.is_reversed { "reverse" } else { "" });
        add("page", &if self.page > 1 { self.page.to_string() } else { String::new() });
        let query = query.finish();
        if query.is_empty() { "/".to_owned() } else { format!("/?{query}") }
    }

    /// The address of the same machines on another page.
    pub(super) fn path_of_page(&self, page: usize) -> String {
        Self { page, ..self.clone() }.path()
    }

    /// The address of the same machines, sorted by a column, and the other way round if they are sorted by it already.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "templates pass it so")]
    pub(super) fn path_sorted_by(&self, sort: &Column) -> String {
        let is_reversed = self.sort == *sort && !self.is_reversed;
        Self { sort: *sort, is_reversed, page: 1, ..self.clone() }.path()
    }

    pub(super) fn is_filtered(&self) -> bool {
        !self.pool.is_empty() || self.state.is_some() || !self.text.is_empty()
    }

    /// Selects from `machines`, which are sorted by state.
    pub(super) fn select<'a>(&self, machines: &'a [MachineLine]) -> Selection<'a> {
        let text = self.text.to_lowercase();
        let mut rows: Vec<_> = machines.iter().filter(|line| self.matches(line, &text)).collect();
        rows.sort_by(|one, other| compare(self.sort, one, other));
        if self.is_reversed {
            rows.reverse();
        }
        let total = rows.len();
        let pages = total.div_ceil(MAX_ROWS).max(1);
        let page = self.page.clamp(1, pages);
        let rows = rows.into_iter().skip((page - 1) * MAX_ROWS).take(MAX_ROWS).collect();
        Selection { rows, total, page, pages }
    }

    fn matches(&self, line: &MachineLine, text: &str) -> bool {
        let has = |words: &str| words.to_lowercase().contains(text);
        (self.pool.is_empty() || line.pool() == self.pool)
            && self.state.is_none_or(|state| line.status.rank == state)
            && (text.is_empty()
                || has(&line.machine.address.to_string())
                || has(&line.status.words)
                || has(line.pool())
                || has(line.got())
                || has(line.user_agent())
                || line.is_without_tls() && has(WITHOUT_TLS))
    }
}

/// Compares two machines, which are sorted by state, by a column; larger and later values come first.
fn compare(column: Column, one: &MachineLine, other: &MachineLine) -> Ordering {
    match column {
        Column::State => Ordering::Equal,
        Column::Address => one.machine.address.cmp(&other.machine.address),
        Column::Pool => one.pool().cmp(other.pool()),
        Column::Times => other.times().cmp(&one.times()),
        Column::First => other.machine.first.cmp(&one.machine.first),
        Column::Last => other.machine.last.cmp(&one.machine.last),
    }
}

#[cfg(test)]
mod tests {
    use model::ledger::{Ledger, Request};
    use time::{Duration, OffsetDateTime};

    use super::*;

    const NOON: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);

    /// 250 machines, each tenth of them refused, of two pools in turn.
    fn machines() -> Vec<MachineLine> {
        let ledger = Ledger::default();
        for number in 0..250_u32 {
            let request = Request {
                address: std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
                pool: if number % 2 == 0 { "worker" } else { "Infra" },
                user_agent: "Ignition/2.14.0",
                spec: None,
                without_tls: false,
                answer: if number % 10 == 0 { Err((503, "no")) } else { Ok(("rendered", "00")) },
                would_be_refused: None,
            };
            ledger.asked(&request, NOON + Duration::seconds(number.into()));
        }
        let lines = ledger.machines().into_iter().map(|machine| {
            let status = machine.boot_status(None, NOON + Duration::HOUR);
            MachineLine { machine, status }
        });
        let mut lines: Vec<_> = lines.collect();
        crate::overview::sort(&mut lines);
        lines
    }

    #[test]
    fn machines_are_filtered_sorted_and_paged() {
        let machines = machines();
        for (query, total, first) in [
            ("", 250, "10.0.0.240"),
            ("page=2", 250, "10.0.0.166"),
            ("page=99", 250, "10.0.0.55"),
            ("page=0&sort=nothing&state=nothing&x=y", 250, "10.0.0.240"),
            ("state=stuck", 25, "10.0.0.240"),
            ("state=stuck&order=reverse", 25, "10.0.0.0"),
            ("pool=Infra&sort=address", 125, "10.0.0.1"),
            ("pool=worker&state=served&sort=last", 100, "10.0.0.248"),
            ("text=+INFRA+", 125, "10.0.0.249"),
            ("text=0.0.24", 11, "10.0.0.240"),
            ("text=ignition%2F2", 250, "10.0.0.240"),
            ("text=%3Cb%3E", 0, ""),
        ] {
            let query = MachineQuery::parse(query);
            let selection = query.select(&machines);
            let shown = selection.rows.first().map(|line| line.machine.address.to_string());
            assert_eq!((selection.total, &*shown.unwrap_or_default()), (total, first), "{query:?}");
            assert!(selection.rows.len() <= MAX_ROWS);
        }
    }

    #[test]
    fn an_address_says_what_was_asked_for_and_nothing_else() {
        for path in ["/", "/?pool=a%26b&state=stuck&text=%3C%22%3E&sort=times&order=reverse&page=3"]
        {
            let query = MachineQuery::parse(path.trim_start_matches("/?").trim_start_matches('/'));
            assert_eq!(query.path(), path);
        }
        let query = MachineQuery::parse("sort=last&page=7");
        assert_eq!(query.path_sorted_by(&Column::Last), "/?sort=last&order=reverse");
        assert_eq!(query.path_sorted_by(&Column::State), "/");
        assert_eq!(query.path_of_page(2), "/?sort=last&page=2");
    }
}
