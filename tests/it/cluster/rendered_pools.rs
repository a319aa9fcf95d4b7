//! `controller --render-pools` in a cluster without a machine config operator, with the rights that
//! `deploy/components/render-pools` gives it.

mod kernel_arguments;
mod many;
mod others;
mod repairs;
mod retention;

use serde_json::{Value, json};

use super::controller::{Controller, started};
use super::server;
use crate::support::cluster::Cluster;
use crate::support::contract::{is_served, marker, marker_soon};
use crate::support::manifests::{ROLE, machine_config_of, selecting_pool, with_files};
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

/// A cluster with a pool `worker` of the MachineConfigs with that role.
struct RenderingCluster(server::ServedCluster);

impl RenderingCluster {
    fn new() -> Self {
        let cluster = Cluster::prepared("kubernetes-with-rendered-pools", |cluster| {
            cluster.become_kubernetes();
            cluster.apply_overlay("deploy/controller", &["deploy/components/render-pools"]);
        });
        let site = Self(server::ServedCluster::of(cluster));
        site.pool("worker");
        site
    }

    fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    fn start(&self, flags: &[&str]) -> Controller {
        let flags = [&["--render-pools"], flags].concat();
        started(self.cluster(), &flags)
    }

    fn server(&self) -> Server {
        self.0.start(&[])
    }

    fn pool(&self, name: &str) {
        self.cluster().create(POOLS, &selecting_pool(name));
    }

    /// Makes a MachineConfig of the pool `worker` with a file.
    fn machine_config(&self, name: &str, path: &str, contents: &str) {
        self.cluster().create(CONFIGS, &machine_config(name, path, contents));
    }

    fn change(&self, name: &str, path: &str, contents: &str) {
        let spec = &machine_config(name, path, contents)["spec"];
        self.cluster().patch(&format!("{CONFIGS}/{name}"), &json!({"spec": spec}));
    }

    fn worker(&self) -> Value {
        self.cluster().get(&format!("{POOLS}/worker")).expect("the pool")
    }

    /// The MachineConfig that the pool names.
    fn named(&self) -> Option<String> {
        let named = self.worker()["spec"]["configuration"]["name"].as_str()?.to_owned();
        Some(named).filter(|name| !name.is_empty())
    }

    fn config(&self, name: &str) -> Option<Value> {
        self.cluster().get(&format!("{CONFIGS}/{name}"))
    }

    /// Waits until the pool names another one than `before`.
    fn renamed(&self, before: &str) -> String {
        wait_for("another rendered MachineConfig", || self.named().filter(|name| name != before))
    }
}

fn machine_config(name: &str, path: &str, contents: &str) -> Value {
    machine_config_of("worker", name, &with_files(&[(path, contents)]))
}

fn told(controller: &Controller, what: &str) -> (u16, String) {
    wait_for(what, || Some(controller.readiness()).filter(|(_, lines)| lines.contains(what)))
}

fn untold(controller: &Controller, what: &str) {
    wait_until(&format!("no more of: {what}"), || !controller.readiness().1.contains(what));
}

#[test]
fn a_pool_of_machine_configs_is_rendered_and_served_and_followed() {
    let site = RenderingCluster::new();
    site.machine_config("50-motd", "/etc/motd", "welcome");
    site.machine_config("60-marker", "/etc/marker", "one");
    let controller = site.start(&[]);
    let server = site.server();
    is_served(&server, "worker", "one");
    let first = site.named().expect("a rendered MachineConfig");
    let rendered = site.config(&first).expect("it is there");
    let metadata = &rendered["metadata"];
    assert!(first.starts_with("rendered-worker-"), "{first}");
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("MachineConfigPool"), &json!("worker")));
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&site.worker()["metadata"]["uid"], &json!(true))
    );
    let generated = "machineconfiguration.openshift.io/generated-by-controller-version";
    let generated = metadata["annotations"][generated].as_str().expect("an annotation");
    assert!(generated.starts_with("machine-config-server/"), "{generated}");
    let pool = site.worker();
    let sources = pool["spec"]["configuration"]["source"].as_array().expect("sources").iter();
    let sources: Vec<&Value> = sources.map(|source| &source["name"]).collect();
    assert_eq!(sources, [&json!("50-motd"), &json!("60-marker")]);
    assert_eq!(pool.get("status"), None, "it is not ours");

    site.change("60-marker", "/etc/marker", "two");
    marker_soon(&server, "worker", Ok("two"));
    let second = site.renamed(&first);
    // The last good ones stay for a look back, and one is used again.
    site.change("60-marker", "/etc/marker", "one");
    marker_soon(&server, "worker", Ok("one"));
    assert_eq!(site.named().as_ref(), Some(&first));
    assert!(site.config(&second).is_some());

    // A paused pool keeps what it has.
    let paused = |is_paused: bool| json!({"spec": {"paused": is_paused}});
    site.cluster().patch(&format!("{POOLS}/worker"), &paused(true));
    site.change("60-marker", "/etc/marker", "three");
    site.pool("other");
    told(&controller, "MachineConfigPool other: no MachineConfig has the labels");
    assert_eq!(site.named().as_ref(), Some(&first));
    site.cluster().patch(&format!("{POOLS}/worker"), &paused(false));
    marker_soon(&server, "worker", Ok("three"));
    let (status, _) = controller.readiness();
    assert_eq!(status, 200, "one pool's trouble is nobody else's");
    assert!(controller.metrics().contains("mcs_pools_attention 1\n"), "{}", controller.metrics());
}

#[test]
fn machine_configs_that_conflict_are_named_and_the_last_good_config_stays() {
    let site = RenderingCluster::new();
    site.machine_config("60-marker", "/etc/marker", "one");
    let disk = |number: u32| {
        let partition = json!({"number": number, "startMiB": 8, "sizeMiB": 64});
        let mut config = machine_config(&format!("7{number}-disk"), "/etc/disk", "disk");
        config["spec"]["config"]["storage"] =
            json!({"disks": [{"device": "/dev/vda", "partitions": [partition]}]});
        site.cluster().create(CONFIGS, &config);
    };
    disk(1);
    let controller = site.start(&[]);
    let server = site.server();
    let first = site.renamed("");
    disk(2);
    let (status, lines) =
        told(&controller, "MachineConfigPool worker: MachineConfigs 71-disk, 72-disk: ");
    assert!(status == 200 && lines.contains("storage.disks[0].partitions[0]"), "{status} {lines}");
    wait_until("an event of the pool", || {
        let events = site.cluster().get("/api/v1/namespaces/default/events").expect("a list");
        let events = events["items"].as_array().expect("a list").iter();
        let mut of_pool = events.filter(|event| event["involvedObject"]["name"] == "worker");
        let text = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
        of_pool.any(|event| text(event).contains("71-disk, 72-disk"))
    });
    assert_eq!(site.named().as_ref(), Some(&first));
    assert_eq!(marker(&server, "worker").as_deref(), Ok("one"));

    // One that is not valid by itself, and one that selects nothing any more.
    site.cluster().delete(&format!("{CONFIGS}/72-disk"));
    untold(&controller, "72-disk");
    site.change("60-marker", "not-absolute", "one");
    told(&controller, "MachineConfig 60-marker: ");
    assert_eq!(site.named().as_ref(), Some(&first));
    // The one that is not valid stays to the end, so that there is no valid config in between.
    for name in ["71-disk", "60-marker"] {
        site.cluster().delete(&format!("{CONFIGS}/{name}"));
    }
    told(&controller, "MachineConfigPool worker: no MachineConfig has the labels");
    assert_eq!(site.named().as_ref(), Some(&first));
    assert_eq!(marker(&server, "worker").as_deref(), Ok("one"));
    site.machine_config("60-marker", "/etc/marker", "two");
    marker_soon(&server, "worker", Ok("two"));
    untold(&controller, "MachineConfigPool worker");
}

#[test]
fn a_machine_config_that_is_too_large_for_the_store_holds_up_no_other_pool() {
    let site = RenderingCluster::new();
    let controller = site.start(&[]);
    let large = "x".repeat(900_000);
    site.machine_config("50-large", "/etc/large", &large);
    let first = site.renamed("");
    // Each fits, both do not.
    site.machine_config("51-large", "/etc/larger", &large);
    told(
        &controller,
        "MachineConfigPool worker: the rendered MachineConfig cannot be stored: it has 18",
    );
    assert_eq!(site.named().as_ref(), Some(&first));
    site.pool("other");
    let other = json!({"metadata": {"labels": {ROLE: "other"}}});
    site.cluster().patch(&format!("{CONFIGS}/51-large"), &other);
    wait_for("the other pool", || {
        let pool = site.cluster().get(&format!("{POOLS}/other")).expect("the pool");
        pool["spec"]["configuration"]["name"].as_str().map(drop)
    });
    untold(&controller, "MachineConfigPool worker");
}

#[test]
fn the_component_gives_the_rights_that_rendering_takes_and_no_others() {
    let site = RenderingCluster::new();
    let account = "machine-config-server-controller";
    let group = "machineconfiguration.openshift.io";
    let namespace = "openshift-machine-config-operator";
    let configs = ["get", "list", "watch", "create", "update", "delete"];
    let objects: [(String, &str, &[&str]); 9] = [
        (format!("{group}/machineconfigs"), "", &configs),
        (format!("{group}/machineconfigpools"), "", &["list", "watch", "patch"]),
        (format!("{group}/machineconfigpools//status"), "", &["patch"]),
        (format!("{group}/controllerconfigs/machine-config-controller"), "", &configs[..3]),
        (format!("{group}/controllerconfigs"), "", &[]),
        ("apps/deployments/machine-config-controller".to_owned(), namespace, &configs[..3]),
        ("apps/deployments".to_owned(), namespace, &[]),
        ("events.k8s.io/events".to_owned(), "default", &["create", "patch"]),
        ("/secrets".to_owned(), "default", &[]),
    ];
    for (object, namespace, allowed) in objects {
        site.cluster().assert_may_only(account, &object, namespace, allowed);
    }
}

#[test]
fn a_rendered_machine_config_that_cannot_be_stored_is_reported_before_it_is_written() {
    let site = RenderingCluster::new();
    site.machine_config("50-half", "/etc/half", &"x".repeat(700_000));
    site.machine_config("60-half", "/etc/other", &"y".repeat(600_000));
    let controller = site.start(&[]);
    let first = site.renamed("");
    let near = "a rendered MachineConfig is near the size that the API server stores";
    wait_until(near, || controller.log().contains(near));
    site.machine_config("70-more", "/etc/more", &"z".repeat(400_000));
    let (_, lines) = told(&controller, "the rendered MachineConfig cannot be stored: it has 17");
    assert!(lines.contains("stores at most 1572864"), "{lines}");
    assert_eq!(site.named().as_ref(), Some(&first), "the pool keeps what it has");
    site.cluster().delete(&format!("{CONFIGS}/70-more"));
    untold(&controller, "cannot be stored");
}
