//! Inputs from files: a tree of manifests, or the layout of `bootstrap`.
//!
//! A scan checks every file's stamp, reads changed files, and keeps the last good objects of malformed ones. A file
//! that is being written is skipped until it is quiet.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::escape::{NAME, cut};
use model::inputs::{BOOTSTRAP_POOLS, Inputs, Layering, Problem, ServingMode, Shared};
use model::objects::SecretName;
use model::objects::{
    FirstBootMachine, MachineConfig, MachineConfigPool, Metadata, Object, Secret,
};
use model::registry_ca::{self, RegistryHost};
use tokio::sync::watch;

use super::credentials::SeenCredentials;
use super::files::{Files, Listing, MAX_DEPTH, ReadError};
use super::merged_pools::LocalPools;
use super::plain_configs::{self, PlainConfigs};
use super::secret_seen::SecretSeen;
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::telemetry::Reporting;
use crate::telemetry::conditions::Condition;

/// Age of a change below which a file may still be written.
const SETTLE: Duration = Duration::from_millis(60);

/// Location and meaning of the files.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Manifests of any name in a tree of directories.
    Tree {
        /// Top directory of the tree.
        root: PathBuf,
        /// Secret with the registry credentials for machines of all enforced pools; `None` for no credentials.
        registry_credentials: Option<SecretName>,
        /// True if manifests with parts without effect are refused.
        is_strict: bool,
    },
    /// The reference server's `bootstrap` layout: `machine-pools/NAME.yaml`,
    /// `machine-configs/NAME.yaml` and `controller-config/machine-config-controller.yaml`.
    Bootstrap {
        /// Value of `--server-basedir`.
        base: PathBuf,
        /// Value of `--bootstrap-kubeconfig`.
        kubeconfig: PathBuf,
        /// Values of `--bootstrap-certs`: each registry with its file below `base`.
        registry_cas: Vec<(RegistryHost, PathBuf)>,
        /// True if manifests with parts without effect are refused.
        is_strict: bool,
    },
}

impl Layout {
    /// Directories to watch recursively.
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

/// Reasons why a directory cannot be served at the start, when there is no last good state yet.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is unreadable.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Files are malformed.
    #[error("{first}{}", if *.more == 0 { String::new() } else { format!(" (and {more} more)") })]
    Problems {
        first: Problem,
        /// Number of other problems.
        more: usize,
    },
}

/// Reasons why a whole scan failed. The previous state stays.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The top directory is unreadable.
    #[error("{}: {error}", path.display())]
    Directory {
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

#[derive(Debug)]
struct Scan {
    inputs: Inputs,
    /// True if the inputs differ from the previous ones.
    is_changed: bool,
    /// Time of the next scan.
    scanned: Scanned,
}

/// A directory with its last read state.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    files: Files,
    shared: Arc<Shared>,
    credentials: SeenCredentials,
    local_pools: LocalPools,
    plain_configs: PlainConfigs,
    problems: Vec<Problem>,
}

impl Directory {
    /// Reads a directory for the first time. Problems with parts of an object are no error.
    pub fn open(layout: Layout) -> Result<(Self, Inputs), OpenError> {
        let (directory, inputs) = Self::read(layout)?;
        let mut whole = inputs.problems.iter().filter(|problem| !problem.is_partial);
        match whole.next().cloned() {
            None => Ok((directory, inputs)),
            Some(first) => Err(OpenError::Problems { first, more: whole.count() }),
        }
    }

    /// Reads a directory for the first time. Problems are only in the inputs.
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
            credentials: SeenCredentials::new(secret),
            local_pools: LocalPools::default(),
            plain_configs: PlainConfigs::default(),
            problems: Vec::new(),
        };
        // The first scan reads all files; later ones wait for a file to be quiet.
        let Scan { inputs, .. } = directory.scan(SystemTime::now(), Duration::ZERO, &|_| false)?;
        Ok((directory, inputs))
    }

    /// Sends each change, forever.
    pub async fn follow(mut self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let not_ready = &reporting.status.not_ready;
        let watch = DirectoryWatch::new(self.layout.watched());
        let scan = move |being_written: &dyn Fn(&Path) -> bool| {
            let now = SystemTime::now();
            if self.files.are_incomplete(now) {
                return Scanned::Unsettled;
            }
            let scan = self.scan(now, SETTLE, being_written);
            let failure = scan.as_ref().err().map(ToString::to_string);
            Condition::new("inputs", failure).report_failure(not_ready, |error| {
                tracing::error!(
                    %error,
                    fix = "restore the directory, or make it readable for this server",
                    "cannot read the inputs, using what was read before"
                );
            });
            let Ok(scan) = scan else { return Scanned::Settled };
            if scan.is_changed {
                inputs.send_replace(Some(scan.inputs));
            }
            scan.scanned
        };
        watch.follow(scan).await;
    }

    /// Reads changed files, except those that changed within `settle` before `now` or are open for writing according to
    /// `being_written`.
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
        let Parts { pools, machine_configs, machines, layering, shared, .. } = parts;
        let Parts { mut problems, warnings, leads_out, .. } = parts;
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
            machines,
            machine_states: BTreeMap::new(),
            layering,
            shared,
            tls_profile,
            enforced,
            live_reads: 0,
            registry_credentials: self.credentials.auth(),
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
        let Gathered { mut pools, mut machine_configs, machines, others, mut problems, .. } =
            gathered;
        let (mut shared, mut layering) = (Shared::default(), Layering::default());
        let (mut config_maps, mut secrets, mut image) = (Vec::new(), BTreeMap::new(), None);
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
        let (cas, refused) = registry_ca::collect(&config_maps, image, &self.shared.registry_cas);
        shared.registry_cas = cas;
        problems.extend(refused.iter().map(|(place, reason)| Problem::part(place, reason)));
        problems.extend(see_credentials(&mut self.credentials, &pools, &secrets));
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
        let warnings = self.tree_warnings(root, &paths);
        let unread = format!("not read: more than {MAX_DEPTH} directories deep");
        let unread = |path: &PathBuf| Problem::whole(&path.display().to_string(), unread.as_str());
        problems.extend(too_deep.iter().map(unread));
        Ok(Parts {
            pools,
            machine_configs,
            machines,
            layering,
            shared,
            problems,
            warnings,
            leads_out,
        })
    }

    /// Parts of the last read state without effect.
    fn tree_warnings(&self, root: &Path, paths: &[PathBuf]) -> Vec<Problem> {
        let mut warnings = self.files.warnings();
        warnings.extend(self.plain_configs.warnings(root, &self.local_pools.selected()));
        warnings.extend(plain_configs::unread(root, paths));
        let is_file = |name: &str| plain_configs::is_plain(root, &root.join(name));
        warnings.extend(self.local_pools.unselected(is_file));
        warnings
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
            // No object has a slash in its name, which would be a path elsewhere.
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
        let (machines, leads_out) = (BTreeMap::new(), false);
        Ok(Parts {
            pools,
            machine_configs,
            machines,
            layering,
            shared,
            problems,
            warnings,
            leads_out,
        })
    }
}

/// Applies the Secrets with registry credentials that pools need. Returns what is wrong with them.
fn see_credentials(
    credentials: &mut SeenCredentials,
    pools: &BTreeMap<String, Arc<MachineConfigPool>>,
    secrets: &BTreeMap<SecretName, &Secret>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in credentials.wanted(pools.values().map(|pool| &**pool)) {
        let seen = secrets
            .get(&name)
            .map_or(SecretSeen::Absent, |secret| SecretSeen::Present(Secret::clone(secret)));
        let place = name.to_string();
        problems.extend(credentials.seen(name, seen).map(|it| Problem::part(&place, &it)));
    }
    problems.extend(credentials.problems());
    problems
}

/// Result of a scan, before the comparison with the previous one.
struct Parts {
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    machines: BTreeMap<String, Arc<FirstBootMachine>>,
    layering: Layering,
    shared: Shared,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// True if a link leads out of the watched directory.
    leads_out: bool,
}

fn as_pool(object: &Object) -> Option<&Arc<MachineConfigPool>> {
    if let Object::MachineConfigPool(pool) = object { Some(pool) } else { None }
}

fn as_machine_config(object: &Object) -> Option<&Arc<MachineConfig>> {
    if let Object::MachineConfig(config) = object { Some(config) } else { None }
}

/// Objects of many files. Of two with the same identity, the first is used and the second is a problem.
#[derive(Default)]
struct Gathered<'a> {
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    machines: BTreeMap<String, Arc<FirstBootMachine>>,
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
                Object::FirstBootMachine(machine) => {
                    self.machines.insert(machine.name().to_owned(), Arc::clone(machine));
                }
                object => self.others.push(object),
            }
        }
    }
}

/// Kind, namespace and name of an object. Singletons have only the kind.
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
        // Files and tokens go by the name alone.
        Object::FirstBootMachine(machine) => ("FirstBootMachine", "", machine.name()),
        Object::MachineOsConfig(config) => ("MachineOSConfig", "", &config.metadata.name),
        Object::MachineOsBuild(build) => ("MachineOSBuild", "", &build.metadata.name),
        Object::Service(service) => {
            ("Service", &service.metadata.namespace, &service.metadata.name)
        }
        Object::Route(route) => ("Route", &route.metadata.namespace, &route.metadata.name),
    }
}
