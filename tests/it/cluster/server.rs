//! The server in a cluster: a real kube-apiserver and etcd, the server as its own service account
//! with the rights that `deploy/` gives it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::{ACCOUNT, Cluster, MANAGED, NAMESPACE, controller_config};
use crate::support::contract::config;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::pair::Pair;
use crate::support::proxy::{Proxy, Way};
use crate::support::rest::comes_to_rest;
use crate::support::server::{Server, binary};
use crate::support::stopwatch::{HURRY, Stopwatch, once_within};
use crate::support::wait_for;

/// The contract's limit for a change to be served.
const SOON: Duration = Duration::from_secs(1);

const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

/// A cluster, and what a server in it is given.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) pair: Pair,
    pub(super) folder: TempDir,
}

impl Site {
    pub(super) fn new() -> Self {
        Self::of(Cluster::openshift())
    }

    pub(super) fn of(cluster: Cluster) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pair = Pair::make(folder.path(), "localhost");
        let site = Self { cluster, pair, folder };
        fs::create_dir(site.token()).expect("a new folder");
        site.write_token("abcdef.0123456789abcdef");
        fs::write(site.token().join("ca.crt"), "CA of the token\n").expect("a writable folder");
        site
    }

    fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn write_token(&self, token: &str) {
        fs::write(self.token().join("token"), token).expect("a writable folder");
    }

    pub(super) fn start(&self, flags: &[&str]) -> Server {
        self.start_through(self.cluster.address(), flags)
    }

    pub(super) fn start_through(&self, address: std::net::SocketAddr, flags: &[&str]) -> Server {
        let kubeconfig = self.cluster.account_kubeconfig(address);
        self.start_with(&kubeconfig, flags)
    }

    fn start_with(&self, kubeconfig: &std::path::Path, flags: &[&str]) -> Server {
        Server::in_cluster(kubeconfig, &self.token(), &self.pair, flags)
    }

    pub(super) fn pool(&self, name: &str, configuration: &str) {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name},
            "spec": {"configuration": {"name": configuration}},
        });
        self.cluster.create(POOLS, &pool);
        self.status(name, configuration, 0);
    }

    fn status(&self, pool: &str, configuration: &str, updated: u32) {
        let status = json!({"status": {
            "configuration": {"name": configuration}, "updatedMachineCount": updated,
        }});
        self.cluster.patch(&format!("{POOLS}/{pool}/status"), &status);
    }

    pub(super) fn machine_config(&self, name: &str, marker: &str) {
        self.cluster.create(CONFIGS, &machine_config(name, marker, 0));
    }
}

/// A machine config with `/etc/marker`, and so many files of 2 KB.
fn machine_config(name: &str, marker: &str, files: u32) -> Value {
    let large = (0..files).map(|number| {
        let contents = format!("data:,{}", "key%20%3D%20value%0A".repeat(100));
        json!({"path": format!("/etc/large/{number}"), "contents": {"source": contents}})
    });
    let marker = json!({"path": "/etc/marker", "contents": {"source": format!("data:,{marker}")}});
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {
            "osImageURL": "quay.io/example/os@sha256:base",
            "config": {
                "ignition": {"version": "3.4.0"},
                "storage": {"files": std::iter::once(marker).chain(large).collect::<Vec<_>>()},
            },
        },
    })
}

/// A file of a pool's config, or the status.
fn served(server: &Server, pool: &str, path: &str) -> Result<String, u16> {
    let response = config(&server.plain(), pool, "3.4.0");
    if response.status != 200 {
        return Err(response.status);
    }
    let config = response.json();
    let files = config["storage"]["files"].as_array().expect("files");
    let Some(file) = files.iter().find(|file| file["path"] == path) else { return Err(0) };
    let source = file["contents"]["source"].as_str().expect("a source");
    let text = source.strip_prefix("data:,").expect("a data URL");
    let text = percent_encoding::percent_decode_str(text).decode_utf8().expect("UTF-8");
    Ok(text.into_owned())
}

pub(super) fn marker(server: &Server, pool: &str) -> Result<String, u16> {
    served(server, pool, "/etc/marker")
}

/// Waits until a file is as expected, and fails if that takes more than a second.
fn served_soon(server: &Server, pool: &str, path: &str, expected: Result<&str, u16>) {
    let changed = Stopwatch::start();
    let what = format!("{path} to be {expected:?} in pool {pool}");
    wait_for(&what, || {
        (served(server, pool, path).as_deref().map_err(|s| *s) == expected).then_some(())
    });
    changed.within(SOON, what);
}

fn marker_soon(server: &Server, pool: &str, expected: Result<&str, u16>) {
    served_soon(server, pool, "/etc/marker", expected);
}

fn readiness(server: &Server) -> (u16, String) {
    let response = server.metrics().get("/readyz");
    (response.status, String::from_utf8(response.body).expect("text"))
}

fn wait_for_readiness(server: &Server, what: impl Fn(u16, &str) -> bool) {
    wait_for("readiness", || Some(readiness(server)).filter(|(s, text)| what(*s, text)));
}

/// Waits until a line about `what` is there, and returns it. There may be others: the API server
/// prepares a kind's storage in its own time, and a watch tells of that.
fn told(server: &Server, what: &str) -> String {
    let line = |text: &str| text.lines().find(|line| line.contains(what)).map(str::to_owned);
    wait_for(&format!("readiness to tell of {what}"), || line(&readiness(server).1))
}

/// Waits until nothing is told any more, but that strangers can read the token that machines join
/// with: these pools are not enforced.
fn in_order(server: &Server) {
    let is_exposed = |line: &str| {
        line.contains(": whoever reaches the server can read /etc/kubernetes/kubeconfig ")
    };
    wait_for_readiness(server, |status, text| status == 200 && text.lines().all(is_exposed));
}

/// What an overview tells that is not in order, but for what strangers can read.
fn degraded(overview: &Value) -> Vec<String> {
    let lines = overview["degraded"].as_array().expect("a list").iter();
    let lines = lines.map(|line| line.as_str().expect("words").to_owned());
    lines.filter(|line| !line.contains(": whoever reaches the server can read ")).collect()
}

#[test]
fn a_machine_boots_and_its_pool_is_followed_through_its_life() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();

    let machine = Machine::new();
    machine.boot(&pointer(&server, &site.pair, "worker"));
    let on_disk = |path: &str| fs::read_to_string(machine.root().join(path)).expect("a file");
    assert_eq!(on_disk("etc/marker"), "one");
    assert_eq!(on_disk("etc/kubernetes/kubelet-ca.crt"), "kubelet CA");
    let encapsulated: Value =
        serde_json::from_str(&on_disk("etc/ignition-machine-config-encapsulated.json"))
            .expect("JSON");
    assert_eq!(encapsulated["metadata"]["name"], "rendered-1");
    assert_eq!(encapsulated["kind"], "MachineConfig");

    // A new config is served once a machine runs it.
    site.machine_config("rendered-2", "two");
    site.cluster.patch(
        &format!("{POOLS}/worker"),
        &json!({"spec": {"configuration": {"name": "rendered-2"}}}),
    );
    site.cluster.patch(&format!("{POOLS}/worker"), &json!({"spec": {"paused": true}}));
    site.machine_config("other", "seen");
    site.pool("other", "other");
    marker_soon(&server, "other", Ok("seen"));
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()), "it is not proven yet");
    site.cluster.patch(&format!("{POOLS}/worker"), &json!({"spec": {"paused": false}}));
    site.status("worker", "rendered-1", 1);
    marker_soon(&server, "worker", Ok("two"));

    // A config that changes in place, as none does that was rendered.
    let files = machine_config("rendered-2", "two-again", 0)["spec"].clone();
    site.cluster.patch(&format!("{CONFIGS}/rendered-2"), &json!({"spec": files}));
    marker_soon(&server, "worker", Ok("two-again"));

    // The ControllerConfig's authorities reach a pool that nobody renders anew.
    let authorities = controller_config("another CA")["spec"]["kubeAPIServerServingCAData"].clone();
    site.cluster.patch(
        &format!("{GROUP}/controllerconfigs/machine-config-controller"),
        &json!({"spec": {"kubeAPIServerServingCAData": authorities}}),
    );
    served_soon(&server, "worker", "/etc/kubernetes/kubelet-ca.crt", Ok("another CA"));

    // What the pool refers to gets lost: the last good config stays, and readiness says so.
    site.cluster.delete(&format!("{CONFIGS}/rendered-2"));
    told(&server, "pool worker: machine config rendered-2 is not there");
    assert_eq!(readiness(&server).0, 503);
    assert_eq!(marker(&server, "worker"), Ok("two-again".to_owned()));
    site.machine_config("rendered-2", "two-made-again");
    marker_soon(&server, "worker", Ok("two-made-again"));
    in_order(&server);

    // The pool itself goes and comes back.
    site.cluster.delete(&format!("{POOLS}/worker"));
    marker_soon(&server, "worker", Err(503));
    site.pool("worker", "rendered-1");
    marker_soon(&server, "worker", Ok("one"));
    in_order(&server);
}

/// A pointer config by which a machine finds the server.
fn pointer(server: &Server, pair: &Pair, pool: &str) -> String {
    let authority =
        percent_encoding::percent_encode(pair.pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    let source = format!("https://localhost:{}/config/{pool}", server.secure().port());
    json!({"ignition": {
        "version": "3.1.0",
        "config": {"merge": [{"source": source}]},
        "security": {"tls": {"certificateAuthorities": [{"source": format!("data:,{authority}")}]}},
    }})
    .to_string()
}

/// A wish for an image of a pool's own, and a build of it.
fn layer(site: &Site, pool: &str, image: &str, configuration: &str) {
    let secret = json!({"name": "push"});
    let spec = format!("quay.io/example/{pool}:latest");
    site.cluster.create(
        &format!("{GROUP}/machineosconfigs"),
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSConfig",
            "metadata": {"name": pool},
            "spec": {
                "machineConfigPool": {"name": pool},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": secret,
                "renderedImagePushSpec": spec,
            },
        }),
    );
    site.cluster.create(
        &format!("{GROUP}/machineosbuilds"),
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSBuild",
            "metadata": {"name": format!("{pool}-build")},
            "spec": {
                "machineConfig": {"name": configuration},
                "machineOSConfig": {"name": pool},
                "renderedImagePushSpec": spec,
            },
        }),
    );
    set_image(site, pool, image);
    let now = "2026-01-01T00:00:00Z";
    let job =
        json!({"group": "batch", "resource": "jobs", "namespace": NAMESPACE, "name": "build"});
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": kind, "message": kind,
            "lastTransitionTime": now,
        })
    };
    site.cluster.patch(
        &format!("{GROUP}/machineosbuilds/{pool}-build/status"),
        &json!({"status": {
            "builder": {"imageBuilderType": "Job", "job": job},
            "conditions": [condition("Building", "False"), condition("Succeeded", "True")],
        }}),
    );
}

fn set_image(site: &Site, pool: &str, image: &str) {
    site.cluster.patch(
        &format!("{GROUP}/machineosconfigs/{pool}/status"),
        &json!({"status": {"currentImagePullSpec": image}}),
    );
}

const IMAGE: &str = "quay.io/example/worker@sha256:\
                     0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const INTERNAL: &str = "image-registry.openshift-image-registry.svc:5000/mco/worker@sha256:\
                        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ROUTED: &str = "registry.apps.example.com/mco/worker@sha256:\
                      0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The image that a machine of the pool changes over to at its first boot.
fn image(server: &Server, pool: &str) -> String {
    let text = served(server, pool, "/etc/ignition-machine-config-encapsulated.json");
    let config: Value = serde_json::from_str(&text.expect("the file")).expect("JSON");
    config["spec"]["osImageURL"].as_str().expect("an image").to_owned()
}

fn image_soon(server: &Server, pool: &str, expected: &str) {
    let changed = Stopwatch::start();
    let what = format!("image {expected}");
    wait_for(&what, || (image(server, pool) == expected).then_some(()));
    changed.within(SOON, what);
}

#[test]
fn a_layered_image_is_served_when_a_machine_can_boot_into_it() {
    const BASE: &str = "quay.io/example/os@sha256:base";
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    assert_eq!(image(&server, "worker"), BASE);

    layer(&site, "worker", IMAGE, "rendered-1");
    assert_eq!(image(&server, "worker"), BASE, "no machine of the pool runs it");
    site.status("worker", "rendered-1", 1);
    image_soon(&server, "worker", IMAGE);
    let annotations = served(&server, "worker", "/etc/machine-config-daemon/node-annotations.json");
    let annotations: Value = serde_json::from_str(&annotations.expect("the file")).expect("JSON");
    for key in ["currentImage", "desiredImage"] {
        assert_eq!(annotations[format!("machineconfiguration.openshift.io/{key}")], IMAGE);
    }

    // A service of the cluster's own registry appears after the image that it has.
    set_image(&site, "worker", INTERNAL);
    image_soon(&server, "worker", INTERNAL);
    let service = json!({
        "metadata": {"name": "image-registry"},
        "spec": {"ports": [{"port": 5000}], "selector": {"app": "registry"}},
    });
    site.cluster.create("/api/v1/namespaces/openshift-image-registry/services", &service);
    image_soon(&server, "worker", BASE);

    // The kind of the other name's object is not there at first, and appears.
    set_image(&site, "worker", ROUTED);
    image_soon(&server, "worker", ROUTED);
    site.cluster.apply(&["-f", write_definition(&site, "Route", "route.openshift.io").as_str()]);
    site.cluster.kubectl(&["wait", "--for=condition=Established", "crd/routes.route.openshift.io"]);
    let routes = "/apis/route.openshift.io/v1/namespaces/openshift-image-registry/routes";
    site.cluster.create(
        routes,
        &json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": {"name": "default-route"}, "spec": {"host": "registry.apps.example.com"},
        }),
    );
    wait_for("the new kind to be noticed", || (image(&server, "worker") == BASE).then_some(()));

    // A kind that goes takes its objects along.
    site.cluster.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/routes.route.openshift.io",
    );
    wait_for("the kind's end to be noticed", || (image(&server, "worker") == ROUTED).then_some(()));
    in_order(&server);
}

/// A definition of a kind that takes any object, as a manifest.
fn write_definition(site: &Site, kind: &str, group: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    let scope = if kind == "Route" { "Namespaced" } else { "Cluster" };
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let path = site.folder.path().join(format!("{plural}.json"));
    fs::write(&path, definition.to_string()).expect("a writable folder");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_hundred_pools_that_change_at_once_are_served_within_a_second() {
    let site = Site::new();
    let names: Vec<String> = (0..100).map(|number| format!("pool-{number}")).collect();
    // As large as what a real cluster renders.
    let make = |marker: &str| {
        for name in &names {
            let config = machine_config(&format!("{name}-{marker}"), marker, 85);
            site.cluster.create(CONFIGS, &config);
        }
    };
    make("first");
    for name in &names {
        site.pool(name, &format!("{name}-first"));
    }
    let server = site.start(&[]).until_ready();
    let is_served = |name: &str, marker: &str| {
        let body = config(&server.plain(), name, "3.4.0").body;
        let wanted = format!("data:,{marker}\"");
        body.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    };
    for name in &names {
        assert!(is_served(name, "first"), "{name}");
    }
    once_within(SOON * HURRY, "the last of 100 pools", |attempt| {
        let marker = format!("change-{attempt}");
        make(&marker);
        for name in &names {
            let configuration = json!({"name": format!("{name}-{marker}")});
            let status = json!({"status": {"configuration": configuration}});
            site.cluster.patch(&format!("{POOLS}/{name}/status"), &status);
        }
        let changed = Stopwatch::start();
        for name in &names {
            wait_for("the new config", || is_served(name, &marker).then_some(()));
        }
        changed.took()
    });
}

#[test]
fn a_server_of_a_hundred_pools_comes_to_rest() {
    let site = Site::new();
    site.machine_config("rendered", "one");
    for number in 0..100 {
        site.pool(&format!("pool-{number}"), "rendered");
    }
    let cache = site.folder.path().join("cache");
    let flags = ["--cache-dir", cache.to_str().expect("text")];
    let server = site.start(&flags).until_ready();
    assert_eq!(config(&server.plain(), "pool-1", "3.4.0").status, 200);
    comes_to_rest(server.pid());
}

#[test]
fn memory_does_not_grow_with_configs_that_no_pool_refers_to() {
    const LIMIT: u64 = 40 << 20;
    let site = Site::new();
    for number in 0..500 {
        let name = format!("rendered-{number}");
        site.cluster.create(CONFIGS, &machine_config(&name, &name, 85));
    }
    for (pool, number) in [("master", 7), ("worker", 250), ("infra", 499)] {
        site.pool(pool, &format!("rendered-{number}"));
    }
    let server = site.start(&[]).until_ready();
    for (pool, number) in [("master", 7), ("worker", 250), ("infra", 499)] {
        assert_eq!(marker(&server, pool), Ok(format!("rendered-{number}")));
    }
    let used = server.resident_bytes();
    println!("{} KiB are resident", used >> 10);
    assert!(used <= LIMIT, "{} MiB are resident", used >> 20);
}

#[test]
fn machines_boot_while_the_api_server_is_away_and_changes_arrive_when_it_is_back() {
    let mut site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let cache = site.folder.path().join("cache");
    let flags = ["--cache-dir", cache.to_str().expect("text")];
    let server = site.start(&flags).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    // Written last: what it refers to is there.
    wait_for("the cache", || cache.join("objects.json").exists().then_some(()));
    assert!(stale_since(&server) < 1.0);
    let kubeconfig = site.cluster.account_kubeconfig(site.cluster.address());

    site.cluster.kill_api_server();
    // Ready all the same: it serves what is right.
    wait_for_readiness(&server, |status, text| {
        status == 200 && text.lines().any(|line| line.starts_with("API server: away since 20"))
    });
    assert!(stale_since(&server) > 1_700_000_000.0, "{}", stale_since(&server));
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    let lines = || server.log().matches("the API server is away").count();
    wait_for("a line in the log", || (lines() > 0).then_some(()));
    assert_eq!(lines(), 1, "once is enough: {}", server.log());

    // One that is started now has the cache alone, and the token from its own files.
    let second = site.start_with(&kubeconfig, &flags).until_ready();
    assert_eq!(marker(&second, "worker"), Ok("one".to_owned()));
    let machine = Machine::new();
    machine.boot(&pointer(&second, &site.pair, "worker"));
    wait_for_readiness(&second, |status, text| status == 200 && text.contains("API server: away"));
    for file in walk(&cache) {
        let text = fs::read_to_string(&file).expect("text");
        assert!(!text.contains("0123456789abcdef"), "the token is in {}", file.display());
    }
    // One without a cache has nothing to serve, and says that it will.
    let third = site.start_with(&kubeconfig, &[]);
    assert_eq!(marker(&third, "worker"), Err(503));
    told(&third, "API server: away");
    told(&third, "not read yet: machineconfigpools");
    assert_eq!(readiness(&third).0, 503);

    site.cluster.start_api_server();
    site.machine_config("rendered-2", "two");
    site.status("worker", "rendered-2", 0);
    for server in [&server, &second, &third] {
        wait_for("the change", || (marker(server, "worker") == Ok("two".to_owned())).then_some(()));
        in_order(server);
        assert!(stale_since(server) < 1.0);
    }
    // Each is in step again, not only up to date once.
    let files = machine_config("rendered-2", "three", 0)["spec"].clone();
    site.cluster.patch(&format!("{CONFIGS}/rendered-2"), &json!({"spec": files}));
    for server in [&server, &second, &third] {
        marker_soon(server, "worker", Ok("three"));
    }
}

/// In seconds since 1970, 0 while what is served is in step with the cluster.
fn stale_since(server: &Server) -> f64 {
    server.metric("mcs_source_stale_since_timestamp_seconds")
}

fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn a_connection_that_goes_silent_or_breaks_is_survived() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let proxy = Proxy::to(site.cluster.address());
    let server = site.start_through(proxy.address(), &[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    for (way, change) in [(Way::Silent, "two"), (Way::Cut, "three")] {
        proxy.set(way);
        let away = |text: &str| text.contains("API server: away");
        wait_for_readiness(&server, |status, text| status == 200 && away(text));
        let spec = machine_config("rendered-1", change, 0)["spec"].clone();
        site.cluster.patch(&format!("{CONFIGS}/rendered-1"), &json!({"spec": spec}));
        proxy.set(Way::Cut);
        proxy.set(Way::Open);
        let marker = || marker(&server, "worker");
        wait_for("the change", || (marker() == Ok(change.to_owned())).then_some(()));
        in_order(&server);
    }
}

#[test]
fn what_cannot_be_decoded_leaves_the_last_good_one_and_is_named_once() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));

    // Kinds that take any object have no definition that would keep bad ones out.
    for kind in ["MachineConfigPool", "MachineConfig"] {
        let definition = write_definition(&site, kind, "machineconfiguration.openshift.io");
        site.cluster.kubectl(&["replace", "-f", &definition]);
    }
    let config = format!("{CONFIGS}/rendered-1");
    let broken = json!({"spec": {"fips": "perhaps"}});
    // A definition takes a moment to be in force.
    wait_for("the lenient definition", || {
        let kind = "application/merge-patch+json";
        (site.cluster.request("PATCH", &config, kind, &broken).status == 200).then_some(())
    });
    let line = told(&server, "MachineConfig rendered-1: ");
    assert!(line.contains("perhaps"), "{line}");
    assert_eq!(readiness(&server).0, 503);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    assert!(server.metric("mcs_input_problems") > 0.0);

    let pool = json!({"status": {"updatedMachineCount": "some"}});
    wait_for("the lenient definition", || {
        let kind = "application/merge-patch+json";
        let path = format!("{POOLS}/worker");
        (site.cluster.request("PATCH", &path, kind, &pool).status == 200).then_some(())
    });
    told(&server, "MachineConfigPool worker: ");
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));

    site.cluster.patch(&config, &json!({"spec": {"fips": false}}));
    let sound = json!({"status": {"updatedMachineCount": 0}});
    site.cluster.patch(&format!("{POOLS}/worker"), &sound);
    in_order(&server);
    let log = server.log();
    for name in ["\"MachineConfig rendered-1\"", "\"MachineConfigPool worker\""] {
        let lines = log.lines().filter(|l| l.contains("ERROR") && l.contains(name));
        assert_eq!(lines.count(), 1, "{name}: {log}");
    }
}

#[test]
fn a_definition_that_is_deleted_and_made_again_is_survived() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    let name = "machineconfigpools.machineconfiguration.openshift.io";
    site.cluster.delete(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"));
    wait_for("the pools to be gone", || (marker(&server, "worker") == Err(503)).then_some(()));
    told(&server, "machineconfigpools: cannot be watched");
    let definition =
        write_definition(&site, "MachineConfigPool", "machineconfiguration.openshift.io");
    // The old one's end takes a moment.
    wait_for("the old definition's end", || {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        (site.cluster.request("GET", &path, "application/json", &json!({})).status == 404)
            .then_some(())
    });
    site.cluster.apply(&["-f", &definition]);
    site.cluster.kubectl(&["wait", "--for=condition=Established", &format!("crd/{name}")]);
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "status": {"configuration": {"name": "rendered-1"}},
    });
    site.cluster.create(POOLS, &pool);
    wait_for("the pool", || (marker(&server, "worker") == Ok("one".to_owned())).then_some(()));
    in_order(&server);
}

/// Whether the server speaks this version of TLS, by OpenSSL's flag for it.
fn speaks(server: &Server, version: &str) -> bool {
    let address = server.secure().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", version, "-connect", &address]).stdin(Stdio::null());
    command.output().expect("openssl").status.success()
}

#[test]
fn the_clusters_tls_profile_is_followed_and_flags_go_before_it() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    let by_flag = site.start(&["--tls-min-version", "VersionTLS12"]).until_ready();
    assert!(speaks(&server, "-tls1_2") && speaks(&server, "-tls1_3"));
    // The definition comes later than the server.
    let definition = write_definition(&site, "APIServer", "config.openshift.io");
    site.cluster.apply(&["-f", &definition]);
    let name = "crd/apiservers.config.openshift.io";
    site.cluster.kubectl(&["wait", "--for=condition=Established", name]);
    let profile = |profile: Value| {
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "APIServer",
            "metadata": {"name": "cluster"}, "spec": {"tlsSecurityProfile": profile},
        })
    };
    let servers = "/apis/config.openshift.io/v1/apiservers";
    site.cluster.create(servers, &profile(json!({"type": "Modern", "modern": {}})));
    wait_for("TLS 1.2 to be refused", || (!speaks(&server, "-tls1_2")).then_some(()));
    assert!(speaks(&server, "-tls1_3"));
    assert!(speaks(&by_flag, "-tls1_2"));

    // What cannot be spoken leaves what was before, and is told.
    let custom = json!({"type": "Custom", "modern": null, "custom": {
        "ciphers": ["AES128-SHA"], "minTLSVersion": "VersionTLS12"}});
    let cluster = format!("{servers}/cluster");
    site.cluster.patch(&cluster, &profile(custom));
    let line = told(&server, "TLS profile");
    assert!(line.contains("AES128-SHA"), "{line}");
    assert!(!speaks(&server, "-tls1_2"));
    let intermediate =
        json!({"type": "Intermediate", "custom": null, "modern": null, "intermediate": {}});
    site.cluster.patch(&cluster, &profile(intermediate));
    wait_for("TLS 1.2", || speaks(&server, "-tls1_2").then_some(()));
    in_order(&server);
}

/// The kubeconfig that a machine of the pool gets.
fn kubeconfig(server: &Server) -> Value {
    let text = served(server, "worker", "/etc/kubernetes/kubeconfig").expect("the file");
    serde_saphyr::from_str(&text).expect("YAML")
}

#[test]
fn machines_join_with_the_newest_token_and_authorities() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    let found = kubeconfig(&server);
    assert_eq!(found["current-context"], "kubelet");
    assert_eq!(
        found["contexts"],
        json!([{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}])
    );
    assert_eq!(
        found["users"],
        json!([{"name": "kubelet", "user": {"token": "abcdef.0123456789abcdef"}}])
    );
    let cluster = |authorities: &str| {
        json!([{"name": "local", "cluster": {
            "server": "https://api-int.example.com:6443",
            "certificate-authority-data": BASE64.encode(authorities),
        }}])
    };
    assert_eq!(found["clusters"], cluster("CA of the token\n"));

    site.write_token("fedcba.fedcba9876543210\n");
    let token = || kubeconfig(&server)["users"][0]["user"]["token"].clone();
    let changed = Stopwatch::start();
    wait_for("the new token", || (token() == "fedcba.fedcba9876543210").then_some(()));
    changed.within(SOON, "the new token");

    let data = json!({
        "metadata": {"name": "kubeconfig-data"},
        "binaryData": {"ca-bundle.crt": BASE64.encode("CA of the config map\n")},
    });
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    site.cluster.create(&maps, &data);
    let changed = Stopwatch::start();
    let clusters = || kubeconfig(&server)["clusters"].clone();
    wait_for("the config map's CA", || {
        (clusters() == cluster("CA of the config map\n")).then_some(())
    });
    changed.within(SOON, "the config map's CA");

    // A token that is gone leaves the last one, and is told.
    fs::remove_file(site.token().join("token")).expect("the token");
    let line = told(&server, "bootstrap token: ");
    assert!(line.contains("token/token: No such file"), "{line}");
    assert_eq!(token(), "fedcba.fedcba9876543210");
    assert!(!server.log().contains("fedcba9876543210"), "the token is in the log");
}

/// The four registries of OpenShift's enhancement: the key in the config map, the file's folder.
const REGISTRIES: [(&str, &str); 4] = [
    ("registry.example.com", "registry.example.com"),
    ("registry-with-port.example.com..5000", "registry-with-port.example.com:5000"),
    (
        "image-registry.openshift-image-registry.svc..5000",
        "image-registry.openshift-image-registry.svc:5000",
    ),
    (
        "image-registry.openshift-image-registry.svc.cluster.local..5000",
        "image-registry.openshift-image-registry.svc.cluster.local:5000",
    ),
];
const REGISTRY_CAS: &str = "merged-trusted-image-registry-ca";

#[test]
fn registries_authorities_are_on_a_machine_from_its_first_boot_on() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    site.pool("paused", "rendered-1");
    site.cluster.patch(&format!("{POOLS}/paused"), &json!({"spec": {"paused": true}}));
    let server = site.start(&[]).until_ready();
    let file = |host: &str| format!("/etc/docker/certs.d/{host}/ca.crt");
    assert_eq!(served(&server, "worker", &file(REGISTRIES[0].1)), Err(0));

    let [main, mirror, next] = ["main", "mirror", "mirror-next"].map(|name| {
        fs::read_to_string(in_repository(&format!("certs/registry-{name}.crt"))).expect("a CA")
    });
    let maps = format!("/api/v1/namespaces/{MANAGED}/configmaps");
    let map = format!("{maps}/{REGISTRY_CAS}");
    let data: serde_json::Map<String, Value> =
        REGISTRIES.iter().map(|(key, _)| ((*key).to_owned(), main.as_str().into())).collect();
    site.cluster.create(&maps, &json!({"metadata": {"name": REGISTRY_CAS}, "data": data}));
    for pool in ["worker", "paused"] {
        for (_, host) in REGISTRIES {
            served_soon(&server, pool, &file(host), Ok(&main));
        }
    }
    let machine = Machine::new();
    machine.boot(&pointer(&server, &site.pair, "worker"));
    for (_, host) in REGISTRIES {
        let on_disk = fs::read_to_string(machine.root().join(&file(host)[1..])).expect("a CA");
        assert_eq!(on_disk, main);
    }

    // Replaced, in base64, and added, with one entry that is no good.
    let both = format!("# until the summer\n{mirror}{next}");
    let (key, host) = REGISTRIES[1];
    site.cluster.patch(
        &map,
        &json!({
            "data": {key: both, "added.example.com": BASE64.encode(&next), "bad.example.com": "x"},
        }),
    );
    for pool in ["worker", "paused"] {
        served_soon(&server, pool, &file(host), Ok(&both));
        served_soon(&server, pool, &file("added.example.com"), Ok(&next));
    }
    assert_eq!(served(&server, "worker", &file("bad.example.com")), Err(0));
    assert_eq!(
        told(&server, "bad.example.com"),
        "ConfigMap openshift-config-managed/merged-trusted-image-registry-ca: \
         key \"bad.example.com\" holds no certificate in PEM"
    );
    assert_eq!(readiness(&server).0, 503);
    // What was good for a registry outlives a slip of a hand.
    site.cluster.patch(&map, &json!({"data": {key: "oops"}}));
    told(&server, key);
    assert_eq!(served(&server, "worker", &file(host)), Ok(both));
    site.cluster.patch(&map, &json!({"data": {key: null, "bad.example.com": null}}));
    served_soon(&server, "worker", &file(host), Err(0));
    in_order(&server);

    // A map that is gone says nothing; one that is empty says that there are no authorities.
    site.cluster.delete(&map);
    told(&server, &format!("{REGISTRY_CAS}: is gone"));
    assert_eq!(served(&server, "worker", &file("added.example.com")), Ok(next));
    site.cluster.create(&maps, &json!({"metadata": {"name": REGISTRY_CAS}}));
    for (_, host) in REGISTRIES {
        served_soon(&server, "worker", &file(host), Err(0));
    }
    in_order(&server);
}

#[test]
fn the_ledger_tells_of_all_servers_machines_and_who_has_joined() {
    let site = Site::new();
    site.machine_config("rendered-worker-1", "one");
    site.pool("worker", "rendered-worker-1");
    let other = site.start(&[]).until_ready();
    let peers = other.metrics().address().to_string();
    let server = site.start(&["--peers", &peers]).until_ready();
    let fetch = |server: &Server, last: u8| {
        let client = server.plain().from([127, 0, 0, last].into());
        let agent = [("User-Agent", "Ignition/2.14.0")];
        assert_eq!(client.request("GET", "/config/worker", &agent).status, 200);
    };
    fetch(&server, 2);
    fetch(&other, 3);
    let why = |last: u8| {
        let machine = server.metrics().get(&format!("/api/v1/machines/127.0.0.{last}"));
        if machine.status == 200 {
            machine.json()["why"].as_str().expect("words").to_owned()
        } else {
            String::new()
        }
    };
    for last in [2, 3] {
        wait_for("who has not joined", || {
            why(last).ends_with(" ago, no Node has this address yet").then_some(())
        });
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-3"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "127.0.0.3"}, {"type": "Hostname", "address": "worker-3"},
        ]},
    });
    site.cluster.create("/api/v1/nodes", &node);
    wait_for("who has joined", || why(3).contains("Node worker-3").then_some(()));
    assert!(why(2).contains("no Node has this address yet"));

    drop(other);
    let overview = wait_for("the other server to be missed", || {
        let overview = server.metrics().get("/api/v1/overview").json();
        let silent = overview["silent_servers"].as_array().expect("a list").len();
        (silent == 1).then_some(overview)
    });
    let silent = overview["silent_servers"][0].as_str().expect("words");
    assert!(silent.starts_with(&peers), "{silent}");
    assert_eq!(overview["machines"].as_array().expect("a list").len(), 1);
    let of_it = degraded(&overview).into_iter().find(|line| line.contains(&peers));
    assert_eq!(of_it, None, "a silent server keeps this one from nothing");
}

#[test]
fn a_server_that_may_not_see_nodes_serves_and_says_so() {
    let site = Site::new();
    site.machine_config("rendered-worker-1", "one");
    site.pool("worker", "rendered-worker-1");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/machine-config-server";
    let rules = site.cluster.get(role).expect("the role")["rules"].clone();
    let rules: Vec<&Value> = rules.as_array().expect("rules").iter().collect();
    let is_of_nodes = |rule: &&&Value| rule["resources"] != json!(["nodes"]);
    let less: Vec<_> = rules.iter().filter(is_of_nodes).collect();
    assert_eq!(less.len() + 1, rules.len());
    site.cluster.patch(role, &json!({"rules": less}));
    // The API server goes by a role's change some time after it has taken it.
    wait_for("the role to count", || {
        (!site.cluster.may(ACCOUNT, "list", "/nodes", "")).then_some(())
    });
    let server = site.start(&[]).until_ready();
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.plain().request("GET", "/config/worker", &agent).status, 200);
    let of_nodes = || {
        let overview = server.metrics().get("/api/v1/overview").json();
        degraded(&overview).into_iter().find(|line| line.starts_with("nodes: "))
    };
    let line = wait_for("it to say so", of_nodes);
    assert!(line.starts_with("nodes: cannot be watched: ") && line.contains("forbidden"), "{line}");
    assert!(server.metric("mcs_watch_failures_total{kind=\"nodes\"}") >= 1.0);
    let machine = server.metrics().get("/api/v1/machines/127.0.0.1").json();
    let why = machine["why"].as_str().expect("text");
    assert!(why.ends_with("no nodes are known here"), "{why}");

    site.cluster.patch(role, &json!({"rules": rules}));
    wait_for("it to see them", || of_nodes().is_none().then_some(()));
}

#[test]
fn the_service_account_may_do_what_the_server_does_and_nothing_else() {
    let site = Site::new();
    let group = "machineconfiguration.openshift.io";
    let registry = "openshift-image-registry";
    let objects = [
        (format!("{group}/machineconfigpools"), "", &["list", "watch"][..]),
        (format!("{group}/machineconfigs"), "", &["get", "list", "watch"]),
        (format!("{group}/machineosconfigs"), "", &["list", "watch"]),
        (format!("{group}/machineosbuilds"), "", &["list", "watch"]),
        (format!("{group}/controllerconfigs/machine-config-controller"), "", &["list", "watch"]),
        (format!("{group}/controllerconfigs/other"), "", &[]),
        (format!("{group}/controllerconfigs"), "", &[]),
        ("config.openshift.io/apiservers/cluster".to_owned(), "", &["list", "watch"]),
        ("config.openshift.io/apiservers/other".to_owned(), "", &[]),
        ("/configmaps/kubeconfig-data".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/configmaps/other".to_owned(), NAMESPACE, &[]),
        ("/configmaps/merged-trusted-image-registry-ca".to_owned(), MANAGED, &["list", "watch"]),
        ("/configmaps/image-registry-ca".to_owned(), MANAGED, &[]),
        ("/configmaps/merged-trusted-image-registry-ca".to_owned(), NAMESPACE, &[]),
        ("/configmaps".to_owned(), "kube-system", &[]),
        ("/services".to_owned(), registry, &["list", "watch"]),
        ("/services".to_owned(), "default", &[]),
        ("route.openshift.io/routes".to_owned(), registry, &["list", "watch"]),
        ("route.openshift.io/routes".to_owned(), "default", &[]),
        ("/secrets".to_owned(), NAMESPACE, &[]),
        ("/secrets/machine-config-server-access".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/secrets/machine-config-server-tls".to_owned(), NAMESPACE, &["list", "watch"]),
        ("/secrets/machine-config-server-tokens".to_owned(), NAMESPACE, &[]),
        ("/secrets/machine-config-server-ca".to_owned(), NAMESPACE, &[]),
        ("/secrets/pull-secret".to_owned(), "openshift-config", &[]),
        ("/secrets".to_owned(), "kube-system", &[]),
        ("/pods".to_owned(), NAMESPACE, &[]),
        ("/nodes".to_owned(), "", &["list", "watch"]),
        ("/serviceaccounts".to_owned(), NAMESPACE, &[]),
        ("rbac.authorization.k8s.io/clusterroles".to_owned(), "", &[]),
        ("coordination.k8s.io/leases".to_owned(), NAMESPACE, &[]),
        ("/events".to_owned(), NAMESPACE, &[]),
    ];
    let verbs = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "impersonate",
        "escalate",
        "bind",
    ];
    for (object, namespace, allowed) in &objects {
        for verb in verbs {
            let expected = allowed.contains(&verb);
            let may = site.cluster.may(ACCOUNT, verb, object, namespace);
            assert_eq!(may, expected, "{verb} {object} in {namespace:?}");
        }
    }

    // The roles are all that the account is bound to, so that nothing hides beside the list. The
    // last one lets its pods use the host's network, on OpenShift.
    let bindings = site.cluster.kubectl(&[
        "get",
        "clusterrolebindings,rolebindings",
        "--all-namespaces",
        "-o",
        "json",
    ]);
    let bindings: Value = serde_json::from_str(&bindings).expect("JSON");
    let is_bound = |binding: &&Value| {
        binding["subjects"].as_array().is_some_and(|s| s.iter().any(|s| s["name"] == ACCOUNT))
    };
    let roles = bindings["items"].as_array().expect("items").iter().filter(is_bound);
    let roles: BTreeSet<&str> =
        roles.map(|binding| binding["roleRef"]["name"].as_str().expect("a name")).collect();
    assert_eq!(roles, [ACCOUNT, "machine-config-server-host-network"].into());
}

#[test]
fn what_is_to_be_deployed_is_taken_by_the_api_server() {
    // OpenShift's: with its own definitions, as part of every other test here.
    let openshift = Cluster::openshift();
    openshift.kubectl(&["get", "daemonset", ACCOUNT, "--namespace", NAMESPACE]);

    let cluster = Cluster::kubernetes();
    cluster.kubectl(&["get", "deployment", ACCOUNT, "--namespace", NAMESPACE]);
    let site = Site::of(cluster);
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
}

#[test]
fn a_boot_costs_no_more_from_a_cluster_than_from_a_directory() {
    const BOOTS: u32 = 600;
    let site = Site::new();
    let config = machine_config("rendered-1", "one", 170);
    site.cluster.create(CONFIGS, &config);
    site.pool("worker", "rendered-1");
    let manifests = tempfile::tempdir().expect("a temporary folder");
    let pool = json!({
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "status": {"configuration": {"name": "rendered-1"}},
    });
    for (name, object) in [("pool", &pool), ("config", &config)] {
        let path = manifests.path().join(format!("{name}.json"));
        fs::write(path, object.to_string()).expect("a writable folder");
    }
    let from_cluster = site.start(&[]).until_ready();
    let from_directory = Server::serve(manifests.path(), &[]);
    let ca = from_directory.ca();
    let sides = [(&from_cluster, site.pair.pem.as_bytes()), (&from_directory, &ca[..])];
    let mut least = [u64::MAX; 2];
    // By turns, and the least of each: whatever else the machine does only adds. A tenth, and a
    // tick at either end, is what such a measurement is good for.
    let holds = |[cluster, directory]: [u64; 2]| cluster <= directory + directory / 10 + 2;
    for round in 0..20 {
        if round >= 5 && holds(least) {
            break;
        }
        for ((server, authority), least) in sides.iter().zip(&mut least) {
            let client = Client::tls(server.secure(), authority);
            let before = server.cpu_ticks();
            for _ in 0..BOOTS {
                assert_eq!(
                    crate::support::contract::config(&client, "worker", "3.4.0").status,
                    200
                );
            }
            *least = (*least).min(server.cpu_ticks() - before);
        }
    }
    let [cluster, directory] = least;
    println!("{cluster} ticks from the cluster, {directory} from the directory");
    assert!(holds(least), "{cluster} ticks against {directory}");
}

#[test]
fn what_is_rendered_without_a_server_is_what_one_serves() {
    let site = Site::new();
    site.machine_config("rendered-1", "one");
    site.pool("worker", "rendered-1");
    let server = site.start(&[]).until_ready();
    let render = |pool: &str, flags: &[&str]| {
        let mut command = binary();
        command.args(["render", pool, "--kubeconfig"]);
        command.arg(site.cluster.account_kubeconfig(site.cluster.address()));
        command.args(["--apiserver-url", "https://api-int.example.com:6443"]);
        command.arg("--bootstrap-token-dir").arg(site.token()).args(flags);
        command.output().expect("the built binary")
    };
    let rendered = render("worker", &["--spec", "3.4"]);
    let text = String::from_utf8_lossy(&rendered.stderr);
    assert!(rendered.status.success(), "{text}");
    let body = config(&server.plain(), "worker", "3.4.0").body;
    assert_eq!(rendered.stdout.strip_suffix(b"\n"), Some(&body[..]));

    let unknown = render("nobody", &[]);
    assert_eq!((unknown.status.code(), &unknown.stdout[..]), (Some(1), &b""[..]));
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(text.contains("there is no pool nobody, only worker"), "{text}");
}
