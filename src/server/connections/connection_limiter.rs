//! Admits connections, and closes others if there is no room.
//!
//! Permits are limited in number and in memory, in total and by source. A source, and a network of IPv6 sources, gets
//! at most as much as is free at that time, so that a dozen greedy sources leave the share of another dozen to others.
//! When all permits are taken, the source with the most memory loses a connection that waits for its client: first an
//! idle one, then the one that has waited longest, and longer than any machine lets a server wait. An answer that is
//! being made, or received at a machine's speed, is never cut off. The port without TLS gets at most three quarters,
//! because machines boot by the other one.
//!
//! A connection through a balancer counts for the client behind it, as soon as that client is known; the balancer
//! itself has no share.

mod client_wait;
mod shares;
mod source;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use common::sync::lock;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub(crate) use self::client_wait::Shed;
use self::client_wait::{ClientWait, GRACE};
use self::shares::Shares;
pub(super) use self::source::Group;
pub(crate) use self::source::{Source, Transport};
use super::activity::{Activity, Phase};
use super::limits::ConnectionLimits;

/// Memory of a connection without a received byte, in bytes.
const SILENT: u64 = 4 << 10;
/// Maximum number of sources that are searched for a connection to close, those with the most memory first.
const SOURCES: usize = 16;
/// Maximum number of connections that are checked for each source.
const CHECKS: usize = 256;
/// Maximum number of connections that are closed for one that needs memory.
const EVICTIONS: usize = 64;

/// Grants permits for the connections of one or more listeners.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimiter {
    limits: ConnectionLimits,
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug, Default)]
struct Slots {
    all: HashMap<u64, Slot>,
    shares: Shares,
    /// Numbers of the connections of a source, in the order of closing. Connections change without notice, always to a
    /// later time, so that the first one is checked again.
    queues: HashMap<(Source, Transport), BTreeSet<(Position, u64)>>,
    plain: usize,
    next: u64,
}

/// Position of a connection in the queue of its source: idle ones come first, and then all others by the earliest time
/// since which they can wait for their client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    is_busy: bool,
    since: Instant,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    transport: Transport,
    activity: Activity,
    bytes: u64,
    position: Position,
    /// Handle that ends the connection, once it runs.
    task: Option<AbortHandle>,
}

/// Permission to serve one connection. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: ConnectionLimiter,
    pub(super) id: ConnectionId,
}

/// Number of a permit, for code that does not hold it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionId(u64);

impl ConnectionLimiter {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, slots: Arc::default() }
    }

    /// Grants a permit to a new connection; closes another one if necessary, and returns the reason.
    pub(crate) fn acquire(
        &self,
        source: Source,
        transport: Transport,
        activity: Activity,
        now: Instant,
    ) -> Result<(Permit, Option<Shed>), Shed> {
        let mut slots = lock(&self.slots);
        let most_plain = self.limits.all - self.limits.all / 4;
        let crowded = self.exhausted_group(&slots, source, 1, SILENT);
        let shed = if let Some(group) = crowded {
            Some(slots.evict(group, None, now)?)
        } else if transport == Transport::Plain && slots.plain >= most_plain {
            Some(slots.evict(Group::Everyone, Some(transport), now)?)
        } else {
            None
        };
        let id = ConnectionId(slots.next);
        slots.next += 1;
        let position = Position { is_busy: true, since: activity.opened() };
        slots.add(id, Slot { source, transport, activity, bytes: SILENT, position, task: None });
        Ok((Permit { limiter: self.clone(), id }, shed))
    }

    /// The largest group of a source that cannot have so much more.
    fn exhausted_group(
        &self,
        slots: &Slots,
        source: Source,
        connections: usize,
        bytes: u64,
    ) -> Option<Group> {
        let all = slots.shares.of(Group::Everyone);
        let free = self.limits.all.saturating_sub(all.connections);
        let free_bytes = self.limits.bytes.saturating_sub(all.bytes);
        let is_crowded = |group: &Group| {
            let share = slots.shares.of(*group);
            match (group, self.limits.source) {
                (Group::Everyone, _) => connections > free || bytes > free_bytes,
                (Group::Source(Source::Balancer), _) | (_, None) => false,
                (Group::Source(_), Some(most)) if connections > 0 && share.connections >= most => {
                    true
                }
                _ => (connections > 0 && share.connections > free) || share.bytes > free_bytes,
            }
        };
        Group::of(source).find(is_crowded)
    }

    /// Sets the task of a permit's connection, which is aborted when the permit is withdrawn.
    pub(crate) fn set_task(&self, id: ConnectionId, task: AbortHandle) {
        let mut slots = lock(&self.slots);
        match slots.all.get_mut(&id.0) {
            Some(slot) => slot.task = Some(task),
            // The connection has ended, or its permit was withdrawn before it began.
            None => task.abort(),
        }
    }
}

impl Permit {
    /// Counts the connection for this source from here on, if necessary in place of another one of the source, and
    /// returns the reason why that one was closed. An error means that the source has its maximum.
    pub(crate) fn reassign(&self, source: Source, now: Instant) -> Result<Option<Shed>, Shed> {
        let mut slots = lock(&self.limiter.slots);
        let Some(slot) = slots.remove(self.id) else { return Ok(None) };
        let crowded = self.limiter.exhausted_group(&slots, source, 1, slot.bytes);
        let shed = crowded.map(|group| slots.evict(group, None, now)).transpose();
        let source = if shed.is_ok() { source } else { slot.source };
        slots.add(self.id, Slot { source, ..slot });
        shed
    }

    /// Counts so many bytes for the connection. If others have to be closed for that, it calls `on_closed` with the reason
    /// of each. Returns true if more than half of all memory is in use. An error means that its source, or all together,
    /// have the maximum.
    pub(crate) fn set_memory(
        &self,
        bytes: u64,
        now: Instant,
        mut on_closed: impl FnMut(Shed),
    ) -> Result<bool, Shed> {
        let mut slots = lock(&self.limiter.slots);
        let mut left = EVICTIONS;
        loop {
            // The connection was closed meanwhile.
            let Some(slot) = slots.all.get(&self.id.0) else { return Err(Shed::Full) };
            let (source, before) = (slot.source, slot.bytes);
            let more = bytes.saturating_sub(before);
            let crowded = (more > 0).then(|| self.limiter.exhausted_group(&slots, source, 0, more));
            let Some(group) = crowded.flatten() else { break };
            if left == 0 {
                return Err(Shed::Full);
            }
            left -= 1;
            on_closed(slots.evict(group, None, now)?);
        }
        slots.set_memory(self.id, bytes);
        let taken = slots.shares.of(Group::Everyone).bytes;
        Ok(taken > self.limiter.limits.bytes / 2)
    }

    /// Marks the connection as idle since `now`.
    pub(crate) fn idle(&self, now: Instant) {
        lock(&self.limiter.slots).requeue(self.id, now);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.limiter.slots).remove(self.id);
    }
}

impl Slots {
    fn add(&mut self, id: ConnectionId, slot: Slot) {
        self.plain += usize::from(slot.transport == Transport::Plain);
        self.shares.add(slot.source, slot.bytes);
        self.queues.entry(slot.queue()).or_default().insert((slot.position, id.0));
        self.all.insert(id.0, slot);
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Slot> {
        let slot = self.all.remove(&id.0)?;
        if let Some(queue) = self.queues.get_mut(&slot.queue()) {
            queue.remove(&(slot.position, id.0));
            if queue.is_empty() {
                self.queues.remove(&slot.queue());
            }
        }
        self.shares.remove(slot.source, slot.bytes);
        self.plain -= usize::from(slot.transport == Transport::Plain);
        Some(slot)
    }

    fn set_memory(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(slot) = self.all.get_mut(&id.0) {
            self.shares.set_memory(slot.source, slot.bytes, bytes);
            slot.bytes = bytes;
        }
    }

    /// Closes the first connection of this group, and of this transport if one is given. Returns the reason.
    fn evict(
        &mut self,
        group: Group,
        transport: Option<Transport>,
        now: Instant,
    ) -> Result<Shed, Shed> {
        let sources: Vec<Source> = self.shares.by_memory(group).take(SOURCES).collect();
        for source in sources {
            if let Some((number, shed)) = self.first(source, transport, now) {
                if let Some(task) = self.remove(ConnectionId(number)).and_then(|slot| slot.task) {
                    task.abort();
                }
                return Ok(shed);
            }
        }
        Err(if group == Group::Everyone { Shed::Full } else { Shed::SourceFull })
    }

    /// The first connection of a source to close, with the reason.
    fn first(
        &mut self,
        source: Source,
        transport: Option<Transport>,
        now: Instant,
    ) -> Option<(u64, Shed)> {
        let mut transports = [Transport::Plain, Transport::Tls]
            .into_iter()
            .filter(|it| transport.is_none_or(|transport| transport == *it));
        transports.find_map(|transport| {
            for _ in 0..CHECKS {
                let &(position, number) = self.queues.get(&(source, transport))?.first()?;
                if position.is_busy && Some(position.since) > now.checked_sub(GRACE) {
                    return None;
                }
                let activity = &self.all.get(&number)?.activity;
                let is_busy = activity.phase() != Phase::Idle;
                let wait = ClientWait::of(activity, now).filter(|wait| {
                    let is_as_queued = is_busy == position.is_busy && wait.since <= position.since;
                    is_as_queued && wait.is_over(activity, now)
                });
                if let Some(wait) = wait {
                    return Some((number, wait.why));
                }
                self.requeue(ConnectionId(number), now);
            }
            None
        })
    }

    fn requeue(&mut self, id: ConnectionId, now: Instant) {
        let Some(slot) = self.all.get_mut(&id.0) else { return };
        let since = ClientWait::of(&slot.activity, now).map_or(now, |wait| wait.since);
        let position = Position { is_busy: slot.activity.phase() != Phase::Idle, since };
        if let Some(queue) = self.queues.get_mut(&slot.queue()) {
            queue.remove(&(slot.position, id.0));
            queue.insert((position, id.0));
        }
        slot.position = position;
    }
}

impl Slot {
    fn queue(&self) -> (Source, Transport) {
        (self.source, self.transport)
    }
}

#[cfg(test)]
mod tests;
