//! The list of the logins that were written here: a file beside the one that it is about, so that
//! the two cannot be parted, and as private, with a SHA-256 in place of each login.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use model::registry_credentials::Registry;
use serde::{Deserialize, Serialize};

use super::credential_plan::Written;
use super::open_directory::OpenDirectory;

#[derive(Serialize, Deserialize)]
struct List {
    registries: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the list; there is none at first.
pub(super) fn read(directory: &OpenDirectory, name: &str) -> io::Result<Written> {
    let Some(bytes) = directory.read(name)? else { return Ok(Written::new()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    let entry = |(name, digests)| Some((Registry::parse(name)?, digests));
    let read: Written =
        registries.iter().filter_map(|(name, digests)| entry((name, digests.clone()))).collect();
    Ok(read)
}

/// Replaces the list.
pub(super) fn write(directory: &OpenDirectory, name: &str, written: &Written) -> io::Result<()> {
    let registries = written
        .iter()
        .map(|(registry, digests)| (registry.as_str().to_owned(), digests.clone()))
        .collect();
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put_private(name, &bytes)
}
