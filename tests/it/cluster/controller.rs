//! The controller in a cluster: a real kube-apiserver and etcd, the controller as its own service
//! account with the rights that `deploy/` gives it, and machines that boot by what it makes.

mod access;
mod administrators;
mod bundles;
mod external;
mod failures;
mod issued;
mod lifecycle;
mod lockouts;
mod machines;
mod named_certificates;
mod rotations;
mod secret_types;
mod taken_over;
mod user_data;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::access::trusted;
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::command::{Said, Store};
use crate::support::logged::Logged;
use crate::support::openssl::{openssl, sign_serving};
use crate::support::pair::Pair;
use crate::support::rendered;
use crate::support::server::{Server, binary, make_token_directory};
use crate::support::{wait_for, wait_until};

const ACCOUNT: &str = "machine-config-server-controller";
const USER_DATA_NAMESPACE: &str = "openshift-machine-api";
const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";
const HANDLED: &str = "machineconfiguration.openshift.io/rotate-certificate-handled";
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";

fn secrets(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

fn ca() -> String {
    format!("{}/machine-config-server-ca", secrets(NAMESPACE))
}

fn serving() -> String {
    format!("{}/machine-config-server-tls", secrets(NAMESPACE))
}

fn bundle() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machine-config-server-ca")
}

fn user_data(name: &str) -> String {
    format!("{}/{name}", secrets(USER_DATA_NAMESPACE))
}

/// One value of a secret.
fn value(secret: &Value, key: &str) -> Vec<u8> {
    BASE64.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64")
}

/// A controller by its own account.
pub(super) fn started(cluster: &Cluster, flags: &[&str]) -> Controller {
    let kubeconfig = cluster.kubeconfig_of(ACCOUNT, NAMESPACE, cluster.address());
    Controller::by(binary(), &kubeconfig, flags)
}

/// A cluster for a controller.
struct ControlledCluster {
    cluster: Cluster,
    directory: TempDir,
}

impl ControlledCluster {
    fn new() -> Self {
        Self::of(Cluster::openshift_with_controller())
    }

    /// One with a pool, in a cluster that knows the controller's account.
    fn of(cluster: Cluster) -> Self {
        rendered::create_empty(&cluster, "rendered");
        let site = Self { cluster, directory: tempfile::tempdir().expect("a temporary folder") };
        site.pool("worker");
        site
    }

    fn pool(&self, name: &str) {
        rendered::create_pool(&self.cluster, name, &json!({}), "rendered");
    }

    /// Starts the controller, and waits until nothing is left to do.
    fn start_settled(&self, flags: &[&str]) -> Controller {
        let controller = self.start(flags);
        self.object(&user_data("worker-user-data-managed"));
        self.settled();
        controller
    }

    /// Starts the controller. The server's name is `localhost`, besides what the cluster says.
    fn start(&self, flags: &[&str]) -> Controller {
        started(&self.cluster, flags)
    }

    fn object(&self, path: &str) -> Value {
        wait_for(path, || self.cluster.get(path))
    }

    fn make_user_data(&self, name: &str, text: &[u8]) {
        let secret = json!({
            "metadata": {"name": name},
            "data": {"userData": BASE64.encode(text), "other": BASE64.encode("stays")},
        });
        self.cluster.create(&secrets(USER_DATA_NAMESPACE), &secret);
    }

    fn user_data(&self, name: &str) -> Vec<u8> {
        value(&self.object(&user_data(name)), "userData")
    }

    fn bundle(&self) -> String {
        let map = self.object(&bundle());
        map["data"]["ca-bundle.crt"].as_str().unwrap_or_default().to_owned()
    }

    /// The bundle's first certificate alone.
    fn newest(&self) -> String {
        let bundle = self.bundle();
        let end = "-----END CERTIFICATE-----\n";
        bundle.split_inclusive(end).next().expect("a certificate").to_owned()
    }

    fn certs(&self, arguments: &[&str]) -> Said {
        self.cluster.run(&[&["certs"], arguments].concat())
    }

    /// Has a new authority made by a value that was not there before, and waits for it. Without
    /// force, one that is asked for within an hour of another is the same.
    fn rotate(&self, value: &str) {
        let before = self.bundle();
        let value = format!("{value} --force");
        let change = json!({"metadata": {"annotations": {ROTATE: value}}});
        self.cluster.patch(&ca(), &change);
        wait_until("a new bundle", || self.bundle() != before);
        self.settled();
    }

    /// Waits until nothing is left to do.
    fn settled(&self) {
        wait_until("everything to be in order", || self.is_settled());
    }

    fn is_settled(&self) -> bool {
        self.certs(&["check"]).status == 0
    }

    fn serial(&self, path: &str) -> Vec<u8> {
        value(&self.object(path), "tls.crt")
    }
}

/// A running controller.
pub(super) type Controller = Logged;

impl Controller {
    fn by(mut command: Command, kubeconfig: &Path, flags: &[&str]) -> Self {
        command.arg("controller").arg("--kubeconfig").arg(kubeconfig);
        Self::observed("the controller", command.args(["--host", "localhost"]).args(flags))
    }

    /// How often watches of secrets failed.
    fn watch_failures(&self) -> u64 {
        let page = self.metrics();
        let metric = "mcs_watch_failures_total{kind=\"Secret\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(metric));
        line.map_or(0, |count| count.parse().expect("a count"))
    }

    pub(super) fn is_active(&self) -> bool {
        self.log().contains("became the leader identity=")
    }
}

/// Puts the serving pair's secret into files, as kubelet does: certificate first, then its key in
/// the same folder, each whole.
fn mount(site: &ControlledCluster, pair: &Pair) {
    let secret = site.object(&serving());
    for (path, key) in [(&pair.key, "tls.key"), (&pair.certificate, "tls.crt")] {
        let next = path.with_extension("next");
        fs::write(&next, value(&secret, key)).expect("a writable folder");
        fs::rename(&next, path).expect("a rename");
    }
}

/// A server in the cluster with the pair that the controller made, and where that is mounted.
fn server(site: &ControlledCluster) -> (Server, Pair) {
    let (server, pair) = server_at(site, site.cluster.address(), &[]);
    (server.until_ready(), pair)
}

/// The same with flags, reaching the API server at an address. Returns once it answers.
fn server_at(site: &ControlledCluster, address: SocketAddr, flags: &[&str]) -> (Server, Pair) {
    let directory = tempfile::tempdir_in(site.directory.path()).expect("a new folder").keep();
    let pair = Pair::make(&directory, "localhost");
    mount(site, &pair);
    let token = directory.join("token");
    make_token_directory(&token);
    let kubeconfig = site.cluster.account_kubeconfig(address);
    (Server::in_cluster(&kubeconfig, &token, &pair, flags), pair)
}

/// A managed pointer config, with the port of the server under test.
fn pointer(site: &ControlledCluster, server: &Server) -> String {
    let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
    let port = server.secure().port().to_string();
    text.replace(":22623/", &format!(":{port}/"))
}

/// A config that a machine set's user data may be, with one authority.
fn user_data_config(version: &str, source: &Value) -> Value {
    let fetch = if version.starts_with('2') { "append" } else { "merge" };
    json!({
        "ignition": {
            "version": version,
            "config": {fetch: [{"source": "https://localhost:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": [source]}},
        },
        "x-unknown": {"kept": [1, 2, 3]},
    })
}

/// An RSA authority and a pair that it signed, as OpenShift's installer and controller make them.
fn rsa_pair(directory: &Path, ca: &str) {
    openssl(directory, &["genrsa", "-traditional", "-out", "ca.key", "2048"]);
    let key = rcgen::KeyPair::from_pem(&read(&directory.join("ca.key"))).expect("an RSA key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    // Longer than OpenSSL makes any, as the controller's are.
    params.distinguished_name.push(rcgen::DnType::CommonName, ca);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2036, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(directory.join("ca.crt"), certificate.pem()).expect("a write");
    openssl(directory, &["genrsa", "-traditional", "-out", "tls.key", "2048"]);
    sign_serving(directory, "subjectAltName=DNS:localhost");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

fn tls_secret(name: &str, kind: &str, certificate: &str, key: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "type": kind,
        "data": {"tls.crt": BASE64.encode(certificate), "tls.key": BASE64.encode(key)},
    })
}
