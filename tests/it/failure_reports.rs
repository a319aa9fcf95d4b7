//! Machines whose first boot failed can say so, and nobody else can say much.

use std::io::{Read as _, Write as _};

use serde_json::json;

use crate::support::command::Store;
use crate::support::http::{Client, Response, loopback};
use crate::support::server::Server;
use crate::support::{in_repository, wait_for};

const PATH: &str = "/v1/node-failure";

fn post(client: &Client, headers: &str, body: &str) -> Response {
    let length = body.len();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    client.exchange(request.as_bytes()).expect("an answer")
}

fn report(stage: &str) -> String {
    json!({
        "pool": "worker", "nodeID": "rack-7", "stage": stage, "imageURL": "quay.example.com/os:1",
        "errorMessage": "no route to host\u{1b}[31m",
    })
    .to_string()
}

fn fetch(server: &Server, last: u8) {
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(
        server.plain().from(loopback(last)).request("GET", "/config/worker", &agent).status,
        200
    );
}

#[test]
fn a_machine_that_got_its_config_is_heard_and_shown_with_its_own_words() {
    let server = Server::sample_cluster(&["--failure-reports", "on"]);
    fetch(&server, 7);
    let accepted = post(&server.plain().from(loopback(7)), "", &report("pull"));
    assert_eq!((accepted.status, accepted.body.len()), (202, 0));

    let machine = server.metrics().get("/api/v1/machines/127.0.0.7").json();
    assert_eq!(
        (&machine["standing"], &machine["failure"]["stage"]),
        (&json!("stuck"), &json!("pull"))
    );
    let why = machine["why"].as_str().expect("text");
    assert!(
        why.starts_with("reports that its first boot failed at stage \"pull\": no route"),
        "{why}"
    );
    // All that name the fault say what the machine needs: here a new boot.
    assert_eq!(machine["recovery"], "restart");
    let fix = machine["fix"].as_str().expect("text");
    assert!(fix.starts_with("remove the cause") && fix.ends_with("then boot the machine again"));
    let listed = server.run(&["machines", "--json"]).json();
    assert_eq!([&listed[0]["recovery"], &listed[0]["fix"]], [&machine["recovery"], &json!(fix)]);
    let page = server.metrics().get("/machines/127.0.0.7").text();
    assert!(page.contains(&format!("To fix it: {fix}. Runbook: ")), "{page}");
    assert!(page.contains("image quay.example.com/os:1: no route to host"), "{page}");
    let printed = server.run(&["machines"]).output;
    assert!(printed.contains("reports that its first boot failed") && !printed.contains('\u{1b}'));
    let metrics = server.metrics().get("/metrics").text();
    assert!(
        metrics.contains("mcs_node_failures_total{pool=\"worker\",stage=\"pull\"} 1"),
        "{metrics}"
    );
    wait_for("the line", || {
        let log = server.log();
        let line =
            log.lines().find(|it| it.contains("a machine reports that its first boot failed"))?;
        assert!(line.contains("; then boot the machine again\""), "{line}");
        Some(())
    });
    // What it asks for next is newer.
    fetch(&server, 7);
    let machine = server.metrics().get("/api/v1/machines/127.0.0.7").json();
    assert_eq!(machine["failure"]["times"], 1);
}

#[test]
fn others_are_refused_and_a_flood_ends() {
    let server = Server::sample_cluster(&["--failure-reports", "on"]);
    let answer = post(&server.plain().from(loopback(8)), "", &report("pull"));
    assert_eq!((answer.status, answer.header("www-authenticate").is_some()), (401, true));
    let forged =
        post(&server.plain().from(loopback(9)), "Authorization: Bearer mcs-x\r\n", &report("pull"));
    assert_eq!(forged.status, 401);
    assert_eq!(server.plain().from(loopback(8)).request("GET", PATH, &[]).status, 405);

    for (last, body, status) in [
        (10, "{}".to_owned(), 400),
        (11, "x".repeat(17 << 10), 413),
        (12, report(&"s".repeat(100)), 202),
        (15, report("pull").replace("\"worker\"", "\"wroker\""), 404),
    ] {
        fetch(&server, last);
        assert_eq!(post(&server.plain().from(loopback(last)), "", &body).status, status, "{last}");
    }
    let metrics = server.metrics().get("/metrics").text();
    assert!(metrics.contains("stage=\"<other>\"} 1"), "{metrics}");
    fetch(&server, 13);
    let statuses: Vec<_> = (0..20)
        .map(|_| post(&server.plain().from(loopback(13)), "", &report("pull")).status)
        .collect();
    assert_eq!(statuses[..3], [202; 3]);
    assert!(statuses[3..].contains(&429), "{statuses:?}");
    // A report that never ends holds up no boot.
    fetch(&server, 14);
    let mut silent = server.plain().from(loopback(14)).connect().expect("a connection");
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{");
    silent.write_all(head.as_bytes()).expect("a connection");
    fetch(&server, 14);
    let mut answer = [0; 12];
    silent.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(!server.metrics().get("/api/v1/machines").json().to_string().contains("127.0.0.8"));
}

#[test]
fn a_token_of_an_enforced_pool_is_enough_and_without_the_flag_there_is_no_such_path() {
    let fixtures = in_repository("ignition-fixtures");
    let flags = ["--failure-reports", "on", "--access", "enforce"];
    let server = Server::serve(&fixtures, &flags);
    let pointer = std::fs::read_to_string(server.state().join("user-data/worker.ign"));
    let pointer: serde_json::Value =
        serde_json::from_str(&pointer.expect("a pointer config")).expect("JSON");
    let headers = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"];
    let token = headers
        .as_array()
        .into_iter()
        .flatten()
        .find(|header| header["name"] == "Authorization")
        .and_then(|header| header["value"].as_str())
        .expect("a token");
    let authorization = format!("Authorization: {token}\r\n");
    assert_eq!(post(&server.tls(), &authorization, &report("pull")).status, 202);
    // Without TLS, a token proves nothing.
    assert_eq!(
        post(&server.plain().from(loopback(9)), &authorization, &report("pull")).status,
        401
    );

    let server = Server::serve(&fixtures, &[]);
    assert_eq!(post(&server.tls(), "", &report("pull")).status, 404);
}
