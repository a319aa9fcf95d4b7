//! Tokens on a cluster: what the controller writes, what servers make of it, and what is left alone.

mod lost_lists;

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{ControlledCluster, Controller, pointer, secrets, server_at, user_data, value};
use crate::access::tokens::a_named_token_opens_its_pools_until_it_is_revoked;
use crate::support::access::{ACCESS, credential_in, get, unknown};
use crate::support::cluster::NAMESPACE;
use crate::support::command::Store;
use crate::support::http::Client;
use crate::support::machine::Machine;
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::server::{Server, free_ports};
use crate::support::{wait_asking, wait_for, wait_until};

fn tokens() -> String {
    format!("{}/machine-config-server-tokens", secrets(NAMESPACE))
}

fn hashes() -> String {
    format!("{}/machine-config-server-access", secrets(NAMESPACE))
}

impl ControlledCluster {
    /// What the user data carries, once it carries something.
    fn credential(&self, name: &str) -> String {
        wait_for("a token in the user data", || credential_in(&self.user_data(name)))
    }

    fn known(&self) -> Value {
        serde_json::from_slice(&value(&self.object(&hashes()), "access.json")).expect("JSON")
    }

    fn status(&self, server: &Server, pool: &str, credential: Option<&str>) -> u16 {
        let client = Client::tls(server.secure(), self.bundle().as_bytes());
        get(&client, pool, credential).status
    }

    fn enforced(&self, server: &Server) {
        wait_until("the pool to be enforced", || self.status(server, "worker", None) == 401);
    }

    fn run_tokens(&self, arguments: &[&str]) -> String {
        self.cluster.run(&[&["tokens"], arguments].concat()).done().output
    }
}

/// A cluster with a controller that enforces tokens.
struct Enforcing {
    controller: Controller,
    site: ControlledCluster,
    /// What the pool's pointer config carries.
    credential: String,
    /// Where servers may keep what they have read.
    cache: PathBuf,
}

impl Enforcing {
    fn start() -> Self {
        let site = ControlledCluster::new();
        let controller = site.start(&["--access", "enforce"]);
        site.settled();
        let credential = site.credential("worker-user-data-managed");
        let cache = site.directory.path().join("cache");
        Self { controller, site, credential, cache }
    }
}

/// A server that enforces tokens, and has in `cache` what the next one needs.
fn server_with(site: &ControlledCluster, cache: &Path, flags: &[&str]) -> Server {
    let (server, _) = server_at(site, site.cluster.address(), flags);
    let server = server.until_ready();
    site.enforced(&server);
    for (file, part) in [("access.json", r#""enforced":["worker"]"#), ("objects.json", "worker")] {
        wait_for(file, || fs::read_to_string(cache.join(file)).ok()?.contains(part).then_some(()));
    }
    server
}

#[test]
fn machines_boot_by_tokens_from_two_servers_while_they_are_replaced() {
    let site = ControlledCluster::new();
    for pool in ["edge", "master"] {
        site.pool(pool);
    }
    let _controller = site.start(&["--access", "enforce", "--token-overlap", "1h"]);
    site.settled();
    let first = site.credential("worker-user-data-managed");
    let servers = [(); 2].map(|()| {
        let flags = ["--access", "enforce"];
        server_at(&site, site.cluster.address(), &flags).0.until_ready()
    });
    for server in &servers {
        site.enforced(server);
        assert_eq!(site.status(server, "worker", Some(&first)), 200);
        assert_eq!(site.status(server, "nowhere", Some(&first)), 503);
        assert_eq!(site.status(server, "worker", Some(&unknown())), 503);
        let plain = server.plain().request("GET", "/config/worker", &[("Authorization", &first)]);
        assert_eq!(plain.status, 401);
    }
    let machine = Machine::new();
    machine.boot(&pointer(&site, &servers[0]));

    // Of tokens, servers get hashes.
    let known = site.known().to_string();
    assert!(!known.contains("mcs-") && known.contains("sha256"), "{known}");
    assert_eq!(site.object(&tokens())["type"], "Opaque");

    let mut embedded = first;
    for _ in 0..5 {
        site.run_tokens(&["rotate"]);
        let next = wait_asking("another token", || {
            // What a machine was given a moment ago opens its config all the time.
            for server in &servers {
                let status = site.status(server, "worker", Some(&embedded));
                assert!(matches!(status, 200 | 503), "{status}");
            }
            let now = site.credential("worker-user-data-managed");
            (now != embedded).then_some(now)
        });
        for server in &servers {
            wait_asking("the new one to be known", || {
                let status = site.status(server, "worker", Some(&next));
                assert!(matches!(status, 200 | 503), "{status}");
                (status == 200).then_some(())
            });
            assert_eq!(site.status(server, "worker", Some(&embedded)), 200);
        }
        embedded = next;
    }
    a_named_token_opens_its_pools_until_it_is_revoked(
        &site.cluster,
        ["worker", "edge"],
        |pool, bearer| {
            let status = |server| site.status(server, pool, Some(bearer));
            servers.iter().map(status).collect()
        },
    );
    let list = site.run_tokens(&["list"]);
    assert!(list.contains("pool worker: all its pointer configs have tokens"), "{list}");
}

#[test]
fn what_unauthenticated_clients_can_read_and_what_has_no_effect_is_reported_by_the_check_of_a_cluster()
 {
    let site = ControlledCluster::new();
    let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n";
    let source = format!("data:;base64,{}", BASE64.encode(key));
    let files = json!([{"path": "/etc/key.pem", "contents": {"source": source}}]);
    let mut config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    config["systemd"] = json!({"unit": []});
    site.cluster.patch(&format!("{CONFIGS}/rendered"), &json!({"spec": {"config": config}}));
    let _controller = site.start(&["--access", "enforce"]);
    let reported = || site.certs(&["check"]).output;
    site.credential("worker-user-data-managed");
    wait_until("the pool to be enforced", || site.known()["enforced"] == json!(["worker"]));
    assert!(!reported().contains("/etc/key.pem"), "{}", reported());
    let ignored = "warning: MachineConfig rendered: systemd.unit: unknown field, ignored\n";
    assert!(reported().contains(ignored), "{}", reported());
    let open = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &open);
    let line = "pool worker: unauthenticated clients can read /etc/key.pem (private key)";
    wait_until("it to be told", || reported().contains(line));
}

#[test]
fn the_log_has_one_line_for_the_first_tokens_of_many_pools() {
    let site = ControlledCluster::new();
    let pools: Vec<_> = (0..12).map(|number| format!("pool-{number}")).collect();
    for pool in &pools {
        site.pool(pool);
    }
    let controller = site.start(&["--access", "audit"]);
    for pool in &pools {
        site.credential(&format!("{pool}-user-data-managed"));
    }
    let lines = |message: &str| {
        let log = controller.log();
        log.lines().filter(|line| line.contains(message)).map(str::to_owned).collect::<Vec<_>>()
    };
    let made = wait_for("the tokens", || Some(lines("made tokens")).filter(|it| !it.is_empty()));
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(made[0].contains(" more") && made[0].contains("the pools had no token"), "{made:?}");
    let wrote = lines("wrote new tokens into user data");
    assert!(wrote.len() < 4, "{wrote:?}");
}

#[test]
fn where_access_is_off_the_controller_writes_nothing_for_it() {
    let site = ControlledCluster::new();
    let _controller = site.start(&[]);
    site.settled();
    let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
    assert!(!text.contains("httpHeaders"), "{text}");
    // A pool may say so itself.
    let annotated = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    assert_eq!((site.cluster.get(&tokens()), site.cluster.get(&hashes())), (None, None));
    site.cluster.patch(&format!("{POOLS}/worker"), &annotated);
    site.credential("worker-user-data-managed");
    assert!(site.known()["enforced"].as_array().expect("a list").is_empty());
}

#[test]
fn what_openshifts_operator_renders_is_left_to_it_and_reported() {
    let site = ControlledCluster::new();
    let mut controller = site.start(&[]);
    site.settled();
    let name = "worker-user-data-managed";
    let rendered = format!("{}\n", String::from_utf8(site.user_data(name)).expect("text"));
    controller.terminate();
    let change = json!({"data": {"userData": BASE64.encode(&rendered)}});
    site.cluster
        .patch(&format!("{}?fieldManager=machine-config-operator", user_data(name)), &change);

    let controller = site.start(&["--access", "enforce"]);
    let reported = wait_for("it to be told", || {
        let (_, lines) = controller.readiness();
        lines.lines().find(|line| line.contains("machine-config-operator")).map(str::to_owned)
    });
    for part in ["pool worker: not set to be enforced: ", name, "custom user data"] {
        assert!(reported.contains(part), "{reported}");
    }
    assert_eq!(site.user_data(name), rendered.as_bytes());
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    wait_until("the reason on the server", || server.degraded().contains(name));
    assert_eq!(site.status(&server, "worker", None), 200, "it is audited");

    // The way out: user data of one's own, and word that no machine is made from the other.
    site.make_user_data("rack-user-data", rendered.as_bytes());
    let unused = json!({"metadata": {"annotations": {ACCESS: "off"}}});
    site.cluster.patch(&user_data(name), &unused);
    site.enforced(&server);
    let credential = site.credential("rack-user-data");
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
    assert_eq!(value(&site.object(&user_data("rack-user-data")), "other"), b"stays");
    assert_eq!(site.user_data(name), rendered.as_bytes());
}

#[test]
fn a_server_that_starts_without_the_api_server_knows_the_tokens_from_its_cache() {
    let Enforcing { site, controller: _controller, credential, cache } = Enforcing::start();
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    server_with(&site, &cache, &flags).stop();
    let [nowhere] = free_ports();
    let (server, _) = server_at(&site, nowhere, &flags);
    wait_asking("an answer by the token", || {
        assert!(site.status(&server, "worker", None) >= 400);
        (site.status(&server, "worker", Some(&credential)) == 200).then_some(())
    });
    assert_eq!(site.status(&server, "worker", None), 401);
    // Without what was kept, nobody is let in, and nobody is refused for good.
    fs::remove_file(cache.join("access.json")).expect("a file");
    let (server, _) = server_at(&site, nowhere, &flags);
    let status = |credential| site.status(&server, "worker", credential);
    assert_eq!([status(None), status(Some(&credential))], [503, 503]);
}

/// Unauthenticated clients ask again and again, while something else is waited for.
fn assert_closed(site: &ControlledCluster, server: &Server, pool: &str) {
    let status = site.status(server, pool, None);
    assert!(matches!(status, 401 | 503), "an unauthenticated client got {status}");
}

#[test]
fn a_pool_that_appears_is_never_served_to_unauthenticated_clients() {
    let site = ControlledCluster::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    site.enforced(&server);
    // With the controller, which makes its user data and has that carry a token.
    site.pool("infra");
    wait_asking("the pool to be enforced", || {
        assert_closed(&site, &server, "infra");
        let is_enforced = site.known()["enforced"] == json!(["infra", "worker"]);
        let user_data = site.cluster.get(&user_data("infra-user-data-managed"))?;
        let is_embedded = String::from_utf8_lossy(&value(&user_data, "userData")).contains("mcs-");
        (is_enforced && is_embedded).then_some(())
    });
    let credential = site.credential("infra-user-data-managed");
    wait_asking("its machines to be served", || {
        assert_closed(&site, &server, "infra");
        (site.status(&server, "infra", Some(&credential)) == 200).then_some(())
    });
    // And without it.
    controller.terminate();
    site.pool("edge");
    wait_asking("the reason", || {
        assert_closed(&site, &server, "edge");
        server
            .degraded()
            .contains("pool edge: it is unknown whether its pointer configs")
            .then_some(())
    });
    assert_eq!(site.status(&server, "edge", None), 503);
}
