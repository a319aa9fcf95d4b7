//! A clock that is wrong: without a battery, ahead of time, or a machine's own.

use std::fs;

use time::{Duration, OffsetDateTime};

use super::{Place, boot, keeps_keys, keys, wait_until_logged, wait_until_reported};
use crate::support::clock::follow_clock;
use crate::support::server::Server;

const NO_BATTERY: &str = "@2020-01-01 00:00:00";
const FAR_AHEAD: &str = "@2040-01-01 00:00:00";

#[test]
fn a_start_with_the_clock_at_2020_or_2040_loses_no_key_and_locks_nobody_out() {
    let place = Place::made(None);
    let oldest = place.pointer();
    place.certs(&["rotate", "--ca"]).done();
    let newer = place.pointer();
    let before = place.text("ca.key");

    {
        let server = place.serve(Some(NO_BATTERY), &[]);
        wait_until_reported(&server, "the clock is behind");
        wait_until_logged(&server, "the clock is behind: ");
    }
    let reported = place.certs_at(Some(NO_BATTERY), &["check"]);
    reported.refused(&["the clock is behind: \"machine-config-server-ca@", "faults: "]);
    assert_eq!(place.text("ca.key"), before, "nothing is made");
    place.assert_boots(&oldest);
    place.certs(&["check"]).done();

    let far_ahead = {
        let server = place.serve(Some(FAR_AHEAD), &[]);
        wait_until_logged(&server, "made a signing CA");
        place.pointer()
    };
    assert!(keeps_keys(&before, &place.text("ca.key")));
    let is_2040 = time::macros::datetime!(2040-01-02 0:00 UTC);
    assert!(place.boots_at(&far_ahead, is_2040));

    // The clock is right again.
    let server = place.serve(None, &[]);
    wait_until_reported(&server, "the clock is behind");
    wait_until_logged(&server, "the clock is behind: ");
    place.certs(&["check"]).refused(&["the clock is behind: "]);
    let present = place.pointer();
    for pointer in [&oldest, &newer, &far_ahead, &present] {
        place.assert_boots(pointer);
    }
    boot(&oldest, &server);
    boot(&newer, &server);
    boot(&far_ahead, &server);
    let stored = place.text("ca.key");
    assert!(keeps_keys(&before, &stored));
    assert_eq!(keys(&stored).len(), 3, "that of 2040 too");

    // And when it is 2040 at last, a machine with a pointer config of then boots.
    drop(server);
    drop(place.serve(Some(FAR_AHEAD), &[]));
    assert!(place.boots_at(&far_ahead, is_2040));
}

#[test]
fn a_clock_that_is_set_right_while_it_serves_locks_nobody_out_for_long() {
    let place = Place::made(None);
    let oldest = place.pointer();
    let clock = place.directory.path().join("clock");
    fs::write(&clock, FAR_AHEAD).expect("a writable folder");
    let mut command = place.serve_command(&[]);
    follow_clock(&mut command, &clock);
    let server = Server::prepared(command);
    wait_until_logged(&server, "made a signing CA");
    assert!(!place.boots(&oldest));
    fs::write(&clock, "+0").expect("a writable folder");
    wait_until_reported(&server, "the clock is behind");
    place.assert_boots(&oldest);
    boot(&oldest, &server);
}

#[test]
fn a_state_directory_made_with_the_clock_at_2020_continues_when_it_is_right() {
    let place = Place::made(Some(NO_BATTERY));
    let handed_out = place.pointer();
    let server = place.serve(None, &[]);
    place.assert_boots(&handed_out);
    boot(&handed_out, &server);
    place.certs(&["check"]).done();
}

#[test]
fn what_was_made_with_the_clock_at_2040_alone_is_reported_and_distrust_is_the_way_out() {
    let place = Place::made(Some(FAR_AHEAD));
    let handed_out = place.pointer();
    let before = place.text("ca.key");
    {
        let server = place.serve(None, &[]);
        wait_until_reported(&server, "the clock is behind");
    }
    place
        .certs(&["check"])
        .refused(&["the clock is behind: ", "remove this CA with `certs distrust`"]);
    assert_eq!(place.text("ca.key"), before);
    assert!(!place.boots(&handed_out));

    let name = place.certificates("ca.crt")[0].common_name.clone();
    place.certs(&["distrust", &name, "--yes"]).done();
    let server = place.serve(None, &[]);
    place.certs(&["check"]).done();
    place.assert_boots(&place.pointer());
    boot(&place.pointer(), &server);
}

#[test]
fn with_the_clock_behind_the_newest_ca_that_is_valid_signs_and_no_other_is_made() {
    let place = Place::made(Some("-400d"));
    let oldest = place.pointer();
    place.certs(&["rotate", "--ca"]).done();
    let (stored, newest) = (place.text("ca.key"), place.pointer());

    // Back at a time at which only the first one is valid.
    let server = place.serve(Some("-300d"), &[]);
    wait_until_reported(&server, "the clock is behind");
    let then = OffsetDateTime::now_utc() - Duration::days(300);
    assert!(place.boots_at(&oldest, then) && place.boots_at(&newest, then));
    place.certs_at(Some("-300d"), &["rotate", "--ca"]).refused(&["the clock is behind"]);
    place.certs_at(Some("-300d"), &["rotate"]).refused(&["the clock is behind"]);
    assert_eq!(keys(&place.text("ca.key")).len(), 2);
    assert!(keeps_keys(&stored, &place.text("ca.key")));
    drop(server);

    drop(place.serve(None, &[]));
    place.assert_boots(&oldest);
    place.assert_boots(&newest);
    place.certs(&["check"]).done();
}

#[test]
fn a_machine_whose_clock_is_a_day_or_a_year_behind_boots_after_a_rotation() {
    let place = Place::made(Some("-500d"));
    let pointers_before = place.pointer();
    place.certs(&["rotate", "--ca"]).done();
    place.certs(&["check"]).done();
    let now = OffsetDateTime::now_utc();
    for behind in [Duration::hours(25), Duration::days(365)] {
        for pointer in [&pointers_before, &place.pointer()] {
            assert!(place.boots_at(pointer, now - behind), "{behind} behind");
        }
    }
    // And with what was made today, one that counts in local time.
    let place = Place::made(None);
    place.certs(&["rotate", "--ca"]).done();
    assert!(place.boots_at(&place.pointer(), now - Duration::hours(23)));
}
