//! Checks a directory, decides, and applies the decided changes.

use std::collections::{BTreeSet, HashMap};
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
use super::report::Report;
use crate::files::stamp::FileStamp;

/// Problem of a directory that another party made.
const FOREIGN: &str = "another program made it, and it differs from what the cluster trusts; \
    remove it to have it made again";

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
    /// Registries for which nothing was to do, with their state then.
    settled: HashMap<RegistryHost, (RegistryState, Action)>,
}

/// State of a registry that decides on its action.
#[derive(Debug, PartialEq, Eq)]
struct RegistryState {
    /// Wanted contents, `None` for no files.
    contents: Option<Vec<Bytes>>,
    stamps: Vec<Option<FileStamp>>,
    is_owned: bool,
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
    pub fn new(path: PathBuf, layout: Layout, resync: Duration) -> Self {
        Self { path, layout, resync, read_all: UNIX_EPOCH, owned: None, settled: HashMap::new() }
    }

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
        match list::read_hosts(directory) {
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
                        self.failed(host, &FOREIGN, report);
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
        let (names, name) = (self.layout.names(), host.as_str());
        let contents = pem.map(|pem| self.layout.contents(host, pem));
        let mut stamps = vec![directory.stamp(name)?];
        for file in names {
            stamps.push(directory.stamp(&format!("{name}/{file}"))?);
        }
        let state = RegistryState { contents: contents.clone(), stamps, is_owned };
        let contents = contents.unwrap_or_else(|| vec![Bytes::new(); names.len()]);
        let files: Vec<_> = names.iter().copied().zip(contents).collect();
        let known = self.settled.get(host).filter(|(known, _)| *known == state);
        if let Some((_, action)) = known {
            return Ok(Task { host: host.clone(), files, action: *action });
        }
        let action = decide(pem.is_some(), is_owned, &directory.present(name, &files)?);
        let is_old = |stamp: &Option<FileStamp>| stamp.is_none_or(|stamp| stamp.is_settled(now));
        if matches!(action, Action::Leave | Action::Foreign) && state.stamps.iter().all(is_old) {
            self.settled.insert(host.clone(), (state, action));
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
            list::write_hosts(directory, &next)?;
            listed.clone_from(&next);
        }
        for task in tasks {
            if let Err(error) = self.act(directory, task, &mut next, report) {
                self.failed(&task.host, &error, report);
            }
        }
        if next == listed { Ok(()) } else { list::write_hosts(directory, &next) }
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
        let changed = match action {
            Action::Leave | Action::Foreign => return Ok(()),
            Action::Adopt => &mut report.adopted,
            Action::Make => {
                if !directory.make(name, files)? {
                    // Another process was faster; the next check decides again.
                    owned.remove(host);
                    return Ok(());
                }
                &mut report.written
            }
            Action::Exchange => {
                directory.exchange(name, files)?;
                &mut report.written
            }
            Action::Repair => {
                directory.repair(name, files)?;
                &mut report.written
            }
            Action::Remove => {
                let is_gone = directory.remove(name, self.layout.names())?;
                owned.remove(host);
                if !is_gone {
                    tracing::warn!(
                        folder = %self.path.join(name).display(),
                        fix = "delete the directory if nothing uses its files",
                        "kept a directory with other files"
                    );
                }
                &mut report.removed
            }
            Action::Forget => {
                owned.remove(host);
                return Ok(());
            }
        };
        changed.push(name.to_owned());
        Ok(())
    }

    fn failed(&self, host: &RegistryHost, reason: &dyn ToString, report: &mut Report) {
        let path = self.path.join(host.as_str()).display().to_string();
        report.problems.insert(path, reason.to_string());
    }
}
