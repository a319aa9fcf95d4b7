//! Tests of token lists that are lost, restored or rebuilt.

use super::*;

#[test]
fn a_list_that_is_lost_or_restored_is_made_anew_with_the_pools_that_were_enforced() {
    let world = enforced_with_one_that_cannot();
    let lost = Records::default();
    let without_token = world.state.records.without_token.clone();
    let restored =
        Records { enforced: BTreeSet::new(), without_token, ..world.state.records.clone() };
    for records in [lost, restored] {
        let mut world = world.clone();
        world.state.records = records;
        assert!(current_records(&world.state, NOON).enforced.contains("worker"));
        world.settle(NOON);
        assert!(world.state.records.enforced.contains("worker"));
        // After a change of the mode, neither list has the pool.
        world.state.pools.insert("worker".to_owned(), AccessMode::Audit);
        world.settle(NOON);
        assert_eq!(world.state.issued.enforced, BTreeSet::new());
        assert_eq!(world.state.records.enforced, BTreeSet::new());
    }
    // At no time do the records have more enforced pools than the list of tokens.
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    while world.step(NOON).is_some() {
        assert!(world.state.issued.enforced.is_superset(&world.state.records.enforced));
    }
}

#[test]
fn where_both_lists_are_lost_evidence_opens_no_pool_until_less_is_asked() {
    let mut world = enforced_with_one_that_cannot();
    world.state.issued = Issued::default();
    world.state.records = Records::default();
    let worker: BTreeSet<_> = ["worker".to_owned()].into();
    for lists_that_are_lost_again in 0..3 {
        let state = &mut world.state;
        match lists_that_are_lost_again {
            1 => state.issued = Issued::default(),
            2 => state.records = Records::default(),
            _ => {}
        }
        while world.step(NOON).is_some() {
            let records = &world.state.records;
            assert!(matches!(records.enforcement("worker"), Enforcement::Waiting(_)), "{world:?}");
        }
        assert_eq!(world.state.records.undetermined, worker);
    }
    world.state.pools.insert("worker".to_owned(), AccessMode::Audit);
    world.settle(NOON);
    world.state.pools.insert("worker".to_owned(), AccessMode::Enforce);
    world.settle(NOON);
    assert!(matches!(world.state.records.enforcement("worker"), Enforcement::Open(_)), "{world:?}");
    // If a list is lost with all pointer configs that carry its tokens, nothing shows that it existed.
    let cannot = FetchCredential::Cannot("spec 3.0 has no headers".to_owned());
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing, cannot]);
    world.settle(NOON);
    assert!(matches!(world.state.records.enforcement("worker"), Enforcement::Open(_)), "{world:?}");
}

#[test]
fn whatever_list_is_lost_nobody_is_refused() {
    let mut before = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    before.settle(NOON);
    let token = before.token();
    let holds = |world: &World| {
        world
            .state
            .records
            .find(&token.hash())
            .is_some_and(|record| record.is_valid_at(NOON + POLICY.overlap - Duration::MINUTE))
    };
    for lost in 1..8 {
        let mut world = before.clone();
        if lost & 1 != 0 {
            world.state.issued = Issued::default();
        }
        if lost & 2 != 0 {
            world.state.records = Records::default();
        }
        if lost & 4 != 0 {
            world.state.pointers[0].credential = FetchCredential::Nothing;
        }
        world.settle(NOON);
        let nothing_has_it = lost & 3 == 3 && lost & 4 != 0;
        assert_eq!(holds(&world), !nothing_has_it, "{lost:03b}");
        let FetchCredential::Token(embedded) = &world.state.pointers[0].credential else {
            panic!()
        };
        assert!(world.state.records.find(&embedded.hash()).unwrap().is_valid_at(NOON));
    }
}

#[test]
fn a_list_that_is_made_anew_opens_nothing_meanwhile() {
    let mut world = World::new("worker", AccessMode::Enforce, &[FetchCredential::Nothing]);
    world.settle(NOON);
    world.state.records = Records::default();
    assert_eq!(world.step(NOON), Some(Reason::New));
    assert!(world.state.records.enforced.contains("worker"));
}
