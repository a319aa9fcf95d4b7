//! Tokens of single machines, in the state directory.
//!
//! ```text
//! machines/NAME.json            the token of a machine and its use
//! machines/arm/NAME             the last request of a command to arm it again
//! machines/removed/NAME         the request of a command to remove the machine, until it is done
//! user-data/machines/NAME.ign   its pointer config
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::parallel;
use files::bounded::{self, entries_if_there, if_there, read_if_there, remove_if_there};
use files::error::FileError;
use files::lock::ServerLock;
use files::replace::{self, PRIVATE};
use model::access::DirectoryToken;
use model::access::machine::{RearmRequests, TokenInUse as _};
use model::objects::{FirstBootMachine, is_object_name};
use model::pointer_config::{PointerConfig, pool_url};
use pki::Host;
use time::OffsetDateTime;

use super::pointer_files::DuePointer;
use super::state_directory::StateDirectory;
use super::state_error::StateError;

/// Maximum size of a request to arm a token, in bytes.
const MAX_REQUEST_BYTES: u64 = 256;

/// A machine whose token and pointer config are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedMachine<'a> {
    pub name: &'a str,
    /// Pool whose config it gets.
    pub pool: &'a str,
    /// Value of its annotation to arm the token.
    pub rearm: Option<&'a str>,
}

impl<'a> WantedMachine<'a> {
    pub(crate) fn of(machine: &'a FirstBootMachine) -> Self {
        Self { name: machine.name(), pool: &machine.spec.pool, rearm: machine.rearm() }
    }
}

/// Directory of requests to remove machines, in the state directory `state`.
pub(crate) fn removed_machines(state: &Path) -> PathBuf {
    state.join("machines/removed")
}

#[derive(Debug, Default)]
pub(crate) struct StoredMachines {
    pub tokens: BTreeMap<String, DirectoryToken>,
    pub errors: BTreeMap<String, StateError>,
}

impl StateDirectory {
    pub(super) fn machines_path(&self) -> PathBuf {
        self.path().join("machines")
    }

    /// Directory with the requests of commands to arm tokens.
    pub(crate) fn arm_path(&self) -> PathBuf {
        self.machines_path().join("arm")
    }

    /// Directory with the requests of commands to remove machines.
    pub(crate) fn removed_path(&self) -> PathBuf {
        removed_machines(self.path())
    }

    /// Makes the directory of such requests, so that it can be watched.
    pub(crate) fn expect_removals(&self) -> Result<(), StateError> {
        Ok(replace::create_directory(&self.removed_path(), self.reader())?)
    }

    /// Has the server revoke a machine's token for good.
    pub(crate) fn request_removal(&self, name: &str) -> Result<(), StateError> {
        self.expect_removals()?;
        Ok(self.replace(&self.removed_path().join(name), b"", PRIVATE)?)
    }

    /// Machines whose removal was requested and is not done.
    pub(crate) fn removals(&self) -> Result<Vec<String>, StateError> {
        let names = entries_if_there(&self.removed_path())?.into_iter().filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            is_object_name(&name).then_some(name)
        });
        Ok(names.collect())
    }

    /// Notes that a machine is removed as requested.
    pub(crate) fn note_removed(&self, name: &str) -> Result<(), StateError> {
        Ok(remove_if_there(&self.removed_path().join(name))?)
    }

    fn machine_path(&self, name: &str) -> PathBuf {
        self.machines_path().join(format!("{name}.json"))
    }

    pub(crate) fn machine_pointer_path(&self, name: &str) -> PathBuf {
        self.machine_pointers_path().join(format!("{name}.ign"))
    }

    pub(crate) fn machine_tokens(&self) -> Result<StoredMachines, StateError> {
        let mut stored = StoredMachines::default();
        for path in entries_if_there(&self.machines_path())? {
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json"));
            let Some(name) = name.filter(|name| is_object_name(name)) else { continue };
            match self.machine_token(name) {
                Ok(Some(token)) => drop(stored.tokens.insert(name.to_owned(), token)),
                Ok(None) => {}
                Err(error) => drop(stored.errors.insert(name.to_owned(), error)),
            }
        }
        Ok(stored)
    }

    pub(crate) fn machine_token(&self, name: &str) -> Result<Option<DirectoryToken>, StateError> {
        let path = self.machine_path(name);
        let Some(json) = read_if_there(&path)? else { return Ok(None) };
        let token = DirectoryToken::read(&json).map_err(|error| FileError::other(&path, error))?;
        Ok(Some(token))
    }

    /// Stores the token of a machine with its use. It is on disk when this returns.
    pub(crate) fn write_machine_token(
        &self,
        name: &str,
        token: &DirectoryToken,
    ) -> Result<(), StateError> {
        replace::create_directory(&self.arm_path(), self.reader())?;
        self.expect_removals()?;
        self.write_json(&self.machine_path(name), token)
    }

    /// Removes the token of a machine that is gone, and what belongs to it.
    pub(crate) fn discard_machine(&self, name: &str) -> Result<(), StateError> {
        remove_if_there(&self.arm_path().join(name))?;
        Ok(remove_if_there(&self.machine_path(name))?)
    }

    /// Removes the pointer config of a machine that is gone.
    pub(crate) fn remove_machine_pointer(&self, name: &str) -> Result<(), StateError> {
        Ok(remove_if_there(&self.machine_pointer_path(name))?)
    }

    /// Revokes the stored token of a machine for good, and lets no server start until the result is dropped.
    ///
    /// # Errors
    /// A server runs, which has the token in memory, or a file cannot be written.
    pub(crate) fn revoke_machine(
        &self,
        name: &str,
        now: OffsetDateTime,
    ) -> Result<ServerLock, StateError> {
        // No server is kept from its place while this waits for the other lock.
        let (_lock, alone) = (self.lock()?, self.lock_for_serving(Duration::ZERO)?);
        if let Some(token) = self.machine_token(name)? {
            self.write_machine_token(name, &token.removed(&self.fresh_token()?, now))?;
        }
        self.remove_machine_pointer(name)?;
        Ok(alone)
    }

    /// Has the server arm a machine's token again.
    pub(crate) fn request_arming(&self, name: &str, value: &str) -> Result<(), StateError> {
        replace::create_directory(&self.arm_path(), self.reader())?;
        Ok(self.replace(&self.arm_path().join(name), value.as_bytes(), PRIVATE)?)
    }

    /// The last request of a command to arm a machine's token.
    pub(crate) fn requested_arming(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.arm_path().join(name);
        let text = if_there(&path, bounded::read_start(&path, MAX_REQUEST_BYTES))?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).trim().to_owned()))
    }

    /// Brings the token and the pointer config of a machine up to date, and returns the token. `known` is the token as
    /// the caller knows it, whose use may be newer than on disk.
    pub(crate) fn store_machine(
        &self,
        wanted: WantedMachine<'_>,
        known: Option<&DirectoryToken>,
        place: (&Host, u16),
        now: OffsetDateTime,
    ) -> Result<DirectoryToken, StateError> {
        let _lock = self.lock()?;
        self.store_locked(wanted, known, place, now)
    }

    /// The same for many machines of which the caller knows no token.
    ///
    /// # Errors
    /// The directory cannot be locked.
    pub(crate) fn store_machines(
        &self,
        wanted: &[WantedMachine<'_>],
        place: (&Host, u16),
        now: OffsetDateTime,
    ) -> Result<Vec<Result<DirectoryToken, StateError>>, StateError> {
        let _lock = self.lock()?;
        Ok(parallel::map_writes(wanted, |wanted| self.store_locked(*wanted, None, place, now)))
    }

    fn store_locked(
        &self,
        wanted: WantedMachine<'_>,
        known: Option<&DirectoryToken>,
        (host, port): (&Host, u16),
        now: OffsetDateTime,
    ) -> Result<DirectoryToken, StateError> {
        let WantedMachine { name, pool, rearm } = wanted;
        let url = pool_url(host, port, pool);
        let command = self.requested_arming(name)?;
        let asked = RearmRequests { annotation: rearm.map(str::to_owned), command };
        let stored = self.machine_token(name)?;
        // Another process may have made one meanwhile, also for a name whose earlier token is revoked.
        let is_current = stored.as_ref().is_some_and(|stored| !stored.is_revoked());
        let known = known.filter(|known| !(known.is_revoked() && is_current)).cloned();
        let known = known.or_else(|| stored.clone().map(DirectoryToken::found));
        let token =
            DirectoryToken::following(known.as_ref(), pool, &asked, &self.fresh_token()?, now);
        if stored.as_ref() != Some(&token) {
            self.write_machine_token(name, &token)?;
        }
        replace::create_directory(&self.machine_pointers_path(), self.reader())?;
        let path = self.machine_pointer_path(name);
        let present = read_if_there(&path)?.unwrap_or_default();
        if !PointerConfig::read(&present).fetches_with(&url, pool, token.token.as_str()) {
            let due = DuePointer { path, present, url };
            self.make_pointer(&due, (pool, Some(&token.token)))?;
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use files::lock::LockError;
    use model::access::Token;

    use super::*;

    #[test]
    fn a_token_is_revoked_while_no_server_runs_and_none_can_start() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let now = OffsetDateTime::now_utc();
        let token =
            DirectoryToken::new(Token::new([1; 32]), "worker", RearmRequests::default(), now);
        state.write_machine_token("n", &token).unwrap();
        let is_revoked = || state.machine_token("n").unwrap().unwrap().is_revoked();
        let serve = || state.lock_for_serving(Duration::ZERO);
        let refusal = || match state.revoke_machine("n", now) {
            Err(StateError::Lock(error)) => error,
            other => panic!("{other:?}"),
        };

        let server = serve().unwrap();
        assert!(matches!(refusal(), LockError::Served { .. }));
        // It waits for other changes first, while it has not the place of a server.
        let change = state.lock().unwrap();
        assert!(matches!(refusal(), LockError::Held { .. }));
        assert!(!is_revoked());
        drop((server, change));
        let alone = state.revoke_machine("n", now).unwrap();
        assert!(is_revoked());
        serve().unwrap_err();
        drop(alone);
        serve().unwrap();
    }
}
