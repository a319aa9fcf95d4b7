//! A model of who is served while knowledge of tokens comes, goes and comes back older than it was: the
//! list is deleted, emptied and restored, the reconciler dies after any write, servers restart with their
//! cache or without, pools appear and ask for more, for less or for nothing that is understood, pointer
//! configs come and go, and cannot be written. In no order of that is an unauthenticated client served by a
//! pool that is to be enforced, but on the evidence that a pointer config of it can carry no token, nor, without a server's
//! cache as with it, by one that has refused unauthenticated clients before and was asked for no less since;
//! and nobody is refused for good before a list said that the pool is enforced. One case is left: a server that knows
//! nothing else believes a list that was restored, until the reconciler has looked.
//!
//! The gate and the reconciler of `serve` go through such orders in `src/serving/pipeline/tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use model::access::rotation::{
    FetchCredential, Issued, NextAction, ObservedTokens, PointerToken, RotationPolicy, Write, next,
};
use model::access::{
    AccessMode, Credential, KnownTokens, Modes, Policy, Records, Refusal, Request, Token, decide,
};
use time::OffsetDateTime;
use time::macros::datetime;

use crate::support::random::Random;

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const WORKER: &str = "worker";
const INFRA: &str = "infra";

/// What may happen. The reconciler and the servers see pools by themselves, the servers later.
const EVENTS: [fn(&mut TokenOrder); 17] = [
    |world| {
        world.reconcile(1);
    },
    |world| {
        world.reconcile(usize::MAX);
    },
    TokenOrder::hear_list,
    TokenOrder::hear_pools,
    |world| world.list = None,
    |world| world.list = Some(List::default()),
    |world| world.backup = world.list.clone(),
    TokenOrder::restore,
    TokenOrder::lose_tokens,
    |world| {
        world.server = Server { known: world.server.cache.clone(), ..world.server.restarted() };
        world.hear_pools();
    },
    |world| {
        world.server = Server { cache: None, ..world.server.restarted() };
        world.hear_pools();
    },
    |world| world.toggle_mode(WORKER),
    |world| world.toggle_pool(INFRA),
    |world| world.toggle_pointer(INFRA, &FetchCredential::Nothing),
    |world| {
        world
            .toggle_pointer(WORKER, &FetchCredential::Cannot("spec 2.2 has no headers".to_owned()));
    },
    TokenOrder::toggle_failure,
    |world| world.is_slip ^= true,
];

/// What servers are told.
#[derive(Debug, Clone, Default)]
struct List {
    records: Records,
    /// The pools of which a pointer config could carry no token when it was written, or had none yet
    /// since one could not.
    evident: BTreeSet<String>,
    /// How often less was asked before it was written.
    asked_less: u32,
    /// Whether it is an older one, which the reconciler has not looked at since.
    is_restored: bool,
}

/// A server: what it knows, has on disk, and was asked.
#[derive(Debug, Clone, Default)]
struct Server {
    known: Option<List>,
    cache: Option<List>,
    wanted: BTreeMap<String, AccessMode>,
    unclear: BTreeSet<String>,
    /// How often less was asked, as far as it has heard.
    heard: u32,
}

impl Server {
    /// One that has its cache and nothing else.
    fn restarted(&self) -> Self {
        Self { cache: self.cache.clone(), ..Self::default() }
    }

    fn records(&self) -> Option<&Records> {
        self.known.as_ref().map(|known| &known.records)
    }

    /// As the server's gate learns a list.
    fn learn(&mut self, list: List) {
        let mut understood = self.wanted.clone();
        understood.retain(|pool, _| !self.unclear.contains(pool));
        let records = list.records.following(self.records(), &understood);
        self.known = Some(List { records, ..list });
        self.cache.clone_from(&self.known);
    }
}

/// A cluster after some events in an order.
#[derive(Debug, Clone, Default)]
struct TokenOrder {
    pools: BTreeMap<String, AccessMode>,
    pointers: Vec<PointerToken>,
    issued: Issued,
    list: Option<List>,
    backup: Option<List>,
    server: Server,
    made: u8,
    /// Whether no pointer config can be written.
    fails: bool,
    /// Whether the annotation of the pool of workers is not understood.
    is_slip: bool,
    /// How often less was asked.
    asked_less: u32,
    /// The pools that have refused unauthenticated clients for good, and how often less was asked before.
    closed: BTreeMap<String, u32>,
    /// The pools that any list said to be enforced.
    enforced: BTreeSet<String>,
}

impl TokenOrder {
    /// One pool that is to be enforced, with a pointer config that can carry a token.
    fn new() -> Self {
        let mut world = Self::default();
        world.toggle_pool(WORKER);
        world.toggle_pointer(WORKER, &FetchCredential::Nothing);
        world.hear_pools();
        world
    }

    /// The reconciler does so many writes, and tells whether it had more to do.
    fn reconcile(&mut self, writes: usize) -> bool {
        for _ in 0..writes {
            self.made = self.made.wrapping_add(1);
            let List { records, evident, .. } = self.list.clone().unwrap_or_default();
            let state = ObservedTokens {
                issued: self.issued.clone(),
                records,
                pointers: self.pointers.clone(),
                pools: self.understood(),
            };
            let fresh = Token::new([self.made; 32]);
            let NextAction::Write(_, write) = next(&state, &RotationPolicy::default(), NOW, &fresh)
            else {
                self.list.iter_mut().for_each(|list| list.is_restored = false);
                return false;
            };
            match write {
                Write::Issued(issued) => self.issued = issued,
                Write::Records(records) => {
                    self.enforced.extend(records.enforced.iter().cloned());
                    let evident =
                        self.pointers.iter().filter(|pointer| match &pointer.credential {
                            FetchCredential::Cannot(_) => true,
                            FetchCredential::Nothing => evident.contains(&pointer.pool),
                            FetchCredential::Token(_) | FetchCredential::Other => false,
                        });
                    let evident = evident.map(|pointer| pointer.pool.clone()).collect();
                    let asked_less = self.asked_less;
                    self.list = Some(List { records, evident, asked_less, is_restored: false });
                }
                Write::Pointers(writes) => {
                    for write in writes {
                        let found = self.pointers.iter_mut().find(|it| it.name == write.name);
                        let found = found.expect("one that there is");
                        found.waits = self.fails;
                        if !self.fails {
                            found.credential = FetchCredential::Token(write.token);
                        }
                    }
                }
            }
        }
        true
    }

    /// What the reconciler understands of what is asked: a slip leaves a pool as it is.
    fn understood(&self) -> BTreeMap<String, AccessMode> {
        let mut pools = self.pools.clone();
        if self.is_slip {
            let records = self.list.clone().unwrap_or_default().records;
            let Issued { enforced, undetermined, .. } = &self.issued;
            let closed = [&records.enforced, &records.undetermined, enforced, undetermined];
            if let Some(mode) = pools.get_mut(WORKER)
                && closed.iter().any(|closed| closed.contains(WORKER))
            {
                *mode = AccessMode::Enforce;
            } else {
                pools.remove(WORKER);
            }
        }
        pools
    }

    /// As the server's gate takes a list: one that is not there says nothing.
    fn hear_list(&mut self) {
        if let Some(list) = self.list.clone() {
            self.server.learn(list);
        }
    }

    fn hear_pools(&mut self) {
        let server = &mut self.server;
        let before = std::mem::replace(&mut server.wanted, self.pools.clone());
        let was_unclear = std::mem::take(&mut server.unclear);
        server.heard = self.asked_less;
        if let Some(mode) = server.wanted.get_mut(WORKER).filter(|_| self.is_slip) {
            let closed = |List { records, .. }: &List| {
                let closed = [&records.enforced, &records.contested, &records.undetermined];
                closed.iter().any(|closed| closed.contains(WORKER))
            };
            if let Some(before) = before.get(WORKER).filter(|_| !was_unclear.contains(WORKER)) {
                *mode = *before;
            } else if server.known.as_ref().is_some_and(closed) {
                *mode = AccessMode::Enforce;
            } else {
                *mode = AccessMode::Off;
                server.unclear.insert(WORKER.to_owned());
            }
        }
        if let Some(known) = server.known.clone() {
            server.learn(known);
        }
    }

    /// Where the tokens are lost as well, nothing but that list says which pools are enforced.
    fn restore(&mut self) {
        let Issued { enforced, undetermined, .. } = &self.issued;
        let is_closed = |it: &(&String, &u32)| *it.1 == self.asked_less;
        let mut closed = self.closed.iter().filter(is_closed).map(|(pool, _)| pool);
        if closed.all(|pool| enforced.contains(pool) || undetermined.contains(pool)) {
            self.list = self.backup.clone().map(|list| List { is_restored: true, ..list });
        }
    }

    fn lose_tokens(&mut self) {
        if !self.list.as_ref().is_some_and(|list| list.is_restored) {
            self.issued = Issued::default();
        }
    }

    fn toggle_mode(&mut self, pool: &str) {
        if let Some(mode) = self.pools.get_mut(pool) {
            *mode =
                if *mode == AccessMode::Enforce { AccessMode::Audit } else { AccessMode::Enforce };
            self.asked_less += u32::from(*mode == AccessMode::Audit);
        }
    }

    /// Once they can be written again, it is tried.
    fn toggle_failure(&mut self) {
        self.fails ^= true;
        self.pointers.iter_mut().for_each(|pointer| pointer.waits = false);
    }

    fn toggle_pool(&mut self, pool: &str) {
        if self.pools.remove(pool).is_none() {
            self.pools.insert(pool.to_owned(), AccessMode::Enforce);
        }
    }

    fn toggle_pointer(&mut self, pool: &str, credential: &FetchCredential) {
        let (can, pool) = (!matches!(credential, FetchCredential::Cannot(_)), pool.to_owned());
        let name = format!("{pool}-{can}");
        let before = self.pointers.len();
        self.pointers.retain(|pointer| pointer.name != name);
        if self.pointers.len() == before {
            self.pointers.push(PointerToken {
                name,
                pool,
                credential: credential.clone(),
                waits: false,
            });
        }
    }

    fn judged(&self, pool: &str, credential: Credential<'_>) -> Option<Refusal> {
        let Server { wanted, unclear, .. } = &self.server;
        let records = self.server.records();
        let policy = Policy {
            modes: Modes::new(AccessMode::Off, wanted, unclear, records),
            tokens: records.map(KnownTokens::new).unwrap_or_default(),
            ..Policy::default()
        };
        let request = Request {
            pool,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_private: true,
            user_agent: "",
            credential,
            has_failed_often: false,
        };
        decide(&request, &policy, NOW).refusal()
    }

    /// An unauthenticated client asks for the config of each pool.
    fn check(&mut self) {
        let Server { known, wanted, unclear, heard, .. } = self.server.clone();
        let List { evident, asked_less, is_restored, .. } = known.unwrap_or_default();
        let enforced =
            |it: &(&String, &AccessMode)| *it.1 == AccessMode::Enforce || unclear.contains(it.0);
        for (pool, _) in wanted.iter().filter(enforced) {
            match self.judged(pool, Credential::Missing) {
                None => {
                    assert!(evident.contains(pool), "{pool} is open without reason: {self:?}");
                    let was_closed = self.closed.get(pool) == Some(&self.asked_less);
                    assert!(!was_closed || is_restored, "{pool} was enforced: {self:?}");
                }
                Some(Refusal::NotRead) => {}
                Some(_) => {
                    assert!(self.enforced.contains(pool), "{pool} is closed for good: {self:?}");
                    self.closed.insert(pool.clone(), heard.min(asked_less));
                }
            }
        }
    }

    /// Left alone, machines get their configs by their tokens, and pools are enforced that can be.
    fn settles(mut self) {
        self.fails = true;
        self.toggle_failure();
        self.is_slip = false;
        self.reconcile(usize::MAX);
        self.hear_pools();
        self.hear_list();
        self.check();
        for pointer in self.pointers.iter().filter(|it| self.pools.contains_key(&it.pool)) {
            if let FetchCredential::Token(token) = &pointer.credential {
                let refusal = self.judged(&pointer.pool, Credential::Bearer(token.as_str()));
                assert_eq!(refusal, None, "{pointer:?} in {self:?}");
            }
        }
        for (pool, mode) in &self.pools {
            let cannot = |it: &PointerToken| {
                it.pool == *pool && matches!(it.credential, FetchCredential::Cannot(_))
            };
            if *mode == AccessMode::Enforce && !self.pointers.iter().any(cannot) {
                let refusal = self.judged(pool, Credential::Missing);
                assert_eq!(refusal, Some(Refusal::Missing), "{pool} in {self:?}");
            }
        }
    }
}

/// The orders by which an unauthenticated client was served once, from what is enforced.
#[test]
fn an_order_that_has_served_an_unauthenticated_client_does_so_no_more() {
    let mut enforced = TokenOrder::new();
    enforced.reconcile(usize::MAX);
    enforced.hear_list();
    enforced.check();
    let (keep, list, pools, cannot): (_, _, _, fn(&mut TokenOrder)) =
        (EVENTS[1], EVENTS[2], EVENTS[3], EVENTS[14]);
    let (lose_list, lose_tokens, restart) = (EVENTS[4], EVENTS[8], EVENTS[10]);
    let (new_pool, pointer, fail) = (EVENTS[12], EVENTS[13], EVENTS[15]);
    for order in [
        &[cannot, keep, lose_list, keep, restart, list][..],
        &[cannot, keep, lose_list, lose_tokens, keep, restart, list],
        &[cannot, keep, lose_list, lose_tokens, keep, lose_list, keep, restart, list],
        &[new_pool, fail, pointer, keep, pools, list, restart, list],
    ] {
        let mut world = enforced.clone();
        for event in order {
            event(&mut world);
            world.check();
        }
        for pool in world.pools.keys() {
            assert!(world.judged(pool, Credential::Missing).is_some(), "{pool}: {world:?}");
        }
        world.settles();
    }
}

/// Every order of so many events.
fn explore(world: &TokenOrder, depth: usize) -> usize {
    let mut seen = 1;
    world.clone().settles();
    for event in EVENTS.iter().filter(|_| depth > 0) {
        let mut after = world.clone();
        event(&mut after);
        after.check();
        seen += explore(&after, depth - 1);
    }
    seen
}

#[test]
fn no_order_of_events_serves_an_unauthenticated_client() {
    let fresh = TokenOrder::new();
    let mut enforced = fresh.clone();
    enforced.reconcile(usize::MAX);
    enforced.hear_list();
    enforced.check();
    assert!(enforced.closed.contains_key(WORKER));
    // What was kept when a machine of the pool could have no token.
    let mut restorable = TokenOrder::new();
    EVENTS[14](&mut restorable);
    restorable.reconcile(usize::MAX);
    restorable.backup = restorable.list.clone();
    restorable.hear_list();
    assert_eq!(restorable.judged(WORKER, Credential::Missing), None, "it is open on evidence");
    EVENTS[14](&mut restorable);
    restorable.reconcile(usize::MAX);
    restorable.hear_list();
    restorable.check();
    assert!(restorable.closed.contains_key(WORKER));
    let seen: usize = [fresh, enforced, restorable].iter().map(|it| explore(it, 3)).sum();
    assert_eq!(seen, 3 * (1 + 17 + 17 * 17 + 17 * 17 * 17));
}

#[test]
fn no_long_order_of_events_serves_an_unauthenticated_client() {
    let (mut open, mut closed) = (0, 0);
    for seed in 1..400 {
        let (mut world, mut random) = (TokenOrder::new(), Random(seed));
        for _ in 0..100 {
            EVENTS[random.index(EVENTS.len())](&mut world);
            world.check();
            let judged = world.judged(WORKER, Credential::Missing);
            let is_asked = world.server.wanted.get(WORKER) == Some(&AccessMode::Enforce);
            open += u32::from(is_asked && judged.is_none());
            closed += u32::from(judged == Some(Refusal::Missing));
        }
        world.settles();
    }
    assert!(open > 500 && closed > 500, "both came about: {open}, {closed}");
}
