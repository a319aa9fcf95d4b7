//! Inputs from the layout of the reference server's `bootstrap`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::inputs::{BOOTSTRAP_POOLS, Problem};
use model::objects::{MachineConfig, MachineConfigPool, Object};
use model::registry_ca::RegistryHost;

use super::directory_objects::DirectoryObjects;
use super::files::{Files, ReadError};
use crate::files::replace::FileError;

/// Reads the files of the layout below `base`.
pub(super) fn scan(
    files: &mut Files,
    base: &Path,
    kubeconfig: &Path,
    registry_cas: &[(RegistryHost, PathBuf)],
    being_written: &dyn Fn(&Path) -> bool,
) -> Result<DirectoryObjects, FileError> {
    std::fs::read_dir(base).map_err(|error| FileError { path: base.to_owned(), error })?;
    let mut parts = DirectoryObjects::default();
    for name in BOOTSTRAP_POOLS {
        let path = base.join("machine-pools").join(format!("{name}.yaml"));
        files.read_if_there(&path, being_written);
        let Some(pool) = files.objects(&path).iter().find_map(as_pool).cloned() else {
            continue;
        };
        parts.pools.insert(name.to_owned(), Arc::clone(&pool));
        let config = pool.status_configuration();
        // No object has a slash in its name, which would be a path elsewhere.
        if config.is_empty() || config.contains('/') {
            continue;
        }
        let path = base.join("machine-configs").join(format!("{config}.yaml"));
        files.read_if_there(&path, being_written);
        if let Some(found) = files.objects(&path).iter().find_map(as_machine_config) {
            parts.machine_configs.insert(config.to_owned(), Arc::clone(found));
        }
    }
    let path = base.join("controller-config").join("machine-config-controller.yaml");
    files.read_if_there(&path, being_written);
    parts.shared.controller_config = files.objects(&path).iter().find_map(|object| {
        let Object::ControllerConfig(config) = object else { return None };
        Some(config.clone())
    });
    let mut plain = |path: &Path| match files.read_plain(path, being_written) {
        Ok(bytes) => Some(bytes),
        Err(ReadError { reason, last_good }) => {
            parts.problems.push(Problem::whole(&path.display().to_string(), reason));
            last_good
        }
    };
    parts.shared.kubeconfig = plain(kubeconfig);
    for (host, file) in registry_cas {
        if let Some(pem) = plain(&base.join(file)) {
            parts.shared.registry_cas.insert(host.clone(), pem);
        }
    }
    parts.problems.extend(files.problems());
    parts.warnings = files.warnings();
    Ok(parts)
}

fn as_pool(object: &Object) -> Option<&Arc<MachineConfigPool>> {
    if let Object::MachineConfigPool(pool) = object { Some(pool) } else { None }
}

fn as_machine_config(object: &Object) -> Option<&Arc<MachineConfig>> {
    if let Object::MachineConfig(config) = object { Some(config) } else { None }
}
