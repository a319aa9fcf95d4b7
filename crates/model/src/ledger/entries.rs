//! Chooses the machines that the ledger remembers.
//!
//! ```text
//!  ├─ machines that got a config ────────────┼─ others ─┤
//!                                            a quarter of the places
//! ```
//!
//! Each group can use all places that the other leaves free. If none is free, the least recent machine is discarded: of
//! the others while they have more than a quarter, otherwise of those that got a config. So clients that are refused
//! leave three quarters to machines that are served, and stuck machines are remembered next to any number of those. A
//! client with an IPv6 address controls a whole /64 network, so the places of each network among the others are
//! limited.

use core::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;
use time::OffsetDateTime;

use super::machine::{Machine, Requests};
use crate::by_network::ByNetwork;

#[derive(Debug)]
pub(super) struct Entries {
    most: usize,
    /// Machines that got a config.
    served: LruCache<IpAddr, Machine>,
    /// Machines that got no config.
    others: ByNetwork<Machine>,
    /// Number of machines that were discarded for others.
    pub(super) discarded: u64,
}

impl Entries {
    pub(super) fn new(most: NonZeroUsize) -> Self {
        Self {
            most: most.get(),
            served: LruCache::unbounded(),
            others: ByNetwork::default(),
            discarded: 0,
        }
    }

    /// Updates the machine at an address, which is new at `now` if it is not known.
    pub(super) fn note(
        &mut self,
        address: IpAddr,
        now: OffsetDateTime,
        note: impl FnOnce(&mut Machine),
    ) {
        if let Some(machine) = self.served.get_mut(&address) {
            note(machine);
            return;
        }
        let (machine, had_to_go) = self.others.at(address, || Machine::new(address, now));
        self.discarded += u64::from(had_to_go);
        note(machine);
        if machine.served().is_some()
            && let Some(machine) = self.others.remove(address)
        {
            self.served.push(address, machine);
        }
        while self.served.len() + self.others.len() > self.most {
            if self.others.len() > self.most / 4 {
                self.others.remove_oldest();
            } else {
                self.served.pop_lru();
            }
            self.discarded += 1;
        }
    }

    /// The last request from an address, if it got a config.
    pub(super) fn served_at(&self, address: IpAddr) -> Option<&Requests> {
        self.served.peek(&address)?.served()
    }

    /// Machines that got a config, then the others, the latest of each first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Machine> {
        self.served.iter().chain(self.others.iter()).map(|(_, machine)| machine)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use time::Duration;
    use time::macros::datetime;

    use super::super::{Failed, Request};
    use super::*;
    use crate::by_network::{MAX_PER_NETWORK, whole};

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn room_for(most: usize) -> Entries {
        Entries::new(NonZeroUsize::new(most).unwrap())
    }

    fn asked(entries: &mut Entries, address: IpAddr, is_served: bool) {
        let answer = if is_served {
            Ok(("rendered-worker-1", "ab"))
        } else {
            Err((401, "not for everyone"))
        };
        let (pool, user_agent, spec) = ("worker", "Ignition/2.14.0", None);
        let (without_tls, would_be_refused) = (false, None);
        let request =
            Request { address, pool, user_agent, spec, without_tls, answer, would_be_refused };
        entries.note(address, NOON, |machine| machine.asked(&request, NOON));
        let (others, most) = (&entries.others, entries.most);
        let of_networks = others.iter().filter(|(address, _)| address.is_ipv6()).count();
        let (hosts, networks) = others.remembered();
        assert_eq!(hosts, of_networks);
        assert!(entries.iter().count() <= most && networks <= most);
    }

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn is_known(entries: &Entries, address: IpAddr) -> bool {
        entries.iter().any(|machine| machine.address == address)
    }

    #[test]
    fn who_is_refused_takes_no_place_from_a_machine_that_got_a_config() {
        let mut entries = room_for(8);
        for number in 0..6 {
            asked(&mut entries, v4(number), true);
        }
        // A machine that is refused later has got a config all the same.
        asked(&mut entries, v4(0), false);
        for number in 100..200 {
            asked(&mut entries, v4(number), false);
        }
        assert!((0..6).all(|number| is_known(&entries, v4(number))));
        assert_eq!(entries.iter().count(), 8, "the others have the places that are left");
        for number in [199, 6, 7] {
            asked(&mut entries, v4(number), true);
        }
        let known = [0, 3, 4, 5, 199, 6, 7, 198];
        assert!(known.into_iter().all(|number| is_known(&entries, v4(number))), "{entries:?}");
        assert!((1..3).all(|number| !is_known(&entries, v4(number))), "{entries:?}");
    }

    #[test]
    fn machines_that_got_a_config_have_all_places_that_are_free() {
        let mut entries = room_for(8);
        for number in 0..20 {
            asked(&mut entries, v4(number), true);
        }
        assert!((12..20).all(|number| is_known(&entries, v4(number))));
        // Stuck machines are remembered all the same.
        for number in 100..200 {
            asked(&mut entries, v4(number), false);
        }
        let known = (14..20).chain(198..200);
        assert!(known.into_iter().all(|number| is_known(&entries, v4(number))), "{entries:?}");
    }

    #[test]
    fn machines_that_get_no_config_yet_have_all_places_that_are_free() {
        let mut entries = room_for(8);
        for number in 0..20 {
            asked(&mut entries, v4(number), false);
        }
        assert!((12..20).all(|number| is_known(&entries, v4(number))));
        assert_eq!(entries.iter().count(), 8);
        let mut smallest = room_for(1);
        for is_served in [false, true, false] {
            asked(&mut smallest, v4(u32::from(is_served)), is_served);
            assert_eq!(smallest.iter().count(), 1);
        }
        assert!(is_known(&smallest, v4(1)));
    }

    #[test]
    fn a_network_has_so_many_places_and_takes_none_from_others() {
        let mut entries = room_for(4_000);
        let stuck: Vec<_> = (0..500).map(v4).chain([whole(2, 1)]).collect();
        for address in &stuck {
            asked(&mut entries, *address, false);
        }
        for host in 0..10_000 {
            asked(&mut entries, whole(1, host), false);
            asked(&mut entries, whole(1, 0), false);
        }
        assert!(stuck.iter().all(|address| is_known(&entries, *address)));
        let most = u64::try_from(MAX_PER_NETWORK).unwrap();
        assert_eq!(entries.iter().count() - stuck.len(), MAX_PER_NETWORK);
        assert!(is_known(&entries, whole(1, 0)), "it asked just now");
        assert!(is_known(&entries, whole(1, 10_001 - most)));
        assert!(!is_known(&entries, whole(1, 10_000 - most)));
        // All machines of a cluster can be in one network.
        for host in 0..3_000 {
            asked(&mut entries, whole(3, host), true);
        }
        assert!((0..3_000).all(|host| is_known(&entries, whole(3, host))));
    }

    #[test]
    fn what_other_servers_know_of_one_that_got_a_config_counts() {
        let mut entries = room_for(4);
        let mut served = Machine::new(v4(1), NOON);
        let mut other = room_for(4);
        asked(&mut other, v4(1), true);
        served.absorb(other.iter().next().unwrap().clone());
        entries.note(v4(1), NOON, |machine| {
            machine.handshake_failed(Failed::Untrusted, NOON - Duration::HOUR);
        });
        entries.note(v4(1), NOON, |machine| machine.absorb(served));
        for number in 2..20 {
            asked(&mut entries, v4(number), false);
        }
        assert!(is_known(&entries, v4(1)));
    }
}
