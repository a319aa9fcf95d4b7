//! Inputs from the layout of the reference server's `bootstrap`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::inputs::{BOOTSTRAP_POOLS, Inputs, Problem, ServingMode, SharedInputs};
use model::objects::Object;
use model::registry_ca::RegistryHost;

use super::files::{Files, ReadError};
use crate::files::error::FileError;

/// Reads the files of the layout below `base`.
pub(super) fn scan(
    files: &mut Files,
    base: &Path,
    kubeconfig: &Path,
    registry_cas: &[(RegistryHost, PathBuf)],
    being_written: &dyn Fn(&Path) -> bool,
) -> Result<(Inputs, SharedInputs), FileError> {
    std::fs::read_dir(base).map_err(FileError::at(base))?;
    let mut inputs = Inputs { mode: ServingMode::Bootstrap, ..Inputs::default() };
    let mut shared = SharedInputs::default();
    for name in BOOTSTRAP_POOLS {
        let path = base.join("machine-pools").join(format!("{name}.yaml"));
        files.read_if_there(&path, being_written);
        let pool = files.objects(&path).iter().find_map(as_kind!(MachineConfigPool));
        let Some(pool) = pool.cloned() else { continue };
        inputs.pools.insert(name.to_owned(), Arc::clone(&pool));
        let config = pool.status_configuration();
        // No object has a slash in its name, which would be a path elsewhere.
        if config.is_empty() || config.contains('/') {
            continue;
        }
        let path = base.join("machine-configs").join(format!("{config}.yaml"));
        files.read_if_there(&path, being_written);
        let found = files.objects(&path).iter().find_map(as_kind!(MachineConfig));
        if let Some(found) = found.cloned() {
            inputs.machine_configs.insert(config.to_owned(), found);
        }
    }
    let path = base.join("controller-config").join("machine-config-controller.yaml");
    files.read_if_there(&path, being_written);
    let controller_config = files.objects(&path).iter().find_map(as_kind!(ControllerConfig));
    shared.controller_config = controller_config.cloned();
    let mut plain = |path: &Path| match files.read_plain(path, being_written) {
        Ok(bytes) => Some(bytes),
        Err(ReadError { reason, last_good }) => {
            inputs.problems.push(Problem::whole(&path.display().to_string(), reason));
            last_good
        }
    };
    shared.kubeconfig = plain(kubeconfig);
    for (host, file) in registry_cas {
        if let Some(pem) = plain(&base.join(file)) {
            shared.registry_cas.insert(host.clone(), pem);
        }
    }
    inputs.problems.extend(files.problems());
    inputs.warnings = files.warnings();
    Ok((inputs, shared))
}
