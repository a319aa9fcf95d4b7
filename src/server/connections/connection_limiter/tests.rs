//! Tests of granted and withdrawn permits.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A connection that has been in a phase for so many seconds, 100 s after it was opened.
fn at(phase: Phase, seconds: u64) -> (Activity, Instant) {
    let opened = Instant::now();
    let activity = Activity::new(opened);
    activity.begin(phase, opened + Duration::from_secs(100 - seconds));
    (activity, opened + Duration::from_secs(100))
}

/// A connection that has been sent an answer for so many seconds, and has received so many KiB of it.
fn taking(seconds: u64, kib: usize) -> (Activity, Instant) {
    let (activity, now) = at(Phase::Sending, seconds);
    activity.write(kib << 10);
    (activity, now)
}

fn source(last: u8) -> Source {
    Source::V4(Ipv4Addr::new(192, 0, 2, last))
}

fn limiter(all: usize, source: Option<usize>) -> ConnectionLimiter {
    ConnectionLimiter::new(ConnectionLimits { all, source, bytes: 1 << 40 })
}

fn taken(limiter: &ConnectionLimiter) -> usize {
    lock(&limiter.slots).all.len()
}

#[test]
fn the_longest_idle_one_goes_first_and_none_that_is_answered() {
    let limiter = limiter(4, None);
    let take = |(activity, now)| limiter.acquire(source(1), Transport::Tls, activity, now);
    let held: Vec<_> =
        [at(Phase::Answer, 90), at(Phase::Idle, 1), at(Phase::Idle, 0), at(Phase::Head, 60)]
            .into_iter()
            .map(|activity| take(activity).unwrap())
            .collect();
    assert!(held.iter().all(|(_, shed)| shed.is_none()));
    let mut late = Vec::new();
    for expected in [Shed::Idle, Shed::Idle, Shed::Silent] {
        let (permit, shed) = take(at(Phase::Answer, 0)).unwrap();
        assert_eq!(shed, Some(expected));
        late.push(permit);
    }
    assert_eq!(take(at(Phase::Answer, 0)).unwrap_err(), Shed::Full);
    // A withdrawn permit is not returned a second time.
    drop(held);
    assert_eq!(taken(&limiter), 3);
    drop(late);
    assert_eq!(taken(&limiter), 0);
    assert!(lock(&limiter.slots).queues.is_empty());
}

#[test]
fn nobody_loses_a_handshake_or_a_head_younger_than_3_s() {
    for phase in [Phase::Handshake, Phase::FirstHead, Phase::Head] {
        let limiter = limiter(1, None);
        let take = |(activity, now)| limiter.acquire(source(1), Transport::Tls, activity, now);
        let young = take(at(phase, 2)).unwrap();
        assert_eq!(take(at(Phase::Answer, 0)).unwrap_err(), Shed::Full, "{phase:?}");
        drop(young);
        let _old = take(at(phase, 4)).unwrap();
        assert_eq!(take(at(Phase::Answer, 0)).unwrap().1, Some(Shed::Silent), "{phase:?}");
    }
}

#[test]
fn who_takes_an_answer_slower_than_a_machine_loses_it() {
    // 20 KB a second, as no machine takes it, and 100 KB, as one on a bad line.
    for (activity, goes) in [
        (taking(2, 0), false),
        (taking(4, 0), true),
        (taking(5, 100), true),
        (taking(50, 1_000), true),
        (taking(50, 5_000), false),
    ] {
        let limiter = limiter(1, None);
        let take = |(activity, now)| limiter.acquire(source(1), Transport::Tls, activity, now);
        let _held = take(activity).unwrap();
        let expected = if goes { Ok(Some(Shed::Unread)) } else { Err(Shed::Full) };
        assert_eq!(take(at(Phase::Answer, 0)).map(|(_, shed)| shed), expected);
    }
}

#[test]
fn what_the_kernel_has_for_a_client_is_given_time_as_well() {
    let limiter = limiter(1, None);
    let take = |(activity, now)| limiter.acquire(source(1), Transport::Tls, activity, now);
    let (activity, now) = at(Phase::Answer, 10);
    activity.answer(440 << 10);
    activity.begin(Phase::Handed, now);
    let _held = take((activity.clone(), now)).unwrap();
    let later = |seconds| (at(Phase::Answer, 0).0, now + Duration::from_secs(seconds));
    assert_eq!(take(later(9)).unwrap_err(), Shed::Full);
    assert_eq!(take(later(10)).unwrap().1, Some(Shed::Idle));
}

#[test]
fn a_source_keeps_nobody_else_out() {
    let limiter = limiter(10, Some(2));
    let take = |last, phase| {
        let (activity, now) = at(phase, 1);
        limiter.acquire(source(last), Transport::Tls, activity, now)
    };
    let greedy: Vec<_> = (0..20).filter_map(|_| take(1, Phase::Idle).ok()).collect();
    assert_eq!(taken(&limiter), 2);
    let busy = [take(1, Phase::Answer), take(1, Phase::Answer)];
    assert!(busy.iter().all(Result::is_ok));
    assert_eq!(take(1, Phase::Answer).unwrap_err(), Shed::SourceFull);
    assert_eq!(take(2, Phase::Answer).unwrap().1, None);
    drop(greedy);
}

#[test]
fn a_dozen_sources_that_take_all_they_can_leave_room_for_a_dozen_more() {
    let limiter = limiter(1_000, Some(1_000));
    let take = |last| {
        let (activity, now) = at(Phase::Answer, 0);
        limiter.acquire(source(last), Transport::Tls, activity, now)
    };
    let mut held = Vec::new();
    for round in 0..1_000 {
        held.extend((0..12).filter_map(|last| take(last).ok()));
        assert!(taken(&limiter) <= 940, "{round}: {}", taken(&limiter));
    }
    let mut come: Vec<_> = (100..112).map(|last| take(last).unwrap()).collect();
    assert!(come.iter().all(|(_, shed)| shed.is_none()));
    come.extend((100..112).map(|last| take(last).unwrap()));
}

#[test]
fn networks_of_56_and_48_bits_are_no_more_than_one_source() {
    for step in [0, 8, 16] {
        let limiter = limiter(100, Some(100));
        let take = |source| {
            let (activity, now) = at(Phase::Answer, 0);
            limiter.acquire(source, Transport::Tls, activity, now)
        };
        let network: u128 = 0x2001_0db8_0000_0000;
        let held: Vec<_> =
            (0..100).filter_map(|last| take(Source::V6(network + (last << step))).ok()).collect();
        // Each network of 48 bits is on its own; those within one share what one may have.
        let most = if step == 16 { 100 } else { 51 };
        assert_eq!(held.len(), most, "{step}");
    }
}

#[test]
fn the_source_with_most_memory_loses_a_connection() {
    let limiter = ConnectionLimiter::new(ConnectionLimits { all: 3, source: None, bytes: 1 << 20 });
    let take = |last, phase, seconds| {
        let (activity, now) = at(phase, seconds);
        limiter.acquire(source(last), Transport::Tls, activity, now).unwrap()
    };
    let old = take(1, Phase::Head, 90);
    let heavy = take(2, Phase::Head, 10);
    heavy.0.set_memory(100 << 10, Instant::now(), drop).unwrap();
    let _third = take(3, Phase::Head, 50);
    assert_eq!(take(4, Phase::Answer, 0).1, Some(Shed::Silent));
    let slots = lock(&limiter.slots);
    assert!(slots.all.contains_key(&old.0.id.0) && !slots.all.contains_key(&heavy.0.id.0));
    drop(slots);
}

#[test]
fn memory_is_shared_as_places_are() {
    let limiter =
        ConnectionLimiter::new(ConnectionLimits { all: 100, source: Some(100), bytes: 1 << 20 });
    let now = Instant::now() + Duration::from_secs(100);
    let take = |last| {
        limiter.acquire(source(last), Transport::Tls, at(Phase::Answer, 0).0, now).unwrap().0
    };
    let greedy: Vec<_> = (0..20).map(|_| take(1)).collect();
    let had =
        greedy.iter().filter(|permit| permit.set_memory(100 << 10, now, drop).is_ok()).count();
    assert!((5..=6).contains(&had), "{had}");
    // Another one gets as much as is free then, and the first no more of it.
    let other = take(2);
    assert!(other.set_memory(200 << 10, now, drop).unwrap());
    assert_eq!(greedy[19].set_memory(100 << 10, now, drop), Err(Shed::SourceFull));
    drop(greedy);
    assert!(!other.set_memory(300 << 10, now, drop).unwrap());
    assert_eq!(other.set_memory(2 << 20, now, drop), Err(Shed::Full));
    drop(other);
    assert_eq!(lock(&limiter.slots).shares.of(Group::Everyone), shares::Share::default());
}

#[test]
fn the_port_without_tls_leaves_a_quarter() {
    let limiter = limiter(8, None);
    let take = |transport| {
        let (activity, now) = at(Phase::Answer, 1);
        limiter.acquire(source(1), transport, activity, now)
    };
    let plain: Vec<_> = (0..6).map(|_| take(Transport::Plain).unwrap()).collect();
    assert_eq!(take(Transport::Plain).unwrap_err(), Shed::Full);
    let tls = [take(Transport::Tls), take(Transport::Tls)];
    assert!(tls.iter().all(Result::is_ok));
    assert_eq!(take(Transport::Tls).unwrap_err(), Shed::Full);
    drop(plain);
}

#[test]
fn a_network_of_64_bits_is_one_source_and_an_ipv4_address_is_itself() {
    let source = |text: &str| Source::from(text.parse::<SocketAddr>().unwrap());
    assert_eq!(source("192.0.2.1:1"), source("[::ffff:192.0.2.1]:2"));
    assert_ne!(source("192.0.2.1:1"), source("192.0.2.2:1"));
    assert_eq!(source("[2001:db8::1]:1"), source("[2001:db8::ffff:0:0:1]:1"));
    assert_ne!(source("[2001:db8::1]:1"), source("[2001:db8:0:1::1]:1"));
}

#[test]
fn what_a_balancer_connects_is_counted_for_the_client_behind_it() {
    let limiter = limiter(10, Some(2));
    let take = |phase, source| {
        let (activity, now) = at(phase, 10);
        limiter.acquire(source, Transport::Tls, activity, now)
    };
    let now = Instant::now() + Duration::from_secs(200);
    let connected: Vec<_> =
        (0..5).map(|_| take(Phase::Handshake, Source::Balancer).unwrap()).collect();
    assert!(connected.iter().all(|(_, shed)| shed.is_none()), "balancers have no share");
    let [first, second, third, fourth, _own] = &connected[..] else { panic!("five") };
    assert_eq!(first.0.reassign(source(1), now), Ok(None));
    assert_eq!(second.0.reassign(source(1), now), Ok(None));
    assert_eq!(third.0.reassign(source(1), now), Ok(Some(Shed::Silent)), "its own goes");
    assert_eq!(fourth.0.reassign(source(2), now), Ok(None), "others keep theirs");
    assert_eq!(taken(&limiter), 4);
    // A direct connection has the same source.
    let (direct, shed) = take(Phase::Answer, source(1)).unwrap();
    assert_eq!(shed, Some(Shed::Silent));
    // A permit that was withdrawn meanwhile is not taken again.
    assert_eq!(first.0.reassign(source(3), now), Ok(None));
    assert_eq!(taken(&limiter), 4);
    drop((connected, direct));
    assert_eq!(taken(&limiter), 0);
}

#[test]
fn a_client_with_all_it_may_have_gets_no_more_through_a_balancer() {
    let limiter = limiter(10, Some(1));
    let take = |phase, source| {
        let (activity, now) = at(phase, 1);
        limiter.acquire(source, Transport::Tls, activity, now).unwrap().0
    };
    let (_busy, behind) = (take(Phase::Answer, source(1)), take(Phase::Answer, Source::Balancer));
    assert_eq!(behind.reassign(source(1), Instant::now()), Err(Shed::SourceFull));
    assert_eq!(taken(&limiter), 2);
}

#[tokio::test]
async fn a_connection_that_loses_its_place_after_it_was_passed_on_is_ended() {
    let limiter = limiter(1, None);
    let (activity, now) = at(Phase::Idle, 1);
    let (permit, _) =
        limiter.acquire(Source::Balancer, Transport::Tls, activity.clone(), now).unwrap();
    permit.reassign(source(1), now).unwrap();
    // The task is named by an earlier number.
    let task = tokio::spawn(std::future::pending::<()>());
    limiter.set_task(permit.id, task.abort_handle());
    let (_second, shed) = limiter.acquire(source(2), Transport::Tls, activity, now).unwrap();
    assert_eq!(shed, Some(Shed::Idle));
    assert!(task.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_connection_that_loses_its_place_is_ended() {
    let limiter = limiter(1, None);
    let take = |last, (activity, now)| limiter.acquire(source(last), Transport::Tls, activity, now);
    let (permit, _) = take(1, at(Phase::Idle, 1)).unwrap();
    let id = permit.id;
    let task = tokio::spawn(std::future::pending::<()>());
    limiter.set_task(id, task.abort_handle());
    let (_second, shed) = take(2, at(Phase::Answer, 1)).unwrap();
    assert_eq!(shed, Some(Shed::Idle));
    assert!(task.await.unwrap_err().is_cancelled());
    // Also where its permit is gone before it begins.
    let task = tokio::spawn(std::future::pending::<()>());
    limiter.set_task(id, task.abort_handle());
    assert!(task.await.unwrap_err().is_cancelled());
}

/// An event of a connection, one a second.
#[derive(Debug, Clone, Copy)]
enum Step {
    Take { source: u8, is_plain: bool },
    Begin { connection: usize, phase: Phase },
    Write { connection: usize, kib: usize },
    Weigh { connection: usize, kib: u64 },
    End { connection: usize },
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let connection = 0_usize..40;
    let phases = [
        Phase::Handshake,
        Phase::FirstHead,
        Phase::Idle,
        Phase::Head,
        Phase::Answer,
        Phase::Sending,
        Phase::Handed,
    ];
    prop_oneof![
        4 => (0_u8..5, any::<bool>()).prop_map(|(source, is_plain)| Step::Take { source, is_plain }),
        4 => (connection.clone(), proptest::sample::select(phases.to_vec()))
            .prop_map(|(connection, phase)| Step::Begin { connection, phase }),
        2 => (connection.clone(), 0_usize..400).prop_map(|(connection, kib)| Step::Write { connection, kib }),
        2 => (connection.clone(), 4_u64..400).prop_map(|(connection, kib)| Step::Weigh { connection, kib }),
        1 => connection.prop_map(|connection| Step::End { connection }),
        3 => Just(Step::Wait),
    ]
}

/// The connection to close, found by checking all: an idle one, or the one that waits longest, of the source with the
/// most memory that has one, and of the port without TLS first.
fn by_looking_at_each(slots: &Slots, now: Instant) -> Option<Instant> {
    let waiting = |source: Source, transport: Transport| {
        let slots =
            slots.all.values().filter(move |it| it.source == source && it.transport == transport);
        let waits = slots.filter_map(move |slot| {
            let wait = ClientWait::of(&slot.activity, now)?;
            let is_idle = slot.activity.phase() == Phase::Idle;
            wait.is_over(&slot.activity, now).then_some((!is_idle, wait.since))
        });
        waits.min()
    };
    let mut sources: Vec<(u64, Group, Source)> = Vec::new();
    for slot in slots.all.values() {
        let group = Group::Source(slot.source);
        sources.push((slots.shares.of(group).bytes, group, slot.source));
    }
    sources.sort_unstable();
    let found = sources.into_iter().rev().find_map(|(_, _, source)| {
        waiting(source, Transport::Plain).or_else(|| waiting(source, Transport::Tls))
    });
    found.map(|(_, since)| since)
}

proptest! {
    #[test]
    fn the_index_finds_the_same_as_a_look_at_each_entry(steps in proptest::collection::vec(step(), 1..200)) {
        let limiter = ConnectionLimiter::new(ConnectionLimits { all: 12, source: None, bytes: 1 << 40 });
        let mut now = Instant::now();
        let mut held: Vec<(Permit, Activity)> = Vec::new();
        for step in steps {
            match step {
                Step::Take { source: last, is_plain } => {
                    let is_full = taken(&limiter) >= 12;
                    let expected = by_looking_at_each(&lock(&limiter.slots), now);
                    let before: HashMap<u64, Activity> = lock(&limiter.slots)
                        .all.iter().map(|(number, slot)| (*number, slot.activity.clone())).collect();
                    let activity = Activity::new(now);
                    let transport = if is_plain { Transport::Plain } else { Transport::Tls };
                    if is_plain && lock(&limiter.slots).plain >= 9 {
                        continue;
                    }
                    match limiter.acquire(source(last), transport, activity.clone(), now) {
                        Ok((permit, shed)) => {
                            held.push((permit, activity));
                            prop_assert_eq!(shed.is_some(), is_full);
                            if let Some(shed) = shed {
                                let slots = lock(&limiter.slots);
                                let gone: Vec<_> =
                                    before.iter().filter(|(it, _)| !slots.all.contains_key(it)).collect();
                                prop_assert_eq!(gone.len(), 1);
                                let since = ClientWait::of(gone[0].1, now).map(|wait| wait.since);
                                prop_assert_eq!(expected, since);
                                prop_assert!(shed < Shed::SourceFull);
                            }
                        }
                        Err(_) => prop_assert!(is_full && expected.is_none()),
                    }
                }
                Step::Begin { connection, phase } => {
                    if let Some((permit, activity)) = held.get(connection) {
                        activity.begin(phase, now);
                        if phase == Phase::Answer {
                            activity.answer(100 << 10);
                        }
                        if phase == Phase::Idle {
                            permit.idle(now);
                        }
                    }
                }
                Step::Write { connection, kib } => {
                    if let Some((_, activity)) = held.get(connection) {
                        activity.write(kib << 10);
                    }
                }
                Step::Weigh { connection, kib } => {
                    if let Some((permit, _)) = held.get(connection) {
                        let _ = permit.set_memory(kib << 10, now, drop);
                    }
                }
                Step::End { connection } => {
                    if connection < held.len() {
                        held.remove(connection);
                    }
                }
                Step::Wait => now += Duration::from_secs(1),
            }
        }
        drop(held);
        prop_assert_eq!(taken(&limiter), 0);
        let slots = lock(&limiter.slots);
        prop_assert!(slots.queues.is_empty() && slots.shares == Shares::default());
    }
}

#[test]
fn a_connection_that_is_closed_for_another_is_counted_even_if_that_gets_no_memory() {
    let limiter =
        ConnectionLimiter::new(ConnectionLimits { all: 100, source: None, bytes: 1 << 20 });
    let now = Instant::now();
    let silent: Vec<_> = (1..=4)
        .map(|last| {
            let (activity, began) = at(Phase::Head, 90);
            let (permit, _) =
                limiter.acquire(source(last), Transport::Tls, activity, began).unwrap();
            permit.set_memory(200 << 10, now, drop).unwrap();
            permit
        })
        .collect();
    let (activity, began) = at(Phase::Answer, 0);
    let (greedy, _) = limiter.acquire(source(9), Transport::Tls, activity, began).unwrap();
    let mut closed = Vec::new();
    let refused =
        greedy.set_memory(2 << 20, now + Duration::from_secs(100), |shed| closed.push(shed));
    assert!(refused.is_err(), "more than all have");
    assert_eq!(closed.len(), silent.len(), "{closed:?}");
}
