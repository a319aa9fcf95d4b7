//! The pages of a server and of a controller: all there is to see at a glance.

use askama::Template;
use model::access::machine::NamedMachine;
use model::ledger::Severity;
use time::{Duration, OffsetDateTime};

use super::frame::{Frame, pool_path, specs};
use super::head::{self, Hint, KeyFigure};
use super::machine_query::{Column, MachineQuery};
use super::timeline::{HEIGHT, WIDTH, columns, timelines};
use super::trust::picture;
use super::when::{day, when};
use crate::overview::{
    Certificate, ControllerOverview, Overview, PointerStatus, TrustMap, TrustedCertificate,
};

/// Maximum number of machines with names on the page, and of those that wait or are approved.
const MAX_NAMES: usize = 100;
/// The length of a certificate's time line, in its units.
const LENGTH: i64 = 1_000;

/// The page of an overview, with the machines that are asked for.
///
/// # Errors
/// It cannot be formatted.
pub fn overview_page(overview: &Overview, query: &MachineQuery) -> Result<String, askama::Error> {
    let path = query.path();
    let Overview { at, ref server, .. } = *overview;
    let frame = Frame { title: "machine-config-server", path: &path, at, server };
    OverviewPage { frame, overview, query }.render()
}

#[derive(Template)]
#[template(path = "overview.html", config = "src/page/askama.toml")]
struct OverviewPage<'a> {
    frame: Frame<'a>,
    overview: &'a Overview,
    query: &'a MachineQuery,
}

/// The columns of the table of machines, and what they are sorted by.
const COLUMNS: [(&str, Option<Column>); 9] = [
    ("Address", Some(Column::Address)),
    ("State", Some(Column::State)),
    ("Why", None),
    ("Pool", Some(Column::Pool)),
    ("Got", None),
    ("Spec", None),
    ("Times", Some(Column::Times)),
    ("First", Some(Column::First)),
    ("Last", Some(Column::Last)),
];

/// The page of a controller.
///
/// # Errors
/// It cannot be formatted.
pub fn controller_page(overview: &ControllerOverview) -> Result<String, askama::Error> {
    let ControllerOverview { at, ref server, .. } = *overview;
    let frame = Frame { title: "machine-config-server controller", path: "/", at, server };
    ControllerPage { frame, overview }.render()
}

#[derive(Template)]
#[template(path = "controller.html", config = "src/page/askama.toml")]
struct ControllerPage<'a> {
    frame: Frame<'a>,
    overview: &'a ControllerOverview,
}

/// Validity of a certificate as a line, with the positions of renewal and now.
pub(super) struct TimeLine {
    pub(super) renewal: i64,
    pub(super) now: i64,
    pub(super) words: String,
}

impl OverviewPage<'_> {
    fn headline(&self) -> String {
        let Overview { at, not_ready, degraded, silent_servers, .. } = self.overview;
        let Overview { pools, certificates, pointers, .. } = self.overview;
        let is_calm = degraded.is_empty()
            && silent_servers.is_empty()
            && pools.iter().all(|pool| pool.problem.is_none())
            && all_boot(certificates, pointers, *at);
        let state = headline(not_ready, is_calm);
        match (self.overview.count(Severity::Stuck), not_ready.is_empty()) {
            (0, _) => state.to_owned(),
            (1, true) => "1 machine is stuck".to_owned(),
            (stuck, true) => format!("{stuck} machines are stuck"),
            (stuck, false) => format!("{state}, {stuck} stuck"),
        }
    }

    fn advice(&self) -> Hint {
        head::advice(self.overview)
    }

    fn figures(&self) -> [KeyFigure; 4] {
        head::figures(self.overview)
    }

    /// Number of machines of each rank, including those that are not on the page.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        counts(|rank| self.overview.count(rank))
    }

    /// The first machines with names, those whose token was used from several addresses before the others.
    fn named(&self) -> Vec<&NamedMachine> {
        let mut named: Vec<_> = self.overview.named_machines.iter().collect();
        named.sort_by_key(|machine| machine.addresses.len() < 2);
        named.truncate(MAX_NAMES);
        named
    }

    /// Returns true if any machine needs approval.
    fn has_approval(&self) -> bool {
        let Overview { pools, waiting_machines, approved_machines, .. } = self.overview;
        !waiting_machines.is_empty()
            || !approved_machines.is_empty()
            || pools.iter().any(|pool| pool.needs_approval)
    }

    /// Returns true if the query has a pool that does not exist.
    fn is_pool_unlisted(&self) -> bool {
        let pool = &self.query.pool;
        !pool.is_empty() && self.overview.pools.iter().all(|it| it.name != *pool)
    }

    /// Direction of the order, for screen readers. Numbers and dates begin with the largest.
    fn direction(&self) -> &'static str {
        let is_descending = matches!(self.query.sort, Column::Times | Column::First | Column::Last);
        if is_descending == self.query.is_reversed { "ascending" } else { "descending" }
    }
}

/// Numbers of each rank that are not zero.
pub fn counts(count: impl Fn(Severity) -> usize) -> Vec<(&'static str, usize)> {
    let counts = Severity::ALL.iter().map(|rank| (rank.label(), count(*rank)));
    counts.filter(|(_, count)| *count > 0).collect()
}

impl ControllerPage<'_> {
    fn headline(&self) -> &'static str {
        let ControllerOverview { at, not_ready, degraded, certificates, pointers, .. } =
            self.overview;
        let is_calm = degraded.is_empty() && all_boot(certificates, pointers, *at);
        headline(not_ready, is_calm)
    }

    fn advice(&self) -> Hint {
        let ControllerOverview { at, not_ready, certificates, pointers, .. } = self.overview;
        let advice = head::of_certificates(not_ready, certificates, pointers, *at);
        advice.unwrap_or_else(|| head::calm(&self.overview.degraded))
    }

    fn figures(&self) -> [KeyFigure; 1] {
        [head::renewal(&self.overview.certificates, self.overview.at)]
    }
}

/// State in a few words. `is_calm` is false if an administrator should know anything else.
fn headline(not_ready: &[String], is_calm: bool) -> &'static str {
    if !not_ready.is_empty() {
        "Not ready"
    } else if !is_calm {
        "Ready, with warnings"
    } else {
        "Everything is OK"
    }
}

/// Returns true if all certificates are valid at `now`, and machines boot from all pointer configs.
fn all_boot(certificates: &[Certificate], pointers: &[PointerStatus], now: OffsetDateTime) -> bool {
    let is_valid = |it: &Certificate| (it.not_before..=it.not_after).contains(&now);
    certificates.iter().all(is_valid) && pointers.iter().all(|it| it.problem.is_none())
}

/// Names of the issuers of a certificate.
fn issuers(map: &TrustMap, certificate: &TrustedCertificate) -> String {
    let names = certificate.issuers.iter().map(|place| &map.certificates[*place].subject[..]);
    or_none(&names.collect::<Vec<_>>())
}

/// Names of the pointer configs that trust the certificate at a place.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "templates pass it so")]
fn trusted_by(map: &TrustMap, place: &usize) -> String {
    let groups = map.groups.iter().filter(|group| group.trusted.contains(place));
    or_none(&groups.flat_map(|group| &group.names).map(String::as_str).collect::<Vec<_>>())
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

/// The time line of a certificate, seen at `now`.
pub(super) fn time_line(certificate: &Certificate, now: OffsetDateTime) -> TimeLine {
    let Certificate { not_before, not_after, renewal, .. } = *certificate;
    let whole = (not_after - not_before).whole_seconds().max(1);
    let at = |time: OffsetDateTime| {
        let share = (time - not_before).whole_seconds().saturating_mul(LENGTH) / whole;
        share.clamp(0, LENGTH)
    };
    let words = if now < not_before {
        format!("not valid yet, for {}", days(not_before - now))
    } else if now > not_after {
        format!("expired {} ago", days(now - not_after))
    } else if now > renewal {
        format!("due for renewal; valid for {} more", days(not_after - now))
    } else {
        format!("renewed in {}, valid for {} more", days(renewal - now), days(not_after - now))
    };
    TimeLine { renewal: at(renewal), now: at(now), words }
}

fn days(time: Duration) -> String {
    match time.whole_days() {
        0 => "less than a day".to_owned(),
        1 => "a day".to_owned(),
        days @ 2..=729 => format!("{days} days"),
        days => format!("{} years", (days + 182) / 365),
    }
}
