//! Inputs from files: a tree of manifests, or the layout of `bootstrap`.
//!
//! A scan checks every file's stamp, reads changed files, and keeps the last good objects of malformed ones. A file
//! that is being written is skipped until it is quiet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::inputs::{Inputs, Problem, SharedInputs};
use model::objects::{MachineConfigPool, Metadata, Object, Secret, SecretName};
use model::registry_ca::{self, RegistryHost};
use tokio::sync::watch;

use super::bootstrap;
use super::credentials::SeenCredentials;
use super::files::{Files, Listing, MAX_DEPTH};
use super::merged_pools::LocalPools;
use super::object_set::ObjectSet;
use super::plain_configs::{self, PlainConfigs};
use crate::files::error::FileError;
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::kubernetes::seen::ObjectSeen;
use crate::telemetry::Reporting;
use crate::telemetry::conditions::Condition;

/// Age of a change below which a file may still be written.
const SETTLE: Duration = Duration::from_millis(60);

/// Location and meaning of the files.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Manifests of any name in a tree of directories.
    Tree {
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
    #[error(transparent)]
    Scan(#[from] FileError),
    #[error("{first}{}", if *.more == 0 { String::new() } else { format!(" (and {more} more)") })]
    Problems {
        first: Problem,
        /// Number of other problems.
        more: usize,
    },
}

#[derive(Debug)]
struct Scan {
    inputs: Inputs,
    is_changed: bool,
    /// Time of the next scan.
    scanned: Scanned,
}

/// A directory with its last read state.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    files: Files,
    shared: Arc<SharedInputs>,
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
    pub fn read(layout: Layout) -> Result<(Self, Inputs), FileError> {
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
    ) -> Result<Scan, FileError> {
        self.files.begin(now, settle);
        let (mut inputs, shared) = match self.layout.clone() {
            Layout::Tree { root, .. } => self.scan_tree(&root, being_written)?,
            Layout::Bootstrap { base, kubeconfig, registry_cas, .. } => {
                let files = &mut self.files;
                bootstrap::scan(files, &base, &kubeconfig, &registry_cas, being_written)?
            }
        };
        inputs.problems.sort();
        inputs.problems.dedup();
        let is_changed = self.files.finish() || inputs.problems != self.problems;
        self.problems.clone_from(&inputs.problems);
        if *self.shared != shared {
            self.shared = Arc::new(shared);
        }
        inputs.shared = Arc::clone(&self.shared);
        inputs.registry_credentials = self.credentials.auth();
        Ok(Scan { inputs, is_changed, scanned: self.files.scanned() })
    }

    fn scan_tree(
        &mut self,
        root: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<(Inputs, SharedInputs), FileError> {
        let Listing { paths, leads_out, too_deep } =
            super::files::list(root).map_err(FileError::at(root))?;
        if leads_out {
            self.files.leads_elsewhere();
        }
        let (plain, paths): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| plain_configs::is_plain(root, path));
        self.files.read_all(&paths, being_written);

        let mut gathered = ObjectSet::default();
        for path in &paths {
            gathered.add(path, self.files.objects(path));
        }
        let ObjectSet { mut inputs, others, .. } = gathered;
        let mut shared = SharedInputs::default();
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
                object => inputs.layering.add(object),
            }
        }
        let (cas, refused) = registry_ca::collect(&config_maps, image, &self.shared.registry_cas);
        shared.registry_cas = cas;
        let Inputs { pools, machine_configs, problems, .. } = &mut inputs;
        problems.extend(refused.iter().map(|(place, reason)| Problem::part(place, reason)));
        problems.extend(see_credentials(&mut self.credentials, pools, &secrets));
        problems.extend(self.files.problems());
        problems.extend(self.plain_configs.resolve(
            root,
            &plain,
            (&mut self.files, being_written),
            (pools, machine_configs),
        ));
        let controller_config = shared.controller_config.as_ref();
        problems.extend(self.local_pools.resolve(pools, machine_configs, controller_config));
        let unread = format!("not read: more than {MAX_DEPTH} directories deep");
        let unread = |path: &PathBuf| Problem::whole(&path.display().to_string(), unread.as_str());
        problems.extend(too_deep.iter().map(unread));
        inputs.warnings = self.tree_warnings(root, &paths);
        Ok((inputs, shared))
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
            .map_or(ObjectSeen::Absent, |secret| ObjectSeen::Present(Secret::clone(secret)));
        let place = name.to_string();
        problems.extend(credentials.seen(name, seen).map(|it| Problem::part(&place, &it)));
    }
    problems.extend(credentials.problems());
    problems
}
