//! Inputs from the layout of the reference server's `bootstrap`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::error::FileError;
use model::inputs::{BOOTSTRAP_POOLS, Inputs, Problem, ServingMode, SharedInputs, unused_setters};
use model::objects::Object;
use model::registry_ca::{self, RegistryHost};

use super::files::{Files, ReadError};
use super::manifest;

/// Reads the files of the layout below `base`. `before` has the last good kubeconfig and CAs.
pub(super) fn scan(
    files: &mut Files,
    base: &Path,
    (kubeconfig, registry_cas): (&Path, &[(RegistryHost, PathBuf)]),
    before: &SharedInputs,
    being_written: &dyn Fn(&Path) -> bool,
) -> Result<(Inputs, SharedInputs), FileError> {
    std::fs::read_dir(base).map_err(FileError::at(base))?;
    let mut inputs = Inputs { mode: ServingMode::Bootstrap, ..Inputs::default() };
    let mut shared = SharedInputs::default();
    for name in BOOTSTRAP_POOLS {
        let path = base.join("machine-pools").join(format!("{name}.yaml"));
        read(files, &path, being_written);
        let pool = files.objects(&path).iter().find_map(as_kind!(MachineConfigPool));
        let Some(pool) = pool.cloned() else { continue };
        Arc::make_mut(&mut inputs.pools).insert(name.to_owned(), Arc::clone(&pool));
        let config = pool.status_configuration();
        // No object has a slash in its name, which would be a path elsewhere.
        if config.is_empty() || config.contains('/') {
            continue;
        }
        let path = base.join("machine-configs").join(format!("{config}.yaml"));
        read(files, &path, being_written);
        let found = files.objects(&path).iter().find_map(as_kind!(MachineConfig));
        if let Some(found) = found.cloned() {
            Arc::make_mut(&mut inputs.machine_configs).insert(config.to_owned(), found);
        }
    }
    let path = base.join("controller-config").join("machine-config-controller.yaml");
    read(files, &path, being_written);
    let controller_config = files.objects(&path).iter().find_map(as_kind!(ControllerConfig));
    shared.controller_config = controller_config.cloned().map(Arc::unwrap_or_clone);
    let mut plain = |path: &Path, check: fn(&[u8]) -> Result<(), String>| {
        let (problem, last_good) = match files.read_plain(path, being_written) {
            Ok(bytes) => match check(&bytes) {
                Ok(()) => return Some(bytes),
                Err(reason) => (reason, None),
            },
            Err(ReadError { reason, last_good }) => (reason, last_good),
        };
        inputs.problems.push(Problem::whole(&path.display().to_string(), problem));
        last_good.filter(|bytes| check(bytes).is_ok())
    };
    shared.kubeconfig = plain(kubeconfig, check_kubeconfig).or_else(|| before.kubeconfig.clone());
    for (host, file) in registry_cas {
        let pem = plain(&base.join(file), check_registry_ca);
        let pem = pem.or_else(|| before.registry_cas.get(host).cloned());
        shared.registry_cas.extend(pem.map(|pem| (host.clone(), pem)));
    }
    inputs.problems.extend(files.problems());
    inputs.warnings = files.warnings();
    let unused = unused_setters(inputs.mode, &inputs.pools, &inputs.machine_configs);
    inputs.warnings.extend(unused);
    // Each file has one object, whose name tells nothing: another one in its place is a change.
    drop(files.take_losses());
    Ok((inputs, shared))
}

/// Reads a manifest, if it exists. One that is missing since it was read is a problem, and its last contents stay.
fn read(files: &mut Files, path: &Path, being_written: &dyn Fn(&Path) -> bool) {
    if files.objects(path).is_empty() {
        files.read_if_there(path, being_written);
    } else {
        files.read(path, being_written);
    }
}

/// A machine without a kubeconfig never joins, nor does one with a half of it: lists of clusters and users go together.
fn check_kubeconfig(bytes: &[u8]) -> Result<(), String> {
    if bytes.trim_ascii().is_empty() {
        return Err("is empty".to_owned());
    }
    let objects = manifest::parse(bytes).map_err(|error| error.to_string())?;
    let is_half = objects.iter().filter_map(as_kind!(Kubeconfig)).any(|config| {
        let has = |list: &str| config.has_list(list);
        has("clusters") != has("users")
    });
    if is_half { Err("has clusters or users, and not both".to_owned()) } else { Ok(()) }
}

fn check_registry_ca(bytes: &[u8]) -> Result<(), String> {
    let holds_one = registry_ca::holds_certificate(bytes);
    holds_one.then_some(()).ok_or_else(|| "has no certificate in PEM".to_owned())
}
