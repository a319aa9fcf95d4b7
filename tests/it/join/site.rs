//! A cluster with everything that a machine needs to join it: the controller with its certificates, tokens and rendered pools,
//! and two servers behind one address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::control_plane::ControlPlane;
use super::network::{HOST, Network};
use crate::support::book::example;
use crate::support::cluster::NAMESPACE;
use crate::support::http::Client;
use crate::support::logged::Logged;
use crate::support::rendered::POOLS;
use crate::support::server::{Server, binary};
use crate::support::virtual_machine::VirtualMachine;
use crate::support::{wait_for, wait_until};

pub(super) const TUTORIAL: &str = "tutorials/join.md";
const CONTROLLER: &str = "machine-config-server-controller";

/// Where a machine of a test is in its network: its hardware's last number, by which it is given an address.
pub(super) struct Place(pub(super) u8);

impl Place {
    pub(super) fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, self.0))
    }

    /// The name of the Node of a machine that has none.
    pub(super) fn node(&self) -> String {
        format!("worker-{}", self.address().to_string().replace('.', "-"))
    }
}

/// Such a cluster. What runs in it ends with this value.
pub(crate) struct Site {
    pub(super) servers: Vec<Server>,
    _controller: Logged,
    pub(crate) plane: ControlPlane,
    pub(super) network: Network,
    pub(super) directory: TempDir,
}

impl Site {
    /// Starts it with the tutorial's pool, in a thread that is apart. All machines are approved.
    pub(super) fn start() -> Self {
        let site = Self::without_approval();
        site.plane.approve_all();
        site
    }

    /// Starts it like [`Self::start`], and approves no machine.
    pub(crate) fn without_approval() -> Self {
        let mut site = Self::without_servers();
        site.mount_token();
        for _ in 0..2 {
            let server = site.serve().until_ready();
            site.servers.push(server);
        }
        site.balance();
        site
    }

    /// Starts it with one server, which has no token, and so no bootstrap kubeconfig for machines.
    pub(super) fn without_token() -> Self {
        let mut site = Self::without_servers();
        let server = site.serve();
        site.servers.push(server);
        site.balance();
        site
    }

    fn without_servers() -> Self {
        let network = Network::start();
        let plane = ControlPlane::start();
        plane.cluster.apply_text(&example(TUTORIAL, "name: 50-kubelet"));
        let kubeconfig =
            plane.cluster.kubeconfig_of(CONTROLLER, NAMESPACE, plane.cluster.address());
        let mut command = binary();
        command.arg("controller").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--host", &HOST.to_string(), "--render-pools"]);
        command.args(["--access", "audit", "--first-boot-machines"]);
        let controller = Logged::observed("the controller", &mut command);
        let directory = tempfile::tempdir().expect("a temporary folder");
        let site = Self { servers: Vec::new(), _controller: controller, plane, network, directory };
        site.mount_pair();
        site
    }

    /// Starts one more server, which shows the machines of the others too.
    fn serve(&self) -> Server {
        let cluster = &self.plane.cluster;
        let mut command = binary();
        command
            .args(["start", "--access", "audit", "--first-boot-machines", "--registry-auth"])
            .args(["--apiserver-url", &self.plane.url(), "--kubeconfig"])
            .arg(cluster.account_kubeconfig(cluster.address()))
            .arg("--bootstrap-token-dir")
            .arg(self.mounted("token"))
            .arg("--cert")
            .arg(self.mounted("tls/tls.crt"))
            .arg("--key")
            .arg(self.mounted("tls/tls.key"));
        for other in &self.servers {
            command.args(["--peers", &other.metrics().address().to_string()]);
        }
        Server::prepared_everywhere(command)
    }

    /// Leads machines to the servers that run.
    pub(super) fn balance(&self) {
        self.balance_to(&self.servers);
    }

    /// Leads machines to these servers.
    pub(super) fn balance_to(&self, servers: &[Server]) {
        let servers: Vec<_> = servers.iter().map(Server::secure).collect();
        self.network.balance(&servers);
    }

    /// Applies an object, as an administrator does.
    pub(super) fn apply(&self, text: &str) {
        self.plane.cluster.apply_text(text);
    }

    /// The certificate that each server shows.
    pub(super) fn shown_certificates(&self) -> Vec<Vec<u8>> {
        let shown = |server: &Server| self.client(server).shown_certificate().expect("a handshake");
        self.servers.iter().map(shown).collect()
    }

    fn client(&self, server: &Server) -> Client {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machine-config-server-ca");
        let bundle = self.plane.cluster.get(&path).expect("the CAs");
        let bundle = bundle["data"]["ca-bundle.crt"].as_str().expect("PEM");
        Client::tls(server.secure(), bundle.as_bytes()).named(&HOST.to_string())
    }

    /// Waits until all servers have a file in the config that they give to who has the pool's token.
    pub(super) fn serves(&self, path: &str) {
        let pointer = fs::read(self.user_data("worker")).expect("user data");
        let pointer: Value = serde_json::from_slice(&pointer).expect("JSON");
        let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
        let headers = [("Authorization", header.as_str().expect("a token"))];
        wait_until(path, || {
            let has_file = |server: &Server| {
                self.client(server).request("GET", "/config/worker", &headers).text().contains(path)
            };
            self.servers.iter().all(has_file)
        });
    }

    /// The last server, which shows the machines of all.
    pub(crate) fn server(&self) -> &Server {
        self.servers.last().expect("a server")
    }

    fn mounted(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Writes the token that machines join with where servers read it.
    pub(super) fn mount_token(&self) {
        self.mount("token", "node-bootstrapper-token", ["ca.crt", "token"]);
    }

    /// Replaces that token by one that the API server does not know.
    pub(super) fn mount_wrong_token(&self) {
        replace(&self.mounted("token/token"), b"no.token.of-this-cluster");
    }

    /// Writes the serving pair where servers read it.
    pub(super) fn mount_pair(&self) {
        self.mount("tls", "machine-config-server-tls", ["tls.key", "tls.crt"]);
    }

    /// Writes a Secret that servers have mounted, as kubelet does, once it is there.
    fn mount(&self, folder: &str, secret: &str, keys: [&str; 2]) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}");
        for key in keys {
            let contents = self.value(&path, key);
            replace(&self.mounted(folder).join(key), &contents);
        }
    }

    /// A value of a Secret, once it is there.
    fn value(&self, secret: &str, key: &str) -> Vec<u8> {
        wait_for(secret, || {
            let object = self.plane.cluster.get(secret)?;
            BASE64.decode(object["data"][key].as_str()?).ok()
        })
    }

    /// The user data of a pool's machines, in a file.
    pub(super) fn user_data(&self, pool: &str) -> PathBuf {
        self.user_data_in("openshift-machine-api", pool)
    }

    /// The user data of a machine with a name, in a file.
    pub(super) fn own_user_data(&self, name: &str) -> PathBuf {
        self.user_data_in(NAMESPACE, name)
    }

    fn user_data_in(&self, namespace: &str, name: &str) -> PathBuf {
        let secret = format!("/api/v1/namespaces/{namespace}/secrets/{name}-user-data-managed");
        let path = self.mounted(&format!("{name}.ign"));
        replace(&path, &self.value(&secret, "userData"));
        path
    }

    /// Opens the pool to those who have a token only.
    pub(super) fn enforce(&self) {
        let mode = json!({"machineconfiguration.openshift.io/access": "enforce"});
        let pool = format!("{POOLS}/worker");
        self.plane.cluster.patch(&pool, &json!({"metadata": {"annotations": mode}}));
        wait_until("no config without a token", || {
            let is_closed = |server: &Server| server.plain().get("/config/worker").status == 401;
            self.servers.iter().all(is_closed)
        });
    }

    /// Waits until a server shows this of a machine.
    pub(super) fn shows(
        &self,
        machine: &mut VirtualMachine,
        place: &Place,
        rank: &str,
        words: &str,
    ) {
        machine.wait_for(&format!("the ledger to say {rank}: {words}"), |_| {
            let shown = self.machine(place)?;
            (shown["standing"] == rank && shown["why"].as_str()?.contains(words)).then_some(())
        });
    }

    /// Turns a machine on that was never booted, with nothing but this user data and a console.
    pub(super) fn boot(user_data: &Path, place: &Place) -> VirtualMachine {
        Self::boot_with(user_data, place, &[])
    }

    /// The same, with further flags of QEMU.
    pub(super) fn boot_with(user_data: &Path, place: &Place, flags: &[&str]) -> VirtualMachine {
        let (network, device) = Network::place(place.0);
        let network = ["-netdev", &network, "-device", &device];
        VirtualMachine::boot_with(user_data, &[&network, flags].concat())
    }

    /// Runs a pod with this container on a node.
    pub(super) fn run_pod(&self, node: &str, container: &Value) {
        let pods = "/api/v1/namespaces/default/pods";
        let cluster = &self.plane.cluster;
        wait_for("the account of pods", || {
            cluster.get("/api/v1/namespaces/default/serviceaccounts/default")
        });
        let mut container = container.clone();
        container["name"] = json!("pause");
        let spec = json!({"nodeName": node, "containers": [container]});
        cluster.create(pods, &json!({"metadata": {"name": "first"}, "spec": spec}));
        wait_for("the pod to run", || {
            let pod = cluster.get(&format!("{pods}/first"))?;
            (pod["status"]["phase"] == "Running").then_some(())
        });
    }

    /// The ledger's entry of a machine.
    pub(super) fn machine(&self, place: &Place) -> Option<Value> {
        let path = format!("/api/v1/machines/{}", place.address());
        let answer = self.server().metrics().get(&path);
        (answer.status == 200).then(|| answer.json())
    }

    /// A Node, if it is there.
    pub(super) fn node(&self, name: &str) -> Option<Value> {
        self.plane.cluster.get(&format!("/api/v1/nodes/{name}"))
    }

    /// Waits until the machine has become a Ready Node of this name.
    pub(super) fn joined(&self, machine: &mut VirtualMachine, name: &str) {
        machine.wait_for(&format!("Node {name} to be ready"), |_| {
            let node = self.node(name)?;
            let conditions = node["status"]["conditions"].as_array()?.clone();
            conditions
                .iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
                .then_some(())
        });
    }
}

/// Replaces a file as kubelet does, with the folder above it.
fn replace(path: &Path, contents: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
    let next = path.with_extension("next");
    fs::write(&next, contents).expect("a writable folder");
    fs::rename(next, path).expect("a rename within a folder");
}
