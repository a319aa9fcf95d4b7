//! Brings a node's files in line with an object of the cluster: it looks, plans, and applies the plan.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use files::stamp::FileStamp;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::open_directory::OpenDirectory;
use super::plan::{Action, List, Plan};

/// Longest wait for another process that changes the files. Nothing else runs meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Files below one directory that a [`Reconciler`] keeps up to date.
pub trait ManagedFiles {
    /// Entries of the object.
    type Entries: Clone + PartialEq;
    type Registry: Clone + Ord;
    /// New contents of a file for all registries.
    type Change;

    /// The managed file or directory.
    fn path(&self) -> &Path;
    /// Name of the list of what was written here, in the same directory.
    fn list_name(&self) -> &str;
    fn read_list(&self, directory: &OpenDirectory) -> io::Result<List<Self::Registry>>;
    fn write_list(&self, directory: &OpenDirectory, list: &List<Self::Registry>) -> io::Result<()>;

    /// Names of the files that an incomplete directory can have.
    fn names(&self) -> &'static [&'static str];

    /// Compares the files with the entries, without changing them.
    fn plan(
        &self,
        look: &mut Look<'_>,
        entries: &Self::Entries,
        listed: &List<Self::Registry>,
    ) -> io::Result<Plan<Self::Registry, Self::Change>>;

    /// Applies the actions. A registry whose action failed keeps its entry in the list `after` them.
    fn apply(
        &self,
        directory: &OpenDirectory,
        entries: &Self::Entries,
        plan: &mut Plan<Self::Registry, Self::Change>,
        report: &mut Report,
    ) -> io::Result<()>;
}

/// Result of a check, with the names of registries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Registries with new or changed files or credentials.
    pub written: Vec<String>,
    /// Registries whose files or credentials existed already as they should be, and are managed from this check on.
    pub adopted: Vec<String>,
    /// Registries whose files or credentials were removed.
    pub removed: Vec<String>,
    /// Problems by path, in one line, without credentials.
    pub problems: BTreeMap<String, String>,
}

impl Report {
    /// Records an action that succeeded.
    pub fn done(&mut self, registry: &str, action: Action) {
        let registries = match action {
            Action::Make | Action::Exchange | Action::Repair => &mut self.written,
            Action::Adopt => &mut self.adopted,
            Action::Remove => &mut self.removed,
            Action::Leave | Action::Forget | Action::Foreign => return,
        };
        registries.push(registry.to_owned());
    }
}

/// A check of the files, which records what its result depends on.
pub struct Look<'a> {
    pub directory: &'a OpenDirectory,
    /// Problems by path.
    pub problems: BTreeMap<String, String>,
    /// False if something could not be examined, so that equal stamps do not mean an equal result.
    pub is_whole: bool,
    stamps: Stamps,
    pub now: SystemTime,
}

type Stamps = Vec<(String, Option<FileStamp>)>;

impl Look<'_> {
    /// Records the stamp of a file. It must be called before the file is examined, so that a later change is noticed.
    pub fn depends_on(&mut self, path: &str) -> io::Result<()> {
        self.stamps.push((path.to_owned(), self.directory.stamp(path)?));
        Ok(())
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let is_settled = |stamp: &Option<FileStamp>| stamp.is_none_or(|it| it.is_settled(now));
        self.is_whole && self.stamps.iter().all(|(_, stamp)| is_settled(stamp))
    }
}

/// Keeps files up to date.
#[derive(Debug)]
pub struct Reconciler<F: ManagedFiles> {
    files: F,
    directory: PathBuf,
    /// Interval between reads of files with unchanged stamps.
    resync: Duration,
    read_at: SystemTime,
    /// The last check, if nothing was to do.
    last_check: Option<LastCheck<F::Entries>>,
}

#[derive(Debug)]
struct LastCheck<E> {
    entries: E,
    stamps: Stamps,
    problems: BTreeMap<String, String>,
}

type PlanOf<F> = Plan<<F as ManagedFiles>::Registry, <F as ManagedFiles>::Change>;

impl<F: ManagedFiles> Reconciler<F> {
    /// Creates a reconciler without knowledge of the files. It does nothing before the first check.
    pub(super) fn new(files: F, directory: PathBuf, resync: Duration) -> Self {
        Self { files, directory, resync, read_at: UNIX_EPOCH, last_check: None }
    }

    /// The managed file or directory.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// Updates the files to the entries.
    ///
    /// Unchanged files are not written, and read only after a while.
    pub fn reconcile(&mut self, entries: &F::Entries, now: SystemTime) -> Report {
        let mut report = Report::default();
        if let Err(error) = self.try_reconcile(entries, now, &mut report) {
            let path = self.path().display().to_string();
            report.problems.insert(path, error.to_string());
        }
        report
    }

    fn try_reconcile(
        &mut self,
        entries: &F::Entries,
        now: SystemTime,
        report: &mut Report,
    ) -> io::Result<()> {
        let last_check = self.last_check.take();
        let directory = &OpenDirectory::open(&self.directory)?;
        // The clock can be set back.
        let is_due = now.duration_since(self.read_at).map_or(true, |age| age >= self.resync);
        if is_due {
            self.read_at = now;
        }
        let is_tidy = !directory.is_untidy()?;
        if let Some(last_check) = last_check
            && last_check.is_valid(directory, entries)?
            && is_tidy
            && !is_due
        {
            report.problems.clone_from(&last_check.problems);
            self.last_check = Some(last_check);
            return Ok(());
        }
        let (look, plan, listed) = self.look(directory, entries, now)?;
        if plan.is_done(&listed) && is_tidy {
            report.problems.clone_from(&look.problems);
            let is_settled = look.is_settled(now);
            let Look { stamps, problems, .. } = look;
            let last_check = LastCheck { entries: entries.clone(), stamps, problems };
            self.last_check = is_settled.then_some(last_check);
            return Ok(());
        }
        let held = lock(directory)?;
        directory.tidy(self.files.names())?;
        let (look, mut plan, listed) = self.look(directory, entries, now)?;
        report.problems = look.problems;
        if plan.before != listed {
            self.files.write_list(directory, &plan.before)?;
        }
        self.files.apply(directory, entries, &mut plan, report)?;
        if plan.after != plan.before {
            self.files.write_list(directory, &plan.after)?;
        }
        directory.sync()?;
        drop(held);
        Ok(())
    }

    /// Checks the files. Returns the plan and the present list, too.
    fn look<'a>(
        &self,
        directory: &'a OpenDirectory,
        entries: &F::Entries,
        now: SystemTime,
    ) -> io::Result<(Look<'a>, PlanOf<F>, List<F::Registry>)> {
        let (problems, stamps) = (BTreeMap::new(), Stamps::new());
        let mut look = Look { directory, problems, is_whole: true, stamps, now };
        look.depends_on(self.files.list_name())?;
        let listed = match self.files.read_list(directory) {
            Ok(listed) => listed,
            // The list may be whole, and what it names would never be removed without it.
            Err(error) if error.raw_os_error().is_some() => {
                return Err(io::Error::other(format!("{}: {error}", self.files.list_name())));
            }
            Err(error) => {
                // What is as it should be is added to the list again.
                look.is_whole = false;
                let path = self.directory.join(self.files.list_name()).display().to_string();
                look.problems.insert(path, format!("{error}; starting a new list"));
                List::new()
            }
        };
        let plan = self.files.plan(&mut look, entries, &listed)?;
        Ok((look, plan, listed))
    }
}

/// Locks the directory, because two processes can overlap while a pod replaces another. All users of the node can hold
/// the lock, so that the wait has a limit.
fn lock(directory: &OpenDirectory) -> io::Result<Flock<OwnedFd>> {
    let started = Instant::now();
    let mut file = directory.readable()?;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(held),
            Err((file, Errno::EWOULDBLOCK)) if started.elapsed() < LONGEST_WAIT => file,
            Err((_, Errno::EWOULDBLOCK)) => {
                let seconds = LONGEST_WAIT.as_secs();
                return Err(io::Error::other(format!(
                    "another process has held the lock of this directory for {seconds} s; find it with `lslocks`"
                )));
            }
            Err((_, error)) => return Err(error.into()),
        };
        std::thread::sleep(PAUSE);
    }
}

impl<E: PartialEq> LastCheck<E> {
    fn is_valid(&self, directory: &OpenDirectory, entries: &E) -> io::Result<bool> {
        for (path, stamp) in &self.stamps {
            if directory.stamp(path)? != *stamp {
                return Ok(false);
            }
        }
        Ok(self.entries == *entries)
    }
}
