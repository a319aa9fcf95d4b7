//! Uses of a machine's token by several servers, with and without the API server.

use std::thread;

use serde_json::{Value, json};

use super::*;
use crate::support::http::{ACCEPT, IGNITION, loopback};
use crate::support::proxy::{Proxy, Way};
use crate::support::server::free_ports;

const SHORT: [&str; 2] = ["--machine-token-window", "4s"];

/// Waits until the servers refuse a token.
fn refused(site: &ControlledCluster, servers: &[&Server], credential: &str) {
    for server in servers {
        wait_until("the token to be refused", || site.ask(server, credential, 1).status == 401);
    }
}

/// A machine whose token the servers know.
fn armed(site: &ControlledCluster, name: &str, servers: &[&Server]) -> String {
    site.make_machine(name, &spec(&format!("/etc/of-{name}")));
    let credential = site.machine_credential(name);
    for server in servers {
        knows(server, name, "armed");
    }
    credential
}

fn is_shared(server: &Server) -> bool {
    server.metric("mcs_machine_tokens_shared") > 0.5
}

#[test]
fn a_token_is_spent_on_all_servers_and_armed_again_on_all() {
    let (site, _controller) = ControlledCluster::with_machines();
    let servers = [(); 2].map(|()| site.serve(&SHORT));
    let [one, two] = &servers;
    let credential = armed(&site, "rack-7", &[one, two]);
    assert_eq!(site.ask(one, &credential, 1).status, 200);
    refused(&site, &[two, one], &credential);
    wait_until("the record", || {
        let status = site.machine("rack-7")["status"].clone();
        status["use"]["spent"] == true && status["state"] == "Spent"
    });
    let refusal = two.metrics().get("/api/v1/machines/127.0.0.1").json();
    assert!(refusal.to_string().contains("token spent, until"), "{refusal}");
    // Nothing opens it by itself: a server that starts now knows too.
    let three = site.serve(&SHORT);
    knows(&three, "rack-7", "spent");
    assert_eq!(site.ask(&three, &credential, 1).status, 401);

    site.rearm_machine("rack-7", "again");
    for server in &servers {
        knows(server, "rack-7", "armed");
    }
    assert_eq!(site.machine_credential("rack-7"), credential);
    assert_eq!(site.ask(two, &credential, 1).status, 200);
    refused(&site, &[one, two], &credential);
}

#[test]
fn an_answer_of_a_server_that_was_killed_counts_as_taken() {
    let (site, _controller) = ControlledCluster::with_machines();
    let first = site.serve(&SHORT);
    let credential = armed(&site, "rack-7", &[&first]);
    assert_eq!(site.ask(&first, &credential, 1).status, 200);
    // Without a chance to tell.
    drop(first);
    let second = site.serve(&SHORT);
    refused(&site, &[&second], &credential);
    assert_eq!(second.named_machine("rack-7")["token"], "spent");
    let machine = site.machine("rack-7");
    assert_eq!(machine["status"]["use"]["addresses"], json!(["127.0.0.1"]));
}

#[test]
fn servers_that_are_asked_at_once_record_every_address_and_one_of_them_reports() {
    let (site, _controller) = ControlledCluster::with_machines();
    let servers = [(); 2].map(|()| site.serve(&[]));
    let credential = armed(&site, "rack-7", &[&servers[0], &servers[1]]);
    // The other server learns of a use while it runs.
    assert_eq!(site.ask(&servers[0], &credential, 1).status, 200);
    knows(&servers[1], "rack-7", "open");
    thread::scope(|scope| {
        for (server, last) in servers.iter().flat_map(|it| [(it, 1), (it, 2), (it, 3)]) {
            let (site, credential) = (&site, &credential);
            scope.spawn(move || assert_eq!(site.ask(server, credential, last).status, 200));
        }
    });
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let recorded = || site.machine("rack-7")["status"]["use"]["addresses"] == json!(addresses);
    // Before the answers, unless the API server was too slow for one.
    let is_late = servers.iter().any(|server| server.log().contains("cannot record uses"));
    assert!(recorded() || is_late);
    wait_until("all addresses", recorded);
    for server in &servers {
        wait_until("the copy to be told", || is_shared(server));
    }
    wait_until("the event", || site.cluster.events().contains("TokenUsedElsewhere"));
    let described = site.cluster.kubectl(&["describe", "fbm", "rack-7", "--namespace", NAMESPACE]);
    assert!(described.contains("its token is used from another address"), "{described}");
    let logs = servers.each_ref().map(Server::log).concat();
    assert!(logs.contains("the token of a machine is used from another address"), "{logs}");
    // Arming it again ends the report.
    site.rearm_machine("rack-7", "x");
    for server in &servers {
        wait_until("the end of it", || !is_shared(server));
    }
}

#[test]
fn without_the_api_server_an_unspent_token_opens_and_a_double_use_is_reported_later() {
    let (mut site, _controller) = ControlledCluster::with_machines();
    let servers = [(); 2].map(|()| site.serve(&SHORT));
    let [one, two] = &servers;
    let spent = armed(&site, "spent", &[one, two]);
    let unspent = armed(&site, "unspent", &[one, two]);
    assert_eq!(site.ask(one, &spent, 1).status, 200);
    refused(&site, &[one], &spent);
    knows(two, "spent", "spent");
    let bundle = site.bundle();
    site.cluster.kill_api_server();
    let ask = |server: &Server, credential: &str, last| {
        let client = Client::tls(server.secure(), bundle.as_bytes());
        let headers = [IGNITION, ACCEPT, ("Authorization", credential)];
        client.from(loopback(last)).request("GET", "/config/worker", &headers).status
    };
    assert_eq!([ask(one, &spent, 1), ask(two, &spent, 1)], [401, 401]);
    assert_eq!([ask(one, &unspent, 1), ask(two, &unspent, 2)], [200, 200]);
    assert_eq!([one, two].map(is_shared), [false; 2], "nobody can know");
    wait_until("the end of the window", || ask(one, &unspent, 1) == 401);

    site.cluster.start_api_server();
    for server in &servers {
        wait_until("the copy to be told", || is_shared(server));
        wait_until("the token to be refused", || ask(server, &unspent, 1) == 401);
    }
    wait_until("the event", || site.cluster.events().contains("TokenUsedElsewhere"));
    wait_until("the record", || {
        let recorded = site.machine("unspent")["status"]["use"].clone();
        recorded["addresses"] == json!(["127.0.0.1", "127.0.0.2"])
    });
}

#[test]
fn a_server_alone_without_the_api_server_reports_what_it_served_after_the_token_was_spent() {
    let (site, _controller) = ControlledCluster::with_machines();
    let proxy = Proxy::to(site.cluster.address());
    let away = site.serve_through(proxy.address(), &SHORT).until_ready();
    let server = site.serve(&SHORT);
    let credential = armed(&site, "rack-7", &[&server, &away]);
    proxy.set(Way::Cut);
    assert_eq!(site.ask(&server, &credential, 1).status, 200);
    refused(&site, &[&server], &credential);
    // It has not seen that.
    assert_eq!(site.ask(&away, &credential, 1).status, 200);
    proxy.set(Way::Open);
    refused(&site, &[&away], &credential);
    wait_until("the event", || site.cluster.events().contains("TokenUsedAgain"));
    wait_until("the line of the log", || away.log().contains("was used after it was spent"));
}

#[test]
fn a_server_that_starts_without_the_api_server_knows_tokens_and_their_uses_from_its_cache() {
    let (site, _controller) = ControlledCluster::with_machines();
    let cache = site.directory.path().join("cache");
    let flags = [&SHORT[..], &["--cache-dir", cache.to_str().expect("text")]].concat();
    let server = site.serve(&flags);
    let (used, fresh) = (armed(&site, "used", &[&server]), armed(&site, "fresh", &[&server]));
    assert_eq!(site.ask(&server, &used, 1).status, 200);
    wait_for("the cache", || {
        let text = fs::read_to_string(cache.join("objects.json")).ok()?;
        let objects: Value = serde_json::from_str(&text).ok()?;
        let machines = objects["firstbootmachines"].as_array()?;
        let is_used = |it: &Value| it["status"]["use"].is_object();
        assert!(!text.contains("mcs-"), "{text}");
        (machines.len() == 2 && machines.iter().any(is_used)).then_some(())
    });
    drop(server);
    let [nowhere] = free_ports();
    let server = site.serve_through(nowhere, &flags);
    wait_asking("an answer by the token", || {
        let answer = site.ask(&server, &fresh, 1);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status == 200 && text.contains("/etc/of-fresh")).then_some(())
    });
    refused(&site, &[&server], &used);
}

#[test]
fn a_use_that_a_killed_server_could_not_record_is_known_to_the_next_one_and_recorded_by_it() {
    let (site, _controller) = ControlledCluster::with_machines();
    let cache = site.directory.path().join("cache");
    let flags = [&SHORT[..], &["--cache-dir", cache.to_str().expect("text")]].concat();
    let proxy = Proxy::to(site.cluster.address());
    let server = site.serve_through(proxy.address(), &flags).until_ready();
    let credential = armed(&site, "rack-7", &[&server]);
    wait_for("the cache", || {
        let text = fs::read_to_string(cache.join("objects.json")).ok()?;
        text.contains("tokenSHA256").then_some(())
    });
    proxy.set(Way::Cut);
    assert_eq!(site.ask(&server, &credential, 1).status, 200);
    refused(&site, &[&server], &credential);
    drop(server);
    let uses = fs::read_to_string(cache.join("machine-uses.json")).expect("the uses");
    assert!(uses.contains("127.0.0.1") && !uses.contains("mcs-"), "{uses}");
    assert!(site.machine("rack-7")["status"]["use"].is_null());

    let server = site.serve_through(proxy.address(), &flags);
    wait_asking("a decision by the cache", || {
        let status = site.ask(&server, &credential, 1).status;
        assert_ne!(status, 200, "the token is spent");
        (status == 401).then_some(())
    });
    proxy.set(Way::Open);
    wait_until("the record", || {
        let recorded = site.machine("rack-7")["status"]["use"].clone();
        recorded["addresses"] == json!(["127.0.0.1"])
    });
    wait_for("the uses to be removed from the cache", || {
        let uses = fs::read_to_string(cache.join("machine-uses.json")).ok()?;
        (!uses.contains("rack-7")).then_some(())
    });
    refused(&site, &[&server], &credential);
}

/// As it is when the controller is slow to arm it.
#[test]
fn an_approval_before_the_token_is_armed_is_for_this_arming_and_ends_when_the_object_changes() {
    let (site, controller) = ControlledCluster::with_machines();
    let server = site.serve(&[]);
    let mut restricted = spec("/etc/of-rack-7");
    restricted["approval"] = json!("required");
    site.make_machine("rack-7", &restricted);
    let credential = site.machine_credential("rack-7");
    let waits = |why: &str| {
        wait_until(why, || {
            let answer = site.ask(&server, &credential, 1);
            let code = answer.header("machine-config-server-refusal");
            code == Some("approval-pending")
        });
    };
    let approve = || {
        site.cluster.run(&["machines", "approve", "rack-7"]).done();
        let is_served = || site.ask(&server, &credential, 1).status == 200;
        wait_until("the config", is_served);
    };
    waits("the machine to be held");
    approve();
    drop(controller);
    site.rearm_machine("rack-7", "again");
    waits("the approval to end when the token is armed again");
    approve();
    site.patch_machine("rack-7", &json!({"spec": {"addresses": ["127.0.0.1"]}}));
    waits("the approval to end when the object changes before it is armed");
    let _controller = site.start(&[FLAG]);
    approve();
}
