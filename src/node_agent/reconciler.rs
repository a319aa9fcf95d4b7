//! Checks a directory, decides, and applies the decided changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use model::registry_ca::{Entries, RegistryHost};
use nix::fcntl::{Flock, FlockArg};

use super::decide::{Action, decide};
use super::layout::Layout;
use super::list;
use super::open_directory::OpenDirectory;
use crate::files::stamp::FileStamp;

/// Keeps one directory up to date.
#[derive(Debug)]
pub struct Reconciler {
    path: PathBuf,
    layout: Layout,
    /// Interval between reads of files with unchanged stamps.
    resync: Duration,
    read_all: SystemTime,
    /// The list, with its stamp.
    owned: Option<(Option<FileStamp>, BTreeSet<RegistryHost>)>,
    settled: HashMap<RegistryHost, UnchangedRegistry>,
}

/// A registry for which nothing was to do.
#[derive(Debug)]
struct UnchangedRegistry {
    contents: Vec<Bytes>,
    stamps: Vec<Option<FileStamp>>,
    is_owned: bool,
    action: Action,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Registries with new or changed files.
    pub written: Vec<RegistryHost>,
    /// Registries whose directories existed already with the right files, and are managed from this check on.
    pub adopted: Vec<RegistryHost>,
    /// Registries whose files were removed.
    pub removed: Vec<RegistryHost>,
    pub problems: BTreeMap<String, String>,
}

/// Directory of a round, its wanted entries, and the time.
#[derive(Clone, Copy)]
struct Round<'a> {
    directory: &'a OpenDirectory,
    entries: &'a Entries,
    now: SystemTime,
}

/// Wanted files of one registry, with the action.
struct Task {
    host: RegistryHost,
    files: Vec<(&'static str, Bytes)>,
    action: Action,
}

impl Reconciler {
    /// Creates a reconciler without knowledge of the directory. It does nothing before the first check.
    #[must_use]
    pub fn new(path: PathBuf, layout: Layout, resync: Duration) -> Self {
        Self { path, layout, resync, read_all: UNIX_EPOCH, owned: None, settled: HashMap::new() }
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Updates the directory to the entries of the merged ConfigMap.
    ///
    /// An unchanged directory is not written, and after a while not even read. A fault of one registry does not affect
    /// the others.
    pub fn reconcile(&mut self, entries: &Entries, now: SystemTime) -> Report {
        let mut report = Report::default();
        if let Err(error) = self.try_reconcile(entries, now, &mut report) {
            report.problems.insert(self.path.display().to_string(), error.to_string());
        }
        report
    }

    fn try_reconcile(
        &mut self,
        entries: &Entries,
        now: SystemTime,
        report: &mut Report,
    ) -> io::Result<()> {
        let directory = &OpenDirectory::open(&self.path)?;
        let round = Round { directory, entries, now };
        if now.duration_since(self.read_all).is_ok_and(|age| age >= self.resync) {
            self.settled.clear();
            self.owned = None;
            self.read_all = now;
        }
        let owned = self.owned(directory, report)?;
        let tasks = self.tasks(round, &owned, report);
        let is_nothing = |task: &Task| matches!(task.action, Action::Leave | Action::Foreign);
        if tasks.iter().all(is_nothing) && !directory.is_untidy()? {
            return Ok(());
        }
        // Two processes can overlap while a pod replaces another.
        let lock = Flock::lock(directory.readable()?, FlockArg::LockExclusive)
            .map_err(|(_, error)| io::Error::from(error))?;
        *report = Report::default();
        directory.tidy(self.layout.names())?;
        self.owned = None;
        let owned = self.owned(directory, report)?;
        let tasks = self.tasks(round, &owned, report);
        let done = self.work(directory, &tasks, owned, report);
        self.owned = None;
        directory.sync()?;
        drop(lock);
        done
    }

    /// Registries whose directories were created here.
    fn owned(
        &mut self,
        directory: &OpenDirectory,
        report: &mut Report,
    ) -> io::Result<BTreeSet<RegistryHost>> {
        let stamp = directory.stamp(list::NAME)?;
        if let Some((known, owned)) = &self.owned
            && *known == stamp
        {
            return Ok(owned.clone());
        }
        match list::read(directory) {
            Ok(owned) => {
                self.owned = Some((stamp, owned.clone()));
                Ok(owned)
            }
            // Directories with the right files are added to the list again.
            Err(error) => {
                let path = self.path.join(list::NAME).display().to_string();
                report.problems.insert(path, format!("{error}; starting a new list"));
                Ok(BTreeSet::new())
            }
        }
    }

    fn tasks(
        &mut self,
        round: Round<'_>,
        owned: &BTreeSet<RegistryHost>,
        report: &mut Report,
    ) -> Vec<Task> {
        let entries = round.entries;
        let unwanted = owned
            .iter()
            .filter(|host| !entries.good.contains_key(host) && !entries.spoilt.contains(host));
        let wanted = entries.good.iter().map(|(host, pem)| (host, Some(pem)));
        let mut tasks = Vec::new();
        for (host, pem) in wanted.chain(unwanted.map(|host| (host, None))) {
            let is_owned = owned.contains(host);
            match self.task(round, host, pem, is_owned) {
                Ok(task) => {
                    if task.action == Action::Foreign {
                        report.problems.insert(
                            self.path.join(host.as_str()).display().to_string(),
                            "another program made it, and it differs from what the cluster trusts; \
                                remove it to have it made again"
                                .to_owned(),
                        );
                    }
                    tasks.push(task);
                }
                Err(error) => self.failed(host, &error, report),
            }
        }
        self.settled.retain(|host, _| entries.good.contains_key(host));
        tasks
    }

    fn task(
        &mut self,
        round: Round<'_>,
        host: &RegistryHost,
        pem: Option<&Bytes>,
        is_owned: bool,
    ) -> io::Result<Task> {
        let Round { directory, now, .. } = round;
        let names = self.layout.names();
        let contents = pem.map(|pem| self.layout.contents(host, pem));
        let is_wanted = contents.is_some();
        let contents = contents.unwrap_or_else(|| vec![Bytes::new(); names.len()]);
        let name = host.as_str();
        let mut stamps = vec![directory.stamp(name)?];
        for file in names {
            stamps.push(directory.stamp(&format!("{name}/{file}"))?);
        }
        let known = self.settled.get(host).filter(|settled| {
            is_wanted
                && settled.is_owned == is_owned
                && settled.stamps == stamps
                && settled.contents == contents
        });
        let action = known.map(|settled| settled.action);
        let files: Vec<_> = names.iter().copied().zip(contents).collect();
        if let Some(action) = action {
            return Ok(Task { host: host.clone(), files, action });
        }
        let action = decide(is_wanted, is_owned, &directory.present(name, &files)?);
        let is_old = |stamp: &Option<FileStamp>| stamp.is_none_or(|stamp| stamp.is_settled(now));
        if matches!(action, Action::Leave | Action::Foreign) && stamps.iter().all(is_old) {
            let contents = files.iter().map(|(_, contents)| contents.clone()).collect();
            self.settled
                .insert(host.clone(), UnchangedRegistry { contents, stamps, is_owned, action });
        } else {
            self.settled.remove(host);
        }
        Ok(Task { host: host.clone(), files, action })
    }

    /// Applies the actions. The list gets new entries before the changes, and loses old ones after them: whenever this
    /// process dies, all that it has created is on the list.
    fn work(
        &self,
        directory: &OpenDirectory,
        tasks: &[Task],
        owned: BTreeSet<RegistryHost>,
        report: &mut Report,
    ) -> io::Result<()> {
        let mut listed = owned;
        let mut next = listed.clone();
        let is_new = |task: &&Task| matches!(task.action, Action::Make | Action::Adopt);
        next.extend(tasks.iter().filter(is_new).map(|task| task.host.clone()));
        if next != listed {
            list::write(directory, &next)?;
            listed.clone_from(&next);
        }
        for task in tasks {
            if let Err(error) = self.act(directory, task, &mut next, report) {
                self.failed(&task.host, &error, report);
            }
        }
        if next == listed { Ok(()) } else { list::write(directory, &next) }
    }

    fn act(
        &self,
        directory: &OpenDirectory,
        task: &Task,
        owned: &mut BTreeSet<RegistryHost>,
        report: &mut Report,
    ) -> io::Result<()> {
        let Task { host, files, action } = task;
        let name = host.as_str();
        match action {
            Action::Leave | Action::Foreign => {}
            Action::Adopt => report.adopted.push(host.clone()),
            Action::Make => {
                if directory.make(name, files)? {
                    report.written.push(host.clone());
                } else {
                    // Another process was faster; the next check decides again.
                    owned.remove(host);
                }
            }
            Action::Exchange => {
                directory.exchange(name, files)?;
                report.written.push(host.clone());
            }
            Action::Repair => {
                directory.repair(name, files)?;
                report.written.push(host.clone());
            }
            Action::Remove => {
                let is_gone = directory.remove(name, self.layout.names())?;
                owned.remove(host);
                report.removed.push(host.clone());
                if !is_gone {
                    let path = self.path.join(name);
                    tracing::warn!(
                        folder = %path.display(),
                        fix = "delete the directory if nothing uses its files",
                        "kept a directory with other files"
                    );
                }
            }
            Action::Forget => {
                owned.remove(host);
            }
        }
        Ok(())
    }

    fn failed(&self, host: &RegistryHost, error: &io::Error, report: &mut Report) {
        let path = self.path.join(host.as_str()).display().to_string();
        report.problems.insert(path, error.to_string());
    }
}
