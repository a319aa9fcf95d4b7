//! Machines with names: each has a token and a pointer config of its own.

mod approval;
mod commands;
mod evidence;
mod hostile;
mod many;
mod overlays;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::machine_sites::{MachineSite, machine_scenarios};
use crate::support::access::{credential_in, get};
use crate::support::command::{Said, Store};
use crate::support::http::{Client, Response};
use crate::support::manifests::{self, first_boot_machine, machine_config, replace, with_files};
use crate::support::server::{Server, serving};
use crate::support::wait_for;

/// A directory of manifests with two pools and machines, its state directory, and a server of both.
struct MachinesDirectory {
    directory: TempDir,
}

impl MachinesDirectory {
    fn new() -> Self {
        let site = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(site.manifests()).expect("a folder");
        for pool in ["worker", "infra"] {
            let config = machine_config(&format!("00-{pool}"), &with_files(&[("/etc/pool", pool)]));
            site.put(&format!("config-{pool}"), &config);
            site.put(&format!("pool-{pool}"), &manifests::pool(pool, &format!("00-{pool}")));
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
        replace(&self.manifests(), &format!("{name}.json"), object);
    }

    fn put_machine(&self, name: &str, spec: &Value) {
        self.put(name, &first_boot_machine(name, spec));
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.manifests().join(format!("{name}.json"))).expect("a manifest");
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = serving(&self.manifests(), &self.state());
        command.args(flags);
        command
    }

    fn serve(&self, flags: &[&str]) -> Server {
        Server::prepared(self.command(flags)).until_ready()
    }

    /// A client that trusts the CAs of the state directory.
    fn tls(&self, server: &Server) -> Client {
        Client::tls(server.secure(), &self.cas())
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
        credential_in(self.pointer(name).as_bytes()).expect("a credential")
    }

    fn record(&self, name: &str) -> Value {
        let path = self.state().join(format!("machines/{name}.json"));
        serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
    }

    /// `machines` with these arguments, of this state directory.
    fn machines(&self, arguments: &[&str]) -> Said {
        self.state().run(&[&["machines"], arguments].concat())
    }
}

impl MachineSite for MachinesDirectory {
    fn with_pools() -> Self {
        Self::new()
    }

    fn serve(&self) -> Server {
        self.serve(&["--access", "enforce"])
    }

    fn cas(&self) -> Vec<u8> {
        fs::read(self.state().join("ca.crt")).expect("the bundle")
    }

    fn put(&self, object: &Value) {
        self.put(object["metadata"]["name"].as_str().expect("a name"), object);
    }

    fn remove(&self, name: &str) {
        self.remove(name);
    }

    fn credential(&self, name: &str) -> String {
        self.credential(name)
    }

    fn machines(&self, arguments: &[&str]) -> Said {
        self.machines(arguments)
    }
}

machine_scenarios!(MachinesDirectory);

/// The answer once the server knows the token.
fn get_known(client: &Client, pool: &str, credential: &str) -> Response {
    wait_for("the token to be known", || {
        let response = get(client, pool, Some(credential));
        (response.status != 503).then_some(response)
    })
}

fn refusal(server: &Server, last: u8) -> Value {
    server.machine(last)["requests"]["refused"].clone()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
