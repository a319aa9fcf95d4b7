//! Rendered MachineConfigs that another client changed or deleted.

use serde_json::json;

use super::{RenderingCluster, told, untold};
use crate::cluster::controller::Controller;
use crate::support::contract::{is_served, marker_soon};
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::{wait_for, wait_until};

impl RenderingCluster {
    /// Kills a controller and starts another one, which knows nothing.
    fn start_again(&self, controller: Controller) -> Controller {
        self.kill(controller);
        self.start(&[])
    }

    fn kill(&self, controller: Controller) {
        drop(controller);
        self.cluster().drop_lease();
    }

    fn pause(&self, is_paused: bool) {
        let spec = json!({"spec": {"paused": is_paused}});
        self.cluster().patch(&format!("{POOLS}/worker"), &spec);
    }

    fn lose(&self, name: &str) {
        self.cluster().delete(&format!("{CONFIGS}/{name}"));
    }
}

#[test]
fn one_that_was_edited_is_restored_also_by_a_controller_that_comes_later() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "one");
    let controller = site.start(&[]);
    let server = site.server();
    is_served(&server, "worker", "one");
    let first = site.renamed("");
    let good = site.config(&first).expect("it")["spec"].clone();
    let is_good = || site.config(&first).is_some_and(|config| config["spec"] == good);
    let restored = || wait_until("it to be restored", &is_good);

    site.change(&first, "/etc/marker", "edited");
    restored();
    wait_until("the warning", || controller.log().contains("restored a rendered MachineConfig"));
    assert!(controller.metrics().contains("mcs_rendered_restored_total 1\n"));
    let argument = json!({"spec": {"kernelArguments": ["quiet"]}});
    site.cluster().patch(&format!("{CONFIGS}/{first}"), &argument);
    restored();

    // While no controller runs.
    site.kill(controller);
    let field = json!({"spec": {"config": {"passwd": {"users": [{"name": "mallory"}]}}}});
    site.cluster().patch(&format!("{CONFIGS}/{first}"), &field);
    let controller = site.start(&[]);
    restored();
    is_served(&server, "worker", "one");

    // While no pool names it.
    site.change("60-marker", "/etc/marker", "two");
    is_served(&server, "worker", "two");
    site.change(&first, "/etc/marker", "edited");
    site.change("60-marker", "/etc/marker", "one");
    marker_soon(&server, "worker", Ok("one"));
    assert!(is_good());

    // A paused pool keeps one that nobody can make again.
    site.pause(true);
    site.change("60-marker", "/etc/marker", "three");
    let controller = site.start_again(controller);
    wait_until("a start", || controller.is_active());
    site.change(&first, "/etc/marker", "edited");
    told(&controller, &format!("it names MachineConfig {first}, whose contents are not those"));
    site.pause(false);
    is_served(&server, "worker", "three");
    untold(&controller, "MachineConfigPool worker");
}

#[test]
fn one_that_a_paused_pool_names_is_made_again_or_reported() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "one");
    let controller = site.start(&[]);
    let first = site.renamed("");
    site.pause(true);
    site.lose(&first);
    wait_for("it to be made again", || site.config(&first));
    // By a controller that merges the same, and by one that has the last result.
    let controller = site.start_again(controller);
    site.lose(&first);
    wait_for("it to be made again", || site.config(&first));
    site.change("60-marker", "not-absolute", "one");
    site.lose(&first);
    wait_for("it to be made again", || site.config(&first));

    site.change("60-marker", "/etc/marker", "two");
    let controller = site.start_again(controller);
    wait_until("a start", || controller.is_active());
    let lost = format!("MachineConfigPool worker: it names MachineConfig {first}, which does not");
    site.lose(&first);
    told(&controller, &lost);
    assert!(controller.metrics().contains("mcs_pools_attention 1\n"));
    site.pause(false);
    site.renamed(&first);
    untold(&controller, "MachineConfigPool worker");
}
