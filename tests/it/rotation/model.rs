//! A model of decades in which everything happens that administrators, clocks and disks do to
//! certificates, at random; and the process is stopped after every single write. After each, nobody
//! is locked out that was not before.

use pki::{Certificate, RotationRequest, StoredPair, locked_out};
use rcgen::{BasicConstraints, GeneralSubtree, IsCa, NameConstraints};
use time::{Duration, OffsetDateTime};

use super::rules::openssl_verifies;
use super::world::{HOST, OwnCa, START, World, YEAR, host, pointer_config};
use crate::support::random::Random;

/// What happens to a world beside the passing of time.
type Happening = fn(&mut World, &mut Random);

/// States in which everything happened, each judged by `judge` too.
pub(crate) fn seen_by(judge: fn(&World), states: u64) {
    for (seed, happen) in [(1, jump as Happening), (2, damage)] {
        run_seen_by(Some(judge), seed, states / 2, happen);
    }
}

/// States that all come about within hours of `now`, each judged by `judge`.
pub(crate) fn seen_at(now: OffsetDateTime, judge: fn(&World), states: u64) {
    let mut random = Random(4);
    let mut total = 0;
    while total < states {
        let mut world =
            if random.below(2) == 0 { World::with_root(now).0 } else { World::fresh(now) };
        world.other_judge = Some(judge);
        for _ in 0..8 {
            world.settle();
            damage(&mut world, &mut random);
            world.stored.requested = RotationRequest::default();
        }
        total += world.states;
    }
}

/// Some states of worlds that begin with `seed`.
fn run(seed: u64, states: u64, happen: Happening) -> u64 {
    run_seen_by(None, seed, states, happen)
}

fn run_seen_by(judge: Option<fn(&World)>, seed: u64, states: u64, happen: Happening) -> u64 {
    let mut random = Random(seed);
    let mut total = 0;
    while total < states {
        let mut world = match random.below(4) {
            0 => World::with_root(START).0,
            1 => {
                // Adopted in the middle of a rotation.
                let mut world = World::settled(START - 5 * YEAR);
                world.stored.requested.ca = true;
                world.now = START;
                for _ in 0..random.below(4) {
                    world.advance(1);
                }
                world.stored.requested = RotationRequest::default();
                world
            }
            _ => World::fresh(START),
        };
        world.other_judge = judge;
        let end = START + 40 * YEAR;
        while world.now < end && total + world.states < states {
            world.settle();
            world.now += Duration::DAY + random.days(900);
            happen(&mut world, &mut random);
            // Some pools come, each with a pointer config of its own.
            if world.pointers.len() < 4 && random.below(3) == 0 {
                let copy = world.pointers[0].clone();
                world.pointers.push(copy);
            }
            // Stopped after some writes, and gone on with later.
            for _ in 0..random.below(5) {
                world.advance(1 + random.index(3));
                world.now += random.days(20);
            }
            world.stored.requested = RotationRequest::default();
        }
        total += world.states;
    }
    total
}

/// What administrators ask for, and what time does.
fn ask(world: &mut World, random: &mut Random) {
    match random.below(6) {
        0 => world.stored.requested.ca = true,
        1 => world.stored.requested.serving = true,
        2 => {
            // In a burst.
            for _ in 0..random.below(6) {
                world.rotate(true, false);
                world.now += Duration::minutes(i64::try_from(random.below(90)).expect("minutes"));
            }
        }
        3 => {
            let address = format!("192.0.2.{}", 1 + random.below(200));
            world.stored.hosts.push(address.parse().expect("an address"));
        }
        4 => world.stored.hosts.truncate(1),
        _ => {}
    }
}

/// The clock jumps and comes back, with all that is due in between.
fn jump(world: &mut World, random: &mut Random) {
    ask(world, random);
    world.settle();
    let (now, handed) = (world.now, world.handed.len());
    let locked_out = |world: &World| {
        // Who is handed a pointer config while the clock is wrong has what that clock says.
        let mut world = world.clone();
        world.handed.truncate(handed);
        world.locked_out_by(&world.chain())
    };
    let before = locked_out(world);
    world.now = world.now - 12 * YEAR + random.days(30 * 365);
    let there = world.now;
    for _ in 0..random.below(8) {
        world.advance(1 + random.index(3));
    }
    world.now = now;
    world.settle();
    let after = locked_out(world);
    let new: Vec<_> = after.difference(&before).collect();
    assert!(
        new.is_empty(),
        "the clock was at {there}, it is {now}: {new:?} of {:?} by {:?}",
        world.locked_out(),
        world.chain(),
    );
}

/// Administrators bring what is theirs, and take it away.
fn bring(world: &mut World, random: &mut Random) {
    ask(world, random);
    let now = world.now;
    match random.below(8) {
        0 => own_pair(world, OwnCa::with(now, |_| {}), true),
        1 => own_pair(world, OwnCa::with(now, |_| {}), false),
        2 => own_ca(world, OwnCa::with(now, |_| {})),
        3 => {
            let most = u8::try_from(random.below(2)).expect("a length");
            own_ca(
                world,
                OwnCa::with(now, |params| {
                    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(most));
                }),
            );
        }
        4 => own_ca(
            world,
            OwnCa::with(now, |params| {
                let permitted = GeneralSubtree::DnsName(HOST.to_owned());
                params.name_constraints = Some(NameConstraints {
                    permitted_subtrees: vec![permitted],
                    excluded_subtrees: Vec::new(),
                });
            }),
        ),
        5 => own_ca(world, OwnCa::with(now, |params| params.is_ca = IsCa::ExplicitNoCa)),
        6 => {
            if let Some(ca) = world.bundle().first().cloned() {
                world.settle();
                world.distrust(&ca);
            }
        }
        _ => {}
    }
}

/// A pair by another CA, which machines were told to trust.
fn own_pair(world: &mut World, ca: OwnCa, is_known: bool) {
    world.settle();
    world.stored.serving = Some(ca.pair(&[host()], world.now, YEAR));
    world.handed.clear();
    if is_known {
        let trusted = [world.bundle(), vec![ca.certificate]].concat();
        world.stored.bundle =
            Some(trusted.iter().map(Certificate::to_pem).collect::<String>().into());
        world.pointers = vec![pointer_config(&trusted)];
        world.hand_out();
    } else {
        world.pointers.push(pointer_config(&[ca.certificate]));
        world.hand_out();
        world.pointers.pop();
    }
}

/// A CA in place of the one that is there, with a pair and pointer configs.
fn own_ca(world: &mut World, ca: OwnCa) {
    world.stored.ca = Some(ca.stored());
    world.stored.serving = Some(ca.pair(&[host()], world.now, 2 * YEAR));
    world.stored.bundle = Some(ca.certificate.to_pem().into());
    world.handed.clear();
    world.pointers = vec![pointer_config(&[ca.certificate])];
    world.hand_out();
}

/// What is stored is stripped, swapped, cut short or lost.
fn damage(world: &mut World, random: &mut Random) {
    bring(world, random);
    let mut cut = |text: &mut Vec<u8>| text.truncate(random.index(text.len().max(1)));
    let stored = &mut world.stored;
    match Random(world.states + 1).below(12) {
        0 => {
            let leaf = stored.chain().first().map(Certificate::to_pem);
            if let (Some(pair), Some(leaf)) = (&mut stored.serving, leaf) {
                pair.certificates = leaf.into();
            }
        }
        1 => stored.ca.iter_mut().for_each(|pair| pair.previous.clear()),
        2 => stored.ca.iter_mut().for_each(|pair| cut(&mut pair.previous)),
        3 => stored.ca.iter_mut().for_each(|pair| cut(&mut pair.key)),
        4 => stored.ca.iter_mut().for_each(|pair| cut(&mut pair.certificates)),
        5 => stored.serving.iter_mut().for_each(|pair| cut(&mut pair.certificates)),
        6 => stored.serving.iter_mut().for_each(|pair| cut(&mut pair.key)),
        7 => std::mem::swap(&mut stored.ca, &mut stored.serving),
        8 => stored.ca = None,
        9 => stored.serving = None,
        10 => stored.bundle = None,
        _ => stored.ca = Some(StoredPair::unreadable("no permission".to_owned())),
    }
}

/// How many states a model goes through at least; an eighth of what `.ci/full models` asks for takes it some
/// eight seconds.
pub(crate) fn states() -> u64 {
    let asked = std::env::var("MODEL_STATES").ok();
    asked.map_or(2_000, |states| states.parse().expect("MODEL_STATES, a number"))
}

#[test]
fn nobody_is_locked_out_by_requests_and_renewal_in_forty_years() {
    assert!(run(0x9e37_79b9_7f4a_7c15, states(), ask) >= states());
}

#[test]
fn nobody_is_locked_out_by_a_clock_that_jumps() {
    assert!(run(0x2545_f491_4f6c_dd1d, states(), jump) >= states());
}

#[test]
fn nobody_is_locked_out_by_what_administrators_bring() {
    assert!(run(0xd134_2543_de82_ef95, states(), bring) >= states());
}

#[test]
fn nobody_is_locked_out_after_stored_files_were_damaged() {
    assert!(run(0xaf25_1af3_b0f0_25b5, states(), damage) >= states());
}

/// OpenSSL, curl's, is pickier than Go in finding its way.
#[test]
fn openssl_finds_its_way_where_go_does() {
    let judge = |world: &World| {
        if !world.states.is_multiple_of(20) {
            return;
        }
        let (chain, now) = (world.chain(), world.now);
        for holder in world.holders() {
            if locked_out(&chain, std::slice::from_ref(&holder), now).is_empty() {
                let verified = openssl_verifies(&chain, &holder.trusted, now);
                assert!(verified.contains(": OK"), "{now}: {verified} by {chain:?}");
            }
        }
    };
    run_seen_by(Some(judge), 3, 1_000, ask);
}
