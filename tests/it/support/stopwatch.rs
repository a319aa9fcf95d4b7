//! Time as a claim about this program: without what the rest of the machine took for itself.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// How much longer than the binary that ships the one under test may work, which is built in a
/// hurry: rendering takes it three to four times as much of a processor. Limits that are mostly
/// waiting need no such allowance.
pub(crate) const HURRY: u32 = if cfg!(debug_assertions) { 3 } else { 1 };

/// How often something may take too long before it counts.
const ATTEMPTS: usize = 5;

/// Fails if no attempt, which is told its number, is done within `limit`. For work that fills every
/// processor: a machine that is busy otherwise makes it slower in ways that cannot be subtracted, by
/// caches that are shared and by other guests of its host, but never quicker.
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

/// Measures how long a test and the processes that it has started take for something.
///
/// The machine may be busy otherwise, with other tests first of all. The processor time that others
/// take is subtracted, as far as it was not there for all; on a machine that has nothing else to do
/// it is wall-clock time.
pub(crate) struct Stopwatch {
    started: Instant,
    machine: Machine,
    own: BTreeMap<u32, u64>,
}

/// What all processors have done since the machine was started, in ticks.
struct Machine {
    busy: u64,
    idle: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { machine: Machine::now(), own: own_ticks(), started: Instant::now() }
    }

    /// How long it was.
    pub(crate) fn took(&self) -> Duration {
        let elapsed = self.started.elapsed();
        elapsed.saturating_sub(self.waited())
    }

    /// Fails if it was longer than `limit`.
    #[track_caller]
    pub(crate) fn within(&self, limit: Duration, what: impl Display) {
        let took = self.took();
        println!("{what} took {took:?}, {:?} by the clock", self.started.elapsed());
        assert!(took < limit, "{what} took {took:?}, and may take {limit:?}");
    }

    /// How long others kept every processor from this test.
    fn waited(&self) -> Duration {
        let now = Machine::now();
        let own: u64 = own_ticks()
            .iter()
            .map(|(process, ticks)| ticks - self.own.get(process).copied().unwrap_or(0))
            .sum();
        let others = (now.busy - self.machine.busy).saturating_sub(own);
        let ticks = others.saturating_sub(now.idle - self.machine.idle);
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

/// What this thread and the processes that it has started have taken of the processors.
fn own_ticks() -> BTreeMap<u32, u64> {
    let children = fs::read_to_string("/proc/thread-self/children").expect("procfs");
    let children = children.split_whitespace().map(|id| id.parse().expect("a process id"));
    // One that has ended meanwhile has nothing to read any more.
    let ticks = |path: &str| fs::read_to_string(path).ok().map(|stat| processor_ticks(&stat));
    let of_child = |id: u32| Some((id, ticks(&format!("/proc/{id}/stat"))?));
    let own = ticks("/proc/thread-self/stat").expect("procfs");
    children.filter_map(of_child).chain([(0, own)]).collect()
}

/// The processor time of a process or a thread by its line in procfs.
pub(crate) fn processor_ticks(stat: &str) -> u64 {
    // The fields after the name, which may hold spaces itself.
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

fn duration(ticks: u64) -> Duration {
    Duration::from_millis(1000 * ticks / clock_ticks_per_second())
}
