//! Measures time that depends on this program only, without that of other processes.

use std::fmt::Display;
use std::fs;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// Allowance for the build under test, whose rendering needs three to four times as much processor time as the shipped
/// one. Limits that are mostly waits need no such allowance.
pub(crate) const HURRY: u32 = if cfg!(debug_assertions) { 3 } else { 1 };

/// Maximum number of attempts before slowness counts.
const ATTEMPTS: usize = 5;

/// Fails if no attempt, which gets its number, takes at most `limit`. It is for work on all processors: a busy machine
/// slows it down in ways that cannot be subtracted, by shared caches and other guests of its host.
#[track_caller]
pub(crate) fn once_within(limit: Duration, what: &str, mut attempt: impl FnMut(usize) -> Duration) {
    let mut times = Vec::new();
    while times.len() < ATTEMPTS {
        let took = attempt(times.len());
        println!("{what} took {took:?}");
        if took < limit {
            return;
        }
        times.push(took);
    }
    panic!("{what} took {times:?}, and may take {limit:?}");
}

/// Measures the time that a test and its child processes take.
///
/// The machine may be busy with other tests. The processor time of others is subtracted as far as it delayed all; on an
/// idle machine the result is wall-clock time.
pub(crate) struct Stopwatch {
    started: Instant,
    machine: Machine,
    own: u64,
}

/// Work of all processors since the start of the machine, in ticks.
struct Machine {
    busy: u64,
    idle: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { machine: Machine::now(), own: own_ticks(), started: Instant::now() }
    }

    pub(crate) fn took(&self) -> Duration {
        let elapsed = self.started.elapsed();
        elapsed.saturating_sub(self.waited())
    }

    /// Fails if the time exceeds `limit`.
    #[track_caller]
    pub(crate) fn within(&self, limit: Duration, what: impl Display) {
        let took = self.took();
        println!("{what} took {took:?}, {:?} by the clock", self.started.elapsed());
        assert!(took < limit, "{what} took {took:?}, and may take {limit:?}");
    }

    /// Time for which others kept every processor from this test.
    fn waited(&self) -> Duration {
        let now = Machine::now();
        let own = own_ticks().saturating_sub(self.own);
        let others = now.busy.saturating_sub(self.machine.busy + own);
        let ticks = others.saturating_sub(now.idle.saturating_sub(self.machine.idle));
        let processors = fs::read_to_string("/proc/stat").expect("procfs");
        let processors = processors.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        duration(ticks) / u32::try_from(processors).expect("a small count")
    }
}

impl Machine {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").expect("procfs");
        let line = stat.lines().next().expect("the line of all processors");
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).map(|ticks| ticks.parse().expect("a number")).collect();
        // user, nice, system, idle, waiting for a disk, interrupts of both kinds, stolen by a host.
        Self { busy: fields[..3].iter().chain(&fields[5..8]).sum(), idle: fields[3] }
    }
}

/// Processor time of this thread and its child processes, also those that have ended.
fn own_ticks() -> u64 {
    let children = fs::read_to_string("/proc/thread-self/children").expect("procfs");
    let children = children.split_whitespace().map(|id| format!("/proc/{id}/stat"));
    // An ended process has no file.
    let of_children = children.filter_map(|path| fs::read_to_string(path).ok());
    let own = fs::read_to_string("/proc/thread-self/stat").expect("procfs");
    of_children.map(|stat| processor_ticks(&stat)).sum::<u64>() + ticks(&own, OWN_AND_ENDED)
}

/// Processor time of a process or a thread, from its line in procfs.
pub(crate) fn processor_ticks(stat: &str) -> u64 {
    ticks(stat, OWN)
}

/// Numbers of fields of a line in procfs: its own time in two, and then that of ended child processes.
const OWN: usize = 2;
const OWN_AND_ENDED: usize = 4;

fn ticks(stat: &str, fields: usize) -> u64 {
    // The name before these fields can contain spaces.
    let (_, all) = stat.rsplit_once(") ").expect("a name in parentheses");
    let times = all.split(' ').skip(11).take(fields);
    times.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

fn duration(ticks: u64) -> Duration {
    Duration::from_millis(1000 * ticks / clock_ticks_per_second())
}
