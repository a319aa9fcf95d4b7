//! A registry's CA on its whole way: from the administrator's config map, merged by the controller,
//! into the configs that the server serves, and onto a machine that the real Ignition boots.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::controller::{Controller, started};
use super::server::{self, pointer};
use crate::support::cluster::{Cluster, MANAGED};
use crate::support::contract::{SOON, config};
use crate::support::logged::Logged;
use crate::support::machine::Machine;
use crate::support::manifests::registry_ca;
use crate::support::rendered;
use crate::support::server::{Server, binary};
use crate::support::stopwatch::{HURRY, Stopwatch};
use crate::support::{in_repository, wait_for, wait_until};

const ADMINISTRATORS: &str = "/api/v1/namespaces/openshift-config/configmaps";
const IMAGES: &str = "/apis/config.openshift.io/v1/images";

fn managed() -> String {
    format!("/api/v1/namespaces/{MANAGED}/configmaps")
}

fn merged() -> String {
    format!("{}/merged-trusted-image-registry-ca", managed())
}

/// A cluster with a controller and a server in it.
struct RegistryCluster {
    server: Server,
    controller: Controller,
    site: server::ServedCluster,
}

impl RegistryCluster {
    fn new() -> Self {
        let site = server::ServedCluster::of(Cluster::openshift_with_controller());
        let image = json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Image",
            "metadata": {"name": "cluster"}, "spec": {},
        });
        site.cluster.create(IMAGES, &image);
        rendered::create_empty(&site.cluster, "rendered");
        // Nothing rolls out in a paused pool; its new machines get the CAs all the same.
        rendered::create_pool(&site.cluster, "worker", &json!({"paused": true}), "rendered");
        let server = site.start(&[]).until_ready();
        let controller = started(&site.cluster, &[]);
        wait_for("the merged map", || site.cluster.get(&merged()));
        Self { server, controller, site }
    }

    fn cluster(&self) -> &Cluster {
        &self.site.cluster
    }

    /// Whether a machine that boots now has these CAs, by the hosts of their folders.
    fn boots_with(&self, expected: &[(&str, &str)]) {
        let machine = Machine::new();
        machine.boot(&pointer(&self.server, &self.site.pair, "worker"));
        for (host, pem) in expected {
            let path = machine.root().join(format!("etc/docker/certs.d/{host}/ca.crt"));
            assert_eq!(fs::read_to_string(path).expect("the CA"), *pem);
        }
    }

    fn map(&self, path: &str, name: &str, data: &Value) {
        self.cluster().create(path, &json!({"metadata": {"name": name}, "data": data}));
    }

    /// Which map is the administrator's; an empty name is none.
    fn refer_to(&self, name: &str) {
        let spec = json!({"spec": {"additionalTrustedCA": {"name": name}}});
        self.cluster().patch(&format!("{IMAGES}/cluster"), &spec);
    }

    fn merged(&self) -> BTreeMap<String, String> {
        let map = self.cluster().get(&merged()).expect("the merged map");
        let data = map["data"].as_object().into_iter().flatten();
        data.map(|(key, value)| (key.clone(), value.as_str().expect("text").to_owned())).collect()
    }

    /// The CAs in the pool's config, by the host of their folder.
    fn served(&self) -> BTreeMap<String, String> {
        let config = config(&self.server.plain(), "worker", "3.4.0").json();
        let files = config["storage"]["files"].as_array().expect("files");
        let ca = |file: &Value| {
            let path = file["path"].as_str()?.strip_prefix("/etc/docker/certs.d/")?;
            let host = path.strip_suffix("/ca.crt")?.to_owned();
            let bytes = crate::support::resource::bytes(&file["contents"])?;
            Some((host, String::from_utf8(bytes).expect("PEM")))
        };
        files.iter().filter_map(ca).collect()
    }

    /// Waits until the merged map and the served configs hold these, by keys of a config map.
    fn in_step(&self, expected: &[(&str, &str)]) {
        let changed = Stopwatch::start();
        let map: BTreeMap<String, String> =
            expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        wait_until("the merged map", || self.merged() == map);
        changed.within(SOON * HURRY, "the merged map");
        let files = map.into_iter().map(|(key, value)| (key.replace("..", ":"), value)).collect();
        wait_until("the served CAs", || self.served() == files);
        changed.within(SOON * HURRY, "the served CAs");
    }
}

#[test]
fn a_registrys_ca_is_added_replaced_and_removed_everywhere() {
    let site = RegistryCluster::new();
    let (main, mirror, next) =
        (registry_ca("main"), registry_ca("mirror"), registry_ca("mirror-next"));
    let uid = || site.cluster().get(&merged()).expect("the map")["metadata"]["uid"].clone();
    let first_uid = uid();
    site.in_step(&[]);

    // Added: a map and the reference to it.
    let data = json!({"registry.example.com": main, "mirror.example.com..5000": mirror});
    site.map(ADMINISTRATORS, "registry-cas", &data);
    site.refer_to("registry-cas");
    let both = [("registry.example.com", &main[..]), ("mirror.example.com..5000", &mirror)];
    site.in_step(&both);

    site.boots_with(&[("registry.example.com", &main), ("mirror.example.com:5000", &mirror)]);

    // Nothing is written when nothing changes.
    let version =
        || site.cluster().get(&merged()).expect("the map")["metadata"]["resourceVersion"].clone();
    let before = version();
    let label = json!({"metadata": {"labels": {"seen": "x"}}});
    site.cluster().patch(&format!("{ADMINISTRATORS}/registry-cas"), &label);
    site.map(&managed(), "image-registry-ca", &json!({"registry.example.com": next}));
    site.map(ADMINISTRATORS, "unrelated", &json!({"a.example.com": main}));
    // The administrator's entry goes before the operator's, so that this changes nothing either;
    // the operator's next entry shows that all of it was seen.
    let operators = format!("{}/image-registry-ca", managed());
    site.cluster().patch(&operators, &json!({"data": {"own.svc..5000": next}}));
    let three = [&both[..], &[("own.svc..5000", &next)]].concat();
    site.in_step(&three);
    assert_ne!(version(), before);

    // Replaced, with both certificates for a while.
    let two = format!("# old\n{mirror}# new\n{next}");
    let replaced = json!({"data": {"mirror.example.com..5000": two}});
    site.cluster().patch(&format!("{ADMINISTRATORS}/registry-cas"), &replaced);
    site.in_step(&[both[0], ("mirror.example.com..5000", &two), three[2]]);

    // Removed: one key; the map is renamed; the operator's map goes.
    let removed = json!({"data": {"mirror.example.com..5000": null}});
    site.cluster().patch(&format!("{ADMINISTRATORS}/registry-cas"), &removed);
    site.in_step(&[both[0], three[2]]);
    site.map(ADMINISTRATORS, "renamed", &json!({"other.example.com": next}));
    site.refer_to("renamed");
    site.in_step(&[("other.example.com", &next), ("registry.example.com", &next), three[2]]);
    site.cluster().delete(&operators);
    site.in_step(&[("other.example.com", &next)]);

    // A map that is missing takes nothing away; naming none does.
    site.cluster().delete(&format!("{ADMINISTRATORS}/renamed"));
    wait_until("the missing map to be told", || {
        site.controller.log().contains("ConfigMap openshift-config/renamed")
    });
    site.in_step(&[("other.example.com", &next)]);
    site.refer_to("");
    site.in_step(&[]);
    assert_eq!(uid(), first_uid, "the map was the same all the time");
}

#[test]
fn every_bad_entry_is_refused_alone() {
    let site = RegistryCluster::new();
    let main = registry_ca("main");
    let data = json!({
        "good.example.com": main,
        "no-certificate.example.com": "nothing",
        "port.example.com..99999": main,
        "bad_..host..name": main,
        "good.example.com.": main,
        "GOOD.example.com": main,
    });
    site.map(ADMINISTRATORS, "registry-cas", &data);
    site.refer_to("registry-cas");
    site.in_step(&[("good.example.com", &main)]);
    wait_until("the refusals to be told", || {
        let log = site.controller.log();
        let refused = log.lines().filter(|line| line.contains("refused a registry CA"));
        refused.count() == 5
    });
    let log = site.controller.log();
    for key in ["no-certificate.example.com", "port.example.com..99999", "bad_..host..name"] {
        assert!(log.contains(key), "{key}: {log}");
    }
    wait_until("an event", || site.cluster().events().contains("has no certificate in PEM"));
}

#[test]
fn five_hundred_registries_are_merged_and_served() {
    let site = RegistryCluster::new();
    let main = registry_ca("main");
    let names: Vec<String> = (0..500).map(|n| format!("registry-{n}.example.com..5000")).collect();
    let data: BTreeMap<&str, &str> = names.iter().map(|name| (&name[..], &main[..])).collect();
    site.map(ADMINISTRATORS, "registry-cas", &json!(data));
    site.refer_to("registry-cas");
    let expected: Vec<(&str, &str)> = data.into_iter().collect();
    site.in_step(&expected);
    site.refer_to("");
    site.in_step(&[]);
}

/// The folders of many nodes, and their agents.
struct Nodes {
    directories: Vec<TempDir>,
    _agents: Vec<Logged>,
}

impl Nodes {
    fn start(site: &RegistryCluster, count: usize) -> Self {
        site.cluster().apply(&["-k", in_repository("deploy/node-ca").to_str().expect("text")]);
        let namespace = "machine-config-server-node-ca";
        let kubeconfig =
            site.cluster().kubeconfig_of("node-ca", namespace, site.cluster().address());
        let directories: Vec<_> =
            (0..count).map(|_| tempfile::tempdir().expect("a temporary folder")).collect();
        let start = |directory: &TempDir| {
            let mut command = binary();
            command.args(["node-ca", "--dir"]).arg(directory.path());
            Logged::start("node-ca", command.arg("--kubeconfig").arg(&kubeconfig))
        };
        Self { _agents: directories.iter().map(start).collect(), directories }
    }

    fn all_have(&self, host: &str, expected: Option<&str>) -> bool {
        self.directories.iter().all(|directory| {
            let found = fs::read_to_string(directory.path().join(host).join("ca.crt")).ok();
            found.as_deref() == expected
        })
    }
}

#[test]
fn fifty_nodes_follow_the_administrator_within_two_seconds() {
    let site = RegistryCluster::new();
    let (main, mirror) = (registry_ca("main"), registry_ca("mirror"));
    site.map(ADMINISTRATORS, "registry-cas", &json!({"first.example.com": main}));
    site.refer_to("registry-cas");
    let nodes = Nodes::start(&site, 50);
    wait_until("all nodes", || nodes.all_have("first.example.com", Some(&main)));
    let map = format!("{ADMINISTRATORS}/registry-cas");
    for value in [Some(&main), Some(&mirror), None] {
        site.cluster().patch(&map, &json!({"data": {"second.example.com": value}}));
        let changed = Stopwatch::start();
        let expected = value.map(String::as_str);
        wait_until("all nodes", || nodes.all_have("second.example.com", expected));
        changed.within(Duration::from_secs(2), "the last of 50 nodes");
    }
}
