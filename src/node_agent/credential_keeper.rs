//! Looks at a node's file of registry logins, and does what was decided.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::registry_credentials::{Entries, Registry};
use nix::fcntl::{Flock, FlockArg};

use super::credential_list;
use super::credential_plan::{CredentialPlan, Written, plan_credentials};
use super::open_directory::OpenDirectory;
use crate::files::stamp::FileStamp;

/// Keeps one file in step.
#[derive(Debug)]
pub struct CredentialKeeper {
    path: PathBuf,
    directory: PathBuf,
    name: String,
    /// The name of the list of what was written here, beside the file.
    list: String,
    /// How often the file is read if its stamp has not changed.
    resync: Duration,
    read_at: SystemTime,
    /// What there was nothing to do about.
    settled: Option<Settled>,
}

#[derive(Debug)]
struct Settled {
    entries: Entries,
    stamps: [Option<FileStamp>; 2],
    problem: Option<String>,
}

/// What a look has done, and what it could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialReport {
    /// Registries whose logins are new or changed.
    pub written: Vec<Registry>,
    /// Registries whose logins were there already, and are kept from now on.
    pub adopted: Vec<Registry>,
    /// Registries whose logins were taken out.
    pub removed: Vec<Registry>,
    /// What stands in the way. One line, and nothing of a login in it.
    pub problem: Option<String>,
}

/// What a look has found, and what is to be done about it.
struct Look {
    plan: CredentialPlan,
    listed: Written,
    present: Option<Vec<u8>>,
    stamp: Option<FileStamp>,
    problem: Option<String>,
}

impl CredentialKeeper {
    /// One that knows nothing of the file yet. `None` where `path` is no file's. Nothing is done
    /// before the first look.
    #[must_use]
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
            settled: None,
        })
    }

    /// The file that is kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings the file in step with the secret's entries. One that is in step is not touched, and
    /// not even read.
    pub fn reconcile(&mut self, entries: &Entries, now: SystemTime) -> CredentialReport {
        self.try_reconcile(entries, now).unwrap_or_else(|error| {
            self.settled = None;
            CredentialReport { problem: Some(error.to_string()), ..CredentialReport::default() }
        })
    }

    fn try_reconcile(
        &mut self,
        entries: &Entries,
        now: SystemTime,
    ) -> io::Result<CredentialReport> {
        let directory = OpenDirectory::open(&self.directory)?;
        if now.duration_since(self.read_at).is_ok_and(|age| age >= self.resync) {
            self.settled = None;
            self.read_at = now;
        }
        let stamps = [directory.stamp(&self.name)?, directory.stamp(&self.list)?];
        if let Some(settled) = &self.settled
            && settled.stamps == stamps
            && settled.entries == *entries
        {
            return Ok(CredentialReport {
                problem: settled.problem.clone(),
                ..CredentialReport::default()
            });
        }
        let look = self.look(&directory, entries)?;
        if look.is_done() && !directory.is_untidy()? {
            let is_old =
                |stamp: &Option<FileStamp>| stamp.is_none_or(|stamp| stamp.is_settled(now));
            let settled =
                Settled { entries: entries.clone(), stamps, problem: look.problem.clone() };
            self.settled = stamps.iter().all(is_old).then_some(settled);
            return Ok(CredentialReport { problem: look.problem, ..CredentialReport::default() });
        }
        // Two may be at work for a moment, while a pod takes another one's place.
        let alone = Flock::lock(directory.readable()?, FlockArg::LockExclusive)
            .map_err(|(_, error)| io::Error::from(error))?;
        directory.tidy(&[])?;
        let look = self.look(&directory, entries)?;
        self.settled = None;
        self.write(&directory, &look)?;
        drop(alone);
        let CredentialPlan { written, adopted, removed, .. } = look.plan;
        Ok(CredentialReport { written, adopted, removed, problem: look.problem })
    }

    fn look(&self, directory: &OpenDirectory, entries: &Entries) -> io::Result<Look> {
        let stamp = directory.stamp(&self.name)?;
        let present = directory.read(&self.name)?;
        let (listed, mut problem) = match credential_list::read(directory, &self.list) {
            Ok(listed) => (listed, None),
            Err(error) => {
                let list = self.directory.join(&self.list);
                let problem = format!("{}: {error}; starting a new list", list.display());
                (Written::new(), Some(problem))
            }
        };
        let mut plan = plan_credentials(entries, &listed, present.as_deref())
            .map_err(|error| io::Error::other(format!("{error}; it is left alone")))?;
        if !plan.foreign.is_empty() {
            let names: Vec<_> = plan.foreign.iter().map(Registry::as_str).collect();
            problem = Some(format!(
                "somebody else wrote the logins for {}, which are not the secret's; take them out, \
                 and they are written anew",
                names.join(", ")
            ));
        }
        let holds_ours = !plan.after.is_empty();
        if plan.file.is_none() && holds_ours && !directory.is_private(&self.name)? {
            plan.file.clone_from(&present);
        }
        Ok(Look { plan, listed, present, stamp, problem })
    }

    /// The list is written first with what is to be written, and last without what was before:
    /// whenever this process dies, what it has written is on the list.
    fn write(&self, directory: &OpenDirectory, look: &Look) -> io::Result<()> {
        let Look { plan, listed, present, stamp, .. } = look;
        if let Some(file) = &plan.file {
            if plan.before != *listed {
                credential_list::write(directory, &self.list, &plan.before)?;
            }
            // What somebody wrote meanwhile is not written over.
            if directory.stamp(&self.name)? != *stamp || directory.read(&self.name)? != *present {
                return Err(io::Error::other("it was changed at this moment; trying again"));
            }
            directory.put_private(&self.name, file)?;
        }
        if plan.after != *listed {
            credential_list::write(directory, &self.list, &plan.after)?;
        }
        Ok(())
    }
}

impl Look {
    fn is_done(&self) -> bool {
        self.plan.file.is_none() && self.plan.after == self.listed
    }
}
