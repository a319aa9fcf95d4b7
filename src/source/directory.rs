//! Inputs from files: a tree of manifests, or the layout of `bootstrap`.
//!
//! A scan checks every file's stamp, reads changed files, and keeps the last good objects of malformed ones. A file
//! that is being written is skipped until it is quiet. What a file no longer has is judged by [`model::presence`]. The
//! last good texts outlive the process, so that a restart goes on where the last process was.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use common::hang::{MAX_HANG, unless_hung};
use files::bounded;
use files::error::FileError;
use files::watch::{DirectoryWatch, QUIET, Scanned};
use kubernetes::seen::ObjectSeen;
use model::escape::and_more;
use model::inputs::{Inputs, Problem, SharedInputs};
use model::objects::{
    ControllerConfig, FirstBootMachine, MachineConfigPool, Metadata, Object, Secret, SecretName,
};
use model::registry_ca::{self, RegistryHost};
use telemetry::Reporting;
use telemetry::conditions::Status;
use telemetry::faults;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bootstrap;
use super::butane::Butane;
use super::credentials::SeenCredentials;
use super::files::{FileLoss, Files, GoodText, RestoredFile};
use super::last_good::{Index, LastGood, StoredFile, StoredLoss};
use super::listing::{Listed, Listing, digest_of_stamps, list};
use super::lost::LostObjects;
use super::manifest;
use super::merged_pools::LocalPools;
use super::object_set::{Layer, ObjectSet, identity};
use super::place::{Place, TextHash, relative, stored_root};
use super::plain_configs::{self, PlainConfigs};

/// Age of a change below which a file may still be written.
const SETTLE: Duration = QUIET;
/// Maximum wait of a start until no file may still be written.
const MAX_UNSETTLED: Duration = Duration::from_millis(500);
/// Interval between looks meanwhile.
const LOOK: Duration = Duration::from_millis(20);

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
        /// State that outlives the process, if any.
        memory: Option<Memory>,
        /// Program that converts Butane files.
        butane: Butane,
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

/// Places where earlier processes and commands leave what concerns a directory of manifests.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Directory of the last good texts.
    pub last_good: PathBuf,
    /// Directory with a file for each machine that a command removes.
    pub removed: PathBuf,
}

impl Layout {
    /// Directories to watch recursively.
    pub fn watched(&self) -> Vec<PathBuf> {
        match self {
            Self::Tree { root, memory, .. } => {
                let removed = memory.as_ref().map(|memory| memory.removed.clone());
                // One that is missing would have to be looked for all the time.
                let removed = removed.filter(|removed| removed.is_dir());
                removed.into_iter().chain([root.clone()]).collect()
            }
            Self::Bootstrap { base, kubeconfig, .. } => {
                let parent = kubeconfig.parent().filter(|parent| !parent.as_os_str().is_empty());
                vec![base.clone(), parent.unwrap_or(Path::new(".")).to_owned()]
            }
        }
    }
}

/// Reasons why a directory cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Scan(#[from] FileError),
    #[error("{first}{}", and_more(*.more))]
    Problems {
        first: Problem,
        /// Number of other problems.
        more: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Scan {
    /// `None` if they are the same as before.
    pub(crate) inputs: Option<Inputs>,
    /// Time of the next scan.
    pub(crate) scanned: Scanned,
}

/// A directory with its last read state.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    pub(super) files: Files,
    shared: Arc<SharedInputs>,
    credentials: SeenCredentials,
    set: ObjectSet,
    local_pools: LocalPools,
    plain_configs: PlainConfigs,
    lost: LostObjects,
    /// True if an earlier process has served the directory.
    is_known: bool,
    last_good: Option<LastGood>,
    removed: Option<PathBuf>,
    started: Instant,
    last_listing: Option<Listing>,
    /// Error that takes the place of the next listing.
    unlisted: Option<io::Error>,
    /// Problems and warnings of the last inputs, if there were any inputs.
    found: Option<[Vec<Problem>; 2]>,
    /// Digest of the files' stamps, as it is stored.
    stored_stamps: Option<u64>,
}

impl Directory {
    /// Reads a directory that must be valid. Problems with parts of an object are no error.
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
        Self::restored(layout).first_scan()
    }

    /// Reads a directory as [`read`](Self::read) does, once no file is being written, as later scans do.
    pub(super) fn read_settled(layout: Layout) -> Result<(Self, Inputs), FileError> {
        Self::restored(layout).first_settled_scan()
    }

    /// Reads a directory once no file is being written. If that takes too long, as on a mount that hangs, what an earlier
    /// process has served is used meanwhile.
    pub(super) fn read_soon(layout: Layout) -> Result<(Self, Inputs), FileError> {
        let of_files = layout.clone();
        unless_hung(move || Self::read_settled(of_files), || Self::hung(layout))
    }

    /// Uses what an earlier process has served, as if the directory could not be listed; `None` if there is nothing.
    pub(super) fn hung(layout: Layout) -> Option<Result<(Self, Inputs), FileError>> {
        let mut last_good = Self::restored(layout);
        let reason = format!("not read within {} s", MAX_HANG.as_secs());
        last_good.unlisted = Some(io::Error::other(reason));
        last_good.is_known.then(|| last_good.first_scan())
    }

    /// A directory that is not read yet, with what an earlier process has served.
    fn restored(layout: Layout) -> Self {
        let mut directory = Self::new(layout);
        directory.restore();
        directory
    }

    /// A directory that is not read yet.
    pub(super) fn new(layout: Layout) -> Self {
        let (secret, is_strict, memory, butane) = match &layout {
            Layout::Tree { registry_credentials, is_strict, memory, butane, .. } => {
                (registry_credentials.clone(), *is_strict, memory.clone(), butane.clone())
            }
            Layout::Bootstrap { is_strict, .. } => (None, *is_strict, None, Butane::default()),
        };
        Self {
            layout,
            files: Files::new(is_strict),
            shared: Arc::default(),
            credentials: SeenCredentials::new(secret),
            set: ObjectSet::default(),
            local_pools: LocalPools::default(),
            plain_configs: PlainConfigs::new(butane),
            lost: LostObjects::default(),
            is_known: false,
            last_good: memory.as_ref().map(|memory| LastGood::new(memory.last_good.clone())),
            removed: memory.map(|memory| memory.removed),
            started: Instant::now(),
            last_listing: None,
            unlisted: None,
            found: None,
            stored_stamps: None,
        }
    }

    /// Reads all files for the first time. Later scans wait for a file to be quiet.
    fn first_scan(mut self) -> Result<(Self, Inputs), FileError> {
        let Scan { inputs, .. } = self.scan(SystemTime::now(), Duration::ZERO, &|_| false)?;
        // A first scan has inputs.
        Ok((self, inputs.unwrap_or_default()))
    }

    /// Reads each file for the first time when it is quiet. One that is still written after [`MAX_UNSETTLED`] is left to later
    /// scans: an earlier process has served its last good text, or it is a problem.
    fn first_settled_scan(mut self) -> Result<(Self, Inputs), FileError> {
        let (started, mut first) = (Instant::now(), None);
        // No pool is merged without a file that is read later.
        self.files.skipped.are_problems = !self.is_known;
        loop {
            let is_last = started.elapsed() >= MAX_UNSETTLED;
            let Scan { inputs, .. } = self.scan(SystemTime::now(), SETTLE, &|_| false)?;
            first = inputs.or(first);
            if is_last || !self.files.skipped.has_any {
                self.files.skipped.are_problems = false;
                // The first scan has inputs.
                return Ok((self, first.unwrap_or_default()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes over what an earlier process has stored.
    fn restore(&mut self) {
        let (Layout::Tree { root, .. }, Some(last_good)) = (&self.layout, &self.last_good) else {
            return;
        };
        let (index, texts) = match last_good.load() {
            Ok(Some(stored)) => stored,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(
                    %error,
                    fix = "remove the file: it is made again",
                    "cannot read what was served before, using the manifests alone"
                );
                return;
            }
        };
        if let Some(before) = index.root.filter(|before| *before != stored_root(root)) {
            tracing::info!(before, "what was served before is of another directory, not using it");
            return;
        }
        self.is_known = true;
        let restored = index.files.into_iter().map(|(path, stored)| {
            let StoredFile { text, directory, source, is_plain, removed } = stored;
            let (path, bytes) = (root.join(path), Bytes::clone(&texts[&text]));
            let place = Place { path, directory, text: Some(text) };
            RestoredFile { place, bytes, source, is_plain, removed }
        });
        let restored: Vec<_> = restored.collect();
        for RestoredFile { place, bytes, .. } in restored.iter().filter(|file| file.is_plain) {
            self.plain_configs.restore(root, &place.path, bytes);
        }
        self.files.restore(restored);
        for StoredLoss { path, text, directory, loss, is_with_most, kind, namespace, name } in
            index.lost
        {
            let is_it = |object: &Object| {
                let it = identity(object);
                (it.kind, it.namespace, it.name) == (&*kind, &*namespace, &*name)
            };
            let place = Place { path: root.join(path), directory, text: Some(text.clone()) };
            let objects = manifest::parse(&texts[&text]).unwrap_or_default();
            if let Some(object) = objects.into_iter().find(is_it) {
                self.lost.restore(&place, object, (loss, is_with_most));
            }
        }
    }

    /// Stores the last good texts, if they have changed.
    pub(crate) fn save(&mut self, status: &Status) {
        let (Layout::Tree { root, .. }, Some(last_good)) = (&self.layout, &self.last_good) else {
            return;
        };
        let stamps = self.stamps();
        if !self.files.is_unsaved && !self.lost.is_changed && stamps == self.stored_stamps {
            return;
        }
        let plain: Vec<_> = self
            .plain_configs
            .files()
            .map(|(path, bytes)| (path, TextHash::of(bytes), bytes))
            .collect();
        let of_manifests = self.files.texts().map(|good| {
            let GoodText { path, text, directory, source, unsaved, removed } = good;
            let (text, removed) = (text.clone(), removed.clone());
            let file = StoredFile { text, directory, source, is_plain: false, removed };
            (relative(root, path), file, unsaved)
        });
        let manifests: Vec<_> = of_manifests.collect();
        let unsaved =
            manifests.iter().filter_map(|(_, file, unsaved)| Some((&file.text, (*unsaved)?)));
        let texts: Vec<_> = unsaved
            .map(|(hash, text)| (hash.clone(), text.clone()))
            .chain(plain.iter().map(|(_, hash, text)| (hash.clone(), Bytes::clone(text))))
            .collect();
        let mut index = Index { root: Some(stored_root(root)), ..Index::default() };
        index.files.extend(manifests.into_iter().map(|(path, file, _)| (path, file)));
        index.files.extend(plain.into_iter().map(|(path, text, _)| {
            let directory = self.files.directory_of(path);
            let (source, removed) = (None, BTreeSet::new());
            (relative(root, path), StoredFile { text, directory, source, is_plain: true, removed })
        }));
        index.lost = self.lost.stored(root);
        index.stamps = stamps;
        if stamps.is_some() {
            let of_pools = self.local_pools.files(&self.set).into_iter();
            index.pools =
                of_pools.map(|(pool, files)| (pool, all_relative(root, &files))).collect();
            index.shared = all_relative(root, &self.set.files_of_others());
        }
        let saved = last_good.save(&index, texts.iter().map(|(hash, text)| (hash, text)));
        let reason = saved.err().map(|error| error.to_string());
        if reason.is_none() {
            self.files.saved();
            self.lost.is_changed = false;
            self.stored_stamps = stamps;
        }
        faults::LAST_GOOD.report(status, reason.as_deref());
    }

    /// Digest of all files and their stamps, if each was read and is valid, and nothing is lost.
    fn stamps(&self) -> Option<u64> {
        let listing = self.last_listing.as_ref()?;
        let is_whole = !self.lost.has_any() && listing.problems().next().is_none();
        let stamps = self.files.stamps(&listing.paths).filter(|_| is_whole)?;
        Some(digest_of_stamps(stamps, self.files.is_strict()))
    }

    /// Sends each change, forever.
    pub async fn follow(mut self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let Reporting { status, .. } = reporting;
        let mut watch = tokio::task::block_in_place(|| DirectoryWatch::new(self.layout.watched()));
        loop {
            tokio::task::block_in_place(|| self.send_change(&mut watch, &inputs, &status));
            watch.changed().await;
        }
    }

    /// Scans the files, then sends a change and stores it: it is noticed by then who writes what new links lead to.
    fn send_change(
        &mut self,
        watch: &mut DirectoryWatch,
        inputs: &watch::Sender<Option<Inputs>>,
        status: &Status,
    ) {
        let mut found = None;
        watch.scan(|being_written| {
            let scan = self.scan(SystemTime::now(), SETTLE, being_written);
            found.insert(scan).as_ref().map_or(Scanned::SETTLED, |it| it.scanned.clone())
        });
        let Some(scan) = found else { return };
        let failure = scan.as_ref().err().map(ToString::to_string);
        faults::INPUTS.report(status, failure.as_deref());
        let Ok(scan) = scan else { return };
        if scan.inputs.is_some() {
            inputs.send_replace(scan.inputs);
        }
        // Serving comes first.
        self.save(status);
    }

    /// Reads changed files, except those that changed within `settle` before `now` or are open for writing according to
    /// `being_written`.
    pub(crate) fn scan(
        &mut self,
        now: SystemTime,
        settle: Duration,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Scan, FileError> {
        self.files.begin(now, settle);
        let read = match self.layout.clone() {
            Layout::Tree { root, .. } => self.scan_tree(&root, being_written)?,
            Layout::Bootstrap { base, kubeconfig, registry_cas, .. } => {
                let files = &mut self.files;
                let files_of_layout = (&*kubeconfig, &registry_cas[..]);
                let before = &self.shared;
                Some(bootstrap::scan(files, &base, files_of_layout, before, being_written)?)
            }
        };
        let is_changed = self.files.finish();
        let scanned = self.files.scanned();
        let Some((mut inputs, shared)) = read else { return Ok(Scan { inputs: None, scanned }) };
        inputs.problems.sort();
        inputs.problems.dedup();
        let found = Some([inputs.problems.clone(), inputs.warnings.clone()]);
        let is_changed = is_changed || found != self.found;
        self.found = found;
        self.share(&mut inputs, shared);
        Ok(Scan { inputs: is_changed.then_some(inputs), scanned })
    }

    /// Adds what all pools share: the value before, if it is the same.
    fn share(&mut self, inputs: &mut Inputs, shared: SharedInputs) {
        if *self.shared != shared {
            self.shared = Arc::new(shared);
        }
        inputs.shared = Arc::clone(&self.shared);
        inputs.registry_credentials = self.credentials.auth();
    }

    /// Inputs with these pools of the files that were restored, without machines. The rest is not read.
    pub(super) fn partial_inputs(&mut self, root: &Path, pools: &BTreeSet<&String>) -> Inputs {
        let listing = Listing::default();
        let (inputs, shared) = self.build(root, &listing, &[], Duration::ZERO);
        let mut of_pools = BTreeMap::clone(&inputs.pools);
        of_pools.retain(|name, _| pools.contains(name));
        let mut partial = Inputs {
            pools: of_pools.into(),
            is_partial: true,
            machines: Arc::default(),
            problems: Vec::new(),
            warnings: Vec::new(),
            ..inputs
        };
        self.share(&mut partial, shared);
        partial
    }

    /// Looks at a tree. `None` if nothing has changed since the last look.
    fn scan_tree(
        &mut self,
        root: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Option<(Inputs, SharedInputs)>, FileError> {
        let uptime = self.started.elapsed();
        let ((listing, stamps), unlisted) = self.list(root)?;
        self.files.leads_outside(&listing.outside);
        let is_plain = |path: &Path| plain_configs::is_plain(root, path);
        let plain: Vec<_> = listing.paths.iter().filter(|path| is_plain(path)).cloned().collect();
        let listed = listing.paths.iter().map(|path| &**path).zip(stamps.into_iter().map(Some));
        self.files.take_directories(&listing);
        self.files.read_all(listed.filter(|(path, _)| !is_plain(path)), being_written);
        self.plain_configs.read(root, &plain, (&mut self.files, being_written));
        self.note_losses(&listing, uptime);
        let is_same = self.last_listing.as_ref() == Some(&listing);
        if is_same && unlisted.is_none() && !self.files.is_changed() && !self.lost.has_any() {
            return Ok(None);
        }
        let (mut inputs, shared) = self.build(root, &listing, &plain, uptime);
        inputs.problems.extend(unlisted);
        self.last_listing = Some(listing);
        if let Some(wait) = self.lost.due_in(uptime) {
            self.files.again_in(wait);
        }
        Ok(Some((inputs, shared)))
    }

    /// Makes the inputs of what was read.
    fn build(
        &mut self,
        root: &Path,
        listing: &Listing,
        plain: &[PathBuf],
        uptime: Duration,
    ) -> (Inputs, SharedInputs) {
        let Self { set, files, plain_configs, lost, .. } = self;
        // What is lost is judged by what there is.
        set.update(Layer::Lost, []);
        set.update(Layer::Manifests, files.all_objects());
        let present = plain.iter().map(|path| &**path).collect();
        let is_changed = lost.judge(set, &present, uptime);
        let lost_objects = lost.by_file();
        set.update(Layer::Lost, lost_objects.iter().map(|(path, objects)| (*path, objects)));
        plain_configs.retain(&present, &lost.plain().map(Path::to_owned).collect());
        set.update(Layer::Plain, plain_configs.objects());

        let mut inputs = Inputs { missing: lost.missing(), ..Inputs::default() };
        let (shared, secrets) = sort(set, &mut inputs, &self.shared);
        let problems = &mut inputs.problems;
        let mut pools = set.pools.clone();
        problems.extend(see_credentials(&mut self.credentials, &pools, &secrets));
        problems.extend(files.problems());
        problems.extend_from_slice(plain_configs.problems());
        problems.extend(set.problems());
        plain_configs.add_pools(root, set, &mut pools);
        let controller_config = shared.controller_config.as_ref();
        let unread = files.never_read().filter(|_| !self.is_known);
        let (machine_configs, unmerged) =
            self.local_pools.resolve(&mut pools, set, controller_config, unread);
        problems.extend(unmerged);
        inputs.pools = pools.into();
        inputs.machine_configs = machine_configs.into();
        inputs.machines = Arc::clone(&set.machines);
        inputs.sources = Arc::clone(&set.sources);
        let problems = &mut inputs.problems;
        problems.extend(listing.problems());
        inputs.warnings = self.tree_warnings(root, &listing.paths);
        inputs.warnings.extend(self.local_pools.unused_annotations(&inputs.pools));
        if is_changed {
            self.files.note_change();
        }
        (inputs, shared)
    }

    /// Lists the files. Of a directory that cannot be listed, all are lost with it, unless none was ever read.
    fn list(&mut self, root: &Path) -> Result<(Listed, Option<Problem>), FileError> {
        match self.unlisted.take().map_or_else(|| list(root), Err) {
            Ok(listed) => Ok((listed, None)),
            Err(error) if self.is_known || self.files.has_any() || self.lost.has_any() => {
                let problem = Problem::whole(&root.display().to_string(), error.to_string());
                Ok((Listed::default(), Some(problem)))
            }
            Err(error) => Err(FileError::at(root)(error)),
        }
    }

    /// Notes the objects that files have lost.
    fn note_losses(&mut self, listing: &Listing, now: Duration) {
        let of_plain = |(path, bytes): (&PathBuf, &Bytes)| {
            let directory = self.files.directory_of(path);
            let loss = listing.loss_of(path, directory)?;
            let text = Some(TextHash::of(bytes));
            Some((Place { path: path.clone(), directory, text }, loss))
        };
        let plain: Vec<_> = self.plain_configs.files().filter_map(of_plain).collect();
        for (place, loss) in plain {
            self.lost.add_plain(&place, loss, now);
        }
        self.files.take_gone(listing);
        for (path, directory) in self.files.take_read() {
            self.lost.read(&path, directory, now);
        }
        for FileLoss { place, objects, loss } in self.files.take_losses() {
            self.lost.add(&place, objects, loss, now);
        }
        self.lost.look(listing, now);
        let removed =
            self.removed.iter().flat_map(|path| bounded::entries(path).unwrap_or_default());
        for path in removed {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            self.files.remove_machine(&name);
            self.lost.remove_machine(&name);
        }
    }

    /// Parts of the last read state without effect.
    fn tree_warnings(&self, root: &Path, paths: &[PathBuf]) -> Vec<Problem> {
        let mut warnings = self.files.warnings();
        let is_selected = self.local_pools.selects(&self.set.sources);
        warnings.extend(self.plain_configs.warnings(root, is_selected));
        warnings.extend(plain_configs::unread(root, paths));
        let is_file = |name: &str| plain_configs::is_plain(root, &root.join(name));
        warnings.extend(self.local_pools.unselected(is_file));
        warnings
    }
}

/// The object of a machine that a server has seen last.
pub(crate) fn last_machine(
    memory: &Memory,
    name: &str,
) -> Result<Option<Arc<FirstBootMachine>>, FileError> {
    LastGood::new(memory.last_good.clone()).machine(name)
}

/// Discards a machine that a command removes while no server runs.
pub(crate) fn discard_machine(memory: &Memory, name: &str) -> Result<(), FileError> {
    LastGood::new(memory.last_good.clone()).discard_machine(name)
}

fn all_relative(root: &Path, files: &BTreeSet<&Path>) -> BTreeSet<PathBuf> {
    files.iter().map(|path| relative(root, path)).collect()
}

/// Sorts the objects that all pools share. Returns them, and the Secrets.
fn sort<'a>(
    set: &'a ObjectSet,
    inputs: &mut Inputs,
    before: &SharedInputs,
) -> (SharedInputs, BTreeMap<SecretName, &'a Secret>) {
    let mut shared = SharedInputs::default();
    let (mut config_maps, mut secrets, mut image) = (Vec::new(), BTreeMap::new(), None);
    for object in set.others.values() {
        match object {
            Object::ControllerConfig(config) => {
                shared.controller_config = Some(ControllerConfig::clone(config));
            }
            Object::Kubeconfig(config) => shared.kubeconfig = Some(config.to_json().into()),
            Object::ConfigMap(map) => config_maps.push(&**map),
            Object::Secret(secret) => {
                let Metadata { namespace, name } = secret.metadata.clone();
                secrets.insert(SecretName { namespace, name }, &**secret);
            }
            Object::ImageConfig(config) => image = Some(&**config),
            object => inputs.layering.add(object),
        }
    }
    let (cas, refused) = registry_ca::collect(&config_maps, image, &before.registry_cas);
    shared.registry_cas = cas;
    inputs.problems.extend(refused.iter().map(|(place, reason)| Problem::part(place, reason)));
    (shared, secrets)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_made_again_for_each_change_and_for_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let layout = Layout::Tree {
            root: root.path().to_owned(),
            registry_credentials: None,
            is_strict: false,
            memory: None,
            butane: PathBuf::from("off").into(),
        };
        let (mut directory, _) = Directory::read(layout).unwrap();
        let mut is_changed = |why: &str, expected: bool| {
            let mut look = || {
                let scan = directory.scan(SystemTime::now(), Duration::ZERO, &|_| false);
                scan.unwrap().inputs.is_some()
            };
            assert_eq!(look(), expected, "{why}");
            assert!(!look(), "{why}: nothing has changed since");
        };
        let pool = |name: &str| format!("kind: MachineConfigPool\nmetadata: {{name: {name}}}\n");
        let plain = r#"{"ignition": {"version": "3.4.0"}}"#;
        is_changed("nothing", false);
        for (name, text) in [
            ("worker.yaml", pool("worker").as_str()),
            ("worker.yaml", &pool("infra")),
            ("worker.yaml", "kind: ["),
            ("worker.yaml", &pool("infra")),
            ("edge.ign", plain),
            ("edge.ign", &plain.replace('4', "5")),
            ("edge.ign", "{"),
            ("edge.ign", plain),
            ("site.bu", "variant: fcos"),
            ("deep/er/notes.ign", "no pool's config"),
        ] {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), text).unwrap();
            is_changed(&format!("{name}: {text}"), true);
        }
        std::fs::write(path("notes.txt"), "for nobody").unwrap();
        is_changed("a file of another kind", false);
        std::fs::write(path("notes.txt"), "still for nobody").unwrap();
        is_changed("another text in it", false);
        std::fs::remove_file(path("site.bu")).unwrap();
        is_changed("a file without a config is removed", true);
    }

    /// A pool with three MachineConfigs of its role.
    fn pool_of_three(pool: &str, argument: &str) -> String {
        let selector = format!("{{machineconfiguration.openshift.io/role: {pool}}}");
        let config = |number: u32| {
            format!(
                "---\nkind: MachineConfig\nmetadata: {{name: {number}-{pool}, labels: {selector}}}\n\
                 spec: {{kernelArguments: [{argument}]}}\n"
            )
        };
        let configs: String = (0..3).map(config).collect();
        let spec = format!("{{machineConfigSelector: {{matchLabels: {selector}}}}}");
        format!("kind: MachineConfigPool\nmetadata: {{name: {pool}}}\nspec: {spec}\n{configs}")
    }

    #[test]
    fn a_change_of_one_file_among_many_looks_at_its_objects_and_merges_its_pool() {
        let root = tempfile::tempdir().unwrap();
        let write = |pool: &str, text: String| {
            std::fs::write(root.path().join(format!("{pool}.yaml")), text).unwrap();
        };
        let pools: Vec<String> = (0..50).map(|number| format!("pool-{number}")).collect();
        for pool in &pools {
            write(pool, pool_of_three(pool, "a"));
        }
        let layout = Layout::Tree {
            root: root.path().to_owned(),
            registry_credentials: None,
            is_strict: false,
            memory: None,
            butane: PathBuf::from("off").into(),
        };
        let (mut directory, before) = Directory::read(layout).unwrap();
        assert_eq!((before.pools.len(), before.machine_configs.len()), (50, 50));
        let work = |it: &Directory| (it.set.looked_at(), it.local_pools.merges());
        assert_eq!(work(&directory), (200, 50));
        write("pool-7", pool_of_three("pool-7", "b"));
        let scan = directory.scan(SystemTime::now(), Duration::ZERO, &|_| false).unwrap();
        let now = scan.inputs.unwrap();
        assert_eq!(work(&directory), (204, 51));
        // Nothing is made again of what is as it was.
        for pool in &pools {
            let is_same = Arc::ptr_eq(&before.pools[pool], &now.pools[pool]);
            assert_eq!(is_same, pool != "pool-7", "{pool}");
        }
        std::fs::remove_file(root.path().join("pool-7.yaml")).unwrap();
        let gone = SystemTime::now() + Duration::from_secs(1);
        directory.scan(gone, Duration::ZERO, &|_| false).unwrap();
        assert_eq!(work(&directory).1, 51);
    }
}
