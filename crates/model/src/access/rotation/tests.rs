mod lost_lists;

use time::macros::datetime;

use super::*;

const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const POLICY: RotationPolicy =
    RotationPolicy { period: Duration::days(7), overlap: Duration::hours(24) };

/// A cluster in memory, on which writes take effect.
#[derive(Debug, Clone, Default)]
struct World {
    state: ObservedTokens,
    made: u8,
}

impl World {
    fn new(pool: &str, mode: AccessMode, pointers: &[FetchCredential]) -> Self {
        let pointer = |(number, credential): (usize, &FetchCredential)| PointerToken {
            name: format!("{pool}-{number}"),
            pool: pool.to_owned(),
            credential: credential.clone(),
            waits: false,
        };
        let state = ObservedTokens {
            pointers: pointers.iter().enumerate().map(pointer).collect(),
            pools: [(pool.to_owned(), mode)].into(),
            ..ObservedTokens::default()
        };
        Self { state, made: 0 }
    }

    /// Applies one write, and returns its reason.
    fn step(&mut self, now: OffsetDateTime) -> Option<Reason> {
        self.made = self.made.wrapping_add(1);
        let fresh = Token::new([self.made; 32]);
        let NextAction::Write(because, write) = next(&self.state, &POLICY, now, &fresh) else {
            return None;
        };
        match write {
            Write::Issued(issued) => self.state.issued = issued,
            Write::Records(records) => self.state.records = records,
            Write::Pointers(writes) => {
                for PointerWrite { name, token, .. } in writes {
                    let found = self.state.pointers.iter_mut().find(|it| it.name == name);
                    found.expect("one that there is").credential = FetchCredential::Token(token);
                }
            }
        }
        Some(because)
    }

    fn settle(&mut self, now: OffsetDateTime) -> Vec<Reason> {
        let steps: Vec<_> = std::iter::from_fn(|| self.step(now)).take(MAX_STEPS).collect();
        assert!(steps.len() < MAX_STEPS, "{steps:?}");
        steps
    }

    fn settled(&self, now: OffsetDateTime) -> (Option<OffsetDateTime>, Vec<String>) {
        match next(&self.state, &POLICY, now, &Token::new([255; 32])) {
            NextAction::Settled { until, attention } => (until, attention),
            other @ NextAction::Write(..) => panic!("{other:?}"),
        }
    }

    fn token(&self) -> Token {
        self.state.issued.newest("worker").expect("a token").clone()
    }

    fn until(&self, token: &Token) -> Option<OffsetDateTime> {
        self.state.records.find(&token.hash()).expect("a record").until
    }
}

#[test]
fn a_token_that_servers_know_for_another_pool_is_embedded_no_more() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let before = world.token();
    world.state.records.tokens[0].pools = ["master".to_owned()].into();
    world.settle(NOON);
    assert_ne!(world.token(), before);
    assert_eq!(world.state.pointers[0].credential, FetchCredential::Token(world.token()));
}

/// The last moment, which people write for "never".
#[test]
fn the_last_day_that_there_is_is_an_end_like_any_other() {
    let last = datetime!(9999-12-31 23:59:59 UTC);
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let mut named = world.state.records.tokens[0].clone();
    named.sha256 = Token::new([200; 32]).hash();
    (named.name, named.until) = (Some("rack-7".to_owned()), Some(last));
    world.state.records.tokens.push(named);
    assert_eq!(world.settle(NOON), []);
    assert_eq!(world.settled(NOON).0, Some(NOON + POLICY.period));
    // At the last moment a token is made, and tokens expire.
    world.settle(last);
    assert_eq!(world.settle(last), []);
    world.settled(last);
    world.settled(NOON);
}

#[test]
fn a_token_is_issued_published_embedded_and_enforced_in_this_order() {
    let mut world = World::new(
        "worker",
        AccessMode::Enforce,
        &[FetchCredential::Nothing, FetchCredential::Nothing],
    );
    let pool = || "worker".to_owned();
    let steps = [
        Reason::First(pool()),
        Reason::New,
        Reason::Embed,
        Reason::Remembered,
        Reason::EvidenceChanged,
    ];
    assert_eq!(world.settle(NOON), steps);
    assert!(world.state.records.enforced.contains("worker"));
    let (until, attention) = world.settled(NOON);
    assert_eq!((until, attention.len()), (Some(NOON + POLICY.period), 0));
    assert!(world.settle(NOON + POLICY.period - Duration::SECOND).is_empty());

    let old = world.token();
    let due = NOON + POLICY.period;
    let steps =
        [Reason::Due(pool()), Reason::New, Reason::Embed, Reason::Ending, Reason::Discarded];
    assert_eq!(world.settle(due), steps);
    assert_eq!(world.until(&old), Some(due + POLICY.overlap));
    assert_eq!(world.until(&world.token()), None);
    assert_eq!(world.state.issued.tokens.len(), 1, "what ends is nobody's to hand out");
    // After a long time, it is not even known.
    let mut now = due;
    while now < due + POLICY.overlap + REMEMBERED {
        now += POLICY.period;
        world.settle(now);
    }
    assert!(world.state.records.find(&old.hash()).is_none());
    assert!(world.state.records.tokens.len() < 20);
}

#[test]
fn a_pointer_that_cannot_carry_a_token_holds_enforcing_back() {
    let cannot = FetchCredential::Cannot("spec 2.2 has no headers".to_owned());
    let mut world =
        World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing, cannot.clone()]);
    world.settle(NOON);
    assert!(world.state.records.enforced.is_empty());
    let (_, attention) = world.settled(NOON);
    assert_eq!(
        attention,
        ["pool worker: not set to be enforced: worker-1: spec 2.2 has no headers"]
    );
    world.state.pointers[1].credential = FetchCredential::Other;
    world.settle(NOON);
    assert!(world.state.records.enforced.contains("worker"));
    // A later one does not open the pool again.
    world.state.pointers[1].credential = cannot;
    world.settle(NOON);
    assert!(world.state.records.enforced.contains("worker"));
    let (_, attention) = world.settled(NOON);
    assert_eq!(
        attention,
        [
            "pool worker: the requests of its machines are refused: worker-1: spec 2.2 has no headers"
        ]
    );
    // With the mode changed and restored, the pool must qualify again.
    world.state.pools.insert("worker".to_owned(), AccessMode::Audit);
    world.settle(NOON);
    world.state.pools.insert("worker".to_owned(), AccessMode::Enforce);
    world.settle(NOON);
    assert!(world.state.records.enforced.is_empty());
}

#[test]
fn a_pool_that_appears_is_never_said_to_lack_a_token_that_its_pointer_config_is_about_to_carry() {
    let enforce = AccessMode::Enforce;
    let mut world = World::new("infra", enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    world.state.pools.insert("worker".to_owned(), enforce);
    // Without a pointer config, no machine can be locked out.
    let mut without = world.clone();
    without.settle(NOON);
    assert!(without.state.records.enforced.contains("worker"));
    // A pointer config is made for it, before or after the controller has seen the pool.
    let other = world.state.pointers[0].clone();
    let credential = FetchCredential::Nothing;
    let made = PointerToken {
        name: "new".to_owned(),
        pool: "worker".to_owned(),
        credential,
        waits: false,
    };
    for mut world in [world, without] {
        world.state.pointers = vec![other.clone(), made.clone()];
        while world.step(NOON).is_some() {
            assert_eq!(world.state.records.without_token, BTreeMap::new());
        }
        assert!(world.state.records.enforced.contains("worker"));
    }
}

#[test]
fn a_pointer_that_cannot_be_written_now_opens_nothing_and_closes_nothing() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.state.pointers[0].waits = true;
    world.settle(NOON);
    assert_eq!(world.state.records.without_token, BTreeMap::new());
    assert!(world.state.records.enforced.is_empty());
    assert_eq!(
        world.settled(NOON).1,
        ["pool worker: worker-0: has no token, and the last write of it failed"]
    );
    assert_eq!(current_records(&world.state, NOON), world.state.records);
    world.state.pointers[0].waits = false;
    world.settle(NOON);
    assert!(world.state.records.enforced.contains("worker"));
}

#[test]
fn a_pool_that_is_open_stays_so_until_its_pointers_carry_tokens() {
    let cannot = FetchCredential::Cannot("spec 3.0 has no headers".to_owned());
    let mut world = World::new("worker", AccessMode::Enforce, &[cannot]);
    world.settle(NOON);
    assert_eq!(world.state.records.without_token["worker"], ["worker-0: spec 3.0 has no headers"]);
    // A pointer config of a newer spec replaces it, and cannot be written, not even when the next token is due.
    world.state.pointers[0].credential = FetchCredential::Nothing;
    world.state.pointers[0].waits = true;
    for now in [NOON, NOON + POLICY.period] {
        while world.step(now).is_some() {
            assert!(world.state.records.without_token.contains_key("worker"), "{world:?}");
            assert!(world.state.records.enforced.is_empty(), "{world:?}");
        }
        assert_eq!(world.state.records.without_token["worker"], ["worker-0: has no token"]);
        assert_eq!(current_records(&world.state, now), world.state.records);
    }
    world.state.pointers[0].waits = false;
    world.settle(NOON + POLICY.period);
    assert!(world.state.records.enforced.contains("worker"));
    assert!(world.state.records.without_token.is_empty());
}

/// An enforced pool that later got a pointer config without room for a token.
fn enforced_with_one_that_cannot() -> World {
    let mut world = World::new(
        "worker",
        AccessMode::Enforce,
        &[FetchCredential::Nothing, FetchCredential::Nothing],
    );
    world.settle(NOON);
    world.state.pointers[1].credential =
        FetchCredential::Cannot("spec 3.0 has no headers".to_owned());
    world.settle(NOON);
    assert!(world.state.records.enforced.contains("worker"));
    world
}

#[test]
fn a_pool_that_was_away_is_enforced_when_it_is_back() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    world.state.pointers[0].credential =
        FetchCredential::Cannot("spec 3.0 has no headers".to_owned());
    world.settle(NOON);
    let pools = std::mem::take(&mut world.state.pools);
    world.settle(NOON);
    let mut later = world.clone();
    later.state.pointers.clear();
    world.state.pools.clone_from(&pools);
    world.settle(NOON);
    assert!(world.state.records.enforced.contains("worker"));
    // After all of a pool is gone, a pool with the same name is a new one.
    let (ends, _) = later.settled(NOON);
    assert_eq!(ends, Some(NOON + POLICY.overlap));
    later.settle(NOON + POLICY.overlap);
    later.state.pools = pools;
    later.state.pointers = world.state.pointers;
    later.settle(NOON + POLICY.overlap);
    assert!(later.state.records.enforced.is_empty());
}

#[test]
fn what_cannot_be_written_is_enforced_all_the_same() {
    let mut world = World::new("worker", AccessMode::Audit, &[FetchCredential::Nothing]);
    world.settle(NOON);
    world.state.pools.insert("worker".to_owned(), AccessMode::Enforce);
    let records = current_records(&world.state, NOON);
    assert_eq!(records.tokens, world.state.records.tokens);
    assert!(records.enforced.contains("worker"));
    world.state.pointers[0].credential = FetchCredential::Nothing;
    assert!(current_records(&world.state, NOON).enforced.is_empty());
}

#[test]
fn to_write_a_token_into_a_pointer_config_makes_it_none() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let made_up = Token::new([200; 32]);
    world.state.pointers[0].credential = FetchCredential::Token(made_up.clone());
    assert_eq!(world.settle(NOON), [Reason::Embed]);
    assert!(world.state.records.find(&made_up.hash()).is_none());
    // A token that was revoked so long ago that it is discarded is not accepted again.
    let leaked = world.token();
    world.state.records.tokens[0].revoked = Some(NOON);
    world.settle(NOON);
    let later = NOON + REMEMBERED;
    world.settle(later);
    assert!(world.state.records.find(&leaked.hash()).is_none(), "it is discarded");
    world.state.pointers[0].credential = FetchCredential::Token(leaked.clone());
    world.settle(later);
    assert!(world.state.records.find(&leaked.hash()).is_none());
    assert_eq!(world.state.pointers[0].credential, FetchCredential::Token(world.token()));
}

#[test]
fn a_pointer_that_cannot_be_written_keeps_its_token_alive() {
    let mut world = World::new("worker", AccessMode::Audit, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let old = world.token();
    world.state.pointers[0].waits = true;
    let later = NOON + Duration::days(8);
    world.settle(later);
    assert_ne!(world.token(), old);
    assert_eq!(world.until(&old), None, "it is still embedded");
    world.state.pointers[0].waits = false;
    world.settle(later + Duration::DAY);
    assert_eq!(world.until(&old), Some(later + Duration::days(2)));
}

#[test]
fn a_clock_that_is_wrong_ends_nothing_for_good() {
    let mut world = World::new("worker", AccessMode::Audit, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let first = world.token();
    // Clock behind: nothing is made, nothing expires.
    let behind = NOON - Duration::days(3_650);
    assert!(world.settle(behind).is_empty());
    assert!(world.settled(behind).1[0].contains("set the clock"));
    // Clock ahead: another token is made, and the first one's expiry is far away.
    let ahead = NOON + Duration::days(3_650);
    world.settle(ahead);
    assert_eq!(world.until(&first), Some(ahead + POLICY.overlap));
    // Correct again, the clock is earlier than the token; once that is revoked or replaced, expiries are corrected.
    assert!(world.settle(NOON).is_empty());
    assert!(world.settled(NOON).1[0].contains("set the clock"));
    let mut revoked = world.clone();
    let second = world.token();
    let records = &mut revoked.state.records.tokens;
    let record = records.iter_mut().find(|record| record.sha256 == second.hash());
    record.expect("a record").revoked = Some(NOON);
    revoked.settle(NOON);
    assert_eq!(revoked.until(&first), Some(NOON + POLICY.overlap));
    assert!(revoked.settled(NOON).1.is_empty());

    let token = Token::new([201; 32]);
    let third = IssuedToken { token: token.clone(), pool: "worker".to_owned(), made: NOON };
    world.state.issued.tokens.push(third);
    // Tokens with a name are not rotated.
    let mut named = world.state.records.tokens[0].clone();
    (named.sha256, named.made) = (Token::new([202; 32]).hash(), ahead);
    (named.name, named.until) = (Some("rack-7".to_owned()), None);
    world.state.records.tokens.push(named);
    world.settle(NOON);
    assert_eq!(world.state.pointers[0].credential, FetchCredential::Token(token));
    for before in [first, second] {
        assert_eq!(world.until(&before), Some(NOON + POLICY.overlap));
    }
    assert!(world.settled(NOON).1.is_empty());
}

#[test]
fn a_revoked_token_is_replaced_and_stays_revoked() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    let leaked = world.token();
    world.state.records.tokens[0].revoked = Some(NOON);
    world.settle(NOON);
    assert_ne!(world.token(), leaked);
    assert!(world.state.records.find(&leaked.hash()).unwrap().revoked.is_some());
    assert_eq!(world.state.pointers[0].credential, FetchCredential::Token(world.token()));
    assert!(world.state.issued.tokens.iter().all(|issued| issued.token != leaked));
}

#[test]
fn tokens_with_a_name_are_left_alone() {
    let mut world = World::new("worker", AccessMode::Audit, &[]);
    let named = Record {
        sha256: Token::new([200; 32]).hash(),
        name: Some("rack-7".to_owned()),
        pools: ["worker".to_owned()].into(),
        made: NOON,
        until: None,
        revoked: None,
    };
    world.state.records.tokens.push(named.clone());
    world.settle(NOON);
    world.settle(NOON + Duration::days(400));
    assert_eq!(world.state.records.find(&named.sha256), Some(&named));
}

#[test]
fn a_pool_that_is_off_is_left_as_it_is_and_one_that_is_gone_ends() {
    let mut world = World::new("worker", AccessMode::Off, &[FetchCredential::Nothing]);
    assert!(world.settle(NOON).is_empty());
    world.state.pools.insert("worker".to_owned(), AccessMode::Audit);
    world.settle(NOON);
    let token = world.token();
    world.state.pools.insert("worker".to_owned(), AccessMode::Off);
    assert!(world.settle(NOON + Duration::days(30)).is_empty());
    assert_eq!(world.until(&token), None);
    world.state.pools.clear();
    world.state.pointers.clear();
    world.settle(NOON + Duration::days(30));
    assert_eq!(world.until(&token), Some(NOON + Duration::days(31)));
}

#[test]
fn what_has_ended_is_known_up_to_a_number() {
    let mut world = World::new("worker", AccessMode::Audit, &[]);
    for number in 0..=u32::try_from(MAX_ENDED).unwrap() + 5 {
        let mut random = [0; 32];
        random[..4].copy_from_slice(&number.to_le_bytes());
        world.state.records.tokens.push(Record {
            sha256: Token::new(random).hash(),
            name: None,
            pools: BTreeSet::new(),
            made: NOON - Duration::days(2),
            until: Some(NOON - Duration::DAY + Duration::seconds(number.into())),
            revoked: None,
        });
    }
    world.settle(NOON);
    let ended = world.state.records.tokens.iter().filter(|record| record.until.is_some());
    assert_eq!(ended.clone().count(), MAX_ENDED);
    let oldest = ended.filter_map(|record| record.until).min().unwrap();
    assert_eq!(oldest, NOON - Duration::DAY + Duration::seconds(6));
}
