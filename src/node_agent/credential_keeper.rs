//! Checks a node's file of registry credentials, and applies the decided changes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::registry_credentials::{Entries, Registry};
use nix::fcntl::{Flock, FlockArg};

use super::credential_plan::{CredentialPlan, WrittenDigests, plan_credentials};
use super::list;
use super::open_directory::{OpenDirectory, PRIVATE_FILE};
use super::report::Report;
use crate::files::stamp::FileStamp;

/// Keeps one file up to date.
#[derive(Debug)]
pub struct CredentialKeeper {
    path: PathBuf,
    directory: PathBuf,
    name: String,
    /// Name of the list of written credentials, in the same directory.
    list: String,
    /// Interval between reads of a file with an unchanged stamp.
    resync: Duration,
    read_at: SystemTime,
    /// Result of the last check, if nothing was to do.
    last_check: Option<LastCheck>,
}

#[derive(Debug)]
struct LastCheck {
    entries: Entries,
    stamps: [Option<FileStamp>; 2],
    problem: Option<String>,
}

/// Findings of a check, with the plan.
struct Observation {
    plan: CredentialPlan,
    listed: WrittenDigests,
    present: Option<Vec<u8>>,
    stamp: Option<FileStamp>,
    problem: Option<String>,
}

impl CredentialKeeper {
    /// Creates a keeper without knowledge of the file. `None` if `path` cannot be a file. It does nothing before the
    /// first check.
    pub fn new(path: &Path, resync: Duration) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let directory = path.parent()?.to_owned();
        Some(Self {
            path: path.to_owned(),
            directory,
            list: format!(".{name}.machine-config-server"),
            name,
            resync,
            read_at: UNIX_EPOCH,
            last_check: None,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Updates the file to the Secret's entries. An unchanged file is neither written nor read.
    pub fn reconcile(&mut self, entries: &Entries, now: SystemTime) -> Report {
        let mut report = Report::default();
        let problem = self.try_reconcile(entries, now, &mut report).unwrap_or_else(|error| {
            self.last_check = None;
            Some(error.to_string())
        });
        report.problems.extend(problem.map(|problem| (self.path.display().to_string(), problem)));
        report
    }

    /// Returns the problem that remains, if any.
    fn try_reconcile(
        &mut self,
        entries: &Entries,
        now: SystemTime,
        report: &mut Report,
    ) -> io::Result<Option<String>> {
        let directory = OpenDirectory::open(&self.directory)?;
        if now.duration_since(self.read_at).is_ok_and(|age| age >= self.resync) {
            self.last_check = None;
            self.read_at = now;
        }
        let stamps = [directory.stamp(&self.name)?, directory.stamp(&self.list)?];
        if let Some(last_check) = &self.last_check
            && last_check.stamps == stamps
            && last_check.entries == *entries
        {
            return Ok(last_check.problem.clone());
        }
        let look = self.look(&directory, entries)?;
        if look.is_done() && !directory.is_untidy()? {
            let is_old =
                |stamp: &Option<FileStamp>| stamp.is_none_or(|stamp| stamp.is_settled(now));
            let last_check =
                LastCheck { entries: entries.clone(), stamps, problem: look.problem.clone() };
            self.last_check = stamps.iter().all(is_old).then_some(last_check);
            return Ok(look.problem);
        }
        // Two processes can overlap while a pod replaces another.
        let alone = Flock::lock(directory.readable()?, FlockArg::LockExclusive)
            .map_err(|(_, error)| io::Error::from(error))?;
        directory.tidy(&[])?;
        let look = self.look(&directory, entries)?;
        self.last_check = None;
        self.write(&directory, &look)?;
        drop(alone);
        let names = |registries: Vec<Registry>| {
            registries.iter().map(|registry| registry.as_str().to_owned()).collect()
        };
        report.written = names(look.plan.written);
        report.adopted = names(look.plan.adopted);
        report.removed = names(look.plan.removed);
        Ok(look.problem)
    }

    fn look(&self, directory: &OpenDirectory, entries: &Entries) -> io::Result<Observation> {
        let stamp = directory.stamp(&self.name)?;
        let present = directory.read(&self.name)?;
        let (listed, mut problem) = match list::read_digests(directory, &self.list) {
            Ok(listed) => (listed, None),
            Err(error) => {
                let list = self.directory.join(&self.list);
                let problem = format!("{}: {error}; starting a new list", list.display());
                (WrittenDigests::new(), Some(problem))
            }
        };
        let mut plan = plan_credentials(entries, &listed, present.as_deref())
            .map_err(|error| io::Error::other(format!("{error}; not changed")))?;
        if !plan.foreign.is_empty() {
            let names: Vec<_> = plan.foreign.iter().map(Registry::as_str).collect();
            problem = Some(format!(
                "another program wrote credentials for {} that differ from the Secret's; remove \
                    them to have the Secret's written",
                names.join(", ")
            ));
        }
        let holds_ours = !plan.after.is_empty();
        if plan.file.is_none() && holds_ours && !directory.is_private(&self.name)? {
            plan.file.clone_from(&present);
        }
        Ok(Observation { plan, listed, present, stamp, problem })
    }

    /// The list gets new entries before the write, and loses old ones after it: whenever this process dies, all that it
    /// has written is on the list.
    fn write(&self, directory: &OpenDirectory, look: &Observation) -> io::Result<()> {
        let Observation { plan, listed, present, stamp, .. } = look;
        if let Some(file) = &plan.file {
            if plan.before != *listed {
                list::write_digests(directory, &self.list, &plan.before)?;
            }
            // A concurrent change is not overwritten.
            if directory.stamp(&self.name)? != *stamp || directory.read(&self.name)? != *present {
                return Err(io::Error::other("changed at this moment; retrying"));
            }
            directory.put(&self.name, file, PRIVATE_FILE)?;
        }
        if plan.after != *listed {
            list::write_digests(directory, &self.list, &plan.after)?;
        }
        Ok(())
    }
}

impl Observation {
    fn is_done(&self) -> bool {
        self.plan.file.is_none() && self.plan.after == self.listed
    }
}
