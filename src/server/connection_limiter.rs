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

mod queue;
mod shares;
mod source;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::queue::{Position, Queue};
use self::shares::Shares;
pub(super) use self::source::Group;
pub use self::source::{Source, Transport};
pub use self::turn::Shed;
use self::turn::{GRACE, Turn};
use super::activity::{Activity, Phase};
use super::limits::ConnectionLimits;

/// Memory of a connection without a received byte, in bytes.
const SILENT: u64 = 4 << 10;
/// Maximum number of sources that are searched for a connection to close, those with the most memory first.
const SOURCES: usize = 16;
/// Maximum number of connections that are checked for each source.
const LOOKS: usize = 256;
/// Maximum number of connections that are closed for one that needs memory.
const VICTIMS: usize = 64;

/// Grants permits for the connections of one or more listeners.
#[derive(Debug, Clone)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug, Default)]
struct Slots {
    all: HashMap<u64, Slot>,
    shares: Shares,
    queues: HashMap<(Source, bool), Queue>,
    plain: usize,
    next: u64,
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
pub struct Permit {
    limiter: ConnectionLimiter,
    id: ConnectionId,
}

/// Number of a permit, for code that does not hold it.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionId(u64);

/// A permit, with the reason why another connection was closed for it, if one was.
pub type Permitted = (Permit, Option<Shed>);

/// Result of counting more or fewer bytes for a connection.
#[derive(Debug)]
pub struct MemoryUse {
    /// Reasons why other connections were closed.
    pub shed: Vec<Shed>,
    /// True if more than half of all memory is in use.
    pub is_scarce: bool,
}

impl ConnectionLimiter {
    /// Creates a limiter without connections.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, slots: Arc::default() }
    }

    /// Grants a permit to a new connection; closes another one if necessary.
    pub fn take(
        &self,
        source: Source,
        transport: Transport,
        activity: Activity,
        now: Instant,
    ) -> Result<Permitted, Shed> {
        let mut slots = lock(&self.slots);
        let most_plain = self.limits.all - self.limits.all / 4;
        let crowded = self.crowded(&slots, source, 1, SILENT);
        let shed = if let Some(group) = crowded {
            Some(slots.make_room(group, None, now)?)
        } else if transport == Transport::Plain && slots.plain >= most_plain {
            Some(slots.make_room(Group::Everyone, Some(transport), now)?)
        } else {
            None
        };
        let id = ConnectionId(slots.next);
        slots.next += 1;
        let position = Position { is_idle: false, since: activity.opened() };
        slots.add(id, Slot { source, transport, activity, bytes: SILENT, position, task: None });
        Ok((Permit { limiter: self.clone(), id }, shed))
    }

    /// The largest group of a source that cannot have so much more.
    fn crowded(
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
    pub fn served_by(&self, id: ConnectionId, task: AbortHandle) {
        let mut slots = lock(&self.slots);
        match slots.all.get_mut(&id.0) {
            Some(slot) => slot.task = Some(task),
            // The connection has ended, or its permit was withdrawn before it began.
            None => task.abort(),
        }
    }
}

impl Permit {
    /// Number of the permit.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Counts the connection for this source from here on, if necessary in place of another one of the source, and
    /// returns the reason why that one was closed. An error means that the source has its maximum.
    pub fn pass_to(&self, source: Source, now: Instant) -> Result<Option<Shed>, Shed> {
        let mut slots = lock(&self.limiter.slots);
        let Some(slot) = slots.remove(self.id) else { return Ok(None) };
        let crowded = self.limiter.crowded(&slots, source, 1, slot.bytes);
        let shed = crowded.map(|group| slots.make_room(group, None, now)).transpose();
        let source = if shed.is_ok() { source } else { slot.source };
        slots.add(self.id, Slot { source, ..slot });
        shed
    }

    /// Counts so many bytes for the connection, and closes others if necessary. An error means that its source, or all
    /// together, have the maximum.
    pub fn weigh(&self, bytes: u64, now: Instant) -> Result<MemoryUse, Shed> {
        let mut slots = lock(&self.limiter.slots);
        let mut shed = Vec::new();
        loop {
            // The connection was closed meanwhile.
            let Some(slot) = slots.all.get(&self.id.0) else { return Err(Shed::Full) };
            let (source, before) = (slot.source, slot.bytes);
            let more = bytes.saturating_sub(before);
            let crowded = (more > 0).then(|| self.limiter.crowded(&slots, source, 0, more));
            let Some(group) = crowded.flatten() else { break };
            if shed.len() == VICTIMS {
                return Err(Shed::Full);
            }
            shed.push(slots.make_room(group, None, now)?);
        }
        slots.weigh(self.id, bytes);
        let taken = slots.shares.of(Group::Everyone).bytes;
        Ok(MemoryUse { shed, is_scarce: taken > self.limiter.limits.bytes / 2 })
    }

    /// Marks the connection as idle since `now`.
    pub fn idle(&self, now: Instant) {
        lock(&self.limiter.slots).look(self.id, now);
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
        self.queues.entry(slot.queue()).or_default().insert(id.0, slot.position);
        self.all.insert(id.0, slot);
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Slot> {
        let slot = self.all.remove(&id.0)?;
        if let Some(queue) = self.queues.get_mut(&slot.queue()) {
            queue.remove(id.0, slot.position);
            if queue.is_empty() {
                self.queues.remove(&slot.queue());
            }
        }
        self.shares.remove(slot.source, slot.bytes);
        self.plain -= usize::from(slot.transport == Transport::Plain);
        Some(slot)
    }

    fn weigh(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(slot) = self.all.get_mut(&id.0) {
            self.shares.weigh(slot.source, slot.bytes, bytes);
            slot.bytes = bytes;
        }
    }

    /// Closes the first connection of this group, and of this transport if one is given. Returns the reason.
    fn make_room(
        &mut self,
        group: Group,
        transport: Option<Transport>,
        now: Instant,
    ) -> Result<Shed, Shed> {
        let sources: Vec<Source> = self.shares.heaviest(group).take(SOURCES).collect();
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
        let doors = [Transport::Plain, Transport::Tls].into_iter();
        doors.filter(|it| transport.is_none_or(|transport| transport == *it)).find_map(
            |transport| {
                let key = (source, transport == Transport::Plain);
                for _ in 0..LOOKS {
                    let number = self.queues.get(&key)?.first(now.checked_sub(GRACE))?;
                    let slot = self.all.get(&number)?;
                    let turn = Turn::of(&slot.activity, now);
                    let turn = turn.filter(|turn| turn.is_over(&slot.activity, now));
                    let is_idle = slot.activity.phase() == Phase::Idle;
                    let is_as_queued = |turn: &Turn| {
                        is_idle == slot.position.is_idle && turn.since <= slot.position.since
                    };
                    if let Some(turn) = turn.filter(is_as_queued) {
                        return Some((number, turn.why));
                    }
                    self.look(ConnectionId(number), now);
                }
                None
            },
        )
    }

    /// Updates the queue position of a connection.
    fn look(&mut self, id: ConnectionId, now: Instant) {
        let Some(slot) = self.all.get_mut(&id.0) else { return };
        let since = Turn::of(&slot.activity, now).map_or(now, |turn| turn.since);
        let position = Position { is_idle: slot.activity.phase() == Phase::Idle, since };
        if let Some(queue) = self.queues.get_mut(&slot.queue()) {
            queue.remove(id.0, slot.position);
            queue.insert(id.0, position);
        }
        slot.position = position;
    }
}

impl Slot {
    fn queue(&self) -> (Source, bool) {
        (self.source, self.transport == Transport::Plain)
    }
}

fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
