//! Requests for rotations, in the state directory.
//!
//! ```text
//! rotate/ca, rotate/serving               asks for a new CA, for a new serving pair; with `--force` in it as the flag does
//! rotate/ca.begun, rotate/serving.begun   the same while it is carried out
//! ```
//!
//! A command leaves one, and so can anyone who may write there. The process that has the lock carries them out, the
//! command or the server: each reconciles the directory in the same way. A request is renamed before the write that fulfils it,
//! and removed after it: one that a power cut interrupts is carried out again, and one that cannot be renamed waits.

use std::fs::File;
use std::path::{Path, PathBuf};

use files::bounded::{if_there, read_start, remove_if_there};
use files::error::FileError;
use files::replace::{self, PRIVATE};
use pki::{Host, Policy, RotationRequest};
use time::OffsetDateTime;

use super::state_directory::{Reconciled, Stamps, StateDirectory};
use super::state_error::StateError;

/// Maximum size of a request, in bytes.
const MAX_ROTATION_BYTES: u64 = 256;
/// Word of a request that is carried out even if machines are locked out.
const FORCE: &str = "--force";

/// Requests of a state directory.
#[derive(Debug, Default)]
pub(crate) struct RotationRequests {
    pub asked: RotationRequest,
    /// Requests that cannot be read, and wait.
    pub unreadable: Vec<FileError>,
}

impl RotationRequests {
    pub(crate) fn is_any(&self) -> bool {
        names(&self.asked).next().is_some()
    }
}

impl StateDirectory {
    /// Directory with the requests.
    fn rotate_path(&self) -> PathBuf {
        self.path().join("rotate")
    }

    /// Files of the requests, which may be missing.
    pub(super) fn rotation_paths(&self) -> [PathBuf; 2] {
        ["ca", "serving"].map(|name| self.rotate_path().join(name))
    }

    /// Makes the directory of requests, for anyone who may write in the state directory.
    pub(crate) fn expect_rotations(&self) -> Result<(), StateError> {
        Ok(replace::create_directory(&self.rotate_path(), self.reader())?)
    }

    /// Requests that are not done.
    pub(crate) fn rotation_requests(&self) -> RotationRequests {
        let mut requests = RotationRequests::default();
        let [ca, serving] = self.rotation_paths();
        requests.asked.ca = requests.take(&ca);
        requests.asked.serving = requests.take(&serving);
        requests
    }

    /// Stamps of the files of the requests.
    pub(crate) fn rotation_stamps(&self) -> Stamps {
        Stamps::of(self.rotation_paths(), Vec::new())
    }

    /// Leaves requests and carries them out, under one lock. Those that are refused or fail are withdrawn, and those that were
    /// there before stay.
    pub(crate) fn rotate(
        &self,
        wanted: &RotationRequest,
        hosts: &[Host],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Reconciled, StateError> {
        let _lock = self.lock()?;
        let before = self.rotation_requests().asked;
        let left = self.leave_requests(wanted, before.force);
        let done = left.and_then(|()| self.reconcile_locked(hosts, &[], policy, now));
        let waiting = match &done {
            Ok(done) => done.waiting.clone(),
            Err(_) => self.rotation_requests().asked,
        };
        let withdrawn = self.withdraw(&waiting, &before);
        let mut done = done?;
        done.stuck = done.stuck.or(withdrawn.err());
        Ok(done)
    }

    /// Leaves requests. One that is there with `--force` keeps it.
    fn leave_requests(&self, wanted: &RotationRequest, is_forced: bool) -> Result<(), StateError> {
        self.expect_rotations()?;
        names(wanted).try_for_each(|name| self.write_request(name, wanted.force || is_forced))
    }

    fn write_request(&self, name: &str, is_forced: bool) -> Result<(), StateError> {
        let text = if is_forced { FORCE } else { "" };
        Ok(self.replace(&self.rotate_path().join(name), text.as_bytes(), PRIVATE)?)
    }

    /// Withdraws requests that wait, and leaves those that were there `before` them as they were.
    fn withdraw(
        &self,
        waiting: &RotationRequest,
        before: &RotationRequest,
    ) -> Result<(), StateError> {
        for name in names(waiting) {
            if names(before).any(|it| it == name) {
                self.write_request(name, before.force)?;
            } else {
                remove_if_there(&self.rotate_path().join(name))?;
            }
            self.remove_begun(name)?;
        }
        Ok(())
    }

    /// Begins the requests that a write fulfils: `left` are the others of `asked`.
    pub(super) fn begin_rotation(
        &self,
        asked: &RotationRequest,
        left: &RotationRequest,
    ) -> Result<(), StateError> {
        for name in asked_only_before(asked, left) {
            let path = self.rotate_path().join(name);
            if_there(&path, std::fs::rename(&path, begun(&path)))?;
        }
        Ok(())
    }

    /// Removes the requests that were begun.
    pub(super) fn finish_rotation(
        &self,
        asked: &RotationRequest,
        left: &RotationRequest,
    ) -> Result<(), StateError> {
        asked_only_before(asked, left).try_for_each(|name| self.remove_begun(name))
    }

    /// Removes a request that was begun. It is gone from the disk when this returns.
    fn remove_begun(&self, name: &str) -> Result<(), StateError> {
        let directory = self.rotate_path();
        remove_if_there(&begun(&directory.join(name)))?;
        let synced = File::open(&directory).and_then(|directory| directory.sync_all());
        Ok(synced.map_err(FileError::at(&directory))?)
    }
}

impl RotationRequests {
    /// Takes in the request in a file. Returns `true` if there is one.
    fn take(&mut self, path: &Path) -> bool {
        let mut is_asked = false;
        for path in [path.to_owned(), begun(path)] {
            match if_there(&path, read_start(&path, MAX_ROTATION_BYTES)) {
                Ok(Some(text)) => {
                    let text = String::from_utf8_lossy(&text);
                    self.asked.force |= text.split_whitespace().any(|word| word == FORCE);
                    is_asked = true;
                }
                Ok(None) => {}
                Err(error) => self.unreadable.push(error),
            }
        }
        is_asked
    }
}

/// The file of a request that is carried out.
fn begun(path: &Path) -> PathBuf {
    path.with_extension("begun")
}

/// Names of what is asked for.
fn names(asked: &RotationRequest) -> impl Iterator<Item = &'static str> {
    let named = [(asked.ca, "ca"), (asked.serving, "serving")];
    named.into_iter().filter_map(|(is_asked, name)| is_asked.then_some(name))
}

fn asked_only_before(
    before: &RotationRequest,
    now: &RotationRequest,
) -> impl Iterator<Item = &'static str> {
    let left: Vec<_> = names(now).collect();
    names(before).filter(move |name| !left.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: RotationRequest =
        RotationRequest { ca: true, serving: false, force: false, distrust: Vec::new() };

    #[test]
    fn what_was_asked_for_before_a_command_stays_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        state.leave_requests(&CA, false).unwrap();
        let before = state.rotation_requests().asked;
        let forced = RotationRequest { serving: true, force: true, ..CA };
        state.leave_requests(&forced, before.force).unwrap();
        let asked = state.rotation_requests().asked;
        assert_eq!(asked, forced);
        // A write that fails has begun them.
        state.begin_rotation(&asked, &RotationRequest::default()).unwrap();
        state.withdraw(&asked, &before).unwrap();
        assert_eq!(state.rotation_requests().asked, before);
    }

    #[test]
    fn a_request_that_comes_when_a_command_is_done_stays() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let done = RotationRequest::default();
        state.leave_requests(&CA, false).unwrap();
        state.withdraw(&done, &done).unwrap();
        assert_eq!(state.rotation_requests().asked, CA);
    }
}
