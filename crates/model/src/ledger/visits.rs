//! Keeps the last requests and handshakes of all machines.
//!
//! They are bounded in bytes, not in number, and the oldest of all machines are discarded first. A request that is repeated
//! is one of them, with the number of times.

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

use ignition::SpecVersion;
use time::OffsetDateTime;

use super::machine::{Failed, Outcome, Requests};

/// Maximum size of all visits, in bytes: some 5,000 of machines that got a config.
const MAX_BYTES: usize = 2 << 20;

/// A request or handshake, once or several times in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Address of the machine.
    pub address: IpAddr,
    /// Kind, with the answer.
    pub kind: VisitKind,
    /// Number of times.
    pub times: u64,
    /// Time of the first one.
    pub first: OffsetDateTime,
    /// Time of the last one.
    pub last: OffsetDateTime,
}

/// Kind of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitKind {
    /// A request for a config.
    Request {
        /// Pool.
        pool: String,
        /// User agent of the client.
        user_agent: String,
        /// The spec that it can read, where it asked for one that there is.
        spec: Option<SpecVersion>,
        /// Answer.
        outcome: Outcome,
    },
    /// A TLS handshake that failed.
    Handshake(Failed),
}

/// A visit as it happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum NewVisit<'a> {
    /// The last request in a machine's entry.
    Request(&'a Requests),
    Handshake(Failed),
}

/// The visits of all machines, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Visits {
    all: VecDeque<Visit>,
    bytes: usize,
    /// Number of the first one, counted from the beginning.
    first: u64,
    /// Number of each machine's last one.
    last: HashMap<IpAddr, u64>,
}

impl Visits {
    pub(super) fn note(&mut self, address: IpAddr, seen: NewVisit<'_>, now: OffsetDateTime) {
        let last = self.last.get(&address).and_then(|number| {
            let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
            self.all.get_mut(place)
        });
        if let Some(last) = last.filter(|last| seen.is(&last.kind)) {
            last.times += 1;
            last.last = now;
            return;
        }
        let visit = Visit { address, kind: seen.kind(), times: 1, first: now, last: now };
        self.bytes += visit.bytes();
        self.last.insert(address, self.first + self.all.len() as u64);
        self.all.push_back(visit);
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.all.pop_front()
        {
            self.bytes -= oldest.bytes();
            if self.last.get(&oldest.address) == Some(&self.first) {
                self.last.remove(&oldest.address);
            }
            self.first += 1;
        }
    }

    /// Lists the visits of a machine, the latest first.
    pub(super) fn of(&self, address: IpAddr) -> Vec<Visit> {
        self.all.iter().rev().filter(|visit| visit.address == address).cloned().collect()
    }
}

impl Visit {
    fn bytes(&self) -> usize {
        let texts = match &self.kind {
            VisitKind::Request { pool, user_agent, outcome, .. } => {
                let outcome = match outcome {
                    Outcome::Served { config, sha256 } => config.len() + sha256.len(),
                    Outcome::Refused { reason, .. } => reason.len(),
                };
                pool.len() + user_agent.len() + outcome
            }
            VisitKind::Handshake(_) => 0,
        };
        size_of::<Self>() + size_of::<(IpAddr, u64)>() + texts
    }
}

impl NewVisit<'_> {
    /// Compares without a copy: each request of each machine does.
    fn is(self, kind: &VisitKind) -> bool {
        match (self, kind) {
            (Self::Request(seen), VisitKind::Request { pool, user_agent, spec, outcome }) => {
                (&seen.pool, &seen.user_agent, &seen.spec, &seen.outcome)
                    == (pool, user_agent, spec, outcome)
            }
            (Self::Handshake(seen), VisitKind::Handshake(failed)) => seen == *failed,
            _ => false,
        }
    }

    fn kind(self) -> VisitKind {
        match self {
            Self::Request(seen) => VisitKind::Request {
                pool: seen.pool.clone(),
                user_agent: seen.user_agent.clone(),
                spec: seen.spec,
                outcome: seen.outcome.clone(),
            },
            Self::Handshake(failed) => VisitKind::Handshake(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    const NOON: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);

    fn refused(reason: &str) -> Requests {
        Requests {
            pool: "worker".to_owned(),
            user_agent: "Ignition/2".to_owned(),
            spec: None,
            without_tls: false,
            outcome: Outcome::Refused { status: 503, reason: reason.to_owned() },
            would_be_refused: None,
            times: 1,
            since: NOON,
            last: NOON,
        }
    }

    #[test]
    fn what_comes_again_is_counted_and_what_is_new_is_another() {
        let mut visits = Visits::default();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let after = |seconds| NOON + Duration::seconds(seconds);
        visits.note(one, NewVisit::Handshake(Failed::Untrusted), after(0));
        for seconds in 1..4 {
            visits.note(one, NewVisit::Request(&refused("no config yet")), after(seconds));
            visits.note(other, NewVisit::Request(&refused("no config yet")), after(seconds));
        }
        visits.note(one, NewVisit::Request(&refused("no such pool")), after(9));
        let seen: Vec<_> = visits.of(one).iter().map(|it| (it.times, it.first, it.last)).collect();
        let expected = [(1, after(9), after(9)), (3, after(1), after(3)), (1, after(0), after(0))];
        assert_eq!(seen, expected);
        assert_eq!(visits.of(other).len(), 1);
    }

    #[test]
    fn the_oldest_are_discarded_and_nothing_of_them_is_kept() {
        let mut visits = Visits::default();
        let address = |number: u32| IpAddr::from(core::net::Ipv4Addr::from_bits(number));
        for number in 0..50_000 {
            visits.note(address(number), NewVisit::Request(&refused(&"x".repeat(200))), NOON);
        }
        assert!(visits.bytes <= MAX_BYTES && visits.bytes > MAX_BYTES / 2, "{}", visits.bytes);
        assert_eq!(visits.all.len(), visits.last.len());
        assert!(visits.of(address(0)).is_empty());
        visits.note(address(49_999), NewVisit::Request(&refused(&"x".repeat(200))), NOON);
        assert_eq!(visits.of(address(49_999))[0].times, 2);
        visits.note(address(0), NewVisit::Request(&refused("again")), NOON);
        assert_eq!(visits.of(address(0)).len(), 1);
    }
}
