//! The head of the page: the numbers that matter during an installation, and what to do next.

use model::ledger::Severity;
use time::{Duration, OffsetDateTime};

use super::frame::pool_path;
use crate::overview::{Certificate, Overview, PointerStatus};

pub(super) struct KeyFigure {
    pub(super) label: &'static str,
    pub(super) number: String,
    /// Class of its colour, empty for none.
    pub(super) class: &'static str,
    /// The page that shows more of it.
    pub(super) path: String,
}

/// Hint in one sentence, with a link to the place where it is followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) text: String,
    /// Address and name of a link; empty for none.
    pub(super) link: (String, &'static str),
}

impl Hint {
    fn new(text: impl Into<String>, path: impl Into<String>, name: &'static str) -> Self {
        Self { text: text.into(), link: (path.into(), name) }
    }

    fn without_link(text: impl Into<String>) -> Self {
        Self::new(text, "", "")
    }
}

/// Booting, stuck, joined, and the days until the next renewal. Without nodes nothing is seen to join, and served machines
/// are counted instead.
pub(super) fn figures(overview: &Overview) -> [KeyFigure; 4] {
    let figure = |rank: Severity| {
        let (label, count) = (rank.label(), overview.count(rank));
        let class = if rank == Severity::Stuck && count == 0 { "" } else { label };
        let path = format!("/?state={label}#machines");
        KeyFigure { label, number: count.to_string(), class, path }
    };
    let last = if overview.knows_nodes { Severity::Joined } else { Severity::Served };
    [
        figure(Severity::Booting),
        figure(Severity::Stuck),
        figure(last),
        renewal(&overview.certificates, overview.at),
    ]
}

/// Days until the first certificate is renewed.
pub(super) fn renewal(certificates: &[Certificate], now: OffsetDateTime) -> KeyFigure {
    let next = certificates.iter().map(|certificate| certificate.renewal).min();
    let days = next.map(|next| (next - now).max(Duration::ZERO).whole_days());
    KeyFigure {
        label: "days until the next renewal",
        number: days.map_or_else(|| "–".to_owned(), |days| days.to_string()),
        class: "",
        path: "#certificates".to_owned(),
    }
}

/// Finds the most urgent thing to do.
pub(super) fn advice(overview: &Overview) -> Hint {
    const STUCK: &str = "/?state=stuck#machines";
    let Overview { not_ready, certificates, pointers, degraded, silent_servers, .. } = overview;
    if let Some(advice) = of_certificates(not_ready, certificates, pointers, overview.at) {
        return advice;
    }
    match overview.count(Severity::Stuck) {
        0 => {}
        1 => {
            let text = "Open the page of the machine that is stuck: it has the reason and the next command.";
            return Hint::new(text, STUCK, "The machine");
        }
        stuck => {
            let text = format!(
                "Open the pages of the {stuck} machines that are stuck: each has the reason and the \
                    next command."
            );
            return Hint::new(text, STUCK, "The machines");
        }
    }
    if let Some(pool) = overview.pools.iter().find(|pool| pool.problem.is_some()) {
        let text = format!("Fix pool {}: its machines get no config or an older one.", pool.name);
        return Hint::new(text, pool_path(&pool.name), "The pool");
    }
    if !degraded.is_empty() {
        return calm(degraded);
    }
    if !silent_servers.is_empty() {
        let text = "Check the other servers: the machines of some are missing here.";
        return Hint::new(text, "#machines", "");
    }
    match (overview.count(Severity::Booting), overview.machines.is_empty()) {
        (0, true) => Hint::without_link(
            "Give a machine its pointer config and start it: it appears here when it requests its config.",
        ),
        (0, false) => calm(&[]),
        (1, _) => Hint::without_link("Wait: 1 machine is booting."),
        (booting, _) => Hint::without_link(format!("Wait: {booting} machines are booting.")),
    }
}

/// Finds a fault that keeps all machines from booting, which is more urgent than any single machine.
pub(super) fn of_certificates(
    not_ready: &[String],
    certificates: &[Certificate],
    pointers: &[PointerStatus],
    now: OffsetDateTime,
) -> Option<Hint> {
    if let Some(first) = not_ready.first() {
        let text = format!("Fix what keeps this server from being ready: {first}");
        return Some(Hint::without_link(text));
    }
    let is_invalid = |it: &&Certificate| !(it.not_before..=it.not_after).contains(&now);
    if let Some(certificate) = certificates.iter().find(is_invalid) {
        let text = format!(
            "Run machine-config-server certs check: the certificate {} is not valid now.",
            certificate.subject
        );
        return Some(Hint::new(text, "#certificates", "Certificates"));
    }
    let text = match pointers.iter().filter(|pointer| pointer.problem.is_some()).count() {
        0 => return None,
        1 => "Fix the pointer config that cannot boot a machine.".to_owned(),
        all => format!("Fix the {all} pointer configs that cannot boot a machine."),
    };
    Some(Hint::new(text, "#trust", "Trust"))
}

/// Hint if every machine is well.
pub(super) fn calm(degraded: &[String]) -> Hint {
    Hint::without_link(match degraded {
        [] => "No action is needed.",
        [_] => "Read the line below: it does not keep machines from booting.",
        _ => "Read the lines below: they do not keep machines from booting.",
    })
}
