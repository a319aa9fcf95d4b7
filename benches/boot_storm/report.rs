//! The figures of a run: a line a round, a table in the end, and the targets that they are held to.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::storm::Outcome;
use crate::units::{mebibytes, milliseconds};

/// The most server CPU per boot, as a share of nginx's.
const CPU_TARGET: f64 = 0.45;
/// The same where the config is sent compact, nginx's still being the plain one.
const COMPACT_CPU_TARGET: f64 = 0.30;
/// The most that the slowest hundredth may take, as a share of nginx's.
const P99_TARGET: f64 = 1.0;
/// The most resident memory, in MiB.
const MEMORY_TARGET: f64 = 32.0;

/// What one round of one server came to.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    pub(crate) cpu_per_boot: Duration,
}

/// Neighbouring rounds: of our server with the plain config and with the compact one, and of the one that
/// it is held against, which is nginx with the plain one both times.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) ours: [Measured; 2],
    pub(crate) theirs: [Measured; 2],
}

/// The forms of a config, as places in a round.
const PLAIN: usize = 0;
const COMPACT: usize = 1;

/// A whole run.
pub(crate) struct Report {
    /// At least one.
    pub(crate) rounds: Vec<Round>,
    pub(crate) our_peak_memory: u64,
    pub(crate) their_peak_memory: u64,
    /// Who they are.
    pub(crate) them: &'static str,
}

/// A figure of one round, in the unit of its row.
type Figure = fn(&Measured) -> f64;

const THROUGHPUT: Figure = |measured| measured.outcome.boots_a_second;
const P50: Figure = |measured| milliseconds(measured.outcome.p50);
const P99: Figure = |measured| milliseconds(measured.outcome.p99);
const CPU: Figure = |measured| milliseconds(measured.cpu_per_boot) * 1_000.0;

const ROWS: [(&str, Figure); 4] = [
    ("boots a second", THROUGHPUT),
    ("latency p50, ms", P50),
    ("latency p99, ms", P99),
    ("server CPU a boot, µs", CPU),
];

impl Report {
    /// Fails where a target is missed, naming each of them.
    pub(crate) fn check(&self) -> Result<()> {
        let held = [
            ("server CPU a boot, of nginx's", self.ratio(PLAIN, CPU), CPU_TARGET),
            ("the same, compact", self.ratio(COMPACT, CPU), COMPACT_CPU_TARGET),
            ("latency p99, of nginx's", self.ratio(PLAIN, P99), P99_TARGET),
            ("the same, compact", self.ratio(COMPACT, P99), P99_TARGET),
            ("peak memory, MiB", mebibytes(self.our_peak_memory), MEMORY_TARGET),
        ];
        let missed: Vec<String> = held
            .iter()
            .filter(|(_, figure, target)| figure > target)
            .map(|(what, figure, target)| format!("{what}: {figure:.2}, at most {target}"))
            .collect();
        if missed.is_empty() {
            return Ok(());
        }
        bail!("missed: {}", missed.join("; "))
    }

    /// The median of the rounds' ratios, ours to theirs.
    fn ratio(&self, form: usize, figure: Figure) -> f64 {
        self.median(|round| figure(&round.ours[form]) / figure(&round.theirs[form]))
    }

    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24}{:>10}{:>10}{:>10}{:>14}{:>16}",
            "",
            "plain",
            "compact",
            self.them,
            format!("plain/{}", self.them),
            format!("compact/{}", self.them)
        )?;
        for (title, figure) in ROWS {
            let [plain, compact] =
                [PLAIN, COMPACT].map(|form| self.median(|round| figure(&round.ours[form])));
            let theirs = self.median(|round| figure(&round.theirs[PLAIN]));
            write!(f, "{title:<24}{plain:>10.1}{compact:>10.1}{theirs:>10.1}")?;
            let ratios = [PLAIN, COMPACT].map(|form| self.ratio(form, figure));
            writeln!(f, "{:>14.2}{:>16.2}", ratios[0], ratios[1])?;
        }
        // One server of ours sends both.
        let ours = mebibytes(self.our_peak_memory);
        let theirs = mebibytes(self.their_peak_memory);
        let title = "peak memory, MiB";
        writeln!(f, "{title:<24}{ours:>10.1}{:>10}{theirs:>10.1}{:>14.2}", "", ours / theirs)?;
        write!(
            f,
            "Medians of {} rounds. nginx's memory counts shared pages twice.",
            self.rounds.len()
        )
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (title, figure) in ROWS {
            let [plain, compact] = self.ours.map(|measured| figure(&measured));
            let theirs = figure(&self.theirs[PLAIN]);
            write!(f, "{separator}{title} {plain:.1}, {compact:.1} : {theirs:.1}")?;
            separator = " | ";
        }
        Ok(())
    }
}
