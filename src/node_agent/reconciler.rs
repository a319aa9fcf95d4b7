//! Looks at a folder, decides, and does what was decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use model::registry_ca::{Entries, RegistryHost};
use nix::fcntl::{Flock, FlockArg};

use super::decide::{Action, decide};
use super::open_directory::OpenDirectory;
use super::{Layout, list};
use crate::files::stamp::FileStamp;

/// Keeps one folder in step.
#[derive(Debug)]
pub struct Reconciler {
    path: PathBuf,
    layout: Layout,
    /// How often files are read whose stamps have not changed.
    resync: Duration,
    read_all: SystemTime,
    /// The list, with its stamp.
    owned: Option<(Option<FileStamp>, BTreeSet<RegistryHost>)>,
    settled: HashMap<RegistryHost, Settled>,
}

/// A registry that there was nothing to do about.
#[derive(Debug)]
struct Settled {
    contents: Vec<Bytes>,
    stamps: Vec<Option<FileStamp>>,
    is_owned: bool,
    action: Action,
}

/// What a look has done, and what it could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Registries whose files are new or changed.
    pub written: Vec<RegistryHost>,
    /// Registries whose folders were there already, just as they should be, and are kept from now
    /// on.
    pub adopted: Vec<RegistryHost>,
    /// Registries whose files were removed.
    pub removed: Vec<RegistryHost>,
    /// What stands in the way, by its path.
    pub problems: BTreeMap<String, String>,
}

/// The directory that is looked at, what it should hold, and the time.
#[derive(Clone, Copy)]
struct Round<'a> {
    directory: &'a OpenDirectory,
    entries: &'a Entries,
    now: SystemTime,
}

/// What one registry should have, and what to do about it.
struct Task {
    host: RegistryHost,
    files: Vec<(&'static str, Bytes)>,
    action: Action,
}

impl Reconciler {
    /// One that knows nothing of the folder yet. Nothing is done before the first look.
    #[must_use]
    pub fn new(path: PathBuf, layout: Layout, resync: Duration) -> Self {
        Self { path, layout, resync, read_all: UNIX_EPOCH, owned: None, settled: HashMap::new() }
    }

    /// The folder that is kept.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Brings the folder in step with the entries of the merged config map.
    ///
    /// A folder that is in step is not touched, and after a while not even read. What goes wrong
    /// with one registry keeps no other from being looked after.
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
        // Two may be at work for a moment, while a pod takes another one's place.
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

    /// The registries whose folders were made here.
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
            // What is as it should be is taken over again.
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
                            "somebody else made it, and it does not hold what the cluster trusts; \
                             move it away, and it is made anew"
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
            self.settled.insert(host.clone(), Settled { contents, stamps, is_owned, action });
        } else {
            self.settled.remove(host);
        }
        Ok(Task { host: host.clone(), files, action })
    }

    /// Does what was decided. The list is written first with what is to be made, and last without
    /// what was removed: whenever this process dies, what it has made is on the list.
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
                    // Somebody was faster; the next look tells what it is.
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
                    tracing::warn!(folder = %path.display(), "stays: it holds other files");
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
