//! Inputs from files: a tree of manifests, or the layout that `bootstrap` is given.
//!
//! A scan looks at every file's stamp, reads those that changed, and keeps each file's last good
//! objects when it does not parse any more. A file that is still being written is left alone until
//! it is quiet.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::escape::{NAME, cut};
use model::inputs::{BOOTSTRAP_POOLS, Inputs, Layering, Problem, ServingMode, Shared};
use model::objects::SecretName;
use model::objects::{MachineConfig, MachineConfigPool, Metadata, Object, Secret};
use model::registry_ca::{self, RegistryHost};
use tokio::sync::watch;

use super::files::{Files, Listing, MAX_DEPTH, ReadError};
use super::logins::RegistryLogins;
use super::merged_pools::LocalPools;
use super::plain_configs::{self, PlainConfigs};
use super::secret_seen::SecretSeen;
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::telemetry::Reporting;

/// A file that changed less than this ago may still be being written.
const SETTLE: Duration = Duration::from_millis(60);

/// Where the files lie and what they mean.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Manifests of any name in a tree of folders.
    Tree {
        /// The top of the tree.
        root: PathBuf,
        /// The secret with the registry logins for machines of all enforced pools; `None` where
        /// nobody gets any.
        registry_credentials: Option<SecretName>,
        /// Whether a manifest with something that has no effect is refused.
        is_strict: bool,
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
        /// Whether a manifest with something that has no effect is refused.
        is_strict: bool,
    },
}

impl Layout {
    /// The folders whose changes matter, with everything below them.
    #[must_use]
    pub fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::Tree { root, .. } => vec![root.clone()],
            Self::Bootstrap { base, kubeconfig, .. } => {
                let parent = kubeconfig.parent().filter(|parent| !parent.as_os_str().is_empty());
                vec![base.clone(), parent.unwrap_or(Path::new(".")).to_owned()]
            }
        }
    }
}

/// Why a directory cannot be served at the start. There is no last good state to fall back on yet.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A file cannot be used, and perhaps others besides.
    #[error("{first}{}", if *.more == 0 { String::new() } else { format!(" (and {more} more)") })]
    Problems {
        /// The first of them.
        first: Problem,
        /// How many others there are.
        more: usize,
    },
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
struct Scan {
    inputs: Inputs,
    /// Whether the inputs are others than those of the scan before.
    is_changed: bool,
    /// How soon to scan again.
    scanned: Scanned,
}

/// A directory, with what was last read from it.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    files: Files,
    shared: Arc<Shared>,
    logins: RegistryLogins,
    local_pools: LocalPools,
    plain_configs: PlainConfigs,
    problems: Vec<Problem>,
}

impl Directory {
    /// Reads a directory for the first time. One bad entry of an object is no error: all else in
    /// it can be used.
    pub fn open(layout: Layout) -> Result<(Self, Inputs), OpenError> {
        let (directory, inputs) = Self::read(layout)?;
        let mut whole = inputs.problems.iter().filter(|problem| !problem.is_partial);
        match whole.next().cloned() {
            None => Ok((directory, inputs)),
            Some(first) => Err(OpenError::Problems { first, more: whole.count() }),
        }
    }

    /// The same, where what cannot be used is only told in the inputs.
    pub fn read(layout: Layout) -> Result<(Self, Inputs), ScanError> {
        let (secret, is_strict) = match &layout {
            Layout::Tree { registry_credentials, is_strict, .. } => {
                (registry_credentials.clone(), *is_strict)
            }
            Layout::Bootstrap { is_strict, .. } => (None, *is_strict),
        };
        let mut directory = Self {
            layout,
            files: Files::new(is_strict),
            shared: Arc::default(),
            logins: RegistryLogins::new(secret),
            local_pools: LocalPools::default(),
            plain_configs: PlainConfigs::default(),
            problems: Vec::new(),
        };
        // What is there is taken as it is; later scans wait for a file to be quiet.
        let Scan { inputs, .. } = directory.scan(SystemTime::now(), Duration::ZERO, &|_| false)?;
        Ok((directory, inputs))
    }

    /// Sends each change, for ever.
    pub async fn follow(mut self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let not_ready = &reporting.status.not_ready;
        let watch = DirectoryWatch::new(self.layout.watched());
        let scan = move |being_written: &dyn Fn(&Path) -> bool| {
            let scan = match self.scan(SystemTime::now(), SETTLE, being_written) {
                Ok(scan) => scan,
                Err(error) => {
                    if not_ready.set("inputs", Some(error.to_string())) {
                        tracing::error!(%error, "cannot read the inputs; what was read before stays");
                    }
                    return Scanned::Settled;
                }
            };
            not_ready.set("inputs", None);
            if scan.is_changed {
                inputs.send_replace(Some(scan.inputs));
            }
            scan.scanned
        };
        watch.follow(scan).await;
    }

    /// Reads what has changed. Files that changed within `settle` before `now` are left for the next
    /// scan, as are those that a program has open to write, which `being_written` tells.
    fn scan(
        &mut self,
        now: SystemTime,
        settle: Duration,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Scan, ScanError> {
        self.files.begin(now, settle);
        let (mode, parts) = match self.layout.clone() {
            Layout::Tree { root, .. } => {
                (ServingMode::Manifests, self.scan_tree(&root, being_written)?)
            }
            Layout::Bootstrap { base, kubeconfig, registry_cas, .. } => {
                let parts =
                    self.scan_bootstrap(&base, &kubeconfig, &registry_cas, being_written)?;
                (ServingMode::Bootstrap, parts)
            }
        };
        let Parts { pools, machine_configs, layering, shared, mut problems, warnings, leads_out } =
            parts;
        problems.sort();
        problems.dedup();
        let is_changed = self.files.finish() || problems != self.problems;
        self.problems.clone_from(&problems);
        if *self.shared != shared {
            self.shared = Arc::new(shared);
        }
        let shared = Arc::clone(&self.shared);
        let (tls_profile, enforced) = (None, BTreeSet::new());
        let inputs = Inputs {
            mode,
            pools,
            machine_configs,
            layering,
            shared,
            tls_profile,
            enforced,
            registry_credentials: self.logins.auth(),
            problems,
            warnings,
        };
        let scanned = match (self.files.unsettled(), leads_out) {
            (true, _) => Scanned::Unsettled,
            (false, true) => Scanned::SettledElsewhere,
            (false, false) => Scanned::Settled,
        };
        Ok(Scan { inputs, is_changed, scanned })
    }

    fn scan_tree(
        &mut self,
        root: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Parts, ScanError> {
        let Listing { paths, leads_out, too_deep } = super::files::list(root)
            .map_err(|error| ScanError::Directory { path: root.to_owned(), error })?;
        let (plain, paths): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| plain_configs::is_plain(root, path));
        self.files.read_all(&paths, being_written);

        let mut gathered = Gathered::default();
        for path in &paths {
            gathered.add(path, self.files.objects(path));
        }
        let Gathered { mut pools, mut machine_configs, others, mut problems, .. } = gathered;
        let mut shared = Shared::default();
        let mut layering = Layering::default();
        let mut config_maps = Vec::new();
        let mut secrets = BTreeMap::new();
        let mut image = None;
        for object in others {
            match object {
                Object::ControllerConfig(config) => shared.controller_config = Some(config.clone()),
                Object::Kubeconfig(config) => shared.kubeconfig = Some(config.to_json().into()),
                Object::ConfigMap(map) => config_maps.push(map),
                Object::Secret(secret) => {
                    let Metadata { namespace, name } = secret.metadata.clone();
                    secrets.insert(SecretName { namespace, name }, secret);
                }
                Object::ImageConfig(config) => image = Some(config),
                object => layering.add(object),
            }
        }
        let (authorities, refused) =
            registry_ca::collect(&config_maps, image, &self.shared.registry_cas);
        shared.registry_cas = authorities;
        problems.extend(refused.iter().map(|(place, reason)| Problem::part(place, reason)));
        for name in self.logins.wanted(pools.values().map(|pool| &**pool)) {
            let seen = secrets
                .get(&name)
                .map_or(SecretSeen::Absent, |secret| SecretSeen::Present(Secret::clone(secret)));
            let place = name.to_string();
            problems.extend(self.logins.seen(name, seen).map(|it| Problem::part(&place, &it)));
        }
        problems.extend(self.logins.problems());
        problems.extend(self.files.problems());
        problems.extend(self.plain_configs.resolve(
            root,
            &plain,
            (&mut self.files, being_written),
            (&mut pools, &mut machine_configs),
        ));
        let controller_config = shared.controller_config.as_ref();
        problems.extend(self.local_pools.resolve(
            &mut pools,
            &mut machine_configs,
            controller_config,
        ));
        let mut warnings = self.files.warnings();
        warnings.extend(self.plain_configs.unused(root, &self.local_pools.selected()));
        let unread = format!("not read: it lies more than {MAX_DEPTH} folders deep");
        let unread = |path: &PathBuf| Problem::whole(&path.display().to_string(), unread.as_str());
        problems.extend(too_deep.iter().map(unread));
        Ok(Parts { pools, machine_configs, layering, shared, problems, warnings, leads_out })
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
                problems.push(Problem::whole(&path.display().to_string(), reason));
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
        let (layering, warnings) = (Layering::default(), self.files.warnings());
        let leads_out = false;
        Ok(Parts { pools, machine_configs, layering, shared, problems, warnings, leads_out })
    }
}

/// What one scan finds, before it is compared with the one before.
struct Parts {
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    layering: Layering,
    shared: Shared,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Whether a link leads out of the folder that is watched.
    leads_out: bool,
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
                let what = match name {
                    "" => kind.to_owned(),
                    name => format!("{kind} {}{slash}{name}", cut(namespace, NAME)),
                };
                let reason = format!("{what} is also in {}, which is used", first.display());
                self.problems.push(Problem::whole(&path.display().to_string(), reason));
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
