//! Repairs of a state directory that need no decision: files that killed processes left, and files with secrets that too
//! many users can read.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use files::bounded::entries_if_there;
use files::error::FileError;
use files::owners::{OTHERS, Process, Status};
use files::replace::{PRIVATE, remove_leftovers};
use nix::fcntl::OFlag;

use super::state_directory::StateDirectory;
use super::state_error::StateError;

impl StateDirectory {
    /// Removes what killed processes left. The server calls it before it writes anything.
    pub(crate) fn remove_leftovers(&self) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let own = [self.path().to_owned(), self.pointers_path(), self.machine_pointers_path()];
        for directory in own.into_iter().chain([self.machines_path()]) {
            remove_leftovers(&directory)?;
        }
        Ok(())
    }

    /// Files with keys that other users than their owner and the server's group can read.
    pub(crate) fn open_keys(&self) -> Vec<PathBuf> {
        let is_open = |path: &PathBuf| {
            let found = std::fs::metadata(path).map(|found| Status::of(&found));
            found.is_ok_and(|found| found.mode & 0o077 & !self.reader().needed(found) != 0)
        };
        [self.ca_path(), self.serving_path()].into_iter().filter(is_open).collect()
    }

    /// Files with tokens that all users can read. Pointer configs are handed out, and their modes are left alone.
    pub(crate) fn open_tokens(&self) -> Vec<PathBuf> {
        let machines = entries_if_there(&self.machines_path()).unwrap_or_default();
        let tokens = [self.issued_path(), self.records_path()].into_iter().chain(machines);
        let is_open =
            |path: &PathBuf| Status::of_file(path).is_some_and(|found| found.mode & OTHERS != 0);
        tokens.filter(is_open).collect()
    }

    /// Makes files with tokens private that all users can read. Returns those of other owners, which stay as they are.
    pub(crate) fn close_tokens(&self) -> Vec<FileError> {
        let close = |path: PathBuf| {
            let closed = close(&path);
            if closed.is_ok() {
                tracing::warn!(
                    file = %path.display(),
                    fix = "if other users can enter the state directory, replace the tokens in the file",
                    "made a file with tokens private, which all users could read"
                );
            }
            closed.map_err(FileError::at(&path)).err()
        };
        self.open_tokens().into_iter().filter_map(close).collect()
    }
}

fn close(path: &Path) -> io::Result<()> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != Process::current().uid {
        return Err(io::Error::other("all users can read its tokens, and another user owns it"));
    }
    file.set_permissions(Permissions::from_mode(PRIVATE))
}
