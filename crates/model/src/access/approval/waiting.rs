//! Machines that wait for approval.
//!
//! ```text
//!  ├─ with a token ────────────────────────────┼─ without ─┤
//!                                              those places that are left
//! ```
//!
//! A machine that has shown a token takes the place of one that has not, and never the other way round. A machine that
//! asks no longer is discarded.

use core::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;

use super::super::machine::ClockReading;
use super::super::proof::Proof;
use super::subject::Subject;
use crate::by_network::ByNetwork;
use crate::ignition_version::IgnitionVersion;

/// Maximum number of waiting machines that are remembered.
pub const MAX_WAITING: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Time without a request after which a machine is no longer waiting. Ignition asks again every few seconds.
const SILENCE: Duration = Duration::from_secs(600);

/// A request of a machine that is not approved.
#[derive(Debug, Clone, Copy)]
pub struct UnapprovedRequest<'a> {
    /// Requested pool.
    pub pool: &'a str,
    /// Address that it came from.
    pub address: IpAddr,
    /// Proof that came with it.
    pub proof: Option<&'a Proof>,
    /// Version of Ignition; `None` of another program.
    pub ignition: Option<IgnitionVersion>,
}

/// A machine that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The machine.
    pub subject: Subject,
    /// Pool of its last request.
    pub pool: Arc<str>,
    /// Address of its last request.
    pub address: IpAddr,
    /// Name of the token that it has shown.
    pub token: Option<Arc<str>>,
    /// Version of Ignition; `None` of another program.
    pub ignition: Option<IgnitionVersion>,
    /// Time of the first request.
    pub since: ClockReading,
    /// Time of the last request.
    pub last: ClockReading,
}

/// All machines that wait.
#[derive(Debug)]
pub struct WaitingMachines {
    most: usize,
    with_token: LruCache<Subject, Waits>,
    others: ByNetwork<Waits>,
    discarded: u64,
}

impl Default for WaitingMachines {
    fn default() -> Self {
        Self::of(MAX_WAITING)
    }
}

impl UnapprovedRequest<'_> {
    /// The machine, as it is approved.
    pub fn subject(&self) -> Subject {
        match self.proof {
            Some(Proof::Machine(shown)) => Subject::Named(Arc::clone(&shown.machine)),
            _ => Subject::at(self.pool, self.address),
        }
    }

    fn token(&self) -> Option<&Arc<str>> {
        match self.proof? {
            Proof::Token(name) | Proof::Signed(name) => Some(name),
            Proof::Machine(shown) => Some(&shown.machine),
            Proof::NotAsked => None,
        }
    }
}

impl WaitingMachines {
    /// Creates an empty list with this capacity.
    pub fn of(most: NonZeroUsize) -> Self {
        Self {
            most: most.get(),
            with_token: LruCache::unbounded(),
            others: ByNetwork::default(),
            discarded: 0,
        }
    }

    /// Records a request of a machine that is not approved.
    pub fn note(&mut self, request: &UnapprovedRequest<'_>, now: ClockReading) {
        let (subject, address) = (request.subject(), request.address.to_canonical());
        if let Some(known) = self.with_token.get_mut(&subject) {
            return known.note(request, now);
        }
        let new = |subject| Waits::new(subject, request, now);
        if request.token().is_some() {
            let known = self.others.remove(address).filter(|known| known.subject == subject);
            let mut waits = known.unwrap_or_else(|| new(subject.clone()));
            waits.note(request, now);
            self.with_token.push(subject, waits);
        } else {
            let (waits, had_to_go) = self.others.at(address, || new(subject.clone()));
            self.discarded += u64::from(had_to_go);
            if waits.subject == subject {
                waits.note(request, now);
            } else {
                *waits = new(subject);
            }
        }
        while self.with_token.len() + self.others.len() > self.most {
            if self.others.len() > 0 {
                self.others.remove_oldest();
            } else {
                self.with_token.pop_lru();
            }
            self.discarded += 1;
        }
    }

    /// Removes a machine, which waits no longer.
    pub fn remove(&mut self, subject: &Subject) {
        self.with_token.pop(subject);
        if let Subject::At { address, .. } = subject
            && self.others.get(*address).is_some_and(|waits| waits.subject == *subject)
        {
            self.others.remove(*address);
        }
    }

    /// Discards the machines that ask no longer.
    pub fn discard_silent(&mut self, now: ClockReading) {
        let is_silent = |waits: &Waits| now.up.saturating_sub(waits.last.up) >= SILENCE;
        while self.with_token.peek_lru().is_some_and(|(_, waits)| is_silent(waits)) {
            self.with_token.pop_lru();
        }
        while self.others.oldest().is_some_and(is_silent) {
            self.others.remove_oldest();
        }
    }

    /// The machines that have shown a token, then the others, the latest of each first.
    pub fn iter(&self) -> impl Iterator<Item = &Waits> {
        let with_token = self.with_token.iter().map(|(_, waits)| waits);
        with_token.chain(self.others.iter().map(|(_, waits)| waits))
    }

    /// Number of machines that were discarded for others.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl Waits {
    fn new(subject: Subject, request: &UnapprovedRequest<'_>, now: ClockReading) -> Self {
        Self {
            subject,
            pool: request.pool.into(),
            address: request.address.to_canonical(),
            token: request.token().cloned(),
            ignition: request.ignition,
            since: now,
            last: now,
        }
    }

    fn note(&mut self, request: &UnapprovedRequest<'_>, now: ClockReading) {
        if *self.pool != *request.pool {
            self.pool = request.pool.into();
        }
        self.address = request.address.to_canonical();
        if let Some(token) = request.token() {
            self.token = Some(Arc::clone(token));
        }
        self.ignition = request.ignition;
        self.last = now;
    }

    /// Time since the first request.
    pub fn waited(&self, now: ClockReading) -> Duration {
        now.up.saturating_sub(self.since.up)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use time::macros::datetime;

    use super::super::super::token::{ShownToken, Token};
    use super::*;
    use crate::by_network::{MAX_PER_NETWORK, whole};

    fn after(seconds: u64) -> ClockReading {
        let up = Duration::from_secs(seconds);
        ClockReading { wall: datetime!(2026-11-25 12:00 UTC) + up, up }
    }

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn note(list: &mut WaitingMachines, address: IpAddr, proof: Option<&Proof>, seconds: u64) {
        let request = UnapprovedRequest { pool: "worker", address, proof, ignition: None };
        list.note(&request, after(seconds));
    }

    fn find(list: &WaitingMachines, address: IpAddr) -> Option<&Waits> {
        list.iter().find(|waits| waits.address == address)
    }

    #[test]
    fn a_hundred_thousand_without_a_token_push_out_nobody_with_one() {
        let mut list = WaitingMachines::default();
        let token = Proof::Token("worker-1".into());
        let most = u32::try_from(MAX_WAITING.get()).unwrap();
        for number in 0..most - 1 {
            note(&mut list, v4(number), Some(&token), 0);
        }
        for number in 0..100_000 {
            note(&mut list, v4(1_000_000 + number), None, 0);
            note(&mut list, whole(u64::from(number), 1), Some(&Proof::NotAsked), 0);
        }
        assert_eq!(list.iter().count(), MAX_WAITING.get());
        assert!((0..most - 1).all(|number| find(&list, v4(number)).is_some()));
        assert_eq!(list.discarded(), 199_999);
        // Those with a token have all places, and the one that has not asked for longest goes.
        for number in [most, 0, most + 1] {
            note(&mut list, v4(number), Some(&token), 1);
        }
        assert_eq!(list.iter().count(), MAX_WAITING.get());
        assert!(find(&list, v4(0)).is_some() && find(&list, v4(1)).is_none());
    }

    #[test]
    fn a_network_has_a_share_of_the_places() {
        let mut list = WaitingMachines::default();
        note(&mut list, v4(1), None, 0);
        for host in 0..20_000 {
            note(&mut list, whole(1, host), None, 0);
        }
        assert_eq!(list.iter().count(), MAX_PER_NETWORK + 1);
        assert!(find(&list, v4(1)).is_some());
    }

    #[test]
    fn a_machine_waits_since_its_first_request_until_it_is_approved_or_silent() {
        let mut list = WaitingMachines::default();
        let sha256 = Token::new([1; 32]).hash();
        let machine = Proof::Machine(ShownToken { machine: "rack-7".into(), sha256 });
        for seconds in [0, 5, 300] {
            note(&mut list, v4(1), None, seconds);
            note(&mut list, v4(2), Some(&machine), seconds);
        }
        // It moves, and is the same; another one at its address is another.
        note(&mut list, v4(3), Some(&machine), 310);
        note(&mut list, v4(1), Some(&Proof::Signed("s".into())), 320);
        let named = find(&list, v4(3)).unwrap();
        assert_eq!(named.subject, Subject::Named("rack-7".into()));
        assert_eq!((named.waited(after(400)), list.iter().count()), (Duration::from_secs(400), 2));
        let other = find(&list, v4(1)).unwrap();
        assert_eq!((other.token.as_deref(), other.since.up), (Some("s"), Duration::ZERO));
        list.remove(&Subject::Named("rack-7".into()));
        list.discard_silent(after(919));
        assert_eq!(list.iter().count(), 1);
        list.discard_silent(after(920));
        assert_eq!(list.iter().count(), 0);
        note(&mut list, v4(5), None, 920);
        list.remove(&Subject::at("infra", v4(5)));
        assert_eq!(list.iter().count(), 1, "it waits for another pool");
        list.remove(&Subject::at("worker", v4(5)));
        assert_eq!(list.iter().count(), 0);
    }
}
