//! Machines with names in a cluster: the controller makes their tokens, servers serve them and agree on what is spent.

mod objects;
mod uses;

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{ControlledCluster, Controller, secrets, server_at, value};
use crate::machine_sites::{APPROVED, MachineSite, machine_scenarios};
use crate::support::access::{credential_in, get};
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::command::{Said, Store as _};
use crate::support::http::{Client, Response, loopback};
use crate::support::manifests::first_boot_machine;
use crate::support::server::Server;
use crate::support::{wait_asking, wait_for, wait_until};

const FLAG: &str = "--first-boot-machines";
const REARM: &str = "machine-config-server.io/rearm";

fn machines() -> String {
    format!("/apis/machine-config-server.io/v1alpha1/namespaces/{NAMESPACE}/firstbootmachines")
}

/// A cluster with the kind, and with the rights of both components.
fn cluster() -> Cluster {
    Cluster::prepared("first-boot-machines", |cluster| {
        cluster.become_openshift();
        for (base, component) in [
            ("deploy/openshift", "deploy/components/first-boot-machines"),
            ("deploy/controller", "deploy/components/first-boot-machines-controller"),
        ] {
            cluster.apply_overlay(base, &[component]);
        }
        cluster.serves_all_kinds();
    })
}

impl ControlledCluster {
    fn with_machines() -> (Self, Controller) {
        let site = Self::of(cluster());
        let controller = site.start(&[FLAG]);
        site.settled();
        (site, controller)
    }

    fn make_machine(&self, name: &str, spec: &Value) {
        self.cluster.create(&machines(), &first_boot_machine(name, spec));
    }

    fn machine(&self, name: &str) -> Value {
        self.cluster.get(&format!("{}/{name}", machines())).unwrap_or_default()
    }

    fn patch_machine(&self, name: &str, change: &Value) {
        self.cluster.patch(&format!("{}/{name}", machines()), change);
    }

    fn rearm_machine(&self, name: &str, value: &str) {
        self.patch_machine(name, &json!({"metadata": {"annotations": {REARM: value}}}));
    }

    fn remove_machine(&self, name: &str) {
        self.cluster.delete(&format!("{}/{name}", machines()));
    }

    /// The reason of a machine's condition, once it is this one. Returns the message.
    fn machine_is(&self, name: &str, reason: &str) -> String {
        wait_for(reason, || {
            let machine = self.machine(name);
            let ready = &machine["status"]["conditions"][0];
            assert!(ready["type"] == "Ready" || ready.is_null(), "{ready}");
            let is_ready = if reason == "TokenMade" { "True" } else { "False" };
            (ready["reason"] == reason && ready["status"] == is_ready)
                .then(|| ready["message"].as_str().expect("a message").to_owned())
        })
    }

    fn machine_secret(&self, name: &str) -> Option<Value> {
        self.cluster.get(&format!("{}/{name}-user-data-managed", secrets(NAMESPACE)))
    }

    /// `Bearer` and the token in the machine's pointer config, once the machine is ready.
    fn machine_credential(&self, name: &str) -> String {
        self.machine_is(name, "TokenMade");
        let secret = self.machine_secret(name).expect("a Secret");
        credential_in(&value(&secret, "userData")).expect("a credential")
    }

    fn serve(&self, flags: &[&str]) -> Server {
        self.serve_through(self.cluster.address(), flags).until_ready()
    }

    fn serve_through(&self, address: SocketAddr, flags: &[&str]) -> Server {
        server_at(self, address, &[&[FLAG], flags].concat()).0
    }

    /// A request with a machine's token, from an address of this host.
    fn ask(&self, server: &Server, credential: &str, last: u8) -> Response {
        let client = Client::tls(server.secure(), self.bundle().as_bytes());
        get(&client.from(loopback(last)), "worker", Some(credential))
    }

    /// The answer once the server knows the token of a machine that has `file`.
    fn ask_known(&self, server: &Server, credential: &str, file: &str) -> Response {
        wait_asking("the token to be known", || {
            let response = self.ask(server, credential, 1);
            let text = String::from_utf8_lossy(&response.body).into_owned();
            (response.status == 200 && text.contains(file)).then_some(response)
        })
    }
}

/// A cluster with machines and its controller.
struct MachinesCluster {
    _controller: Controller,
    site: ControlledCluster,
}

impl MachineSite for MachinesCluster {
    fn with_pools() -> Self {
        let (site, controller) = ControlledCluster::with_machines();
        site.pool("infra");
        Self { _controller: controller, site }
    }

    fn serve(&self) -> Server {
        self.site.serve(&[])
    }

    fn cas(&self) -> Vec<u8> {
        self.site.bundle().into()
    }

    fn put(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().expect("a name");
        match self.site.cluster.get(&format!("{}/{name}", machines())) {
            None => self.site.cluster.create(&machines(), object),
            Some(_) => self.site.patch_machine(name, object),
        }
    }

    fn remove(&self, name: &str) {
        self.site.remove_machine(name);
    }

    fn credential(&self, name: &str) -> String {
        self.site.machine_credential(name)
    }

    fn machines(&self, arguments: &[&str]) -> Said {
        self.site.cluster.run(&[&["machines"], arguments].concat())
    }

    fn has_recorded_approval(&self, name: &str) {
        wait_until("the record of the approval", || {
            let machine = self.site.machine(name);
            let approved = &machine["metadata"]["annotations"][APPROVED];
            machine["status"]["approval"]["at"] == *approved
        });
    }
}

machine_scenarios!(MachinesCluster);

/// Waits until a server knows the state of a machine's token.
fn knows(server: &Server, name: &str, state: &str) {
    wait_until(&format!("{name} to be {state}"), || server.named_machine(name)["token"] == state);
}

/// A machine's spec, with a file by which its config is recognised.
fn spec(file: &str) -> Value {
    json!({"pool": "worker", "overlay": {
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": file, "contents": {"source": "data:,x"}}]},
    }})
}

#[test]
fn a_machine_gets_a_token_and_boots_by_it_with_its_own_files() {
    let (site, _controller) = ControlledCluster::with_machines();
    let server = site.serve(&[]);
    for name in ["rack-7.example.com", "1"] {
        let file = format!("/etc/of-{name}");
        site.make_machine(name, &spec(&file));
        let credential = site.machine_credential(name);
        let secret = site.machine_secret(name).expect("a Secret");
        let owner = &secret["metadata"]["ownerReferences"][0];
        let object = site.machine(name);
        assert_eq!(owner["kind"], "FirstBootMachine");
        assert_eq!((&owner["name"], &owner["uid"]), (&json!(name), &object["metadata"]["uid"]));
        assert_eq!(object["status"]["state"], "Armed");
        assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
        assert!(!object.to_string().contains("mcs-"), "{object}");
        assert_eq!(object["status"]["use"], Value::Null);

        site.ask_known(&server, &credential, &file);
        let recorded = site.machine(name)["status"]["use"].clone();
        assert_eq!(recorded["addresses"], json!(["127.0.0.1"]), "before the answer");
        wait_until("the state", || site.machine(name)["status"]["state"] == "Open");
        knows(&server, name, "open");
        // Asking again writes nothing.
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let before = site.machine(name);
        for _ in 0..3 {
            assert_eq!(site.ask(&server, &credential, 1).status, 200);
        }
        assert_eq!(version(&site.machine(name)), version(&before));
    }
    // The token does not open another pool, nor the port without TLS.
    let credential = site.machine_credential("1");
    let authorization = [("Authorization", &*credential)];
    let plain = server.plain().request("GET", "/config/worker", &authorization);
    assert_eq!(plain.status, 401);
    let listed = site.cluster.kubectl(&["get", "fbm", "--namespace", NAMESPACE]);
    for part in ["NAME", "POOL", "TOKEN", "FIRST USE", "READY", "worker", "Open", "True"] {
        assert!(listed.contains(part), "{listed}");
    }
    // The command names its pointer config, and judges it.
    let shown = site.certs(&["show"]).output;
    let title = format!("Secret {NAMESPACE}/1-user-data-managed");
    let line =
        shown.lines().find(|line| line.contains(&title)).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("trusts the signing CA"), "{line}");
}
