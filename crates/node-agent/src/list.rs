//! Lists of what was written here: registries whose directories were created, and written credentials.
//!
//! A list is in the same directory as what it names, and not below `/var/lib` elsewhere, so that wiping, restoring or
//! moving the directory includes the list. Its name starts with a dot, as no registry's does, and container runtimes
//! look up only names of registries. The list of credentials is as private as their file.

use std::io;

use nix::sys::stat::Mode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::open_directory::OpenDirectory;

#[derive(Serialize, Deserialize)]
struct List<T> {
    /// Registries as `host` or `host:port`; credentials have a path too, and a SHA-256 for each value.
    registries: T,
}

/// Reads a list; empty if it does not exist.
pub(super) fn read<T: DeserializeOwned + Default>(
    directory: &OpenDirectory,
    name: &str,
) -> io::Result<T> {
    let Some(bytes) = directory.read(name)? else { return Ok(T::default()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    Ok(registries)
}

pub(super) fn write(
    directory: &OpenDirectory,
    name: &str,
    registries: impl Serialize,
    mode: Mode,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put(name, &bytes, mode)
}
