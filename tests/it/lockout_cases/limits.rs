//! What is bounded, told by the built binary.

use serde_json::{Value, json};

use super::{Place, boot, wait_until_logged, wait_until_reported};
use crate::support::server::Server;

const WORKER: &str = "user-data/worker.ign";

fn attention(server: &Server, what: &str) -> String {
    let page = server.page("/metrics");
    let name = format!("mcs_certificates_attention{{what=\"{what}\"}} ");
    let count = page.lines().find_map(|line| line.strip_prefix(&name));
    count.unwrap_or_else(|| panic!("no {name} in {page}")).to_owned()
}

#[test]
fn a_pointer_config_that_is_larger_than_ec2_takes_is_named_and_boots() {
    let place = Place::made(None);
    let quiet = place.certs(&["check"]).done().text();
    assert!(!quiet.contains("warning"), "{quiet}");
    let mut config: Value = serde_json::from_str(&place.pointer()).expect("JSON");
    config["passwd"] = json!({"users": [{"name": "core", "gecos": "x".repeat(16 << 10)}]});
    place.write(WORKER, config.to_string());
    let said = place.certs(&["check"]).done().text();
    let bytes = place.pointer().len();
    let warning = format!("{WORKER}: the user data has {bytes} bytes: EC2 accepts 16384");
    let is_warning = |line: &str| line.starts_with("warning: ") && line.ends_with(&warning);
    assert!(said.lines().any(is_warning), "{said}");

    let server = place.serve_anyhow(None, &[]);
    wait_until_reported(&server, "user data too large for EC2, or not updated: 1");
    wait_until_logged(&server, &warning);
    assert_eq!(
        (attention(&server, "user-data"), attention(&server, "refused")),
        ("1".into(), "0".into())
    );
    boot(&place.text("user-data/edge.ign"), &server);
    // A rotation makes it larger, and says so.
    let said = place.certs(&["rotate", "--ca"]).done().text();
    assert!(said.contains("EC2 accepts 16384"), "{said}");
    place.assert_boots(&place.pointer());
}

#[test]
fn user_data_that_no_platform_takes_is_named_with_the_bound() {
    let place = Place::made(None);
    let mut config: Value = serde_json::from_str(&place.pointer()).expect("JSON");
    config["passwd"] = json!({"users": [{"name": "core", "gecos": "x".repeat(1 << 20)}]});
    place.write(WORKER, config.to_string());
    let reported = "worker.ign cannot boot a machine: has more than 1048576 bytes, which no \
        platform accepts as user data";
    place.certs(&["check"]).refused(&[reported]);
    let server = place.serve_anyhow(None, &[]);
    wait_until_logged(&server, reported);
    boot(&place.text("user-data/edge.ign"), &server);
}

#[test]
fn names_past_the_bound_are_refused_and_those_before_stay() {
    let names = |round: u32| (0..240).map(move |name| format!("host-{round}-{name}.example.com"));
    let flags = |round: u32| -> Vec<String> {
        names(round).flat_map(|name| ["--host".to_owned(), name]).collect()
    };
    let serve = |place: &Place, round: u32| {
        let flags = flags(round);
        place.serve(None, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let place = Place::made(None);
    drop(serve(&place, 1));
    drop(serve(&place, 2));
    let before = place.chain();
    let count = before[0].hosts.len();
    assert!(count >= 480, "{count}");
    let server = serve(&place, 3);
    wait_until_reported(&server, "refused: 1");
    wait_until_logged(&server, &format!("with {} names the certificate takes", count + 240));
    assert_eq!(attention(&server, "refused"), "1");
    assert_eq!(place.chain(), before);
    boot(&place.pointer(), &server);
    drop(server);
    // No pointer config has any of the new names.
    place.certs(&["check"]).done();
    std::fs::remove_file(place.file("tls.key")).expect("a file");
    let server = serve(&place, 3);
    assert!(place.chain()[0].hosts.len() < count);
    boot(&place.pointer(), &server);
    place.certs(&["check"]).done();
}
