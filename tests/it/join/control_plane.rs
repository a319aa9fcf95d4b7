//! A cluster that machines can join: an API server that they reach, with the kinds and accounts of `deploy/`, and the real
//! controller manager, which approves and signs what kubelet asks for.

use std::fs;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::network::HOST;
use crate::support::book::example;
use crate::support::cluster::{Cluster, controller_config};
use crate::support::in_repository;
use crate::support::logged::Logged;
use crate::support::server::free_ports;
use crate::support::virtual_machine::assets;

/// The CA of a cluster, in files of this folder: of the API server's certificate, and of the certificates that it signs.
struct ClusterCa(TempDir);

impl ClusterCa {
    fn make() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let named = |name: &str, names: &[String]| {
            let mut params = CertificateParams::new(names).expect("names");
            params.distinguished_name.push(DnType::CommonName, name);
            params
        };
        let mut ca = named("cluster CA", &[]);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = ca.self_signed(&key).expect("a certificate").pem();
        let secret = key.serialize_pem();
        let own_key = KeyPair::generate().expect("a key");
        let own = named("kube-apiserver", &[HOST.to_string(), "10.0.0.1".to_owned()]);
        let own = own.signed_by(&own_key, &Issuer::new(ca, key)).expect("a certificate");
        for (name, text) in [
            ("ca.crt", pem),
            ("ca.key", secret),
            ("api.crt", own.pem()),
            ("api.key", own_key.serialize_pem()),
        ] {
            fs::write(directory.path().join(name), text).expect("a writable folder");
        }
        Self(directory)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn pem(&self) -> String {
        fs::read_to_string(self.file("ca.crt")).expect("the CA")
    }
}

/// An API server with a controller manager. Both end with this value.
pub(crate) struct ControlPlane {
    _manager: Logged,
    pub(crate) cluster: Cluster,
    _ca: ClusterCa,
}

impl ControlPlane {
    pub(super) fn start() -> Self {
        let ca = ClusterCa::make();
        let flags = [
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={HOST}"),
            format!("--tls-cert-file={}", ca.file("api.crt")),
            format!("--tls-private-key-file={}", ca.file("api.key")),
            // What the tests trust, who ask by that name.
            "--tls-sni-cert-key=tls.crt,tls.key".to_owned(),
            format!("--client-ca-file={}", ca.file("ca.crt")),
            "--authorization-mode=Node".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ];
        let cluster = Cluster::prepared_with("joinable", flags.into(), prepare);
        let cas = json!({"spec": controller_config(&ca.pem())["spec"]});
        cluster.patch(
            "/apis/machineconfiguration.openshift.io/v1/controllerconfigs/machine-config-controller",
            &cas,
        );
        let manager = manager(&cluster, &ca);
        Self { _manager: manager, cluster, _ca: ca }
    }

    /// Lets the controller manager approve what the holders of the bootstrap token ask for, as an administrator chooses.
    pub(super) fn approve_all(&self) {
        self.cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            "approved-machines",
            "--clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "--serviceaccount=openshift-machine-config-operator:node-bootstrapper",
        ]);
    }

    /// Address of the API server for machines.
    pub(super) fn url(&self) -> String {
        format!("https://{HOST}:{}", self.cluster.address().port())
    }
}

fn manager(cluster: &Cluster, ca: &ClusterCa) -> Logged {
    let [port] = free_ports();
    let mut command = Command::new(assets().join("kube-controller-manager"));
    command
        .arg("--kubeconfig")
        .arg(cluster.admin())
        .args(["--leader-elect=false", "--use-service-account-credentials=true"])
        .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", port.port())])
        .arg("--cert-dir")
        .arg(ca.0.path().join("manager"))
        .arg("--root-ca-file")
        .arg(ca.file("ca.crt"))
        .arg("--service-account-private-key-file")
        .arg(cluster.folder().join("accounts.key"))
        .arg("--cluster-signing-cert-file")
        .arg(ca.file("ca.crt"))
        .arg("--cluster-signing-key-file")
        .arg(ca.file("ca.key"));
    Logged::start("kube-controller-manager", &mut command)
}

/// What an administrator applies by the book.
fn prepare(cluster: &Cluster) {
    let components = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("deploy/components/{name}")).collect()
    };
    let apply = |base: &str, names: &[&str]| {
        let names = components(names);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        cluster.apply_overlay(base, &names);
    };
    cluster.apply(&["-f", in_repository("deploy/kubernetes/crds").to_str().expect("text")]);
    cluster.serves_all_kinds();
    apply("deploy/kubernetes", &["access", "first-boot-machines", "registry-auth"]);
    apply("deploy/controller", &["access", "first-boot-machines-controller", "render-pools"]);
    cluster.serves_all_kinds();
    cluster.create(
        "/apis/machineconfiguration.openshift.io/v1/controllerconfigs",
        &controller_config("kubelet CA"),
    );
    cluster.apply_text(&example("how-to/kubernetes.md", "name: node-bootstrapper-token"));
    let image = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"},
    });
    cluster.create("/apis/config.openshift.io/v1/images", &image);
}
