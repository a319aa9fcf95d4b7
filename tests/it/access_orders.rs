//! A model of who is served while knowledge of tokens comes, goes and comes back older than it was: the
//! list is deleted, emptied and restored, the keeper dies after any write, servers restart with their
//! cache or without, pools appear and ask for more or less, pointer configs come and go. In no order of
//! that is a stranger served by a pool that is to be enforced, but on the evidence that a pointer config
//! of it can carry no token; and nobody is refused for good before a list said that the pool is enforced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use machine_config_server::access::rotation::{
    Carried, Issued, Next, Pointer, RotationPolicy, TokenState, Write, next,
};
use machine_config_server::access::{
    Credential, KnownTokens, Mode, Modes, Policy, Records, Refusal, Request, Token, Verifier,
    decide,
};
use time::OffsetDateTime;
use time::macros::datetime;

use crate::support::random::Random;

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const WORKER: &str = "worker";
const INFRA: &str = "infra";

/// What may happen. The keeper and the servers see pools by themselves, the servers later.
const EVENTS: [fn(&mut World); 15] = [
    |world| {
        world.keep(1);
    },
    |world| {
        world.keep(usize::MAX);
    },
    World::hear_list,
    World::hear_pools,
    |world| world.list = None,
    |world| world.list = Some(Records::default()),
    |world| world.backup = world.list.clone(),
    |world| world.list = world.backup.clone(),
    |world| world.issued = Issued::default(),
    |world| world.server.records = world.server.cache.clone(),
    |world| world.server = Server { wanted: world.server.wanted.clone(), ..Server::default() },
    |world| world.toggle_mode(WORKER),
    |world| world.toggle_pool(INFRA),
    |world| world.toggle_pointer(INFRA, &Carried::Nothing),
    |world| world.toggle_pointer(WORKER, &Carried::Cannot("spec 2.2 has no headers".to_owned())),
];

/// A server: what it knows, has on disk, and was asked.
#[derive(Debug, Clone, Default)]
struct Server {
    records: Option<Records>,
    cache: Option<Records>,
    wanted: BTreeMap<String, Mode>,
    /// The pools that it has refused strangers for good, and was asked to enforce since.
    closed: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
struct World {
    pools: BTreeMap<String, Mode>,
    pointers: Vec<Pointer>,
    issued: Issued,
    list: Option<Records>,
    backup: Option<Records>,
    server: Server,
    made: u8,
    /// The pools that had a pointer config which can carry no token.
    evident: BTreeSet<String>,
    /// The pools that any list said to be enforced.
    enforced: BTreeSet<String>,
}

impl World {
    /// One pool that is to be enforced, with a pointer config that can carry a token.
    fn new() -> Self {
        let mut world = Self::default();
        world.toggle_pool(WORKER);
        world.toggle_pointer(WORKER, &Carried::Nothing);
        world.hear_pools();
        world
    }

    /// The keeper does so many writes, and tells whether it had more to do.
    fn keep(&mut self, writes: usize) -> bool {
        for _ in 0..writes {
            self.made = self.made.wrapping_add(1);
            let state = TokenState {
                issued: self.issued.clone(),
                records: self.list.clone().unwrap_or_default(),
                pointers: self.pointers.clone(),
                pools: self.pools.clone(),
            };
            let fresh = Token::new([self.made; 32]);
            let Next::Write(_, write) = next(&state, &RotationPolicy::default(), NOW, &fresh)
            else {
                return false;
            };
            match write {
                Write::Issued(issued) => self.issued = issued,
                Write::Records(records) => {
                    self.enforced.extend(records.enforced.iter().cloned());
                    self.list = Some(records);
                }
                Write::Pointers(writes) => {
                    for write in writes {
                        let found = self.pointers.iter_mut().find(|it| it.name == write.name);
                        found.expect("one that there is").carries = Carried::Token(write.token);
                    }
                }
            }
        }
        true
    }

    /// As the server's gate takes a list: one that is not there says nothing.
    fn hear_list(&mut self) {
        let Server { records, cache, wanted, .. } = &mut self.server;
        if let Some(list) = self.list.clone() {
            *records = Some(list.following(records.as_ref(), wanted));
            cache.clone_from(records);
        }
    }

    fn hear_pools(&mut self) {
        let Server { records, cache, wanted, closed } = &mut self.server;
        wanted.clone_from(&self.pools);
        if let Some(known) = records.clone() {
            *records = Some(known.following(records.as_ref(), wanted));
            cache.clone_from(records);
        }
        closed.retain(|pool| wanted.get(pool).is_none_or(|mode| *mode == Mode::Enforce));
    }

    fn toggle_mode(&mut self, pool: &str) {
        if let Some(mode) = self.pools.get_mut(pool) {
            *mode = if *mode == Mode::Enforce { Mode::Audit } else { Mode::Enforce };
        }
    }

    fn toggle_pool(&mut self, pool: &str) {
        if self.pools.remove(pool).is_none() {
            self.pools.insert(pool.to_owned(), Mode::Enforce);
        }
    }

    fn toggle_pointer(&mut self, pool: &str, carries: &Carried) {
        let (can, pool) = (!matches!(carries, Carried::Cannot(_)), pool.to_owned());
        let name = format!("{pool}-{can}");
        let before = self.pointers.len();
        self.pointers.retain(|pointer| pointer.name != name);
        if self.pointers.len() == before {
            if !can {
                self.evident.insert(pool.clone());
            }
            self.pointers.push(Pointer { name, pool, carries: carries.clone(), waits: false });
        }
    }

    fn judged(&self, pool: &str, credential: Credential<'_>) -> Option<Refusal> {
        let Server { records, wanted, .. } = &self.server;
        let tokens = records.as_ref().map(|it| Arc::new(KnownTokens::new(it)) as Arc<dyn Verifier>);
        let policy = Policy {
            modes: Modes::new(Mode::Off, wanted, &BTreeSet::new(), records.as_ref()),
            verifiers: tokens.into_iter().collect(),
            ..Policy::default()
        };
        let request = Request {
            pool,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_private: true,
            credential,
            has_failed_often: false,
        };
        decide(&request, &policy, NOW).refusal()
    }

    /// A stranger asks for the config of each pool.
    fn check(&mut self) {
        for (pool, _) in self.server.wanted.clone().iter().filter(|it| *it.1 == Mode::Enforce) {
            match self.judged(pool, Credential::Missing) {
                None => {
                    assert!(self.evident.contains(pool), "{pool} is open without reason: {self:?}");
                    assert!(!self.server.closed.contains(pool), "{pool} was enforced: {self:?}");
                }
                Some(Refusal::NotRead) => {}
                Some(_) => {
                    assert!(self.enforced.contains(pool), "{pool} is closed for good: {self:?}");
                    self.server.closed.insert(pool.clone());
                }
            }
        }
    }

    /// Left alone, machines get their configs by their tokens, and pools are enforced that can be.
    fn settles(mut self) {
        self.keep(usize::MAX);
        self.hear_pools();
        self.hear_list();
        self.check();
        for pointer in self.pointers.iter().filter(|it| self.pools.contains_key(&it.pool)) {
            if let Carried::Token(token) = &pointer.carries {
                let refusal = self.judged(&pointer.pool, Credential::Bearer(token.as_str()));
                assert_eq!(refusal, None, "{pointer:?} in {self:?}");
            }
        }
        for (pool, mode) in &self.pools {
            let cannot =
                |it: &Pointer| it.pool == *pool && matches!(it.carries, Carried::Cannot(_));
            if *mode == Mode::Enforce && !self.pointers.iter().any(cannot) {
                let refusal = self.judged(pool, Credential::Missing);
                assert_eq!(refusal, Some(Refusal::Missing), "{pool} in {self:?}");
            }
        }
    }
}

/// Every order of so many events.
fn explore(world: &World, depth: usize) -> usize {
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
fn no_order_of_events_serves_a_stranger() {
    let fresh = World::new();
    let mut enforced = fresh.clone();
    enforced.keep(usize::MAX);
    enforced.hear_list();
    enforced.check();
    assert!(enforced.server.closed.contains(WORKER));
    // What was kept when a machine of the pool could have no token.
    let mut restorable = World::new();
    EVENTS[14](&mut restorable);
    restorable.keep(usize::MAX);
    restorable.backup = restorable.list.clone();
    restorable.hear_list();
    assert_eq!(restorable.judged(WORKER, Credential::Missing), None, "it is open on evidence");
    EVENTS[14](&mut restorable);
    restorable.keep(usize::MAX);
    restorable.hear_list();
    restorable.check();
    assert!(restorable.server.closed.contains(WORKER));
    let seen: usize = [fresh, enforced, restorable].iter().map(|it| explore(it, 3)).sum();
    assert_eq!(seen, 3 * (1 + 15 + 15 * 15 + 15 * 15 * 15));
}

#[test]
fn no_long_order_of_events_serves_a_stranger() {
    let (mut open, mut closed) = (0, 0);
    for seed in 1..400 {
        let (mut world, mut random) = (World::new(), Random(seed));
        for _ in 0..100 {
            EVENTS[random.index(EVENTS.len())](&mut world);
            world.check();
            let judged = world.judged(WORKER, Credential::Missing);
            let is_asked = world.server.wanted.get(WORKER) == Some(&Mode::Enforce);
            open += u32::from(is_asked && judged.is_none());
            closed += u32::from(judged == Some(Refusal::Missing));
        }
        world.settles();
    }
    assert!(open > 500 && closed > 500, "both came about: {open}, {closed}");
}
