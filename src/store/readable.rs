//! Detects files of the state directory that the server could not read after a restart.
//!
//! `check` reports them, and commands refuse to write: their success means that a restarted server serves the written
//! files.

use std::path::{Path, PathBuf};

use files::lock::{LOCK, SERVER_LOCK};
use files::owners::{Process, Reader, Status, User};
use model::ledger::Ledger;

use super::state_directory::{CA, SERVING, StateDirectory};
use super::state_error::{StateError, Unreadable};

impl StateDirectory {
    /// The user that serves from a directory. `None` if that is root, or the directory does not exist.
    pub(super) fn serving_user(path: &Path) -> Option<User> {
        let keys = [SERVING, CA].map(|name| Status::of_file(&path.join(name)));
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        let directory = std::fs::metadata(path).ok().map(|found| Status::of(&found));
        User::serving(&keys, directory)
    }

    /// Files that the server could not read.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        let Reader::User(user) = self.reader() else { return Vec::new() };
        let groups = user.groups();
        let mut unreadable = Vec::new();
        let mut look = |path: PathBuf, may: &dyn Fn(Status) -> bool| {
            let Ok(found) = std::fs::metadata(&path) else { return };
            let found = Status::of(&found);
            if !may(found) {
                unreadable.push(Unreadable { path, found, user });
            }
        };
        for directory in [self.path().to_owned(), self.pointers_path()] {
            look(directory, &|found| user.enters(found, &groups));
        }
        let files = [
            self.path().join(LOCK),
            self.path().join(SERVER_LOCK),
            self.serving_path(),
            self.chain_path(),
            self.ca_path(),
            self.bundle_path(),
            self.issued_path(),
            self.records_path(),
            self.path().join(Ledger::FILE),
        ];
        let pointers = self.pointer_paths().unwrap_or_default();
        for file in files.into_iter().chain(pointers).filter(|path| path.is_file()) {
            look(file, &|found| user.reads(found, &groups));
        }
        unreadable
    }

    /// Refuses to write for another user that could not read existing files.
    pub(super) fn expect_readable(&self) -> Result<(), StateError> {
        let process = Process::current();
        // If only the group is known, the owner is root and not the server's user.
        let is_other = matches!(
            self.reader(), Reader::User(user) if user.is_by_group || user.uid != process.uid
        );
        match self.unreadable().into_iter().next().filter(|_| is_other) {
            Some(unreadable) => Err(unreadable.into()),
            None => Ok(()),
        }
    }
}
