//! Connections of one source, in the order of closing.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// Each connection is in one of two orders: idle ones, and all others by the earliest time since which they can wait
/// for their client. Connections change without notice, always to a later time, so that the first one is checked again.
#[derive(Debug, Default)]
pub(super) struct Queue {
    idle: BTreeSet<(Instant, u64)>,
    others: BTreeSet<(Instant, u64)>,
}

/// Position of a connection in the queue of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) is_idle: bool,
    pub(super) since: Instant,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.others.is_empty()
    }

    pub(super) fn insert(&mut self, number: u64, at: Position) {
        self.order(at.is_idle).insert((at.since, number));
    }

    pub(super) fn remove(&mut self, number: u64, at: Position) {
        self.order(at.is_idle).remove(&(at.since, number));
    }

    /// The connection to check next: the one that is idle longest, or else the first of the others, unless none can
    /// have waited since before `latest`.
    pub(super) fn first(&self, latest: Option<Instant>) -> Option<u64> {
        let other = || self.others.first().filter(|(since, _)| Some(*since) <= latest);
        self.idle.first().or_else(other).map(|(_, number)| *number)
    }

    fn order(&mut self, is_idle: bool) -> &mut BTreeSet<(Instant, u64)> {
        if is_idle { &mut self.idle } else { &mut self.others }
    }
}
