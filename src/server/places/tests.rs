//! Who has a place, and who loses it.

use std::time::Duration;

use super::*;

/// A connection that has been at this for so many seconds, 100 s after it was opened.
fn at(phase: Phase, seconds: u64) -> (Activity, Instant) {
    let opened = Instant::now();
    let activity = Activity::new(opened);
    activity.begin(phase, opened + Duration::from_secs(100 - seconds));
    (activity, opened + Duration::from_secs(100))
}

/// One that is sent an answer of which its client has taken nothing for so many seconds.
fn unread(seconds: u64) -> (Activity, Instant) {
    let (activity, now) = at(Phase::Sending, 50);
    activity.block(Some(now - Duration::from_secs(seconds)));
    (activity, now)
}

fn source(last: u8) -> Source {
    Source::V4(Ipv4Addr::new(192, 0, 2, last))
}

fn places(all: usize, source: Option<usize>) -> Places {
    Places::new(PlaceLimits { all, source })
}

#[test]
fn the_longest_idle_one_goes_first_and_none_that_is_answered() {
    let places = places(4, None);
    let take = |last, (activity, now)| places.take(source(last), Door::Tls, activity, now);
    let answered = at(Phase::Answer, 90);
    let held: Vec<_> =
        [answered.clone(), at(Phase::Idle, 5), at(Phase::Idle, 7), at(Phase::Handshake, 60)]
            .into_iter()
            .enumerate()
            .map(|(last, activity)| take(u8::try_from(last).unwrap(), activity).unwrap())
            .collect();
    assert!(held.iter().all(|(_, shed)| shed.is_none()));
    let (idle, silent) = (Some(Shed::Idle), Some(Shed::Silent));
    let mut late = Vec::new();
    for expected in [idle, idle, silent] {
        let (place, shed) = take(9, at(Phase::Answer, 0)).unwrap();
        assert_eq!(shed, expected);
        late.push(place);
    }
    assert_eq!(take(9, at(Phase::Answer, 0)).unwrap_err(), Shed::Full);
    // What was lost already is not given back a second time.
    drop(held);
    assert_eq!(lock(&places.seats).sources.len(), 3);
    drop(late);
    assert_eq!(lock(&places.seats).sources.len(), 0);
    assert!(lock(&places.seats).by_source.is_empty());
}

#[test]
fn whoever_takes_nothing_of_an_answer_goes_after_those_that_ask_nothing() {
    let places = places(4, None);
    let take = |last, (activity, now)| places.take(source(last), Door::Tls, activity, now);
    let held: Vec<_> = [unread(4), unread(6), unread(50), at(Phase::Handshake, 1)]
        .into_iter()
        .map(|activity| take(1, activity).unwrap())
        .collect();
    let mut late = Vec::new();
    for expected in [Shed::Silent, Shed::Unread, Shed::Unread] {
        let (place, shed) = take(9, at(Phase::Answer, 0)).unwrap();
        assert_eq!(shed, Some(expected));
        late.push(place);
    }
    // Who has waited for 4 s may be on a bad line, and who takes again is as good as any.
    assert_eq!(take(9, at(Phase::Answer, 0)).unwrap_err(), Shed::Full);
    drop(late);
    let (again, now) = unread(50);
    again.block(None);
    let busy: Vec<_> = (0..3).map(|_| take(2, (again.clone(), now)).unwrap()).collect();
    assert_eq!(take(9, at(Phase::Answer, 0)).unwrap_err(), Shed::Full);
    drop((held, busy));
}

#[test]
fn a_source_keeps_nobody_else_out() {
    let places = places(10, Some(2));
    let take = |last, phase| {
        let (activity, now) = at(phase, 1);
        places.take(source(last), Door::Tls, activity, now)
    };
    let greedy: Vec<_> = (0..20).filter_map(|_| take(1, Phase::Idle).ok()).collect();
    assert_eq!(lock(&places.seats).sources.len(), 2);
    let busy = [take(1, Phase::Answer), take(1, Phase::Answer)];
    assert!(busy.iter().all(Result::is_ok));
    assert_eq!(take(1, Phase::Answer).unwrap_err(), Shed::SourceFull);
    assert_eq!(take(2, Phase::Answer).unwrap().1, None);
    drop(greedy);
}

#[test]
fn the_port_without_tls_leaves_a_quarter() {
    let places = places(8, None);
    let take = |door| {
        let (activity, now) = at(Phase::Answer, 1);
        places.take(source(1), door, activity, now)
    };
    let plain: Vec<_> = (0..6).map(|_| take(Door::Plain).unwrap()).collect();
    assert_eq!(take(Door::Plain).unwrap_err(), Shed::Full);
    let tls = [take(Door::Tls), take(Door::Tls)];
    assert!(tls.iter().all(Result::is_ok));
    assert_eq!(take(Door::Tls).unwrap_err(), Shed::Full);
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
    let places = places(10, Some(2));
    let take = |phase, source| {
        let (activity, now) = at(phase, 1);
        places.take(source, Door::Tls, activity, now)
    };
    let now = Instant::now() + Duration::from_secs(200);
    let connected: Vec<_> =
        (0..5).map(|_| take(Phase::Handshake, Source::Balancer).unwrap()).collect();
    assert!(connected.iter().all(|(_, shed)| shed.is_none()), "balancers have no share");
    let [first, second, third, fourth, _own] = &connected[..] else { panic!("five") };
    assert_eq!(first.0.pass_to(source(1), now), Ok(None));
    assert_eq!(second.0.pass_to(source(1), now), Ok(None));
    assert_eq!(third.0.pass_to(source(1), now), Ok(Some(Shed::Silent)), "its own goes");
    assert_eq!(fourth.0.pass_to(source(2), now), Ok(None), "others keep theirs");
    assert_eq!(lock(&places.seats).sources.len(), 4);
    // Whoever comes without a balancer is the same source.
    let (direct, shed) = take(Phase::Answer, source(1)).unwrap();
    assert_eq!(shed, Some(Shed::Silent));
    // What was lost meanwhile is not taken again.
    assert_eq!(first.0.pass_to(source(3), now), Ok(None));
    assert_eq!(lock(&places.seats).sources.len(), 4);
    drop((connected, direct));
    assert!(lock(&places.seats).sources.is_empty() && lock(&places.seats).by_source.is_empty());
}

#[test]
fn a_client_with_all_it_may_have_gets_no_more_through_a_balancer() {
    let places = places(10, Some(1));
    let take = |phase, source| {
        let (activity, now) = at(phase, 1);
        places.take(source, Door::Tls, activity, now).unwrap().0
    };
    let (_busy, behind) = (take(Phase::Answer, source(1)), take(Phase::Answer, Source::Balancer));
    assert_eq!(behind.pass_to(source(1), Instant::now()), Err(Shed::SourceFull));
    assert_eq!(lock(&places.seats).sources.len(), 2);
}

#[tokio::test]
async fn whoever_loses_a_place_after_it_was_passed_on_is_ended() {
    let places = places(1, None);
    let (activity, now) = at(Phase::Idle, 1);
    let (place, _) = places.take(Source::Balancer, Door::Tls, activity.clone(), now).unwrap();
    place.pass_to(source(1), now).unwrap();
    // The task is named by a ticket of before.
    let task = tokio::spawn(std::future::pending::<()>());
    places.served_by(place.ticket(), task.abort_handle());
    let (_second, shed) = places.take(source(2), Door::Tls, activity, now).unwrap();
    assert_eq!(shed, Some(Shed::Idle));
    assert!(task.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn whoever_loses_a_place_is_ended() {
    let places = places(1, None);
    let take = |last, (activity, now)| places.take(source(last), Door::Tls, activity, now);
    let (place, _) = take(1, at(Phase::Idle, 1)).unwrap();
    let ticket = place.ticket();
    let task = tokio::spawn(std::future::pending::<()>());
    places.served_by(ticket, task.abort_handle());
    let (_second, shed) = take(2, at(Phase::Answer, 1)).unwrap();
    assert_eq!(shed, Some(Shed::Idle));
    assert!(task.await.unwrap_err().is_cancelled());
    // Also where its place is gone before it begins.
    let task = tokio::spawn(std::future::pending::<()>());
    places.served_by(ticket, task.abort_handle());
    assert!(task.await.unwrap_err().is_cancelled());
}
