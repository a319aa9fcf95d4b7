//! A model of a year with tokens: the reconciler dies after any write, servers learn late and at different
//! times, lists are lost or come back older than they were, clocks are wrong, and machines keep a pointer
//! config for as long as they like. A machine that holds a token that has not ended is never refused for good,
//! and one that holds a token that has ended is never served.

use std::collections::{BTreeMap, BTreeSet};

use model::access::rotation::{
    FetchCredential, Issued, NextAction, ObservedTokens, PointerToken, PointerWrite,
    RotationPolicy, Write, next,
};
use model::access::{AccessMode, KnownTokens, Records, Refusal, Token, TokenHash};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use crate::rotation::model::states;
use crate::support::random::Random;

const START: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const POLICY: RotationPolicy =
    RotationPolicy { period: Duration::days(7), overlap: Duration::hours(24) };
/// How late a server learns at the latest.
const LAG: Duration = Duration::hours(3);
const POOLS: [&str; 2] = ["worker", "infra"];

/// What one server knows, and since when.
struct Server {
    records: Records,
    learned: OffsetDateTime,
}

/// A machine that was given a pointer config.
struct Machine {
    token: Token,
    pool: &'static str,
    given: OffsetDateTime,
}

/// A year of rotations, with its reconciler, servers and machines.
struct TokenYear {
    now: OffsetDateTime,
    state: ObservedTokens,
    servers: [Server; 2],
    machines: Vec<Machine>,
    /// An older state of both lists.
    backup: (Issued, Records),
    made: u64,
    /// Tokens whose end was lost with a list.
    undone: BTreeSet<TokenHash>,
}

impl TokenYear {
    fn new() -> Self {
        let pointers = POOLS.iter().flat_map(|&pool| {
            (0..2).map(move |number| PointerToken {
                name: format!("{pool}-{number}"),
                pool: pool.to_owned(),
                credential: FetchCredential::Nothing,
                waits: false,
            })
        });
        let state = ObservedTokens {
            pointers: pointers.collect(),
            pools: POOLS.map(|pool| (pool.to_owned(), AccessMode::Enforce)).into(),
            ..ObservedTokens::default()
        };
        let server = || Server { records: Records::default(), learned: START };
        Self {
            now: START,
            state,
            servers: [server(), server()],
            machines: Vec::new(),
            backup: Default::default(),
            made: 0,
            undone: BTreeSet::new(),
        }
    }

    /// The reconciler does so many writes, by its own clock, and dies. Tells whether it had more to do.
    fn reconcile(&mut self, writes: u64, clock: OffsetDateTime) -> bool {
        for _ in 0..writes {
            self.made += 1;
            let mut random = [0; 32];
            random[..8].copy_from_slice(&self.made.to_le_bytes());
            let NextAction::Write(_, write) =
                next(&self.state, &POLICY, clock, &Token::new(random))
            else {
                return false;
            };
            match write {
                Write::Issued(issued) => self.state.issued = issued,
                Write::Records(records) => self.state.records = records,
                Write::Pointers(writes) => {
                    // It may die between two of them as well.
                    let written = 1 + usize::try_from(self.made).expect("small") % writes.len();
                    for PointerWrite { name, token, .. } in writes.into_iter().take(written) {
                        let found = self.state.pointers.iter_mut().find(|it| it.name == name);
                        found.expect("one that there is").credential =
                            FetchCredential::Token(token);
                    }
                }
            }
        }
        true
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let (now, records) = (self.now, &self.state.records);
        for server in self.servers.iter_mut().filter(|server| now - server.learned > LAG) {
            server.records = records.clone();
            server.learned = now;
        }
    }

    fn happen(&mut self, random: &mut Random) {
        let which = usize::from(random.below(2) == 1);
        match random.below(40) {
            0..=9 => self.pass(Duration::minutes(random.below(180).cast_signed())),
            10..=13 => self.pass(Duration::hours(random.below(20).cast_signed())),
            14..=21 => {
                self.servers[which].records = self.state.records.clone();
                self.servers[which].learned = self.now;
            }
            22..=33 => {
                let pointer = &self.state.pointers[random.index(4)];
                if let FetchCredential::Token(token) = &pointer.credential {
                    let pool = POOLS.into_iter().find(|pool| *pool == pointer.pool).expect("one");
                    self.machines.push(Machine { token: token.clone(), pool, given: self.now });
                }
            }
            34 => self.state.pointers[random.index(4)].credential = FetchCredential::Nothing,
            35 => self.backup = (self.state.issued.clone(), self.state.records.clone()),
            36 if which == 0 => self.state.issued = self.backup.0.clone(),
            36 => self.state.issued = Issued::default(),
            37 if which == 0 => {
                // What had ended may not be known to have ended any more; servers may know still.
                let ended = self.state.records.tokens.iter();
                let ended = ended.filter(|it| it.until.is_some() || it.revoked.is_some());
                self.undone.extend(ended.map(|record| record.sha256));
                self.state.records = self.backup.1.clone();
            }
            37 => {
                let waits = &mut self.state.pointers[random.index(4)].waits;
                *waits = !*waits;
            }
            38 => {
                let tokens = &mut self.state.records.tokens;
                let index = random.index(tokens.len().max(1));
                if let Some(record) = tokens.get_mut(index).filter(|_| which == 0) {
                    record.revoked = Some(self.now);
                }
            }
            _ => {
                let mode = if which == 0 { AccessMode::Audit } else { AccessMode::Enforce };
                self.state.pools.insert("infra".to_owned(), mode);
            }
        }
        let fresh = self.now - Duration::days(10);
        self.machines.retain(|machine| machine.given > fresh);
    }

    /// Each machine asks each server.
    fn check(&self) {
        for server in &self.servers {
            let known = KnownTokens::new(&server.records);
            for Machine { token, pool, given } in &self.machines {
                let verdict = known.verify(token.as_str(), pool, self.now).expect("it is ours");
                let record = self.state.records.find(&token.hash());
                let is_revoked = record.is_some_and(|record| record.revoked.is_some());
                let has_ended = record.is_some_and(|record| !record.is_valid_at(self.now));
                match verdict {
                    Ok(_) => assert!(
                        !has_ended || is_revoked && self.now - server.learned <= LAG,
                        "{token:?} has ended and is served: {record:?} at {}",
                        self.now
                    ),
                    // It asks again; and a revocation may be undone by an older list.
                    Err(Refusal::Unknown | Refusal::Revoked) => {}
                    Err(_) if self.undone.contains(&token.hash()) => {}
                    Err(refusal) => {
                        assert!(has_ended, "{token:?} has not ended: {refusal} {record:?}");
                        let is_early = self.now < *given + POLICY.overlap;
                        assert!(
                            !is_early || is_revoked,
                            "{token:?} was given a moment ago: {record:?}"
                        );
                    }
                }
            }
        }
    }
}

/// What the reconciler's clock shows: mostly the time.
fn clock(now: OffsetDateTime, random: &mut Random) -> OffsetDateTime {
    match random.below(50) {
        0 => now - Duration::days(random.below(4_000).cast_signed()),
        1 => now + Duration::minutes(random.below(4).cast_signed()),
        _ => now,
    }
}

#[test]
fn nobody_is_refused_for_good_and_no_token_outlives_its_end() {
    let (mut deaths, mut seed, mut ends) = (0, 0, 0_usize);
    // For each death of the reconciler there are several states.
    while deaths < states() * 5 / 4 {
        seed += 1;
        let (mut world, mut random) = (TokenYear::new(), Random(seed));
        while world.now < START + Duration::days(365) {
            let clock = clock(world.now, &mut random);
            deaths += u64::from(world.reconcile(random.below(4), clock));
            world.check();
            world.happen(&mut random);
            world.check();
        }
        // Left alone, everything comes in order.
        for pointer in &mut world.state.pointers {
            pointer.waits = false;
        }
        while world.reconcile(1, world.now) {}
        world.pass(LAG * 2);
        let current: BTreeMap<_, _> =
            POOLS.into_iter().map(|pool| (pool, world.state.issued.newest(pool))).collect();
        for pointer in &world.state.pointers {
            let FetchCredential::Token(token) = &pointer.credential else { panic!("{pointer:?}") };
            assert_eq!(Some(token), current[&*pointer.pool]);
            for server in &world.servers {
                let known = KnownTokens::new(&server.records);
                let verdict = known.verify(token.as_str(), &pointer.pool, world.now);
                assert!(matches!(verdict, Some(Ok(_))), "seed {seed}: {verdict:?}");
            }
        }
        ends += world.state.records.tokens.iter().filter(|record| record.until.is_some()).count();
    }
    assert!(ends > 20, "tokens came and went: {ends}");
}
