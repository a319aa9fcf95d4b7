//! Kubernetes manifests as plain values.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

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

/// Copies the manifests of the sample cluster to a folder.
pub(crate) fn copy_fixtures(to: &Path) {
    let from = in_repository("ignition-fixtures").join(".");
    assert!(Command::new("cp").arg("-rL").arg(from).arg(to).status().expect("cp").success());
}

/// A folder with a copy of these manifests, and where in it that is.
pub(crate) fn copied_fixtures() -> (TempDir, PathBuf) {
    let top = tempfile::tempdir().expect("a temporary folder");
    let manifests = top.path().join("manifests");
    copy_fixtures(&manifests);
    (top, manifests)
}

/// The only object of this kind and name.
pub(crate) fn one<'a>(manifests: &'a [Manifest], kind: &str, name: &str) -> &'a Value {
    let mut found = manifests.iter().filter(|m| m.kind() == kind && m.name() == name);
    let Some(manifest) = found.next() else { panic!("no {kind} {name:?}") };
    assert!(found.next().is_none(), "more than one {kind} {name:?}");
    &manifest.document
}

/// A MachineConfig of an Ignition config.
pub(crate) fn machine_config(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": {"config": config},
    })
}

/// An Ignition config with these files, whose texts are as in a URL.
pub(crate) fn with_files(files: &[(&str, &str)]) -> Value {
    let file = |(path, text): &(&str, &str)| json!({"path": path, "mode": 0o644, "contents": {"source": format!("data:,{text}")}});
    let files: Vec<_> = files.iter().map(file).collect();
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}})
}

/// A MachineConfigPool that has a rendered config.
pub(crate) fn pool(name: &str, configuration: &str) -> Value {
    let configuration = json!({"configuration": {"name": configuration}});
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": configuration, "status": configuration,
    })
}

/// Label by which a pool selects its MachineConfigs.
pub(crate) const ROLE: &str = "machineconfiguration.openshift.io/role";

/// A MachineConfigPool that is made of the MachineConfigs of the role of its name.
pub(crate) fn selecting_pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {"machineConfigSelector": {"matchLabels": {ROLE: name}}},
    })
}

/// A MachineConfig of an Ignition config, for pools that select its role.
pub(crate) fn machine_config_of(role: &str, name: &str, config: &Value) -> Value {
    let mut object = machine_config(name, config);
    object["metadata"]["labels"] = json!({ROLE: role});
    object
}

/// A FirstBootMachine.
pub(crate) fn first_boot_machine(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Writes a manifest, and the folders above it.
pub(crate) fn write(directory: &Path, file: &str, manifest: impl Display) {
    let path = directory.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
    fs::write(path, manifest.to_string()).expect("a writable folder");
}

/// Replaces a manifest as a careful program does.
pub(crate) fn replace(directory: &Path, file: &str, manifest: impl Display) {
    let new = format!(".{file}.new");
    write(directory, &new, manifest);
    fs::rename(directory.join(new), directory.join(file)).expect("a rename within a folder");
}

/// Writes a short text to a file again and again.
pub(crate) fn write_often(path: &Path, length: Duration) {
    let started = Instant::now();
    for number in 0.. {
        fs::write(path, number.to_string()).expect("a writable folder");
        if started.elapsed() > length {
            return;
        }
    }
}

/// A registry's CA of the samples, PEM.
pub(crate) fn registry_ca(name: &str) -> String {
    fs::read_to_string(in_repository(&format!("certs/registry-{name}.crt"))).expect("a CA")
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
