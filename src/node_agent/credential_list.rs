//! The list of written credentials, next to their file and equally private, with a SHA-256 for each.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use model::registry_credentials::Registry;
use serde::{Deserialize, Serialize};

use super::credential_plan::WrittenDigests;
use super::open_directory::OpenDirectory;

#[derive(Serialize, Deserialize)]
struct List {
    registries: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the list; empty if it does not exist.
pub(super) fn read(directory: &OpenDirectory, name: &str) -> io::Result<WrittenDigests> {
    let Some(bytes) = directory.read(name)? else { return Ok(WrittenDigests::new()) };
    let List { registries } = serde_json::from_slice(&bytes)?;
    let entry = |(name, digests)| Some((Registry::parse(name)?, digests));
    let read: WrittenDigests =
        registries.iter().filter_map(|(name, digests)| entry((name, digests.clone()))).collect();
    Ok(read)
}

pub(super) fn write(
    directory: &OpenDirectory,
    name: &str,
    written: &WrittenDigests,
) -> io::Result<()> {
    let registries = written
        .iter()
        .map(|(registry, digests)| (registry.as_str().to_owned(), digests.clone()))
        .collect();
    let mut bytes = serde_json::to_vec_pretty(&List { registries })?;
    bytes.push(b'\n');
    directory.put_private(name, &bytes)
}
