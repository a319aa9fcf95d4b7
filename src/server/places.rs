//! Who may be connected, and who goes when there is no place left.
//!
//! Places are limited in all and by source, so that one address cannot keep the others out. Who
//! comes when all are taken gets the place of the connection that has waited longest for its own
//! client: first of those between two requests, then of those that have not asked for anything yet,
//! then of those whose client takes nothing of its answer. A machine asks at once, reads, and is
//! gone; what holds places for long is something else. An answer that is being made or read is never
//! given up. The port without TLS gets three quarters at most: machines boot by the other one.
//!
//! What a balancer connects is counted for the client behind it, as soon as that is known; a balancer is
//! no source, and has no share.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::activity::{Activity, Phase};
use super::limits::PlaceLimits;

/// A client that has taken nothing for so long is not about to: the longest wait of a lost packet on
/// a line that works is shorter.
const UNREAD: Duration = Duration::from_secs(5);

/// Where connections come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A port with TLS.
    Tls,
    /// A port without.
    Plain,
}

/// Who is counted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IPv4 address, also one that is written as IPv6.
    V4(Ipv4Addr),
    /// The network part of an IPv6 address: whoever has one has all of the network.
    V6(u128),
    /// All balancers, of which a connection is until it says for whom, and after where it is its own.
    Balancer,
}

impl From<SocketAddr> for Source {
    fn from(peer: SocketAddr) -> Self {
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address.to_bits() >> 64),
        }
    }
}

/// Why a connection is not kept.
///
/// Of those that are there, the ones that go first are the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shed {
    /// It waited for its client's next request longest, and another one came.
    Idle,
    /// It waited for its client's first request longest, and another one came.
    Silent,
    /// It waited longest for its client to take some of its answer, and another one came.
    Unread,
    /// It comes from a source that has as many as it may, all with an answer under way.
    SourceFull,
    /// All places are taken, with an answer under way on each.
    Full,
}

impl Shed {
    /// How the metric names it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::SourceFull => "source_full",
            Self::Full => "full",
            Self::Idle => "idle",
            Self::Silent => "silent",
            Self::Unread => "unread",
        }
    }
}

/// The places of one or more listeners.
#[derive(Debug, Clone)]
pub struct Places {
    limits: PlaceLimits,
    seats: Arc<Mutex<Seats>>,
}

#[derive(Debug, Default)]
struct Seats {
    by_source: HashMap<Source, HashMap<u64, Seat>>,
    /// For whom each of them counts.
    sources: HashMap<u64, Source>,
    plain: usize,
    next: u64,
}

#[derive(Debug)]
struct Seat {
    door: Door,
    activity: Activity,
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
        let shed = if let Some(shed) = self.make_room_for(source, &mut seats, now)? {
            Some(shed)
        } else if door == Door::Plain && seats.plain >= most_plain {
            Some(seats.make_room(None, Some(door), now).ok_or(Shed::Full)?)
        } else if seats.sources.len() >= self.limits.all {
            Some(seats.make_room(None, None, now).ok_or(Shed::Full)?)
        } else {
            None
        };
        let ticket = Ticket(seats.next);
        seats.next += 1;
        seats.add(ticket, source, Seat { door, activity, task: None });
        Ok((Place { places: self.clone(), ticket }, shed))
    }

    /// Makes room for one more of this source where it has all that it may have.
    fn make_room_for(
        &self,
        source: Source,
        seats: &mut Seats,
        now: Instant,
    ) -> Result<Option<Shed>, Shed> {
        let own = seats.by_source.get(&source).map_or(0, HashMap::len);
        let most = self.limits.source.filter(|_| source != Source::Balancer);
        if most.is_none_or(|most| own < most) {
            return Ok(None);
        }
        seats.make_room(Some(source), None, now).ok_or(Shed::SourceFull).map(Some)
    }

    /// Names the task that serves the connection of a place: it is ended when the place is given to
    /// another one.
    pub fn served_by(&self, ticket: Ticket, task: AbortHandle) {
        let mut seats = lock(&self.seats);
        match seats.seat(ticket) {
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
        let shed = self.places.make_room_for(source, &mut seats, now)?;
        if let Some(seat) = seats.remove(self.ticket) {
            seats.add(self.ticket, source, seat);
        }
        Ok(shed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.seats).remove(self.ticket);
    }
}

impl Seats {
    fn seat(&mut self, ticket: Ticket) -> Option<&mut Seat> {
        let source = self.sources.get(&ticket.0)?;
        self.by_source.get_mut(source)?.get_mut(&ticket.0)
    }

    fn add(&mut self, ticket: Ticket, source: Source, seat: Seat) {
        self.plain += usize::from(seat.door == Door::Plain);
        self.sources.insert(ticket.0, source);
        self.by_source.entry(source).or_default().insert(ticket.0, seat);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Seat> {
        let source = self.sources.remove(&ticket.0)?;
        let own = self.by_source.get_mut(&source)?;
        let seat = own.remove(&ticket.0)?;
        if own.is_empty() {
            self.by_source.remove(&source);
        }
        self.plain -= usize::from(seat.door == Door::Plain);
        Some(seat)
    }

    /// Ends the connection that goes first, of those of this source or door if one is named, and
    /// tells how it waited. `None` where all are being answered.
    fn make_room(
        &mut self,
        source: Option<Source>,
        door: Option<Door>,
        now: Instant,
    ) -> Option<Shed> {
        let sources = self.by_source.iter().filter(|(it, _)| source.is_none_or(|own| own == **it));
        let waiting = sources
            .flat_map(|(_, seats)| seats)
            .filter(|(_, seat)| door.is_none_or(|door| door == seat.door))
            .filter_map(|(number, seat)| Some((turn(&seat.activity, now)?, *number)));
        let ((shed, _), number) = waiting.min()?;
        if let Some(task) = self.remove(Ticket(number))?.task {
            task.abort();
        }
        Some(shed)
    }
}

/// How a connection waits for its client, and since when; `None` while the client waits for it.
fn turn(activity: &Activity, now: Instant) -> Option<(Shed, Instant)> {
    match activity.phase() {
        Phase::Idle => Some((Shed::Idle, activity.since())),
        Phase::Handshake | Phase::FirstHead | Phase::Head => Some((Shed::Silent, activity.since())),
        Phase::Answer | Phase::Sending => {
            let blocked = activity.blocked()?;
            (now.saturating_duration_since(blocked) >= UNREAD).then_some((Shed::Unread, blocked))
        }
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
