//! A machine's token: what it opens, for how long, and what arms or revokes it.

use std::fs::{self, File};
use std::io::{Read, Write as _};

use serde_json::{Value, json};

use super::{MachinesDirectory, get_known, refusal};
use crate::last_good::{all_is_stored, is_stored};
use crate::memory::pool_of_twenty;
use crate::support::access::{assert_refused, get};
use crate::support::command::Store as _;
use crate::support::http::{Client, IGNITION, loopback};
use crate::support::machine::Machine;
use crate::support::manifests::{first_boot_machine, machine_config, pool, replace, with_files};
use crate::support::server::Server;
use crate::support::{wait_asking, wait_for, wait_until};

const WINDOW: [&str; 2] = ["--machine-token-window", "2s"];

/// Asks until the machine's token is spent.
fn until_spent(client: &Client, credential: &str) {
    wait_for("the token to be spent", || {
        let response = get(client, "worker", Some(credential));
        (response.status == 401).then(|| assert_refused(&response))
    });
}

#[test]
fn a_machine_boots_by_its_own_pointer_config_once_and_again_when_it_is_armed() {
    let site = MachinesDirectory::new();
    site.put_machine("rack-7", &json!({"pool": "worker"}));
    let server = site.serve(&WINDOW);
    let pointer = site.pointer("rack-7");
    assert_eq!(server.named_machine("rack-7")["token"], "armed");
    let simulated = Machine::new();
    simulated.boot(&pointer);
    let on_disk = fs::read_to_string(simulated.root().join("etc/pool")).expect("a file");
    assert_eq!(on_disk, "worker");
    let credential = site.credential("rack-7");
    until_spent(&site.tls(&server), &credential);
    let reason = "token spent, until `machines rearm` arms it again";
    assert_eq!(refusal(&server, 1), json!({"status": 401, "reason": reason}));
    assert_eq!(server.named_machine("rack-7")["token"], "spent");
    let page = server.page("/");
    assert!(page.contains("Machines with names") && page.contains("spent"), "{page}");
    // Others have the pool's own.
    let of_pool = fs::read_to_string(site.state().join("user-data/worker.ign"));
    let of_pool = of_pool.expect("a pointer config");
    Machine::new().boot(&of_pool);
    let line = site.machines(&["rearm", "rack-7"]).done().output;
    assert!(line.starts_with("rack-7: "), "{line}");
    wait_until("the token to be armed", || {
        get(&site.tls(&server), "worker", Some(&credential)).status == 200
    });
    until_spent(&site.tls(&server), &credential);
    let mut object = first_boot_machine("rack-7", &json!({"pool": "worker"}));
    object["metadata"]["annotations"] = json!({"machine-config-server.io/rearm": "again"});
    site.put("rack-7", &object);
    wait_until("the token to be armed", || {
        get(&site.tls(&server), "worker", Some(&credential)).status == 200
    });
    assert!(!server.log().contains("mcs-"), "{}", server.log());
}

#[test]
fn a_pointer_config_that_is_removed_is_made_again_with_its_token_and_without_another_change() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    fs::remove_file(site.pointer_path("n")).expect("a file");
    wait_until("the pointer config", || site.pointer_path("n").exists());
    assert_eq!(site.credential("n"), credential);
    drop(server);
}

#[test]
fn a_machines_token_opens_its_pool_alone_in_every_mode_and_from_its_networks() {
    for mode in ["off", "audit", "enforce"] {
        let site = MachinesDirectory::new();
        site.put_machine("n", &json!({"pool": "worker", "addresses": ["127.0.0.8/29"]}));
        let server = site.serve(&["--access", mode]);
        let credential = site.credential("n");
        let (tls, plain) = (site.tls(&server).from(loopback(9)), server.plain().from(loopback(9)));
        assert_eq!(get_known(&tls, "worker", &credential).status, 200, "{mode}");
        assert_refused(&get(&tls, "infra", Some(&credential)));
        assert_refused(&get(&plain, "worker", Some(&credential)));
        assert_refused(&get(&site.tls(&server).from(loopback(16)), "worker", Some(&credential)));
        let head = tls.request("HEAD", "/config/worker", &[("Authorization", &*credential)]);
        assert_eq!(head.status, 200);
        let counted =
            server.metric("mcs_access_total{pool=\"worker\",mode=\"enforce\",verdict=\"machine\"}");
        assert!(counted >= 2.0, "{counted}");
    }
}

#[test]
fn a_machine_that_is_removed_is_refused_and_one_that_comes_back_gets_another_token() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    site.put_machine("stays", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let (first, stays) = (site.credential("n"), site.credential("stays"));
    assert_eq!(get_known(&site.tls(&server), "worker", &first).status, 200);
    site.remove("n");
    wait_until("the token to be revoked", || {
        get(&site.tls(&server), "worker", Some(&first)).status == 401
    });
    assert_eq!(refusal(&server, 1)["reason"], "token revoked");
    wait_until("its pointer config to be deleted", || !site.pointer_path("n").exists());
    server.stop();
    let server = site.serve(&[]);
    assert_refused(&get(&site.tls(&server), "worker", Some(&first)));
    site.put_machine("n", &json!({"pool": "infra"}));
    let second = site.credential("n");
    assert_ne!(second, first);
    assert_eq!(get_known(&site.tls(&server), "infra", &second).status, 200);
    assert_refused(&get(&site.tls(&server), "worker", Some(&first)));
    // A pool that changes is another token too, because the pointer config names the pool.
    site.put_machine("n", &json!({"pool": "worker"}));
    let third = wait_for("another token", || {
        let third = site.credential("n");
        (third != second).then_some(third)
    });
    assert_eq!(get_known(&site.tls(&server), "worker", &third).status, 200);
    // The new token is accepted first.
    wait_until("the former token to be refused", || {
        get(&site.tls(&server), "infra", Some(&second)).status == 401
    });
    assert_eq!(get(&site.tls(&server), "worker", Some(&stays)).status, 200);
}

#[test]
fn machines_whose_object_no_server_remembers_are_not_revoked() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    let remembered = site.state().join("last-good");
    is_stored(&site.state());
    server.stop();
    site.remove("n");
    fs::remove_dir_all(remembered).expect("a folder");
    let server = site.serve(&[]);
    assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 503);
    let degraded = server.page("/readyz");
    assert!(degraded.contains("possibly in the wrong directory"), "{degraded}");
    server.stop();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    assert_eq!(site.credential("n"), credential);
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
}

/// Judged by a part of what is known, each would get something else.
#[test]
fn a_server_that_is_restarted_answers_as_before_it_while_it_has_not_read_all() {
    let site = MachinesDirectory::new();
    // They take longer to be read than the first answers take.
    for number in 0..100 {
        let pool = format!("pool-{number}");
        replace(&site.manifests(), &format!("{pool}.json"), pool_of_twenty(&pool));
    }
    let mut held = pool("infra", "00-infra");
    held["metadata"]["annotations"] = json!({"machine-config-server.io/approval": "required"});
    site.put("pool-infra", &held);
    for machine in ["armed", "spent"] {
        site.put_machine(machine, &json!({"pool": "worker"}));
    }
    let server = site.serve(&WINDOW);
    let [armed, spent] = ["armed", "spent"].map(|machine| site.credential(machine));
    assert_eq!(get_known(&site.tls(&server), "worker", &spent).status, 200);
    until_spent(&site.tls(&server), &spent);
    all_is_stored(&site.state());
    server.stop();
    let server = Server::prepared_unread(site.command(&WINDOW));
    let client = site.tls(&server);
    // Where all is read too slowly, a machine gets 503 first.
    wait_until("an answer", || get(&client, "worker", None).status == 200);
    assert_eq!(get(&client, "infra", None).status, 503, "{}", server.log());
    assert_refused(&get_known(&client, "worker", &spent));
    assert_eq!(get_known(&client, "worker", &armed).status, 200, "{}", server.log());
    assert_eq!(["armed", "spent"].map(|machine| site.credential(machine)), [armed, spent]);
}

/// A machine `n` whose answer takes more than one read.
fn put_large(site: &MachinesDirectory) {
    let contents = "x".repeat(3 << 20);
    let large = with_files(&[("/etc/large", &contents)]);
    site.put("config-worker", &machine_config("00-worker", &large));
    site.put_machine("n", &json!({"pool": "worker"}));
}

/// The answer to a machine, of which only the beginning is read.
fn begun(site: &MachinesDirectory, server: &Server, credential: &str) -> impl Read + use<> {
    let authorization = ("Authorization", credential);
    wait_until("the token to be known", || {
        let head = site.tls(server).request("HEAD", "/config/worker", &[authorization]);
        head.status == 200
    });
    let mut stream = site.tls(server).connect().expect("a connection");
    let request = format!(
        "GET /config/worker HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: {credential}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut first = [0; 64];
    stream.read_exact(&mut first).expect("the beginning of an answer");
    assert!(first.starts_with(b"HTTP/1.1 200 "));
    stream
}

#[test]
fn an_answer_that_ends_while_its_machine_is_stored_starts_the_window() {
    let site = MachinesDirectory::new();
    put_large(&site);
    let server = site.serve(&["--compact", "off"]);
    let credential = site.credential("n");
    // An answer that shares its text with another one is handed to the connection piece by piece.
    wait_until("another answer of the pool", || {
        let accept = ("Accept", "application/vnd.coreos.ignition+json;version=3.4.0");
        let head = [("Authorization", &*credential), accept];
        let head = site.tls(&server).request("HEAD", "/config/worker", &head);
        head.status == 200
    });
    // The first use after a start has the server look at the tokens of pools too, under the same lock.
    for (network, elsewhere) in [("127.0.0.1", 401), ("127.0.0.0/8", 200), ("127.0.0.1", 401)] {
        let mut answer = begun(&site, &server, &credential);
        let lock = File::open(site.state().join(".lock")).expect("the lock");
        lock.lock().expect("a lock");
        site.put_machine("n", &json!({"pool": "worker", "addresses": [network]}));
        wait_for("the server to wait for the lock", || {
            let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
            let mut files = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            files.find(|path| path.ends_with(".lock"))
        });
        let taken = || Some(server.named_machine("n")["taken"].clone()).filter(Value::is_string);
        assert_eq!(taken(), None, "the answer is not at its end");
        answer.read_to_end(&mut Vec::new()).expect("the rest of the answer");
        let before = wait_for("the answer to be taken", taken);
        drop(lock);
        // HEAD is no use of a token.
        let head = [("Authorization", &*credential)];
        wait_until("the change to be served", || {
            let client = site.tls(&server).from(loopback(9));
            let response = client.request("HEAD", "/config/worker", &head);
            response.status == elsewhere
        });
        assert_eq!(taken(), Some(before), "{network}");
        site.machines(&["rearm", "n"]).done();
        wait_until("the token to be armed", || server.named_machine("n")["token"] == "armed");
    }
}

/// The first part of an answer is read, and then the server is killed.
#[test]
fn a_server_that_is_killed_while_it_answers_leaves_no_token_open() {
    let site = MachinesDirectory::new();
    put_large(&site);
    let server = site.serve(&["--machine-token-window", "1s", "--compact", "off"]);
    let credential = site.credential("n");
    let _answer = begun(&site, &server, &credential);
    // Dropping it kills it.
    drop(server);
    let usage = site.record("n")["usage"].clone();
    assert!(usage["begun"].is_string() && usage["taken"].is_null(), "{usage}");
    let server = site.serve(&["--machine-token-window", "1s"]);
    until_spent(&site.tls(&server), &credential);
    drop(server);
    assert_eq!(site.record("n")["usage"]["is_spent"], true);
    // The pool is not enforced, and a machine's token counts all the same.
    let pointer = site.pointer_path("n");
    let pointer = pointer.to_str().expect("a path in UTF-8");
    site.state().run(&["certs", "check", "--pointer", pointer]).refused(&["token expired"]);
    let server = site.serve(&["--machine-token-window", "365d"]);
    assert_refused(&get(&site.tls(&server), "worker", Some(&credential)));
}

#[test]
fn an_answer_that_is_not_read_to_its_end_does_not_start_the_window() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&["--machine-token-window", "1s"]);
    let credential = site.credential("n");
    for _ in 0..3 {
        let head = [IGNITION, ("Authorization", &*credential)];
        wait_until("the token to be known", || {
            site.tls(&server).request("HEAD", "/config/worker", &head).status == 200
        });
    }
    assert_eq!(server.named_machine("n")["token"], "armed");
    assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 200);
    let state = server.named_machine("n");
    assert!(state["taken"].is_string() || state["token"] == "spent", "{state}");
}

#[test]
fn a_token_that_is_used_from_two_addresses_is_reported_at_once() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    assert_eq!(get_known(&site.tls(&server).from(loopback(2)), "worker", &credential).status, 200);
    let shared = |server: &Server| server.metric("mcs_machine_tokens_shared");
    assert!(shared(&server) < 0.5);
    assert_eq!(get(&site.tls(&server).from(loopback(3)), "worker", Some(&credential)).status, 200);
    let is_shared = |server: &Server| {
        assert!((shared(server) - 1.0).abs() < 0.1);
        let machine = server.named_machine("n");
        assert_eq!(machine["addresses"], json!(["127.0.0.2", "127.0.0.3"]));
        let degraded = server.page("/readyz");
        assert!(degraded.contains("machine n: used from 127.0.0.2, 127.0.0.3"), "{degraded}");
        let page = server.page("/");
        assert!(page.contains("<span class=\"bad\">shared</span>"), "{page}");
    };
    is_shared(&server);
    let line = wait_for("a line in the log", || {
        server.log().lines().find(|it| it.contains("from another address")).map(str::to_owned)
    });
    assert!(line.contains("127.0.0.3") && line.contains("fix="), "{line}");
    drop(server);
    let server = site.serve(&[]);
    is_shared(&server);
    site.machines(&["rearm", "n"]).done();
    wait_until("the token to be armed", || shared(&server) < 0.5);
    assert_eq!(server.named_machine("n")["addresses"], json!([]));
}

#[test]
fn a_use_that_cannot_be_stored_is_no_answer() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    let machines = site.state().join("machines");
    wait_until("the token to be known", || {
        let head = [("Authorization", &*credential)];
        site.tls(&server).request("HEAD", "/config/worker", &head).status == 200
    });
    // A folder where the file should be: root can write everywhere else.
    fs::rename(machines.join("n.json"), machines.join("n.kept")).expect("a rename");
    fs::create_dir(machines.join("n.json")).expect("a folder");
    let response = get(&site.tls(&server), "worker", Some(&credential));
    assert_eq!((response.status, response.header("retry-after")), (503, Some("5")));
    assert_eq!(response.header("machine-config-server-refusal"), Some("access-undecided"));
    assert_eq!(refusal(&server, 1)["reason"], "use of the token cannot be stored");
    fs::remove_dir(machines.join("n.json")).expect("a folder");
    fs::rename(machines.join("n.kept"), machines.join("n.json")).expect("a rename");
    assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 200);
    let usage: Value = site.record("n")["usage"].clone();
    assert!(usage["begun"].is_string(), "{usage}");
}

#[test]
fn the_old_token_of_a_machine_whose_pool_changes_does_not_use_up_the_new_one() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&["--access", "enforce"]);
    let tls = site.tls(&server);
    let mut old = site.credential("n");
    for round in 0..20 {
        let pools = if round % 2 == 0 { ["worker", "infra"] } else { ["infra", "worker"] };
        site.put_machine("n", &json!({"pool": pools[1]}));
        // Requests with the old token are on their way at every moment until it is refused.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    wait_asking("the old token to be refused", || {
                        (get(&tls, pools[0], Some(&old)).status == 401).then_some(())
                    });
                });
            }
        });
        let new = wait_for("another token", || Some(site.credential("n")).filter(|it| *it != old));
        assert_eq!(site.record("n")["usage"], json!({}), "round {round}");
        assert_eq!(get_known(&tls, pools[1], &new).status, 200, "round {round}");
        old = new;
    }
}

#[test]
fn a_record_that_is_repaired_by_hand_is_read_without_a_restart() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&["--access", "enforce"]);
    let credential = site.credential("n");
    drop(server);
    let record = site.state().join("machines/n.json");
    let good = fs::read(&record).expect("a record");
    fs::write(&record, &good[..good.len() / 2]).expect("half a record");
    let server = site.serve(&["--access", "enforce"]);
    server.reported("machines/n.json");
    let tls = site.tls(&server);
    assert_eq!(get(&tls, "worker", Some(&credential)).status, 503);
    fs::write(&record, &good).expect("the record");
    assert_eq!(get_known(&tls, "worker", &credential).status, 200);
    wait_until("no fault", || !server.page("/readyz").contains("machines/n.json"));
}
