//! Inputs from files: a tree of manifests, or the layout that `bootstrap` is given.
//!
//! A scan looks at every file's stamp, reads those that changed, and keeps each file's last good
//! objects when it does not parse any more. A file that is still being written is left alone until
//! it is quiet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::files::{Files, ReadError};
use crate::inputs::{BOOTSTRAP_POOLS, Inputs, Layering, Mode, Problem, Shared};
use crate::objects::{MachineConfig, MachineConfigPool, Object};
use crate::registry_ca::{self, RegistryHost};

/// A file that changed less than this ago may still be being written.
const SETTLE: Duration = Duration::from_millis(60);

/// Where the files lie and what they mean.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Manifests of any name in a tree of folders.
    Tree {
        /// The top of the tree.
        root: PathBuf,
    },
    /// The reference server's `bootstrap` layout: `machine-pools/NAME.yaml`,
    /// `machine-configs/NAME.yaml` and `controller-config/machine-config-controller.yaml`.
    Bootstrap {
        /// `--server-basedir`
        base: PathBuf,
        /// `--bootstrap-kubeconfig`
        kubeconfig: PathBuf,
        /// `--bootstrap-certs`: each registry with its file below `base`.
        registry_cas: Vec<(RegistryHost, PathBuf)>,
    },
}

impl Layout {
    /// The folders whose changes matter, with everything below them.
    #[must_use]
    pub fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::Tree { root } => vec![root.clone()],
            Self::Bootstrap { base, kubeconfig, .. } => {
                let parent = kubeconfig.parent().filter(|parent| !parent.as_os_str().is_empty());
                vec![base.clone(), parent.unwrap_or(Path::new(".")).to_owned()]
            }
        }
    }
}

/// Why a whole scan failed. The state before it stays.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The directory itself cannot be read.
    #[error("{}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
}

/// What a scan found.
#[derive(Debug)]
pub struct Scan {
    /// The new inputs, `None` if they are the same as before.
    pub inputs: Option<Inputs>,
    /// Whether files were left alone because they were being written: scan again soon.
    pub unsettled: bool,
}

/// A directory, with what was last read from it.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    files: Files,
    shared: Arc<Shared>,
    published: bool,
    problems: Vec<Problem>,
}

impl Directory {
    /// A directory that was not read yet.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            files: Files::default(),
            shared: Arc::default(),
            published: false,
            problems: Vec::new(),
        }
    }

    /// The layout given.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Looks for changes. `being_written` tells whether a program still has a file open to write.
    pub fn scan(
        &mut self,
        now: SystemTime,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Scan, ScanError> {
        // The first scan takes what is there; later ones wait for a file to be quiet.
        let settle = if self.published { SETTLE } else { Duration::ZERO };
        self.files.begin(now, settle);
        let Parts { pools, machine_configs, layering, shared, mut problems } =
            match self.layout.clone() {
                Layout::Tree { root } => self.scan_tree(&root, being_written)?,
                Layout::Bootstrap { base, kubeconfig, registry_cas } => {
                    self.scan_bootstrap(&base, &kubeconfig, &registry_cas, being_written)?
                }
            };
        let changed = self.files.finish();
        problems.sort();
        problems.dedup();
        if self.published && !changed && problems == self.problems {
            return Ok(Scan { inputs: None, unsettled: self.files.unsettled() });
        }
        if *self.shared != shared {
            self.shared = Arc::new(shared);
        }
        self.published = true;
        self.problems.clone_from(&problems);
        let mode = match self.layout {
            Layout::Tree { .. } => Mode::Manifests,
            Layout::Bootstrap { .. } => Mode::Bootstrap,
        };
        let inputs = Inputs {
            mode,
            pools,
            machine_configs,
            layering,
            shared: Arc::clone(&self.shared),
            problems,
        };
        Ok(Scan { inputs: Some(inputs), unsettled: self.files.unsettled() })
    }

    fn scan_tree(
        &mut self,
        root: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Parts, ScanError> {
        let paths = super::files::list(root)
            .map_err(|error| ScanError::Directory { path: root.to_owned(), error })?;
        self.files.read_all(&paths, being_written);

        let mut gathered = Gathered::default();
        for path in &paths {
            gathered.add(path, self.files.objects(path));
        }
        let Gathered { pools, machine_configs, others, mut problems, .. } = gathered;
        let mut shared = Shared::default();
        let mut layering = Layering::default();
        let mut config_maps = Vec::new();
        let mut image = None;
        for object in others {
            match object {
                Object::ControllerConfig(config) => shared.controller_config = Some(config.clone()),
                Object::Kubeconfig(config) => shared.kubeconfig = Some(config.to_json().into()),
                Object::ConfigMap(map) => config_maps.push(map),
                Object::ImageConfig(config) => image = Some(config),
                object => layering.add(object),
            }
        }
        let (authorities, refused) =
            registry_ca::collect(&config_maps, image, &self.shared.registry_cas);
        shared.registry_cas = authorities;
        problems.extend(refused.into_iter().map(|(place, reason)| Problem {
            place,
            reason,
            is_partial: true,
        }));
        problems.extend(self.files.problems());
        Ok(Parts { pools, machine_configs, layering, shared, problems })
    }

    fn scan_bootstrap(
        &mut self,
        base: &Path,
        kubeconfig: &Path,
        registry_cas: &[(RegistryHost, PathBuf)],
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Parts, ScanError> {
        std::fs::read_dir(base)
            .map_err(|error| ScanError::Directory { path: base.to_owned(), error })?;
        let mut pools = BTreeMap::new();
        let mut machine_configs = BTreeMap::new();
        let mut problems = Vec::new();
        for name in BOOTSTRAP_POOLS {
            let path = base.join("machine-pools").join(format!("{name}.yaml"));
            self.files.read_if_there(&path, being_written);
            let Some(pool) = self.files.objects(&path).iter().find_map(as_pool).cloned() else {
                continue;
            };
            pools.insert(name.to_owned(), Arc::clone(&pool));
            let config = pool.status_configuration();
            // A name with a slash would be a file elsewhere; no object has such a name.
            if config.is_empty() || config.contains('/') {
                continue;
            }
            let path = base.join("machine-configs").join(format!("{config}.yaml"));
            self.files.read_if_there(&path, being_written);
            if let Some(found) = self.files.objects(&path).iter().find_map(as_machine_config) {
                machine_configs.insert(config.to_owned(), Arc::clone(found));
            }
        }
        let mut shared = Shared::default();
        let path = base.join("controller-config").join("machine-config-controller.yaml");
        self.files.read_if_there(&path, being_written);
        shared.controller_config = self.files.objects(&path).iter().find_map(|object| {
            let Object::ControllerConfig(config) = object else { return None };
            Some(config.clone())
        });
        let mut plain = |path: &Path| match self.files.read_plain(path, being_written) {
            Ok(bytes) => Some(bytes),
            Err(ReadError { reason, last_good }) => {
                problems.push(Problem {
                    place: path.display().to_string(),
                    reason,
                    is_partial: false,
                });
                last_good
            }
        };
        shared.kubeconfig = plain(kubeconfig);
        for (host, file) in registry_cas {
            if let Some(pem) = plain(&base.join(file)) {
                shared.registry_cas.insert(host.clone(), pem);
            }
        }
        problems.extend(self.files.problems());
        let layering = Layering::default();
        Ok(Parts { pools, machine_configs, layering, shared, problems })
    }
}

/// What one scan finds, before it is compared with the one before.
struct Parts {
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    layering: Layering,
    shared: Shared,
    problems: Vec<Problem>,
}

fn as_pool(object: &Object) -> Option<&Arc<MachineConfigPool>> {
    if let Object::MachineConfigPool(pool) = object { Some(pool) } else { None }
}

fn as_machine_config(object: &Object) -> Option<&Arc<MachineConfig>> {
    if let Object::MachineConfig(config) = object { Some(config) } else { None }
}

/// The objects of many files. Of two with one identity the first counts and the second is a
/// problem, because which one was meant cannot be known.
#[derive(Default)]
struct Gathered<'a> {
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    others: Vec<&'a Object>,
    seen: BTreeMap<(&'static str, &'a str, &'a str), &'a Path>,
    problems: Vec<Problem>,
}

impl<'a> Gathered<'a> {
    fn add(&mut self, path: &'a Path, objects: &'a [Object]) {
        for object in objects {
            let identity = identity(object);
            if let Some(first) = self.seen.get(&identity) {
                let (kind, namespace, name) = identity;
                let slash = if namespace.is_empty() { "" } else { "/" };
                self.problems.push(Problem {
                    place: path.display().to_string(),
                    reason: format!(
                        "{kind} {namespace}{slash}{name} is also in {}, which is used",
                        first.display()
                    ),
                    is_partial: false,
                });
                continue;
            }
            self.seen.insert(identity, path);
            match object {
                Object::MachineConfigPool(pool) => {
                    self.pools.insert(pool.name().to_owned(), Arc::clone(pool));
                }
                Object::MachineConfig(config) => {
                    self.machine_configs.insert(config.name().to_owned(), Arc::clone(config));
                }
                object => self.others.push(object),
            }
        }
    }
}

/// Kind, namespace and name. Kinds of which there is one in a cluster have neither of the latter.
fn identity(object: &Object) -> (&'static str, &str, &str) {
    match object {
        Object::MachineConfigPool(pool) => ("MachineConfigPool", "", pool.name()),
        Object::MachineConfig(config) => ("MachineConfig", "", config.name()),
        Object::ConfigMap(map) => ("ConfigMap", &map.metadata.namespace, &map.metadata.name),
        Object::Secret(secret) => ("Secret", &secret.metadata.namespace, &secret.metadata.name),
        Object::ControllerConfig(_) => ("ControllerConfig", "", ""),
        Object::Kubeconfig(_) => ("kubeconfig", "", ""),
        Object::ApiServer(_) => ("APIServer", "", ""),
        Object::ImageConfig(_) => ("Image", "", ""),
        Object::MachineOsConfig(config) => ("MachineOSConfig", "", &config.metadata.name),
        Object::MachineOsBuild(build) => ("MachineOSBuild", "", &build.metadata.name),
        Object::Service(service) => {
            ("Service", &service.metadata.namespace, &service.metadata.name)
        }
        Object::Route(route) => ("Route", &route.metadata.namespace, &route.metadata.name),
    }
}
