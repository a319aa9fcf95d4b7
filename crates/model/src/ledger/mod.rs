//! The boot ledger: each machine that requested its config, the answer, and the result.
//!
//! It has one entry for each address, because machines have no other name before they join a cluster. The entry
//! combines four sources: requests, handshakes that failed before a request, the nodes of the cluster, and kubelets'
//! requests for their first certificates.

mod boot_status;
mod entries;
mod failure;
mod join_requests;
mod machine;
mod node_index;
pub(crate) mod span;
mod visits;

use core::cmp::Reverse;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::{Duration, OffsetDateTime};

use self::entries::Entries;
use self::visits::{NewVisit, Visits};

use crate::ignition_version::IgnitionVersion;

pub use self::boot_status::{BootStatus, Severity};
pub use self::failure::{BootFailure, FailureReport};
pub use self::join_requests::{JoinRequest, JoinRequests, MAX_JOIN_REQUESTS, Verdict};
pub use self::machine::{Failed, Handshakes, Machine, Outcome, Request, Requests};
pub use self::node_index::{Node, NodeIndex, Nodes, TokenProblem};
pub use self::visits::{Visit, VisitKind};

/// Maximum number of remembered machines. A cluster has some thousands.
pub const MAX_MACHINES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Time after its config within which a machine can report that its first boot failed.
const REPORTS_WITHIN: Duration = Duration::days(1);

/// The remembered machines, shared by all parts of the server.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Mutex<LedgerState>>);

#[derive(Debug)]
struct LedgerState {
    machines: Entries,
    visits: Visits,
    changes: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::of(MAX_MACHINES)
    }
}

impl Ledger {
    /// Name of the file in a state or cache directory.
    pub const FILE: &str = "ledger.json";

    /// Creates an empty ledger with this capacity.
    pub fn of(most: NonZeroUsize) -> Self {
        Self(Arc::new(Mutex::new(LedgerState {
            machines: Entries::new(most),
            visits: Visits::default(),
            changes: 0,
        })))
    }

    /// Records a request for a config with its answer. That of another program leaves the entry of a machine whose
    /// Ignition has asked as it is, and is one of the visits.
    pub fn asked(&self, request: &Request<'_>, now: OffsetDateTime) {
        self.entry(request.address, now, |machine, visits| {
            if machine.is_visit(request) {
                let visit = Requests::first(request, now.truncate_to_second());
                visits.note(machine.address, NewVisit::Request(&visit), now);
                return;
            }
            machine.asked(request, now);
            if let Some(requests) = &machine.requests {
                visits.note(machine.address, NewVisit::Request(requests), now);
            }
        });
    }

    /// Records a failed handshake.
    pub fn handshake_failed(&self, address: IpAddr, failed: Failed, now: OffsetDateTime) {
        self.entry(address, now, |machine, visits| {
            machine.handshake_failed(failed, now);
            visits.note(machine.address, NewVisit::Handshake(failed), now);
        });
    }

    /// Records a failed first boot that the machine reports.
    pub fn failed(&self, address: IpAddr, report: &FailureReport, now: OffsetDateTime) {
        self.entry(address, now, |machine, _| machine.failed(report, now));
    }

    /// True if the last request from the address got a config, within a day before `now`.
    pub fn was_served(&self, address: IpAddr, now: OffsetDateTime) -> bool {
        let noted = self.noted();
        let served = noted.machines.served_at(address.to_canonical());
        served.is_some_and(|request| now - request.last < REPORTS_WITHIN)
    }

    /// Merges the records of another ledger: an earlier one, or another server's.
    pub fn absorb(&self, machines: impl IntoIterator<Item = Machine>) {
        let mut machines: Vec<_> = machines.into_iter().collect();
        machines.sort_by_key(|machine| machine.last);
        let mut noted = self.noted();
        for machine in machines {
            let (address, first) = (machine.address, machine.first);
            noted.machines.note(address, first, |known| known.absorb(machine));
        }
        noted.changes += 1;
    }

    /// A copy of all machines, the latest first.
    pub fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<_> = self.noted().machines.iter().cloned().collect();
        machines.sort_by_key(|machine| Reverse(machine.last));
        machines
    }

    /// Lists the last requests and handshakes of a machine at this server since its start, the latest first.
    pub fn visits(&self, address: IpAddr) -> Vec<Visit> {
        self.noted().visits.of(address.to_canonical())
    }

    /// Oldest Ignition among the machines of each pool that was asked for, existing or not.
    pub fn oldest_ignition(&self) -> BTreeMap<String, IgnitionVersion> {
        let mut oldest: BTreeMap<String, IgnitionVersion> = BTreeMap::new();
        for machine in self.noted().machines.iter() {
            if let (Some(requests), Some(version)) = (&machine.requests, machine.ignition_version())
            {
                match oldest.get_mut(&requests.pool) {
                    Some(known) => *known = version.min(*known),
                    None => _ = oldest.insert(requests.pool.clone(), version),
                }
            }
        }
        oldest
    }

    /// Number of machines of each urgency, the most urgent first, with the cluster's nodes if they are known.
    pub fn count(&self, nodes: Option<&Nodes>, now: OffsetDateTime) -> BTreeMap<Severity, usize> {
        let mut counts: BTreeMap<_, _> = Severity::ALL.iter().map(|rank| (*rank, 0)).collect();
        for machine in self.noted().machines.iter() {
            *counts.entry(machine.boot_status(nodes, now).rank).or_default() += 1;
        }
        counts
    }

    /// True if a machine has had its config for a minute, and has not joined. False if no nodes are known.
    pub fn awaits_join(&self, nodes: Option<&Nodes>, now: OffsetDateTime) -> bool {
        nodes.is_some_and(|nodes| self.noted().machines.iter().any(|it| it.should_join(nodes, now)))
    }

    /// A counter of changes.
    pub fn changes(&self) -> u64 {
        self.noted().changes
    }

    /// Number of machines that were discarded for others since the ledger was created: it is full, or has the maximum
    /// of one network.
    pub fn discarded(&self) -> u64 {
        self.noted().machines.discarded
    }

    /// Changes a machine's entry and the visits.
    fn entry(
        &self,
        address: IpAddr,
        now: OffsetDateTime,
        note: impl FnOnce(&mut Machine, &mut Visits),
    ) {
        // An IPv4 client of a dual-stack socket has a mapped address.
        let address = address.to_canonical();
        let mut noted = self.noted();
        let LedgerState { machines, visits, changes } = &mut *noted;
        *changes += 1;
        machines.note(address, now, |machine| note(machine, visits));
    }

    fn noted(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn request(number: u32) -> Request<'static> {
        Request {
            address: address(number),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: None,
            without_tls: false,
            answer: Err((503, "no pool has this name")),
            would_be_refused: None,
        }
    }

    #[test]
    fn the_machine_that_has_not_asked_for_longest_is_discarded() {
        let ledger = Ledger::of(NonZeroUsize::new(3).unwrap());
        for number in [1, 2, 3, 1, 4] {
            ledger.asked(&request(number), NOON);
        }
        let known: Vec<_> = ledger.machines().iter().map(|machine| machine.address).collect();
        assert_eq!(known, [address(4), address(1), address(3)]);
        assert_eq!((ledger.changes(), ledger.discarded()), (5, 1));
    }

    #[test]
    fn an_ipv4_address_is_the_same_on_every_socket() {
        let ledger = Ledger::default();
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        ledger.handshake_failed(mapped.into(), Failed::Timeout, NOON);
        ledger.handshake_failed(Ipv4Addr::new(192, 0, 2, 1).into(), Failed::Timeout, NOON);
        let [machine] = &ledger.machines()[..] else { panic!("one machine") };
        assert_eq!(machine.handshakes.as_ref().unwrap().times, 2);
    }

    #[test]
    fn what_other_servers_have_is_put_together_and_outlasts_a_restart() {
        let servers = [Ledger::default(), Ledger::default()];
        servers[0].asked(&request(1), NOON);
        servers[0].asked(&request(2), NOON);
        servers[1].asked(&request(2), NOON + Duration::minutes(1));
        servers[1].handshake_failed(address(3), Failed::Untrusted, NOON);
        let all = Ledger::default();
        for server in servers {
            let json = serde_json::to_string(&server.machines()).unwrap();
            all.absorb(serde_json::from_str::<Vec<Machine>>(&json).unwrap());
        }
        let machines = all.machines();
        assert_eq!(machines.len(), 3);
        let second = machines.iter().find(|machine| machine.address == address(2)).unwrap();
        let requests = second.requests.as_ref().unwrap();
        assert_eq!((requests.times, requests.last), (2, NOON + Duration::minutes(1)));
        assert_eq!((second.first, second.last), (NOON, NOON + Duration::minutes(1)));
    }

    /// Counts the memory of 10,000 machines: strings by their lengths, everything else by its size.
    #[test]
    fn ten_thousand_machines_take_less_than_8_mib() {
        let ledger = Ledger::default();
        let digest = "0".repeat(64);
        for number in 0..20_000 {
            let served = Ok(("rendered-worker-0123456789abcdef0123456789abcdef", &*digest));
            let refused = request(number);
            let answer = if number % 4 == 0 { refused.answer } else { served };
            ledger.asked(&Request { answer, ..refused }, NOON);
            ledger.handshake_failed(address(number), Failed::Untrusted, NOON);
        }
        let machines = ledger.machines();
        assert_eq!(machines.len(), MAX_MACHINES.get());
        // Each has a key, two links and a slot in the table, and 16 bytes of the allocator for each of up to four
        // strings.
        let each = size_of::<Machine>() + size_of::<IpAddr>() + 6 * size_of::<usize>() + 4 * 16;
        let text = |machine: &Machine| machine.requests.as_ref().map_or(0, Requests::text_bytes);
        let bytes: usize = machines.iter().map(|machine| each + text(machine)).sum();
        assert!(bytes < 8 << 20, "{bytes}");
    }
}
