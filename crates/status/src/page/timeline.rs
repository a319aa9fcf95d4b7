//! Counts boots by their begin and state: bars for the last hour and the last day.

use std::collections::BTreeMap;

use model::ledger::Severity;
use time::{Duration, OffsetDateTime};

use crate::overview::MachineLine;

/// The size of the drawing, in its units.
pub(super) const WIDTH: i64 = 720;
pub(super) const HEIGHT: i64 = 100;
/// Counted states, from the bottom of a bar to its top.
const OUTCOMES: [Severity; 4] =
    [Severity::Stuck, Severity::Booting, Severity::Served, Severity::Joined];

pub(super) struct Timeline {
    /// Prefix of identifiers.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Label of the left end.
    pub(super) begin: &'static str,
    pub(super) bars: Vec<TimelineBar>,
    /// The boots of the highest bar.
    pub(super) most: usize,
    /// Boots by outcome, all bars together.
    pub(super) totals: Vec<(&'static str, usize)>,
}

/// The boots that began within one part of the time.
pub(super) struct TimelineBar {
    pub(super) from: OffsetDateTime,
    pub(super) to: OffsetDateTime,
    pub(super) counts: [usize; OUTCOMES.len()],
    pub(super) x: i64,
    pub(super) width: i64,
    pub(super) parts: Vec<BarSegment>,
}

pub(super) struct BarSegment {
    pub(super) label: &'static str,
    pub(super) y: i64,
    pub(super) height: i64,
}

/// The last hour in parts of two minutes, and the last day in parts of half an hour.
pub(super) fn timelines(machines: &[MachineLine], now: OffsetDateTime) -> [Timeline; 2] {
    [
        timeline(("hour", "Last hour", "an hour ago"), Duration::minutes(2), 30, machines, now),
        timeline(("day", "Last day", "a day ago"), Duration::minutes(30), 48, machines, now),
    ]
}

pub(super) fn columns() -> [&'static str; OUTCOMES.len()] {
    OUTCOMES.map(Severity::label)
}

fn timeline(
    (id, title, begin): (&'static str, &'static str, &'static str),
    part: Duration,
    parts: i32,
    machines: &[MachineLine],
    now: OffsetDateTime,
) -> Timeline {
    let mut counted = BTreeMap::<i64, [usize; OUTCOMES.len()]>::new();
    for line in machines {
        let Some(place) = OUTCOMES.iter().position(|rank| *rank == line.status.rank) else {
            continue;
        };
        // A clock of another server can be ahead.
        let machine = &line.machine;
        let start = machine.requests.as_ref().map_or(machine.last, |requests| requests.since);
        let ago = (now - start).max(Duration::ZERO).whole_seconds() / part.whole_seconds();
        if ago < parts.into() {
            counted.entry(ago).or_default()[place] += 1;
        }
    }
    let most = counted.values().map(|counts| counts.iter().sum()).max().unwrap_or_default();
    let width = WIDTH / i64::from(parts);
    let bars = counted.iter().rev().map(|(ago, counts)| {
        let to = now - part.saturating_mul(i32::try_from(*ago).unwrap_or(i32::MAX));
        let x = width * (i64::from(parts) - 1 - ago);
        let (counts, parts) = (*counts, stacked(counts, most));
        TimelineBar { from: to - part, to, counts, x, width: width - 2, parts }
    });
    let bars: Vec<_> = bars.collect();
    let total = |place: usize| bars.iter().map(|bar| bar.counts[place]).sum();
    let totals = OUTCOMES.iter().enumerate().map(|(place, rank)| (rank.label(), total(place)));
    let totals = totals.filter(|(_, count)| *count > 0).collect();
    Timeline { id, title, begin, bars, most, totals }
}

/// Stacks the parts of a bar. A small part is still visible.
fn stacked(counts: &[usize; OUTCOMES.len()], most: usize) -> Vec<BarSegment> {
    let most = i64::try_from(most).unwrap_or(i64::MAX).max(1);
    let mut top = HEIGHT;
    let counted = counts.iter().zip(OUTCOMES).filter(|(count, _)| **count > 0);
    let parts = counted.map(|(count, rank)| {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let height = (count.saturating_mul(HEIGHT) / most).max(2);
        top -= height;
        BarSegment { label: rank.label(), y: top.max(0), height }
    });
    parts.collect()
}

impl Timeline {
    /// The whole in words.
    pub(super) fn words(&self) -> String {
        if self.totals.is_empty() {
            return "no boots".to_owned();
        }
        let all: usize = self.totals.iter().map(|(_, count)| count).sum();
        let totals = self.totals.iter().map(|(label, count)| format!("{count} {label}"));
        let boots = if all == 1 { "boot" } else { "boots" };
        format!("{all} {boots}: {}", totals.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use model::ledger::{Ledger, Request};

    use super::*;

    const NOON: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);

    #[test]
    fn a_boot_is_in_the_part_of_time_in_which_it_began() {
        let ledger = Ledger::default();
        let ask = |last: u8, is_served: bool, minutes: i64| {
            let request = Request {
                address: [10, 0, 0, last].into(),
                pool: "worker",
                user_agent: if last == 9 { "curl/8" } else { "Ignition/2" },
                spec: None,
                without_tls: false,
                answer: if is_served { Ok(("a", "00")) } else { Err((503, "no")) },
                would_be_refused: None,
            };
            ledger.asked(&request, NOON - Duration::minutes(minutes));
        };
        for (last, is_served, minutes) in [
            (1, true, 1),
            (2, false, 1),
            (3, true, 1),
            (4, true, 61),
            (5, true, 25 * 60),
            (9, true, 1),
        ] {
            ask(last, is_served, minutes);
        }
        // One that asks for an hour is one boot, which began then.
        for minutes in (0..=50).rev().step_by(10) {
            ask(6, false, minutes);
        }
        let machines: Vec<_> = ledger
            .machines()
            .into_iter()
            .map(|machine| {
                let status = machine.boot_status(None, NOON);
                MachineLine { machine, status }
            })
            .collect();
        let [hour, day] = timelines(&machines, NOON);
        assert_eq!(hour.words(), "4 boots: 2 stuck, 2 booting");
        assert_eq!(day.words(), "5 boots: 2 stuck, 2 booting, 1 served");
        let counts: Vec<_> = hour.bars.iter().map(|bar| (bar.x, bar.counts)).collect();
        assert_eq!(counts, [(96, [1, 0, 0, 0]), (696, [1, 2, 0, 0])]);
        assert_eq!((hour.most, day.most), (3, 3));
        let [stuck, booting] = &hour.bars[1].parts[..] else { panic!("two parts") };
        assert_eq!((stuck.y, stuck.height, booting.y, booting.height), (67, 33, 1, 66));
        assert_eq!(hour.bars[1].to, NOON);
        let [none, _] = timelines(&[], NOON);
        assert_eq!((&*none.words(), none.bars.len()), ("no boots", 0));
    }
}
