//! Machines with names: each has a token and a pointer config of its own.

mod approval;
mod commands;
mod hostile;
mod many;
mod overlays;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::http::{Client, Response};
use crate::support::server::{Server, binary};
use crate::support::wait_for;

const IGNITION: (&str, &str) = ("User-Agent", "Ignition/2.14.0");
const ACCEPT: (&str, &str) = ("Accept", "application/vnd.coreos.ignition+json;version=3.3.0");

/// A directory of manifests with two pools and machines, its state directory, and a server of both.
struct Site {
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(site.manifests()).expect("a folder");
        for pool in ["worker", "infra"] {
            let config = json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "metadata": {"name": format!("00-{pool}")},
                "spec": {"config": {
                    "ignition": {"version": "3.4.0"},
                    "storage": {"files": [{
                        "path": "/etc/pool", "mode": 420,
                        "contents": {"source": format!("data:,{pool}")},
                    }]},
                }},
            });
            let object = json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": pool},
                "spec": {"configuration": {"name": format!("00-{pool}")}},
            });
            site.put(&format!("config-{pool}"), &config);
            site.put(&format!("pool-{pool}"), &object);
        }
        site
    }

    fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Writes a manifest, replaced as a careful program does.
    fn put(&self, name: &str, object: &Value) {
        let path = self.manifests().join(format!("{name}.json"));
        let temporary = self.manifests().join(format!(".{name}"));
        fs::write(&temporary, object.to_string()).expect("a writable folder");
        fs::rename(temporary, path).expect("a rename");
    }

    fn put_machine(&self, name: &str, spec: &Value) {
        self.put(name, &machine(name, spec));
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.manifests().join(format!("{name}.json"))).expect("a manifest");
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let mut command = binary();
        command.arg("serve").arg(self.manifests()).arg("--state-dir").arg(self.state());
        command.args(["--host", "localhost"]).args(flags);
        Server::prepared(command).until_ready()
    }

    /// A client that trusts the CAs of the state directory.
    fn tls(&self, server: &Server) -> Client {
        let ca = fs::read(self.state().join("ca.crt")).expect("the bundle");
        Client::tls(server.secure(), &ca)
    }

    fn pointer_path(&self, name: &str) -> PathBuf {
        self.state().join(format!("user-data/machines/{name}.ign"))
    }

    /// The machine's pointer config, once it is there.
    fn pointer(&self, name: &str) -> String {
        wait_for("the machine's pointer config", || {
            fs::read_to_string(self.pointer_path(name)).ok()
        })
    }

    /// `Bearer` and the token in the machine's pointer config.
    fn credential(&self, name: &str) -> String {
        credential_in(&self.pointer(name))
    }

    fn record(&self, name: &str) -> Value {
        let path = self.state().join(format!("machines/{name}.json"));
        serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
    }

    /// `machines` with these arguments, of this state directory.
    fn machines(&self, arguments: &[&str]) -> Output {
        let mut command = binary();
        command.arg("machines").args(arguments).arg("--state-dir").arg(self.state());
        command.output().expect("the built binary")
    }
}

fn machine(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn credential_in(pointer: &str) -> String {
    let pointer: Value = serde_json::from_str(pointer).expect("JSON");
    let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0];
    assert_eq!(header["name"], "Authorization");
    header["value"].as_str().expect("a credential").to_owned()
}

fn get(client: &Client, pool: &str, credential: &str) -> Response {
    let authorization = ("Authorization", credential);
    client.request("GET", &format!("/config/{pool}"), &[IGNITION, ACCEPT, authorization])
}

/// The answer once the server knows the token.
fn get_known(client: &Client, pool: &str, credential: &str) -> Response {
    wait_for("the token to be known", || {
        let response = get(client, pool, credential);
        (response.status != 503).then_some(response)
    })
}

fn from(client: Client, last: u8) -> Client {
    client.from([127, 0, 0, last].into())
}

/// A named machine in the server's overview.
fn named(server: &Server, name: &str) -> Value {
    let overview = server.metrics().get("/api/v1/overview").json();
    let machines = overview["named_machines"].as_array().expect("a list");
    machines.iter().find(|it| it["name"] == name).cloned().unwrap_or(Value::Null)
}

fn refusal(server: &Server, last: u8) -> Value {
    let machine = server.metrics().get(&format!("/api/v1/machines/127.0.0.{last}")).json();
    machine["requests"]["refused"].clone()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
