//! Approvals of machines while requests are judged by them, and the machines that wait.

pub(crate) mod reconciler;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use common::sync::lock;
use model::access::approval::{
    Approvals, ApprovedMachine, Subject, UnapprovedRequest, WaitingMachine, WaitingMachines, Waits,
};
use model::access::machine::ClockReading;
use time::OffsetDateTime;

/// Approvals that count, and the machines that wait for one, shared by their reconciler and by requests.
#[derive(Debug)]
pub(crate) struct MachineApprovals {
    given: ArcSwap<Approvals>,
    waiting: Mutex<WaitingMachines>,
    started: Instant,
}

impl Default for MachineApprovals {
    fn default() -> Self {
        Self { given: ArcSwap::default(), waiting: Mutex::default(), started: Instant::now() }
    }
}

/// Machines of a pool that wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitingCount {
    pub(crate) machines: i64,
    /// Time since the first request of the one that waits longest.
    pub(crate) longest: Duration,
}

impl MachineApprovals {
    /// The present time.
    pub(super) fn now(&self) -> ClockReading {
        ClockReading { wall: OffsetDateTime::now_utc(), up: self.started.elapsed() }
    }

    /// A time since the start of the process, for a timer; `None` if it never comes.
    pub(super) fn instant(&self, up: Duration) -> Option<Instant> {
        self.started.checked_add(up)
    }

    /// Judges requests by these approvals from this call on.
    pub(super) fn give(&self, approvals: Approvals) {
        self.given.store(Arc::new(approvals));
    }

    /// True if the machine of a request is approved; otherwise it waits.
    pub(crate) fn admit(&self, asked: &UnapprovedRequest<'_>) -> bool {
        let (subject, now) = (asked.subject(), self.now());
        let is_open = self.given.load().is_open(&subject, now.up);
        let mut waiting = lock(&self.waiting);
        if is_open {
            waiting.remove(&subject);
        } else {
            waiting.note(asked, now);
        }
        is_open
    }

    /// The machines that wait, those with a token first.
    pub(crate) fn list_waiting(&self) -> Vec<WaitingMachine> {
        let mut list = Vec::new();
        self.each_waiting(|waits, _| list.push(WaitingMachine::of(waits)));
        list
    }

    /// The machines that are approved.
    pub(crate) fn list_approved(&self) -> Vec<ApprovedMachine> {
        let (given, up) = (self.given.load(), self.now().up);
        let open = given.open().filter(|(_, open)| up < open.until.up);
        open.map(|(subject, open)| ApprovedMachine::of(subject, open)).collect()
    }

    /// Machines that wait, by pool.
    pub(crate) fn count_waiting(&self) -> BTreeMap<Arc<str>, WaitingCount> {
        let mut pools: BTreeMap<Arc<str>, WaitingCount> = BTreeMap::new();
        self.each_waiting(|waits, now| {
            let count = pools.entry(Arc::clone(&waits.pool)).or_default();
            count.machines += 1;
            count.longest = count.longest.max(waits.waited(now));
        });
        pools
    }

    /// Number of waiting machines that were discarded for others.
    pub(crate) fn discarded(&self) -> u64 {
        lock(&self.waiting).discarded()
    }

    fn each_waiting(&self, mut look: impl FnMut(&Waits, ClockReading)) {
        let (given, now) = (self.given.load(), self.now());
        let mut waiting = lock(&self.waiting);
        waiting.discard_silent(now);
        let is_open = |subject: &Subject| given.is_open(subject, now.up);
        for waits in waiting.iter().filter(|waits| !is_open(&waits.subject)) {
            look(waits, now);
        }
    }
}
