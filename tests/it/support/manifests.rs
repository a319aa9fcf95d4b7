//! Kubernetes manifests as plain values.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::in_repository;

/// A document of a manifest file.
pub(crate) struct Manifest {
    /// Path relative to the directory.
    pub(crate) file: PathBuf,
    pub(crate) document: Value,
}

impl Manifest {
    pub(crate) fn kind(&self) -> &str {
        self.document["kind"].as_str().unwrap_or_default()
    }

    /// Name of the object, empty if it has none.
    pub(crate) fn name(&self) -> &str {
        self.document["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// The manifests of a directory tree, sorted by file name and position in the file.
pub(crate) fn read(directory: &Path) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    for file in files(directory) {
        let text = fs::read_to_string(directory.join(&file)).expect("a manifest");
        let documents = match file.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") => yaml_documents(&text),
            Some("json") => vec![serde_json::from_str(&text).expect("a JSON manifest")],
            _ => continue,
        };
        manifests
            .extend(documents.into_iter().map(|d| Manifest { file: file.clone(), document: d }));
    }
    manifests
}

/// Manifests of the sample cluster.
pub(crate) fn fixtures() -> Vec<Manifest> {
    read(&in_repository("ignition-fixtures"))
}

/// The only object of this kind and name.
pub(crate) fn one<'a>(manifests: &'a [Manifest], kind: &str, name: &str) -> &'a Value {
    let mut found = manifests.iter().filter(|m| m.kind() == kind && m.name() == name);
    let Some(manifest) = found.next() else { panic!("no {kind} {name:?}") };
    assert!(found.next().is_none(), "more than one {kind} {name:?}");
    &manifest.document
}

pub(crate) fn yaml_documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("a YAML manifest")
}

/// Every file of a directory tree, sorted, with relative paths.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(relative) = directories.pop() {
        for entry in fs::read_dir(directory.join(&relative)).expect("a readable folder") {
            let entry = entry.expect("a folder's entry");
            let path = relative.join(entry.file_name());
            if entry.file_type().expect("a file type").is_dir() {
                directories.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
