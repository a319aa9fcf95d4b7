//! Machines that wait until an administrator approves them.

use std::fs;
use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use super::{MachinesDirectory, get_known, refusal};
use crate::machine_sites::{APPROVED, now};
use crate::support::access::{assert_refused, credential_in, get};
use crate::support::clock::{follow_clock, set_clock};
use crate::support::command::{Said, Store};
use crate::support::http::{Client, IGNITION, Response, connect_from, loopback};
use crate::support::machine::Machine;
use crate::support::manifests::{first_boot_machine, pool};
use crate::support::server::{Server, serving};
use crate::support::{wait_for, wait_until};

const APPROVAL: &str = "machine-config-server.io/approval";

/// Writes a pool with annotations.
fn put_pool(site: &MachinesDirectory, name: &str, annotations: &Value) {
    let mut object = pool(name, &format!("00-{name}"));
    object["metadata"]["annotations"] = annotations.clone();
    site.put(&format!("pool-{name}"), &object);
}

fn assert_held(response: &Response) {
    assert_eq!((response.status, response.header("retry-after")), (503, Some("5")));
    assert_eq!(response.header("machine-config-server-refusal"), Some("approval-pending"));
}

fn until_held(client: &Client, pool: &str) {
    wait_for("the machine to be held", || {
        let response = get(client, pool, None);
        (response.status == 503).then(|| assert_held(&response))
    });
}

fn until_served(client: &Client, pool: &str) {
    wait_until("the config", || get(client, pool, None).status == 200);
}

/// A list of the server's overview.
fn list(server: &Server, name: &str) -> Vec<Value> {
    let overview = server.overview();
    overview[name].as_array().expect("a list").clone()
}

/// `machines approve` by a server that answers in time: a busy machine's may not.
fn approve(site: &MachinesDirectory, server: &Server, arguments: &[&str]) -> Said {
    let from = server.metrics().address().to_string();
    let mut all = vec!["approve", "--from", &from];
    all.extend(arguments);
    wait_for("an answer in time", || {
        Some(site.machines(&all)).filter(|said| !said.error.contains("no answer in time"))
    })
}

#[test]
fn a_machine_waits_until_it_is_approved_and_then_boots_without_being_touched() {
    let site = MachinesDirectory::new();
    put_pool(&site, "worker", &json!({APPROVAL: "required"}));
    let server = site.serve(&["--access", "enforce"]);
    let pointer = fs::read_to_string(site.state().join("user-data/worker.ign")).expect("a file");
    let machine = Machine::new();
    let mut stage = machine.start("fetch", &pointer);
    wait_until("the machine to be held", || stage.log().contains("Service Unavailable"));
    assert_eq!(refusal(&server, 1)["status"], 503);
    let [waiting] = &list(&server, "waiting_machines")[..] else { panic!("one waits") };
    assert_eq!(
        (&waiting["address"], &waiting["pool"], &waiting["ignition"], &waiting["name"]),
        (&json!("127.0.0.1"), &json!("worker"), &json!("2.14.0"), &Value::Null)
    );
    assert!(waiting["token"].as_str().is_some_and(|it| !it.contains("mcs-")), "{waiting}");
    let line = approve(&site, &server, &["127.0.0.1"]).done().output;
    assert!(line.starts_with("127.0.0.1 of pool worker: approved"), "{line}");
    assert!(stage.ended().success(), "{}", stage.log());
    let mut files = machine.start("files", &pointer);
    assert!(files.ended().success(), "{}", files.log());
    let on_disk = fs::read_to_string(machine.root().join("etc/pool")).expect("a file");
    assert_eq!(on_disk, "worker");
    assert!(list(&server, "waiting_machines").is_empty());
    let [approved] = &list(&server, "approved_machines")[..] else { panic!("one is approved") };
    assert_eq!((&approved["address"], &approved["pool"]), (&json!("127.0.0.1"), &json!("worker")));
    assert!(!server.log().contains("mcs-"), "{}", server.log());
}

#[test]
fn an_approval_is_for_one_address_and_one_pool_on_both_ports_and_for_every_method() {
    let site = MachinesDirectory::new();
    for pool in ["worker", "infra"] {
        put_pool(&site, pool, &json!({APPROVAL: "required"}));
    }
    let server = site.serve(&[]);
    let [one, other] = [2, 3].map(|last| server.plain().from(loopback(last)));
    for client in [&one, &other] {
        assert_held(&get(client, "worker", None));
        let head = client.request("HEAD", "/config/worker", &[IGNITION]);
        assert_held(&head);
    }
    assert_held(&get(&site.tls(&server).from(loopback(4)), "worker", None));
    assert_eq!(list(&server, "waiting_machines").len(), 3);
    let metric = |name: &str| server.metric(&format!("{name}{{pool=\"worker\"}}"));
    assert!((metric("mcs_approval_waiting_machines") - 3.0).abs() < 0.1);
    approve(&site, &server, &["::ffff:127.0.0.2"]).done();
    until_served(&one, "worker");
    assert_eq!(get(&site.tls(&server).from(loopback(2)), "worker", None).status, 200);
    assert_eq!(one.request("HEAD", "/config/worker", &[IGNITION]).status, 200);
    assert_held(&get(&other, "worker", None));
    assert_held(&get(&one, "infra", None));
    approve(&site, &server, &["127.0.0.3", "--pool", "infra"]).done();
    until_served(&other, "infra");
    assert_held(&get(&other, "worker", None));
    assert_held(&get(&server.plain().from(loopback(5)), "worker", None));
    let table = server.run(&["machines"]).output;
    for part in ["WAITS FOR APPROVAL", "127.0.0.5", "2.14.0", "APPROVED", "UNTIL"] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let page = server.page("/");
    assert!(page.contains("Waiting for approval") && page.contains("127.0.0.5"), "{page}");
}

#[test]
fn access_is_checked_first_and_refused_machines_do_not_wait_for_approval() {
    for mode in ["enforce", "audit"] {
        let site = MachinesDirectory::new();
        put_pool(&site, "worker", &json!({APPROVAL: "required"}));
        let server = site.serve(&["--access", mode]);
        let pointer = fs::read(site.state().join("user-data/worker.ign")).expect("a file");
        let credential = credential_in(&pointer).expect("a credential");
        let answer = get(&site.tls(&server).from(loopback(2)), "worker", None);
        let known = get_known_held(&site.tls(&server).from(loopback(3)), &credential);
        assert_held(&known);
        let waiting = list(&server, "waiting_machines");
        if mode == "enforce" {
            assert_refused(&answer);
            assert_eq!(waiting.len(), 1, "{waiting:?}");
        } else {
            assert_held(&answer);
            assert_eq!((waiting.len(), &waiting[1]["token"]), (2, &Value::Null), "{waiting:?}");
        }
        assert_eq!(waiting[0]["address"], "127.0.0.3", "those with a token are first");
        approve(&site, &server, &["127.0.0.3"]).done();
        wait_until("the config", || {
            let client = site.tls(&server).from(loopback(3));
            get(&client, "worker", Some(&credential)).status == 200
        });
        // An approval replaces no token.
        approve(&site, &server, &["127.0.0.2", "--pool", "worker"]).done();
        wait_until("the approval", || list(&server, "approved_machines").len() == 2);
        let status = get(&site.tls(&server).from(loopback(2)), "worker", None).status;
        assert_eq!(status, if mode == "enforce" { 401 } else { 200 });
    }
}

/// The answer once the server knows the token, which its machine needs approval for.
fn get_known_held(client: &Client, credential: &str) -> Response {
    wait_for("the token to be known", || {
        let response = get(client, "worker", Some(credential));
        let code = response.header("machine-config-server-refusal");
        (code != Some("token-unknown")).then_some(response)
    })
}

#[test]
fn a_machine_with_a_name_is_approved_by_its_name_alone() {
    let site = MachinesDirectory::new();
    for name in ["one", "other"] {
        site.put_machine(name, &json!({"pool": "worker", "approval": "required"}));
    }
    site.put_machine("free", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let [one, other] = ["one", "other"].map(|name| site.credential(name));
    assert_eq!(get_known(&site.tls(&server), "worker", &site.credential("free")).status, 200);
    let tls = site.tls(&server).from(loopback(7));
    assert_held(&get_known_held(&tls, &one));
    assert_held(&get_known_held(&tls, &other));
    // Approval of the address, which others of the pool do not need.
    approve(&site, &server, &["127.0.0.7", "--pool", "worker"]).done();
    wait_until("the approval", || list(&server, "approved_machines").len() == 1);
    assert_held(&get(&tls, "worker", Some(&one)));
    approve(&site, &server, &["127.0.0.7"]).refused(&["several machines wait at 127.0.0.7"]);
    approve(&site, &server, &["one"]).done();
    wait_until("the config", || get(&tls, "worker", Some(&one)).status == 200);
    assert_held(&get(&tls, "worker", Some(&other)));
    let waiting = list(&server, "waiting_machines");
    assert_eq!((waiting.len(), &waiting[0]["name"]), (1, &json!("other")));
    // The last one at the address is known by it.
    approve(&site, &server, &["127.0.0.7"]).done();
    wait_until("the config", || get(&tls, "worker", Some(&other)).status == 200);
    for (arguments, reason) in [
        (&["nobody"][..], "machine nobody not found"),
        (&["one", "--pool", "worker"], "--pool is for an address, and one is a name"),
        (&["127.0.0.9"], "no machine waits at 127.0.0.9"),
        (&["127.0.0.9", "--pool", "nothing"], "pool nothing not found"),
    ] {
        approve(&site, &server, arguments).refused(&[reason]);
    }
}

#[test]
fn annotations_approve_and_take_it_back_and_what_is_not_understood_is_named() {
    let site = MachinesDirectory::new();
    put_pool(&site, "worker", &json!({APPROVAL: "requierd"}));
    site.put_machine("n", &json!({"pool": "infra", "approval": "required"}));
    let server = site.serve(&[]);
    let [one, other] = [2, 3].map(|last| server.plain().from(loopback(last)));
    assert_held(&get(&one, "worker", None));
    let told = server.page("/readyz");
    assert!(told.contains("machine-config-server.io/approval: \"requierd\""), "{told}");
    let key = |address: &str| format!("approved.machine-config-server.io/{address}");
    put_pool(
        &site,
        "worker",
        &json!({APPROVAL: "required", key("127.0.0.2"): now(), key("127.0.0.3"): "yes"}),
    );
    until_served(&one, "worker");
    assert_held(&get(&other, "worker", None));
    server.reported("approved.machine-config-server.io/127.0.0.3");
    // What was approved too long ago, or by a clock that is far ahead, is not.
    for time in ["2026-01-01T00:00:00Z", "9999-01-01T00:00:00Z"] {
        put_pool(&site, "worker", &json!({APPROVAL: "required", key("127.0.0.3"): time}));
        until_held(&one, "worker");
        assert_held(&get(&other, "worker", None));
    }
    put_pool(&site, "worker", &json!({}));
    until_served(&other, "worker");

    let credential = site.credential("n");
    let tls = site.tls(&server);
    wait_until("the machine to be held", || {
        let response = get(&tls, "infra", Some(&credential));
        let code = response.header("machine-config-server-refusal").map(str::to_owned);
        code.as_deref() == Some("approval-pending")
    });
    let mut object = first_boot_machine("n", &json!({"pool": "infra", "approval": "required"}));
    object["metadata"]["annotations"] = json!({APPROVED: now()});
    site.put("n", &object);
    wait_until("the config", || get(&tls, "infra", Some(&credential)).status == 200);
}

/// A server whose clock is set.
fn serve_at(site: &MachinesDirectory, clock: &str, flags: &[&str]) -> Server {
    let mut command = serving(&site.manifests(), &site.state());
    command.args(flags);
    set_clock(&mut command, clock);
    Server::prepared(command).until_ready()
}

#[test]
fn an_approval_outlasts_a_restart_and_no_clock_opens_it_again() {
    let site = MachinesDirectory::new();
    let key = "approved.machine-config-server.io/127.0.0.3";
    put_pool(&site, "worker", &json!({APPROVAL: "required", key: now()}));
    let server = site.serve(&[]);
    let clients = |server: &Server| [2, 3].map(|last| server.plain().from(loopback(last)));
    let [one, other] = clients(&server);
    until_served(&other, "worker");
    approve(&site, &server, &["127.0.0.2", "--pool", "worker"]).done();
    until_served(&one, "worker");
    // Killed, not stopped.
    drop(server);
    let server = site.serve(&[]);
    for client in clients(&server) {
        assert_eq!(get(&client, "worker", None).status, 200);
    }
    server.stop();
    // An hour later both have ended, and after that the clock is right again, or behind.
    for clock in ["+2h", "+0s", "-30s"] {
        let server = serve_at(&site, clock, &[]);
        for client in clients(&server) {
            assert_held(&get(&client, "worker", None));
        }
        assert!(!site.state().join("approvals/worker=127.0.0.2").exists());
        server.stop();
    }
    let server = site.serve(&[]);
    approve(&site, &server, &["127.0.0.3", "--pool", "worker"]).done();
    until_served(&server.plain().from(loopback(3)), "worker");
}

#[test]
fn a_clock_that_is_set_while_the_server_runs_changes_no_window() {
    let site = MachinesDirectory::new();
    put_pool(&site, "worker", &json!({APPROVAL: "required"}));
    let clock = site.directory.path().join("clock");
    let approved = |window: &str| {
        fs::write(&clock, "+0s").expect("a file");
        let mut command = serving(&site.manifests(), &site.state());
        command.args(["--machine-token-window", window]);
        follow_clock(&mut command, &clock);
        let server = Server::prepared(command).until_ready();
        approve(&site, &server, &["127.0.0.1", "--pool", "worker"]).done();
        until_served(&server.plain(), "worker");
        server
    };
    let server = approved("20s");
    fs::write(&clock, "-1d").expect("a file");
    until_held(&server.plain(), "worker");
    drop(server);
    let server = approved("1h");
    fs::write(&clock, "+1d").expect("a file");
    // Approvals are looked at again once something changes.
    site.put("pool-edge", &pool("edge", "00-worker"));
    until_served(&server.plain(), "edge");
    assert_eq!(get(&server.plain(), "worker", None).status, 200);
}

/// The first line of the answer to a client that the balancer at 127.0.0.8 names.
fn through(server: &Server, client: &str) -> String {
    let mut stream = connect_from([127, 0, 0, 8].into(), server.insecure()).expect("a socket");
    let text = format!(
        "PROXY TCP4 {client} 127.0.0.1 8080 22624\r\nGET /config/worker HTTP/1.1\r\n\
         Host: localhost\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).expect("a request");
    let mut answer = String::new();
    // The config may be cut off by the end of the connection.
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn more_clients_without_a_token_than_are_listed_push_out_no_machine_with_a_token() {
    let site = MachinesDirectory::new();
    put_pool(&site, "worker", &json!({APPROVAL: "required"}));
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&["--access", "off", "--proxy-from", "127.0.0.8"]);
    let tls = site.tls(&server).from(loopback(7));
    let credential = site.credential("n");
    assert_held(&get_known_held(&tls, &credential));
    std::thread::scope(|scope| {
        for part in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for number in 0..2_600 {
                    let client = format!("10.{part}.{}.{}", number / 250, number % 250);
                    assert!(through(server, &client).contains(" 503 "), "{client}");
                }
            });
        }
    });
    let waiting = list(&server, "waiting_machines");
    assert_eq!((waiting.len(), &waiting[0]["name"]), (10_000, &json!("n")));
    assert!((server.metric("mcs_approval_machines_forgotten_total") - 401.0).abs() < 0.1);
    approve(&site, &server, &["n"]).done();
    wait_until("the config", || get(&tls, "worker", Some(&credential)).status == 200);
    assert!(through(&server, "10.0.0.1").contains(" 503 "));
}

#[test]
fn the_address_that_a_balancer_names_is_approved() {
    let site = MachinesDirectory::new();
    put_pool(&site, "worker", &json!({APPROVAL: "required"}));
    let server = site.serve(&["--proxy-from", "127.0.0.8"]);
    let through = |client: &str| through(&server, client);
    assert!(through("192.0.2.9").contains(" 503 "));
    let [waiting] = &list(&server, "waiting_machines")[..] else { panic!("one waits") };
    assert_eq!((&waiting["address"], &waiting["ignition"]), (&json!("192.0.2.9"), &Value::Null));
    approve(&site, &server, &["192.0.2.9"]).done();
    wait_until("the config", || through("192.0.2.9").contains(" 200 "));
    assert!(through("192.0.2.10").contains(" 503 "));
}

#[test]
fn an_end_that_cannot_be_read_or_stored_approves_nothing_again() {
    let site = MachinesDirectory::new();
    let key = "approved.machine-config-server.io/127.0.0.1";
    put_pool(&site, "worker", &json!({APPROVAL: "required", key: now()}));
    fs::create_dir(site.state()).expect("a folder");
    let path = site.state().join("approvals.json");
    fs::write(&path, "{").expect("a file");
    let server = site.serve(&[]);
    assert_held(&get(&server.plain(), "worker", None));
    let told = server.page("/readyz");
    assert!(told.contains("approvals.json: "), "{told}");
    // A new grant counts, and the file is left as it is.
    approve(&site, &server, &["127.0.0.1", "--pool", "worker"]).done();
    until_served(&server.plain(), "worker");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "{");
    fs::write(site.state().join("approvals/worker=127.0.0.5"), "yes").expect("a file");
    server.reported("worker=127.0.0.5: expected the time");
}

/// Waits until the machine of a credential is held for its approval.
fn until_pending(client: &Client, pool: &str, credential: &str) {
    wait_until("the machine to be held", || {
        let response = get(client, pool, Some(credential));
        let code = response.header("machine-config-server-refusal");
        code == Some("approval-pending")
    });
}

/// Waits until the machine of a credential gets its config.
fn is_served(client: &Client, pool: &str, credential: &str) {
    wait_until("the config", || get(client, pool, Some(credential)).status == 200);
}

#[test]
fn an_approval_right_after_a_command_that_arms_the_token_is_for_this_arming() {
    let site = MachinesDirectory::new();
    site.put_machine("rack-7", &json!({"pool": "worker", "approval": "required"}));
    let server = site.serve(&["--access", "enforce"]);
    let credential = site.credential("rack-7");
    for _ in 0..10 {
        site.machines(&["rearm", "rack-7"]).done();
        approve(&site, &server, &["rack-7"]).done();
        let asked = fs::read_to_string(site.state().join("machines/arm/rack-7")).expect("a file");
        wait_until("the token to be armed", || {
            site.record("rack-7")["armed"]["command"] == asked.trim()
        });
        is_served(&site.tls(&server), "worker", &credential);
    }
}

/// A site with machines that need approval.
fn with_held_machines() -> MachinesDirectory {
    let site = MachinesDirectory::new();
    for name in ["rack-7", "rack-8", "rack-9"] {
        site.put_machine(name, &json!({"pool": "worker", "approval": "required"}));
    }
    site
}

#[test]
fn an_approval_whose_file_is_emptied_for_a_moment_counts_again() {
    let site = with_held_machines();
    let server = site.serve(&["--access", "enforce"]);
    let credential = site.credential("rack-7");
    until_pending(&site.tls(&server), "worker", &credential);
    site.machines(&["approve", "rack-7"]).done();
    is_served(&site.tls(&server), "worker", &credential);
    let file = site.state().join("approvals/rack-7");
    let approval = fs::read(&file).expect("the approval");
    fs::write(&file, "").expect("a write");
    until_pending(&site.tls(&server), "worker", &credential);
    fs::write(&file, approval).expect("a write");
    is_served(&site.tls(&server), "worker", &credential);
}

#[test]
fn an_approval_while_no_server_runs_is_for_the_object_that_the_last_one_has_seen() {
    let site = with_held_machines();
    let server = site.serve(&["--access", "enforce"]);
    let [changed, same] = ["rack-7", "rack-8"].map(|name| site.credential(name));
    until_pending(&site.tls(&server), "worker", &changed);
    server.stop();
    for name in ["rack-7", "rack-8"] {
        site.machines(&["approve", name]).done();
    }
    let addresses = json!(["127.0.0.0/8"]);
    let narrowed = json!({"pool": "worker", "approval": "required", "addresses": addresses});
    site.put_machine("rack-7", &narrowed);
    let server = site.serve(&["--access", "enforce"]);
    is_served(&site.tls(&server), "worker", &same);
    until_pending(&site.tls(&server), "worker", &changed);
    approve(&site, &server, &["rack-7"]).done();
    is_served(&site.tls(&server), "worker", &changed);
}
