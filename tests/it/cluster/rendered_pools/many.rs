//! A hundred pools of thirty MachineConfigs: how long a change takes to be served.

use std::time::Duration;

use serde_json::json;

use super::{CONFIGS, POOLS, RenderingCluster, machine_config};
use crate::support::contract::{SOON, is_served};
use crate::support::manifests::ROLE;
use crate::support::stopwatch::{Stopwatch, once_within};
use crate::support::wait_until;

const MANY: usize = 100;
/// Those of the role `worker`, which all pools select; one is the pool's.
const SHARED: usize = 29;

fn pool(number: usize) -> String {
    format!("rack-{number}")
}

/// Custom pools, as documented for OpenShift: workers with more.
fn with_many_pools() -> RenderingCluster {
    let site = RenderingCluster::new();
    for number in 0..SHARED {
        let name = format!("{number:02}-shared");
        site.machine_config(&name, &format!("/etc/shared-{number}"), &"x".repeat(2000));
    }
    for number in 0..MANY {
        let name = pool(number);
        let mut config = machine_config(&format!("90-{name}"), "/etc/marker", "one");
        config["metadata"]["labels"][ROLE] = json!(name);
        site.cluster().create(CONFIGS, &config);
        let selector = json!({
            "matchExpressions": [{"key": ROLE, "operator": "In", "values": ["worker", name]}],
        });
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"machineConfigSelector": selector},
        });
        site.cluster().create(POOLS, &pool);
    }
    site
}

/// Time that the API server takes for as many writes of as many bytes, one after the other.
fn time_of_writes(site: &RenderingCluster) -> Duration {
    let written = Stopwatch::start();
    for number in 0..MANY {
        let mut config = machine_config(&format!("plain-{number}"), "/etc/x", &"x".repeat(60_000));
        config["metadata"]["labels"][ROLE] = json!("none");
        site.cluster().create(CONFIGS, &config);
        let note = json!({"metadata": {"annotations": {"example.com/note": "written"}}});
        site.cluster().patch(&format!("{POOLS}/{}", pool(number)), &note);
    }
    let took = written.took();
    println!("the writes alone took {took:?}");
    took
}

#[test]
fn of_a_hundred_pools_those_that_select_a_change_are_served_soon() {
    let site = with_many_pools();
    let _controller = site.start(&[]);
    let server = site.server();
    for number in 0..MANY {
        is_served(&server, &pool(number), "one");
    }
    once_within(SOON, "a change of one pool's MachineConfig", |attempt| {
        let contents = format!("two-{attempt}.");
        let changed = Stopwatch::start();
        let one = machine_config("90-rack-7", "/etc/marker", &contents)["spec"].clone();
        site.cluster().patch(&format!("{CONFIGS}/90-rack-7"), &json!({"spec": one}));
        is_served(&server, &pool(7), &contents);
        changed.took()
    });

    // Most of it is the work of the API server, which stores a MachineConfig and changes an object for each pool.
    let limit = SOON + 2 * time_of_writes(&site);
    once_within(limit, "a change of what all pools select", |attempt| {
        let changed = Stopwatch::start();
        let contents = format!("three-{attempt}.");
        site.change("00-shared", "/etc/shared-0", &contents);
        for number in 0..MANY {
            wait_until("the change of what all pools select", || {
                let body = server.plain().get(&format!("/config/{}", pool(number))).body;
                String::from_utf8_lossy(&body).contains(&format!("data:,{contents}"))
            });
        }
        changed.took()
    });
}
