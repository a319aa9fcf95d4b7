//! The table, and what is held to.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::fleet::Booted;
use crate::replica::Started;
use crate::units::{mebibytes, milliseconds};

/// What was seen of one server.
pub(crate) struct Column {
    started: Started,
    /// Bytes, at rest.
    pub(crate) memory: u64,
    /// Of one processor, 1 is all of it.
    pub(crate) cpu_at_rest: f64,
    /// How long each change took.
    pub(crate) changes: Vec<Duration>,
    pub(crate) booted: Booted,
    pub(crate) cpu_per_boot: Duration,
    /// How long a change of what all pools share took, after all machines had booted.
    pub(crate) shared_change: Duration,
    /// Bytes, since it was started.
    pub(crate) peak_memory: u64,
    /// Bytes, a while after the last machine.
    pub(crate) memory_after: u64,
}

impl Column {
    pub(crate) fn new(started: Started) -> Self {
        Self {
            started,
            memory: 0,
            cpu_at_rest: 0.0,
            changes: Vec::new(),
            booted: Booted::default(),
            cpu_per_boot: Duration::ZERO,
            shared_change: Duration::ZERO,
            peak_memory: 0,
            memory_after: 0,
        }
    }

    /// The one in the middle, or at the end.
    fn change(&self, is_worst: bool) -> Duration {
        let mut changes = self.changes.clone();
        changes.sort_unstable();
        let index = if is_worst { changes.len().saturating_sub(1) } else { changes.len() / 2 };
        changes.get(index).copied().unwrap_or_default()
    }
}

/// A figure of one server, in the unit of its row.
type Figure = fn(&Column) -> f64;

/// Each with the most that it may be, if it is held to anything.
const ROWS: [(&str, Figure, Option<f64>); 15] = [
    ("first answer, s", |it| it.started.first_answer.as_secs_f64(), Some(30.0)),
    ("all pools checked, s", |it| it.started.ready.as_secs_f64(), Some(60.0)),
    ("memory at rest, MiB", |it| mebibytes(it.memory), Some(128.0)),
    ("CPU at rest, %", |it| it.cpu_at_rest * 100.0, Some(1.0)),
    ("change, median, ms", |it| milliseconds(it.change(false)), None),
    ("change, worst, ms", |it| milliseconds(it.change(true)), Some(1_000.0)),
    ("boots", |it| f64::from(it.booted.boots), None),
    ("failed boots", |it| f64::from(it.booted.failed), Some(0.0)),
    ("latency p50, ms", |it| milliseconds(it.booted.p50), None),
    ("latency p99, ms", |it| milliseconds(it.booted.p99), Some(1_000.0)),
    ("latency, worst, ms", |it| milliseconds(it.booted.worst), None),
    ("CPU a boot, µs", |it| milliseconds(it.cpu_per_boot) * 1_000.0, None),
    ("change of all pools, ms", |it| milliseconds(it.shared_change), Some(5_000.0)),
    ("peak memory, MiB", |it| mebibytes(it.peak_memory), Some(256.0)),
    ("memory after, MiB", |it| mebibytes(it.memory_after), Some(256.0)),
];

/// A whole run.
pub(crate) struct Report {
    pub(crate) columns: [Column; 2],
}

impl Report {
    /// Fails where a target is missed, naming each of them.
    pub(crate) fn check(&self) -> Result<()> {
        let mut missed = Vec::new();
        for (title, figure, target) in ROWS {
            let Some(target) = target else { continue };
            for figure in self.columns.iter().map(figure).filter(|figure| *figure > target) {
                missed.push(format!("{title}: {figure:.1}, at most {target}"));
            }
        }
        if missed.is_empty() {
            return Ok(());
        }
        bail!("missed: {}", missed.join("; "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>10}{:>10}{:>10}", "", "first", "second", "at most")?;
        for (title, figure, target) in ROWS {
            let [first, second] = self.columns.each_ref().map(figure);
            let target = target.map(|target| target.to_string()).unwrap_or_default();
            writeln!(f, "{title:<24}{first:>10.1}{second:>10.1}{target:>10}")?;
        }
        Ok(())
    }
}
