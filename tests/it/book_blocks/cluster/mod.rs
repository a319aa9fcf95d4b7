//! Pages whose commands need a cluster: a real kube-apiserver that all pages of a test share, with kubectl as `oc` too.
//!
//! No pod runs here: what a kubelet and the controllers of workloads would report is written by [`roll_out`]. A cluster of this
//! project's manifests has OpenShift's kinds, as far as commands use them, and those of cert-manager and of Prometheus.

mod controlled;
mod typed;

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::shell::apart;
use super::walk::{Page, Terminal, walk};
use crate::support::cert_manager::CertManager;
use crate::support::cluster::{Cluster, controller_config};
use crate::support::in_repository;
use crate::support::rendered;

/// All pages of this module.
pub(super) fn pages() -> impl Iterator<Item = &'static Page> {
    typed::PAGES.iter().chain(controlled::PAGES)
}

/// Typed first: files of an administrator, and of a pod's service account.
const BEFORE: &str = r#"
cp "$KUBECONFIG" FILE && cp FILE admin.kubeconfig
account=/run/secrets/kubernetes.io/serviceaccount
mkdir -p $account token DIR certs
jq -r '.users[0].user.token' FILE | tr -d '\n' >$account/token
cp "$(jq -r '.clusters[0].cluster["certificate-authority"]' FILE)" $account/ca.crt
printf openshift-machine-config-operator >$account/namespace
printf abcdef.0123456789abcdef >token/token
cp $account/ca.crt token/ca.crt
cp certs/registry-main.crt mirror-ca.crt && cp certs/registry-mirror.crt ca.crt
echo secret >password
"#;

/// Definitions of kinds that a cluster has from others, which accept everything: group, version, kind, plural.
const KINDS: [[&str; 4]; 5] = [
    ["config.openshift.io", "v1", "ClusterVersion", "clusterversions"],
    ["machine.openshift.io", "v1beta1", "MachineSet", "machinesets"],
    ["monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"],
    ["monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"],
    ["monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"],
];

/// A cluster, and a terminal for it.
pub(super) struct ClusterTerminal {
    cluster: Cluster,
    programs: TempDir,
}

impl ClusterTerminal {
    fn of_manifests() -> Self {
        Self::of(Cluster::prepared_here("book", prepare), None)
    }

    /// A terminal with this helm, if any.
    pub(super) fn of(cluster: Cluster, helm: Option<PathBuf>) -> Self {
        let programs = tempfile::tempdir().expect("a temporary folder");
        let kubectl = PathBuf::from(assets("KUBEBUILDER_ASSETS")).join("kubectl");
        let helm = helm.map(|helm| ("helm", helm));
        for (name, program) in
            [("kubectl", kubectl.clone()), ("oc", kubectl)].into_iter().chain(helm)
        {
            symlink(program, programs.path().join(name)).expect("a writable folder");
        }
        Self { cluster, programs }
    }

    pub(super) fn walk(&self, pages: &[Page]) {
        let text = |path: PathBuf| path.display().to_string();
        let variables = [
            ("KUBECONFIG", text(self.cluster.admin())),
            ("KUBECACHEDIR", text(self.cluster.kubectl_cache())),
            ("KUBERNETES_SERVICE_HOST", "localhost".to_owned()),
            ("KUBERNETES_SERVICE_PORT", self.cluster.address().port().to_string()),
        ];
        walk(
            pages,
            &Terminal {
                programs: vec![self.programs.path().to_owned()],
                variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
                before: BEFORE,
                roll_out: Some(&|| roll_out(&self.cluster)),
            },
        );
    }
}

pub(super) fn assets(variable: &str) -> std::ffi::OsString {
    std::env::var_os(variable).unwrap_or_else(|| panic!("no {variable}: run tests/run"))
}

fn prepare(cluster: &Cluster) {
    let folder = |path: &str| in_repository(path).display().to_string();
    cluster.apply(&["-k", &folder("deploy/kubernetes")]);
    for [group, version, kind, plural] in KINDS {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "scope": if kind == "ClusterVersion" { "Cluster" } else { "Namespaced" },
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.create(path, &definition);
    }
    CertManager::define(cluster);
    cluster.apply(&["-k", &folder("deploy/controller")]);
    let configs = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
    cluster.create(configs, &controller_config("kubelet CA"));
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"}, "spec": {"clusterID": "0"},
    });
    cluster.create("/apis/config.openshift.io/v1/clusterversions", &version);
    for name in ["rendered-worker-1", "rendered-edge-1"] {
        rendered::create_empty(cluster, name);
    }
    for pool in ["worker", "edge"] {
        rendered::create_pool(cluster, pool, &json!({}), &format!("rendered-{pool}-1"));
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"},
        "spec": {"podCIDRs": ["10.128.0.0/23"]},
    });
    cluster.create("/api/v1/nodes", &node);
}

/// Reports every workload as rolled out, in place of the controllers that would.
fn roll_out(cluster: &Cluster) {
    for kind in ["daemonsets", "deployments"] {
        let listed = cluster.get(&format!("/apis/apps/v1/{kind}")).expect("a list");
        for object in listed["items"].as_array().expect("a list") {
            let [namespace, name] = ["namespace", "name"]
                .map(|field| object["metadata"][field].as_str().expect("text").to_owned());
            let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
            let counts: &[&str] = if kind == "deployments" {
                &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            } else {
                &[
                    "currentNumberScheduled",
                    "desiredNumberScheduled",
                    "updatedNumberScheduled",
                    "numberReady",
                    "numberAvailable",
                    "numberMisscheduled",
                ]
            };
            let mut status = json!({"observedGeneration": object["metadata"]["generation"]});
            for count in counts {
                status[count] = json!(replicas);
            }
            let path = format!("/apis/apps/v1/namespaces/{namespace}/{kind}/{name}/status");
            cluster.patch(&path, &json!({"status": status}));
        }
    }
}

#[test]
fn the_commands_for_a_cluster_do_what_their_pages_say() {
    apart(|| ClusterTerminal::of_manifests().walk(typed::PAGES));
}

#[test]
fn the_commands_for_a_cluster_with_a_controller_do_what_their_pages_say() {
    apart(|| {
        let site = ClusterTerminal::of_manifests();
        let _running = controlled::Running::start(&site.cluster);
        site.walk(controlled::PAGES);
    });
}
