//! Who may be connected, and who goes when there is no place left.
//!
//! Places are limited in number and in memory, in all and by source. A source, and a network of IPv6
//! sources, gets no more than are free then, so that a dozen sources that take all they can leave
//! another dozen's worth to those that come. When all are taken the source with most memory loses a
//! connection that waits for its client: an idle one first, then the one that has waited longest,
//! longer than any machine lets a server wait. An answer that is being made, or taken as fast as a
//! machine takes it, is never given up. The port without TLS gets three quarters at most: machines boot
//! by the other one.
//!
//! What a balancer connects is counted for the client behind it, as soon as that is known; a balancer is
//! no source, and has no share.

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
pub use self::source::{Door, Source};
pub use self::turn::Shed;
use self::turn::{GRACE, Turn};
use super::activity::{Activity, Phase};
use super::limits::PlaceLimits;

/// What a connection takes of which no byte has come yet.
const SILENT: u64 = 4 << 10;
/// Sources that are looked at for one connection that may go, those with most first,
const SOURCES: usize = 16;
/// and connections of each.
const LOOKS: usize = 256;
/// Connections that may go for one that needs memory.
const VICTIMS: usize = 64;

/// The places of one or more listeners.
#[derive(Debug, Clone)]
pub struct Places {
    limits: PlaceLimits,
    seats: Arc<Mutex<Seats>>,
}

#[derive(Debug, Default)]
struct Seats {
    all: HashMap<u64, Seat>,
    shares: Shares,
    queues: HashMap<(Source, bool), Queue>,
    plain: usize,
    next: u64,
}

#[derive(Debug)]
struct Seat {
    source: Source,
    door: Door,
    activity: Activity,
    bytes: u64,
    position: Position,
    /// Ends the connection, once it runs.
    task: Option<AbortHandle>,
}

/// A place that is taken. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Places,
    ticket: Ticket,
}

/// What a place is known by to those who do not hold it.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(u64);

/// A place, and why somebody else lost it, if somebody did.
pub type Taken = (Place, Option<Shed>);

/// What came of counting other bytes for a connection.
#[derive(Debug)]
pub struct Weighed {
    /// Why others lost their places.
    pub shed: Vec<Shed>,
    /// Whether more than half of all memory is taken now.
    pub is_scarce: bool,
}

impl Places {
    /// With none taken.
    #[must_use]
    pub fn new(limits: PlaceLimits) -> Self {
        Self { limits, seats: Arc::default() }
    }

    /// Takes a place for a connection that comes in, if need be from another one.
    pub fn take(
        &self,
        source: Source,
        door: Door,
        activity: Activity,
        now: Instant,
    ) -> Result<Taken, Shed> {
        let mut seats = lock(&self.seats);
        let most_plain = self.limits.all - self.limits.all / 4;
        let crowded = self.crowded(&seats, source, 1, SILENT);
        let shed = if let Some(group) = crowded {
            Some(seats.make_room(group, None, now)?)
        } else if door == Door::Plain && seats.plain >= most_plain {
            Some(seats.make_room(Group::Everyone, Some(door), now)?)
        } else {
            None
        };
        let ticket = Ticket(seats.next);
        seats.next += 1;
        let position = Position { is_idle: false, since: activity.opened() };
        seats.add(ticket, Seat { source, door, activity, bytes: SILENT, position, task: None });
        Ok((Place { places: self.clone(), ticket }, shed))
    }

    /// The largest group of a source that may not have so much more.
    fn crowded(
        &self,
        seats: &Seats,
        source: Source,
        connections: usize,
        bytes: u64,
    ) -> Option<Group> {
        let all = seats.shares.of(Group::Everyone);
        let free = self.limits.all.saturating_sub(all.connections);
        let free_bytes = self.limits.bytes.saturating_sub(all.bytes);
        let is_crowded = |group: &Group| {
            let share = seats.shares.of(*group);
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

    /// Names the task that serves the connection of a place: it is ended when the place is given to
    /// another one.
    pub fn served_by(&self, ticket: Ticket, task: AbortHandle) {
        let mut seats = lock(&self.seats);
        match seats.all.get_mut(&ticket.0) {
            Some(seat) => seat.task = Some(task),
            // It is over already, or its place was given away before it began.
            None => task.abort(),
        }
    }
}

impl Place {
    /// What it is known by.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Counts it for this source from now on, if need be in place of another one of the source's, and
    /// tells why that one lost its own. An error where the source may have no more.
    pub fn pass_to(&self, source: Source, now: Instant) -> Result<Option<Shed>, Shed> {
        let mut seats = lock(&self.places.seats);
        let Some(seat) = seats.remove(self.ticket) else { return Ok(None) };
        let crowded = self.places.crowded(&seats, source, 1, seat.bytes);
        let shed = crowded.map(|group| seats.make_room(group, None, now)).transpose();
        let source = if shed.is_ok() { source } else { seat.source };
        seats.add(self.ticket, Seat { source, ..seat });
        shed
    }

    /// Counts so many bytes for it from now on, if need be in place of others. An error where its source,
    /// or everyone, has as much as there may be.
    pub fn weigh(&self, bytes: u64, now: Instant) -> Result<Weighed, Shed> {
        let mut seats = lock(&self.places.seats);
        let mut shed = Vec::new();
        loop {
            // It was ended meanwhile.
            let Some(seat) = seats.all.get(&self.ticket.0) else { return Err(Shed::Full) };
            let (source, before) = (seat.source, seat.bytes);
            let more = bytes.saturating_sub(before);
            let crowded = (more > 0).then(|| self.places.crowded(&seats, source, 0, more));
            let Some(group) = crowded.flatten() else { break };
            if shed.len() == VICTIMS {
                return Err(Shed::Full);
            }
            shed.push(seats.make_room(group, None, now)?);
        }
        seats.weigh(self.ticket, bytes);
        let taken = seats.shares.of(Group::Everyone).bytes;
        Ok(Weighed { shed, is_scarce: taken > self.places.limits.bytes / 2 })
    }

    /// Notes that it is idle since `now`.
    pub fn idle(&self, now: Instant) {
        lock(&self.places.seats).look(self.ticket, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.seats).remove(self.ticket);
    }
}

impl Seats {
    fn add(&mut self, ticket: Ticket, seat: Seat) {
        self.plain += usize::from(seat.door == Door::Plain);
        self.shares.add(seat.source, seat.bytes);
        self.queues.entry(seat.queue()).or_default().insert(ticket.0, seat.position);
        self.all.insert(ticket.0, seat);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Seat> {
        let seat = self.all.remove(&ticket.0)?;
        if let Some(queue) = self.queues.get_mut(&seat.queue()) {
            queue.remove(ticket.0, seat.position);
            if queue.is_empty() {
                self.queues.remove(&seat.queue());
            }
        }
        self.shares.remove(seat.source, seat.bytes);
        self.plain -= usize::from(seat.door == Door::Plain);
        Some(seat)
    }

    fn weigh(&mut self, ticket: Ticket, bytes: u64) {
        if let Some(seat) = self.all.get_mut(&ticket.0) {
            self.shares.weigh(seat.source, seat.bytes, bytes);
            seat.bytes = bytes;
        }
    }

    /// Ends the connection that goes first, of those of this group, and of this door if one is named, and
    /// tells how it waited.
    fn make_room(&mut self, group: Group, door: Option<Door>, now: Instant) -> Result<Shed, Shed> {
        let sources: Vec<Source> = self.shares.heaviest(group).take(SOURCES).collect();
        for source in sources {
            if let Some((number, shed)) = self.first(source, door, now) {
                if let Some(task) = self.remove(Ticket(number)).and_then(|seat| seat.task) {
                    task.abort();
                }
                return Ok(shed);
            }
        }
        Err(if group == Group::Everyone { Shed::Full } else { Shed::SourceFull })
    }

    /// The connection of a source that goes first, and how it waited.
    fn first(&mut self, source: Source, door: Option<Door>, now: Instant) -> Option<(u64, Shed)> {
        let doors = [Door::Plain, Door::Tls].into_iter();
        doors.filter(|it| door.is_none_or(|door| door == *it)).find_map(|door| {
            let key = (source, door == Door::Plain);
            for _ in 0..LOOKS {
                let number = self.queues.get(&key)?.first(now.checked_sub(GRACE))?;
                let seat = self.all.get(&number)?;
                let turn = Turn::of(&seat.activity, now);
                let turn = turn.filter(|turn| turn.is_over(&seat.activity, now));
                let is_idle = seat.activity.phase() == Phase::Idle;
                let is_as_queued = |turn: &Turn| {
                    is_idle == seat.position.is_idle && turn.since <= seat.position.since
                };
                if let Some(turn) = turn.filter(is_as_queued) {
                    return Some((number, turn.why));
                }
                self.look(Ticket(number), now);
            }
            None
        })
    }

    /// Puts a connection where it belongs by what it does now.
    fn look(&mut self, ticket: Ticket, now: Instant) {
        let Some(seat) = self.all.get_mut(&ticket.0) else { return };
        let since = Turn::of(&seat.activity, now).map_or(now, |turn| turn.since);
        let position = Position { is_idle: seat.activity.phase() == Phase::Idle, since };
        if let Some(queue) = self.queues.get_mut(&seat.queue()) {
            queue.remove(ticket.0, seat.position);
            queue.insert(ticket.0, position);
        }
        seat.position = position;
    }
}

impl Seat {
    fn queue(&self) -> (Source, bool) {
        (self.source, self.door == Door::Plain)
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
