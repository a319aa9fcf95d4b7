//! The list of registries whose directories were created here, stored in the parent directory.
//!
//! It is not below `/var/lib`, so that wiping, restoring or moving the directory includes the list. Its name starts
//! with a dot, as no registry's does, and container runtimes look up only names of registries.

use std::collections::BTreeSet;
use std::io;

use model::registry_ca::RegistryHost;
use serde::{Deserialize, Serialize};

use super::open_directory::OpenDirectory;

/// Name of the list's file.
pub(super) const NAME: &str = ".machine-config-server.json";

#[derive(Serialize, Deserialize)]
struct List {
    /// Registries as `host` or `host:port`.
    registries: BTreeSet<String>,
}

/// Reads the list; empty if it does not exist.
pub(super) fn read(directory: &OpenDirectory) -> io::Result<BTreeSet<RegistryHost>> {
    let Some(bytes) = directory.read(NAME)? else { return Ok(BTreeSet::new()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    // A name becomes a path, so it must be a valid registry.
    let host = |name: &String| {
        RegistryHost::parse(name).map_err(|error| io::Error::other(error.to_string()))
    };
    registries.iter().map(host).collect()
}

pub(super) fn write(directory: &OpenDirectory, hosts: &BTreeSet<RegistryHost>) -> io::Result<()> {
    let registries = hosts.iter().map(|host| host.as_str().to_owned()).collect();
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put(NAME, &bytes)
}
