//! The list of what was made here: a file in the folder that it is about.
//!
//! It lies there, and not below `/var/lib`, so that the two cannot be parted: whoever wipes,
//! restores or moves the folder does the same to the list. Its name starts with a dot, as no
//! registry's does, and the container runtimes look up nothing but registries' names.

use std::collections::BTreeSet;
use std::io;

use model::registry_ca::RegistryHost;
use serde::{Deserialize, Serialize};

use super::open_directory::OpenDirectory;

/// The file's name.
pub(super) const NAME: &str = ".machine-config-server.json";

#[derive(Serialize, Deserialize)]
struct List {
    /// `host` or `host:port`
    registries: BTreeSet<String>,
}

/// Reads the list; there is none at first.
pub(super) fn read(directory: &OpenDirectory) -> io::Result<BTreeSet<RegistryHost>> {
    let Some(bytes) = directory.read(NAME)? else { return Ok(BTreeSet::new()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    // A name becomes a path: it is one of a registry, or it is none of ours.
    let host = |name: &String| {
        RegistryHost::parse(name).map_err(|error| io::Error::other(error.to_string()))
    };
    registries.iter().map(host).collect()
}

/// Replaces the list.
pub(super) fn write(directory: &OpenDirectory, hosts: &BTreeSet<RegistryHost>) -> io::Result<()> {
    let registries = hosts.iter().map(|host| host.as_str().to_owned()).collect();
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put(NAME, &bytes)
}
