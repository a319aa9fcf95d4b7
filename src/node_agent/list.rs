//! Lists of what was written here: registries whose directories were created, and written credentials.
//!
//! A list is in the same directory as what it names, and not below `/var/lib` elsewhere, so that wiping, restoring or
//! moving the directory includes the list. Its name starts with a dot, as no registry's does, and container runtimes
//! look up only names of registries. The list of credentials is as private as their file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use model::registry_ca::RegistryHost;
use model::registry_credentials::Registry;
use nix::sys::stat::Mode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::credential_plan::WrittenDigests;
use super::open_directory::{FILE, OpenDirectory, PRIVATE_FILE};

/// Name of the file with the list of directories.
pub(super) const NAME: &str = ".machine-config-server.json";

#[derive(Serialize, Deserialize)]
struct List<T> {
    /// Registries as `host` or `host:port`; credentials have a path too, and a SHA-256 for each value.
    registries: T,
}

/// Reads the list of directories; empty if it does not exist.
pub(super) fn read_hosts(directory: &OpenDirectory) -> io::Result<BTreeSet<RegistryHost>> {
    // A name becomes a path, so it must be a valid registry.
    let host = |name: String| {
        RegistryHost::parse(&name).map_err(|error| io::Error::other(error.to_string()))
    };
    read::<BTreeSet<String>>(directory, NAME)?.into_iter().map(host).collect()
}

pub(super) fn write_hosts(
    directory: &OpenDirectory,
    hosts: &BTreeSet<RegistryHost>,
) -> io::Result<()> {
    let hosts: Vec<_> = hosts.iter().map(RegistryHost::as_str).collect();
    write(directory, NAME, hosts, FILE)
}

/// Reads the list of credentials; empty if it does not exist.
pub(super) fn read_digests(directory: &OpenDirectory, name: &str) -> io::Result<WrittenDigests> {
    let listed: BTreeMap<String, BTreeSet<String>> = read(directory, name)?;
    let entry = |(name, digests): (String, _)| Some((Registry::parse(&name)?, digests));
    Ok(listed.into_iter().filter_map(entry).collect())
}

pub(super) fn write_digests(
    directory: &OpenDirectory,
    name: &str,
    written: &WrittenDigests,
) -> io::Result<()> {
    let written: BTreeMap<_, _> =
        written.iter().map(|(registry, digests)| (registry.as_str(), digests)).collect();
    write(directory, name, written, PRIVATE_FILE)
}

fn read<T: DeserializeOwned + Default>(directory: &OpenDirectory, name: &str) -> io::Result<T> {
    let Some(bytes) = directory.read(name)? else { return Ok(T::default()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    Ok(registries)
}

fn write(
    directory: &OpenDirectory,
    name: &str,
    registries: impl Serialize,
    mode: Mode,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put(name, &bytes, mode)
}
