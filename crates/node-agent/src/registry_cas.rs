//! The directories of registry CAs, one for each registry.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use model::registry_ca::{Entries, RegistryHost};

use super::layout::Layout;
use super::list;
use super::open_directory::{FILE, OpenDirectory};
use super::plan::{Action, List, Plan, registries};
use super::reconciler::{Look, ManagedFiles, Reconciler, Report};
use super::registry_ca_plan::decide;

/// Name of the list of directories that were created here.
const LIST: &str = ".machine-config-server.json";
/// Problem of a directory that another party made.
const FOREIGN: &str = "another program made it, and it differs from what the cluster trusts; \
    remove it to have it made again";

/// Registries' directories below one.
#[derive(Debug)]
pub struct RegistryCas {
    path: PathBuf,
    layout: Layout,
}

impl Reconciler<RegistryCas> {
    /// Creates a reconciler of registry CAs in a directory.
    pub fn of_registry_cas(path: PathBuf, layout: Layout, resync: Duration) -> Self {
        Self::new(RegistryCas { path: path.clone(), layout }, path, resync)
    }
}

impl ManagedFiles for RegistryCas {
    type Entries = Entries;
    type Registry = RegistryHost;
    type Change = ();

    fn path(&self) -> &Path {
        &self.path
    }

    fn list_name(&self) -> &str {
        LIST
    }

    fn read_list(&self, directory: &OpenDirectory) -> io::Result<List<RegistryHost>> {
        // A name becomes a path, so it must be a valid registry.
        let host = |name: String| {
            let host = RegistryHost::parse(&name).map_err(io::Error::other)?;
            Ok((host, BTreeSet::new()))
        };
        list::read::<BTreeSet<String>>(directory, LIST)?.into_iter().map(host).collect()
    }

    fn write_list(&self, directory: &OpenDirectory, list: &List<RegistryHost>) -> io::Result<()> {
        let hosts: Vec<_> = list.keys().map(RegistryHost::as_str).collect();
        list::write(directory, LIST, hosts, FILE)
    }

    fn names(&self) -> &'static [&'static str] {
        self.layout.names()
    }

    fn plan(
        &self,
        look: &mut Look<'_>,
        entries: &Entries,
        listed: &List<RegistryHost>,
    ) -> io::Result<Plan<RegistryHost, ()>> {
        let mut plan = Plan::new(listed);
        for (host, pem) in registries(&entries.good, &entries.undecodable, listed) {
            match self.action(look, host, pem, listed.contains_key(host)) {
                Ok(action) => plan.push(host, action, None),
                Err(error) => {
                    look.is_whole = false;
                    look.problems.insert(self.path_of(host), error.to_string());
                }
            }
        }
        for host in plan.registries(Action::Foreign) {
            look.problems.insert(self.path_of(host), FOREIGN.to_owned());
        }
        Ok(plan)
    }

    fn apply(
        &self,
        directory: &OpenDirectory,
        entries: &Entries,
        plan: &mut Plan<RegistryHost, ()>,
        report: &mut Report,
    ) -> io::Result<()> {
        for (host, action) in &plan.actions {
            match self.act(directory, host, entries.good.get(host), *action) {
                Ok(true) => report.done(host.as_str(), *action),
                // Another process was faster; the next check decides again.
                Ok(false) => {
                    plan.after.remove(host);
                }
                Err(error) => {
                    let listed = plan.before.get(host).map(|listed| (host.clone(), listed.clone()));
                    plan.after.extend(listed);
                    report.problems.insert(self.path_of(host), error.to_string());
                }
            }
        }
        Ok(())
    }
}

impl RegistryCas {
    fn action(
        &self,
        look: &mut Look<'_>,
        host: &RegistryHost,
        pem: Option<&Bytes>,
        is_listed: bool,
    ) -> io::Result<Action> {
        let name = host.as_str();
        look.depends_on(name)?;
        for file in self.layout.names() {
            look.depends_on(&format!("{name}/{file}"))?;
        }
        let files = pem.map_or_else(Vec::new, |pem| self.layout.files(host, pem));
        Ok(decide(pem.is_some(), is_listed, look.directory.present(name, &files)?))
    }

    /// Applies an action. Returns false if it needs another check.
    fn act(
        &self,
        directory: &OpenDirectory,
        host: &RegistryHost,
        pem: Option<&Bytes>,
        action: Action,
    ) -> io::Result<bool> {
        let name = host.as_str();
        let files = pem.map_or_else(Vec::new, |pem| self.layout.files(host, pem));
        match action {
            Action::Leave | Action::Adopt | Action::Forget | Action::Foreign => {}
            Action::Make => return directory.make(name, &files),
            Action::Exchange => directory.exchange(name, &files)?,
            Action::Repair => directory.repair(name, &files)?,
            Action::Remove => {
                if !directory.remove(name, self.layout.names())? {
                    tracing::warn!(
                        folder = self.path_of(host),
                        fix = "delete the directory if nothing uses its files",
                        "kept a directory with other files"
                    );
                }
            }
        }
        Ok(true)
    }

    fn path_of(&self, host: &RegistryHost) -> String {
        self.path.join(host.as_str()).display().to_string()
    }
}
