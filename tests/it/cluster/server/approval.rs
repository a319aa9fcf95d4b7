//! Approval by an annotation of the pool, which all servers follow.

use serde_json::json;

use super::Site;
use crate::support::rendered::POOLS;
use crate::support::server::{Server, binary};
use crate::support::wait_for;

fn status(server: &Server, last: u8) -> u16 {
    let client = server.plain().from([127, 0, 0, last].into());
    client.request("GET", "/config/worker", &[("User-Agent", "Ignition/2.14.0")]).status
}

fn until(wanted: u16, server: &Server, last: u8) {
    wait_for("the answer", || (status(server, last) == wanted).then_some(()));
}

#[test]
fn a_yes_counts_at_all_servers_for_one_machine_until_it_ends() {
    let site = Site::with_worker();
    let pool = format!("{POOLS}/worker");
    let annotate = |key: &str, value: &str| {
        site.cluster.patch(&pool, &json!({"metadata": {"annotations": {key: value}}}));
    };
    annotate("machine-config-server.io/approval", "required");
    let other = site.start(&[]).until_ready();
    let peers = other.metrics().address().to_string();
    let server = site.start(&["--peers", &peers]).until_ready();
    for (server, last) in [(&server, 2), (&other, 2), (&other, 3)] {
        assert_eq!(status(server, last), 503);
    }
    let waiting = wait_for("who waits at both", || {
        let overview = server.metrics().get("/api/v1/overview").json();
        let list = overview["waiting_machines"].as_array().expect("a list").clone();
        (list.len() == 2).then_some(list)
    });
    assert_eq!(
        (&waiting[0]["address"], &waiting[1]["address"]),
        (&json!("127.0.0.2"), &json!("127.0.0.3"))
    );
    // One that ended long ago goes when there is another.
    let old = "approved.machine-config-server.io/192.0.2.1";
    annotate(old, "2026-01-01T00:00:00Z");
    let approve = |arguments: &[&str]| {
        let from = server.metrics().address().to_string();
        let mut command = binary();
        command.args(["machines", "approve", "--from", &from, "--kubeconfig"]);
        command.arg(site.cluster.admin()).args(arguments);
        command.output().expect("the built binary")
    };
    let approved = approve(&["127.0.0.3"]);
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
    for server in [&server, &other] {
        until(200, server, 3);
        assert_eq!(status(server, 2), 503);
    }
    let annotations = site.cluster.get(&pool).expect("the pool")["metadata"]["annotations"].clone();
    assert!(annotations[old].is_null(), "{annotations}");
    let given = "approved.machine-config-server.io/127.0.0.3";
    assert!(annotations[given].is_string(), "{annotations}");
    let refused = approve(&["127.0.0.2", "--pool", "nothing"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("MachineConfigPool nothing"), "{said}");
    let ipv6 = approve(&["2001:db8::1", "--pool", "worker"]);
    assert!(ipv6.status.success(), "{}", String::from_utf8_lossy(&ipv6.stderr));
    // A server that starts now knows it too, and one whose yes has ended does not.
    drop(other);
    let third = site.start(&[]).until_ready();
    assert_eq!((status(&third, 3), status(&third, 2)), (200, 503));
    annotate(given, "2026-01-01T00:00:00Z");
    until(503, &third, 3);
}
