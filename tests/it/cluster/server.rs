//! The server in a cluster: a real kube-apiserver and etcd, the server as its own service account
//! with the rights that `deploy/` gives it.

mod approval;
mod away;
mod joining;
mod lagging;
mod layered_images;
mod ledger;
mod pools;
mod scale;
mod tls_profile;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::Cluster;
use crate::support::pair::Pair;
use crate::support::rendered::{self, CONFIGS, POOLS};
use crate::support::server::{Server, make_token_directory};
use crate::support::wait_for;

const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";

/// A cluster, and what a server in it is given.
pub(super) struct ServedCluster {
    pub(super) pair: Pair,
    pub(super) directory: TempDir,
    pub(super) cluster: Cluster,
}

impl ServedCluster {
    pub(super) fn new() -> Self {
        Self::of(Cluster::openshift())
    }

    pub(super) fn of(cluster: Cluster) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let pair = Pair::make(directory.path(), "localhost");
        let site = Self { pair, directory, cluster };
        make_token_directory(&site.token());
        site
    }

    /// One with the pool `worker`, whose config is `rendered-1` with the marker `one`.
    pub(super) fn with_worker() -> Self {
        let site = Self::new();
        site.machine_config("rendered-1", "one");
        site.pool("worker", "rendered-1");
        site
    }

    pub(super) fn token(&self) -> PathBuf {
        self.directory.path().join("token")
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
        let spec = json!({"configuration": {"name": configuration}});
        rendered::create_pool(&self.cluster, name, &spec, configuration);
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

fn wait_for_readiness(server: &Server, what: impl Fn(u16, &str) -> bool) {
    wait_for("readiness", || Some(server.readiness()).filter(|(s, text)| what(*s, text)));
}

/// Waits until nothing is told any more, but that unauthenticated clients can read the token that machines join
/// with: these pools are not enforced.
fn healthy(server: &Server) {
    let is_exposed = |line: &str| {
        line.contains(": unauthenticated clients can read /etc/kubernetes/kubeconfig ")
    };
    wait_for_readiness(server, |status, text| status == 200 && text.lines().all(is_exposed));
}

/// A pointer config by which a machine finds the server.
pub(super) fn pointer(server: &Server, pair: &Pair, pool: &str) -> String {
    let ca =
        percent_encoding::percent_encode(pair.pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    let source = format!("https://localhost:{}/config/{pool}", server.secure().port());
    json!({"ignition": {
        "version": "3.1.0",
        "config": {"merge": [{"source": source}]},
        "security": {"tls": {"certificateAuthorities": [{"source": format!("data:,{ca}")}]}},
    }})
    .to_string()
}

/// A definition of a kind that takes any object, as a manifest.
fn write_definition(site: &ServedCluster, kind: &str, group: &str) -> String {
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
    let path = site.directory.path().join(format!("{plural}.json"));
    fs::write(&path, definition.to_string()).expect("a writable folder");
    path.to_str().expect("text").to_owned()
}
