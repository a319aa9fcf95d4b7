//! `tokens`: named ones, rotations, and one that leaked.

use std::fs;

use crate::support::access::{credential, enforcing, get};
use crate::support::command::{Said, Store};
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

/// Runs `tokens` on the folder where a server keeps its state.
fn tokens(server: &Server, arguments: &[&str]) -> Said {
    server.state().run(&[&["tokens"], arguments].concat())
}

/// A token with a name opens its pools at every server until it is revoked. `status` asks for a pool's config at each.
pub(crate) fn a_named_token_opens_its_pools_until_it_is_revoked(
    store: &(impl Store + ?Sized),
    pools: [&str; 2],
    status: impl Fn(&str, &str) -> Vec<u16>,
) {
    let tokens = |arguments: &[&str]| store.run(&[&["tokens"], arguments].concat());
    let both = pools.join(",");
    let added = ["add", "rack-7", "--pool", &both, "--until", "30d"];
    let token = tokens(&added).done().output;
    let bearer = format!("Bearer {}", token.trim());
    let all = |pool: &str, expected: u16| status(pool, &bearer).iter().all(|it| *it == expected);
    for pool in pools {
        wait_until("the servers to know it", || all(pool, 200));
    }
    assert!(all("master", 401), "{:?}", status("master", &bearer));
    let list = tokens(&["list"]).done().output;
    let line = list.lines().find(|line| line.contains("rack-7")).expect("a line");
    let mut sorted = pools;
    sorted.sort_unstable();
    assert!(line.contains(&sorted.join(",")) && line.ends_with("valid"), "{line}");
    assert!(!list.contains(token.trim()) && list.contains("(pointer configs)"), "{list}");

    tokens(&added).refused(&["rack-7: a token has this name already"]);
    tokens(&["revoke", "rack-7"]).done();
    wait_until("it to be refused", || all(pools[0], 401));
    tokens(&["revoke", "rack-7"]).refused(&[]);
    assert!(tokens(&["list"]).done().output.contains("revoked"));
}

#[test]
fn a_token_with_a_name_opens_its_pools_until_it_is_revoked() {
    let server = enforcing(&[]);
    credential(&server, "worker");
    a_named_token_opens_its_pools_until_it_is_revoked(
        server.state().as_path(),
        ["worker", "edge"],
        |pool, bearer| vec![get(&server.tls(), pool, Some(bearer)).status],
    );
}

#[test]
fn a_rotation_replaces_tokens_and_those_before_go_on_for_a_while() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let clock = directory.path().join("clock");
    fs::write(&clock, "+0s").expect("a file");
    let server = Server::with_clock(&clock, &["--access", "enforce", "--token-overlap", "1h"]);
    let before = credential(&server, "worker");
    tokens(&server, &["rotate", "--pool", "worker"]).done();
    let after = wait_for("another token", || {
        let now = credential(&server, "worker");
        (now != before).then_some(now)
    });
    let status = |credential: &str| get(&server.tls(), "worker", Some(credential)).status;
    assert_eq!([status(&before), status(&after)], [200, 200]);
    fs::write(&clock, "+2h").expect("a file");
    wait_until("the one before to end", || status(&before) == 401);
    assert_eq!(status(&after), 200);
    let log = server.log();
    let metric = "mcs_access_total{pool=\"worker\",mode=\"enforce\",verdict=\"expired\"}";
    assert!(server.metric(metric) >= 1.0, "{log}");
    let other = tokens(&server, &["rotate", "--pool", "nowhere"]);
    other.refused(&["pool nowhere: its pointer configs have no tokens"]);
}

#[test]
fn a_token_that_leaked_is_replaced_at_once() {
    let server = enforcing(&[]);
    let leaked = credential(&server, "worker");
    let list = tokens(&server, &["list"]).done().output;
    let line = list.lines().find(|line| line.contains("worker")).expect("a line");
    let id = line.split_whitespace().next().expect("an id");
    tokens(&server, &["revoke", id]).done();
    wait_until("another token", || credential(&server, "worker") != leaked);
    let refused = || (get(&server.tls(), "worker", Some(&leaked)).status == 401).then_some(());
    wait_for("it to be refused", refused);
    let now = credential(&server, "worker");
    assert_eq!(get(&server.tls(), "worker", Some(&now)).status, 200);
}
