//! What an administrator put where `serve` keeps its pointer configs.

use ignition::{SpecVersion, pointer};
use serde_json::{Value, json};

use super::{Place, boot, identity};
use crate::support::openssl::openssl;
use crate::support::server::Server;
use crate::support::wait_until;

const WORKER: &str = "user-data/worker.ign";

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Waits until every pool has had its turn.
fn wait_until_done(server: &Server) {
    wait_until("the pools", || server.log().contains("Serving "));
}

#[test]
fn a_foreign_file_in_place_of_a_pointer_config_stays_and_is_reported() {
    let place = Place::made(None);
    let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let files = ["-nodes", "-subj", "/CN=corporate", "-keyout", "c.key", "-out", "c.pem"];
    openssl(place.directory.path(), &[&request[..], &files].concat());
    let corporate = place.text("../c.pem");
    let corporate =
        pointer("https://mcs.example.com/config/worker", corporate.as_bytes(), SpecVersion::V3_1);
    let mut users = json(&place.pointer());
    users["passwd"] = json!({"users": [{"name": "core"}]});
    let url = &mut users["ignition"]["config"]["merge"][0]["source"];
    *url = "https://mcs.example.com/config/worker".into();
    for text in [
        corporate.to_string(),
        users.to_string(),
        "#!/bin/sh\necho hello\n".to_owned(),
        "{\"ignition\": {\"version\": \"3.4.0\"}}".to_owned(),
        "#cloud-config\n".to_owned(),
    ] {
        let place = place.copy();
        place.write(WORKER, &text);
        let before = identity(&place.file(WORKER));
        for _ in 0..2 {
            let server = place.serve_anyhow(None, &[]);
            wait_until_done(&server);
            assert_eq!(identity(&place.file(WORKER)), before, "{text}");
            let is_reported = |line: &str| line.contains("is not changed") && line.contains(WORKER);
            wait_until("it to be told", || server.log().lines().any(is_reported));
            // The other pools have theirs.
            boot(&place.text("user-data/edge.ign"), &server);
        }
        place.certs(&["rotate", "--ca"]).done();
    }
}

#[test]
fn a_pointer_config_with_more_in_it_is_kept_in_step_with_the_cas() {
    let place = Place::made(None);
    let oldest = place.pointer();
    let mut config = json(&oldest);
    config["passwd"] = json!({"users": [{"name": "core"}]});
    place.write(WORKER, config.to_string());
    place.certs(&["rotate", "--ca"]).done();
    let server = place.serve_anyhow(None, &[]);
    wait_until_done(&server);
    let present = json(&place.pointer());
    assert_eq!(present["passwd"], config["passwd"]);
    place.assert_boots(&oldest);
    place.assert_boots(&place.pointer());
}

#[test]
fn a_pointer_config_that_serve_has_made_follows_where_it_serves() {
    let place = Place::made(None);
    let before = place.pointer();
    let server = place.serve(None, &["--host", "mcs.example.com"]);
    let url = |text: &str| json(text)["ignition"]["config"]["merge"][0]["source"].clone();
    assert_ne!(url(&place.pointer()), url(&before));
    boot(&place.pointer(), &server);
    // An empty one is none.
    drop(server);
    place.write(WORKER, "");
    let server = place.serve(None, &[]);
    boot(&place.pointer(), &server);
}

#[test]
fn a_rotation_that_leaves_a_pointer_config_without_a_boot_says_so() {
    let place = Place::made(None);
    let other = Place::made(None);
    let rotate = |place: &Place, flags: &[&str]| place.certs(&[&["rotate"][..], flags].concat());
    // One that could not boot whatever is served is named, and held against nobody.
    let good = place.pointer();
    let mut config = json(&good);
    config["ignition"]["config"]["merge"][0]["compression"] = "gzip".into();
    place.write(WORKER, config.to_string());
    for flags in [&[][..], &["--ca"]] {
        let said = rotate(&place, flags).done().text();
        let is_warning = |line: &str| line.contains("warning: ") && line.contains(WORKER);
        assert!(said.lines().any(is_warning), "{said}");
    }
    // One that trusts a CA called like this server's, of which nothing is known, is not in order by its
    // certificates. What was asked for is done all the same, and --force takes it.
    place.write(WORKER, other.pointer());
    let before = place.chain();
    let refused = rotate(&place, &[]);
    refused.refused(&["issued a serving certificate", "worker.ign cannot boot a machine"]);
    assert_ne!(place.chain(), before);
    let said = rotate(&place, &["--force"]).done().text();
    assert!(said.contains("warning: ") && said.contains(WORKER), "{said}");
    place.write(WORKER, &good);
    let said = rotate(&place, &[]).done().text();
    assert!(!said.contains("warning"), "{said}");
}
