//! The file of registry credentials, one for all registries.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::registry_credentials::{Entries, Registry};

use super::credential_plan::{NewFile, plan_credentials};
use super::list;
use super::open_directory::{OpenDirectory, PRIVATE_FILE};
use super::plan::{Action, List, Plan};
use super::reconciler::{Look, ManagedFiles, Reconciler, Report};

/// Time within which a program that has emptied the file writes it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// A file of credentials.
#[derive(Debug)]
pub struct RegistryCredentials {
    path: PathBuf,
    name: String,
    /// Name of the list of written credentials.
    list: String,
}

impl Reconciler<RegistryCredentials> {
    /// Creates a reconciler of the file at `path`. `None` if `path` cannot be a file.
    pub fn of_registry_credentials(path: &Path, resync: Duration) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let directory = path.parent()?.to_owned();
        let list = format!(".{name}.machine-config-server");
        let files = RegistryCredentials { path: path.to_owned(), name, list };
        Some(Self::new(files, directory, resync))
    }
}

impl RegistryCredentials {
    /// Returns `true` if another program may have emptied the file to write it: its entries would be lost.
    fn may_be_written(&self, look: &Look<'_>) -> io::Result<bool> {
        let stamp = look.directory.stamp(&self.name)?;
        let age = stamp.and_then(|stamp| look.now.duration_since(stamp.changed_at()).ok());
        Ok(age.is_some_and(|age| age < WRITTEN_WITHIN))
    }
}

impl ManagedFiles for RegistryCredentials {
    type Entries = Entries;
    type Registry = Registry;
    type Change = NewFile;

    fn path(&self) -> &Path {
        &self.path
    }

    fn list_name(&self) -> &str {
        &self.list
    }

    fn read_list(&self, directory: &OpenDirectory) -> io::Result<List<Registry>> {
        let listed: BTreeMap<String, BTreeSet<String>> = list::read(directory, &self.list)?;
        let entry = |(name, digests): (String, _)| Some((Registry::parse(&name)?, digests));
        Ok(listed.into_iter().filter_map(entry).collect())
    }

    fn write_list(&self, directory: &OpenDirectory, list: &List<Registry>) -> io::Result<()> {
        let list: BTreeMap<_, _> =
            list.iter().map(|(registry, digests)| (registry.as_str(), digests)).collect();
        list::write(directory, &self.list, list, PRIVATE_FILE)
    }

    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    fn plan(
        &self,
        look: &mut Look<'_>,
        entries: &Entries,
        listed: &List<Registry>,
    ) -> io::Result<Plan<Registry, NewFile>> {
        look.depends_on(&self.name)?;
        let present = look.directory.read(&self.name)?;
        if present.as_ref().is_some_and(Vec::is_empty) && self.may_be_written(look)? {
            return Err(io::Error::other(
                "was emptied a moment ago; not changed until it is written",
            ));
        }
        let mut plan = plan_credentials(entries, listed, present.as_deref())
            .map_err(|error| io::Error::other(format!("{error}; not changed")))?;
        let foreign: Vec<_> = plan.registries(Action::Foreign).map(Registry::as_str).collect();
        if !foreign.is_empty() {
            let problem = format!(
                "another program wrote credentials for {} that differ from the Secret's; remove \
                    them to have the Secret's written",
                foreign.join(", ")
            );
            look.problems.insert(self.path.display().to_string(), problem);
        }
        let holds_ours = !plan.after.is_empty();
        if plan.change.is_none() && holds_ours && !look.directory.is_private(&self.name)? {
            plan.change =
                present.map(|file| NewFile { replaced: Some(file.clone()), contents: file });
        }
        Ok(plan)
    }

    fn apply(
        &self,
        directory: &OpenDirectory,
        _: &Entries,
        plan: &mut Plan<Registry, NewFile>,
        report: &mut Report,
    ) -> io::Result<()> {
        if let Some(NewFile { replaced, contents }) = &plan.change {
            // A concurrent change is not overwritten.
            if directory.read(&self.name)? != *replaced {
                return Err(io::Error::other("changed at this moment; retrying"));
            }
            directory.put(&self.name, contents, PRIVATE_FILE)?;
        }
        for (registry, action) in &plan.actions {
            report.done(registry.as_str(), *action);
        }
        Ok(())
    }
}
