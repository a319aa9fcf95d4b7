//! Machines with an old Ignition are reported or held, and a pool can be closed on the port without TLS alone.

use std::path::Path;

use serde_json::json;

use crate::support::command::Store;
use crate::support::http::{Client, Response, loopback};
use crate::support::machine::Machine;
use crate::support::manifests::{machine_config_of, replace, selecting_pool, with_files};
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

const MIN: &str = "machine-config-server.io/min-ignition-version";
const PLAIN_PORT: &str = "machine-config-server.io/plain-port";

/// Writes a pool of one MachineConfig, with annotations.
fn write(directory: &Path, annotations: &[(&str, &str)]) {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let mut pool = selecting_pool("worker");
    pool["metadata"]["annotations"] = annotations.into();
    let config = machine_config_of("worker", "50-motd", &with_files(&[("/etc/motd", "hello")]));
    replace(directory, "pool.json", pool);
    replace(directory, "config.json", config);
}

fn ask(client: &Client, agent: &str) -> Response {
    client.request("GET", "/config/worker", &[("User-Agent", agent)])
}

fn until(status: u16, client: &Client, agent: &str) -> Response {
    wait_for(&format!("{status} for {agent}"), || {
        Some(ask(client, agent)).filter(|it| it.status == status)
    })
}

#[test]
fn an_old_ignition_is_held_until_the_rule_changes_and_everyone_sees_it() {
    let manifests = tempfile::tempdir().expect("a temporary folder");
    write(manifests.path(), &[(MIN, "3.0.0:hold")]);
    let server = Server::serve(manifests.path(), &["--min-ignition-version", "2.0.0"]);
    let (tls, old) = (server.tls(), "Ignition/2.14.0");
    let held = ask(&tls, old);
    assert_eq!((held.status, held.header("retry-after")), (503, Some("5")));
    assert_eq!(held.header("machine-config-server-refusal"), Some("ignition-too-old"));
    let body = String::from_utf8_lossy(&held.body).into_owned();
    assert_eq!(body, "the Ignition of this machine is older than its pool accepts\n");
    for fine in ["Ignition/3.0.0", "curl/8.5.0"] {
        assert_eq!(ask(&tls, fine).status, 200, "{fine}");
    }
    // The real one waits, and boots when the rule is gone.
    let machine = Machine::new();
    let pointer = server.pointer("worker");
    let mut stage = machine.start("fetch", &pointer);
    wait_until("the machine to be held", || stage.log().contains("Service Unavailable"));
    write(manifests.path(), &[(MIN, "3.0.0")]);
    assert!(stage.ended().success(), "{}", stage.log());

    until(200, &tls, old);
    let metrics = server.page("/metrics");
    for line in [
        "mcs_old_ignition_requests_total{pool=\"worker\",action=\"held\"}",
        "mcs_old_ignition_requests_total{pool=\"worker\",action=\"warned\"}",
        "mcs_oldest_ignition{pool=\"worker\",version=\"2.14.0\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let overview = server.overview();
    let pool = &overview["pools"][0];
    assert_eq!(
        (&pool["oldest_ignition"], &pool["min_ignition"]),
        (&json!("2.14.0"), &json!("3.0.0:warn"))
    );
    let degraded = overview["degraded"].to_string();
    assert!(
        degraded.contains("pool worker: 1 machine came with Ignition older than 3.0.0"),
        "{degraded}"
    );
    let page = server.page("/pools/worker");
    assert!(page.contains("2.14.0, wanted 3.0.0:warn"), "{page}");
    let printed = server.run(&["machines"]).output;
    assert!(
        printed.contains("pool worker: oldest Ignition 2.14.0, older than 3.0.0:warn: 1"),
        "{printed}"
    );
}

#[test]
fn a_pool_is_closed_on_the_port_without_tls_and_its_page_shows_the_machines_that_used_it() {
    let manifests = tempfile::tempdir().expect("a temporary folder");
    write(manifests.path(), &[]);
    let server = Server::serve(manifests.path(), &[]);
    let plain = server.plain().from(loopback(9));
    assert_eq!(ask(&plain, "Ignition/2.14.0").status, 200);
    let pool = server.overview()["pools"][0].clone();
    assert_eq!((&pool["without_tls"], &pool["is_plain_port_closed"]), (&json!(1), &json!(false)));
    let list = server.metrics().get("/?pool=worker&text=without+TLS");
    assert!(String::from_utf8_lossy(&list.body).contains("127.0.0.9"));

    write(manifests.path(), &[(PLAIN_PORT, "closed"), (MIN, "2.x")]);
    let refused = until(503, &plain, "Ignition/2.14.0");
    assert_eq!(refused.header("machine-config-server-refusal"), Some("plain-port-closed"));
    assert_eq!(ask(&server.plain(), "curl/8.5.0").status, 503);
    assert_eq!(ask(&server.tls(), "Ignition/2.14.0").status, 200);
    // A typo is reported, and changes no rule.
    let degraded = server.degraded();
    assert!(
        degraded.contains("pool worker: machine-config-server.io/min-ignition-version"),
        "{degraded}"
    );
}
