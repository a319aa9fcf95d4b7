//! Which rendered MachineConfigs are deleted, and which are not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{RenderingCluster, machine_config};
use crate::support::contract::{is_served, marker_soon};
use crate::support::http::loopback;
use crate::support::manifests::ROLE;
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::server::Server;
use crate::support::wait_until;

/// Those that are kept though nothing names them.
const KEPT: usize = 10;

impl RenderingCluster {
    fn rendered(&self) -> BTreeSet<String> {
        let configs = self.cluster().get(CONFIGS).expect("a list");
        let configs = configs["items"].as_array().expect("a list").iter();
        let names = configs.map(|config| config["metadata"]["name"].as_str().expect("a name"));
        names.filter(|name| name.starts_with("rendered-")).map(str::to_owned).collect()
    }

    fn change_often(&self, server: &Server, prefix: &str, times: usize) {
        self.change_one_often(server, "60-marker", prefix, times);
    }

    fn change_one_often(&self, server: &Server, name: &str, prefix: &str, times: usize) {
        for time in 0..times {
            let text = format!("{prefix}-{time}");
            self.change(name, "/etc/marker", &text);
            is_served(server, "worker", &text);
        }
    }
}

#[test]
fn the_latest_are_kept_and_those_that_machines_got() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "first");
    let server = site.server();
    let ledger = server.metrics().address().to_string();
    let controller = site.start(&["--ledgers", &ledger]);
    let first = site.renamed("");
    is_served(&server, "worker", "first");

    // What this test asks the server for is in the ledger as well, but for what comes after it: one entry an address.
    let machine = server.plain().from(loopback(9));
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(machine.request("GET", "/config/worker", &agent).status, 200);
    site.change_often(&server, "a", KEPT + 3);
    let second = site.renamed("");
    wait_until("the oldest to go", || site.rendered().len() == KEPT + 2);
    let left = site.rendered();
    assert!(left.contains(&first), "a machine got it");
    assert!(left.contains(&second), "the pool names it");
    assert!(
        controller.log().contains("deleted a MachineConfig that no pool and no boot ledger names")
    );

    // The server is gone, and with it what is known of machines.
    drop(server);
    let server = site.server();
    site.change_often(&server, "b", 2);
    wait_until("that to be told", || controller.readiness().1.contains("boot ledgers"));
    assert!(site.rendered().len() > KEPT + 2);
    assert_eq!(controller.readiness().0, 200);
    marker_soon(&server, "worker", Ok("b-1"));
}

#[test]
fn a_copy_of_a_rendered_one_is_the_administrators_and_stays() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "first");
    let server = site.server();
    let ledger = server.metrics().address().to_string();
    let controller = site.start(&["--ledgers", &ledger]);
    let mut copy = site.config(&site.renamed("")).expect("a rendered MachineConfig");
    let metadata = copy["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|key, _| ["annotations", "ownerReferences"].contains(&key.as_str()));
    metadata.insert("name".to_owned(), json!("70-mine"));
    metadata.insert("labels".to_owned(), json!({ROLE: "worker"}));
    // As if its pool were gone: of such a pool nothing is kept.
    metadata["ownerReferences"][0]["uid"] = json!("gone");
    copy["spec"] = machine_config("", "/etc/marker", "mine")["spec"].clone();
    site.cluster().create(CONFIGS, &copy);

    marker_soon(&server, "worker", Ok("mine"));
    site.change_one_often(&server, "70-mine", "mine", KEPT + 3);
    wait_until("the oldest to go", || controller.log().contains("deleted a MachineConfig"));
    assert!(site.config("70-mine").is_some());
}

#[test]
fn without_ledgers_nothing_is_deleted_and_a_pool_that_is_gone_leaves_nothing_broken() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "first");
    let server = site.server();
    let _controller = site.start(&[]);
    site.change_often(&server, "a", KEPT + 3);
    let before = site.rendered();
    assert!(before.len() >= KEPT + 3, "{before:?}");

    // The pool is deleted and made anew: what belonged to the old one belongs to the new one.
    let named = site.named().expect("a rendered MachineConfig");
    site.cluster().delete(&format!("{POOLS}/worker"));
    site.pool("worker");
    wait_until("the same one", || site.named().as_ref() == Some(&named));
    let uid = &site.worker()["metadata"]["uid"];
    let owner = |config: Option<Value>| {
        config.expect("it")["metadata"]["ownerReferences"][0]["uid"].clone()
    };
    assert_eq!(owner(site.config(&named)), *uid);
    assert_eq!(site.rendered(), before);
}
