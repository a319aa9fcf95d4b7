//! Errors of the state directory, and reading of its files.

use std::io;
use std::path::{Path, PathBuf};

use pki::IssueError;

use super::unreadable::Unreadable;
use crate::files::bounded;
use crate::files::lock::LockError;
use crate::files::replace::FileError;

/// Reasons why the directory cannot be reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Another process is changing the directory, or the lock failed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] FileError),
    /// The server could not read a file after a restart.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A certificate cannot be issued.
    #[error("{}: {error}", path.display())]
    Issue {
        path: PathBuf,
        /// Reason of the failure.
        error: IssueError,
    },
    /// A foreign file has the name of a pointer config.
    #[error(
        "{} is not changed: it does not send machines to {url}, and another program made or changed \
            it; remove it to have it made again",
        path.display()
    )]
    Occupied {
        path: PathBuf,
        /// URL that it should fetch from.
        url: String,
    },
    /// A file is malformed, and is not overwritten.
    #[error("{}: {reason}", path.display())]
    Malformed {
        path: PathBuf,
        /// Fault of the file.
        reason: String,
    },
    /// The random generator failed, so that there is no token.
    #[error("{}: the system has no randomness for a new token", path.display())]
    NoRandomness { path: PathBuf },
    /// The plan does not settle.
    #[error("{}: not finished after {steps} steps", path.display())]
    Endless {
        path: PathBuf,
        /// Number of applied steps.
        steps: usize,
    },
}

/// Reads a file, `None` if it does not exist.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    if_there(path, bounded::read(path))
}

/// Paths of the entries of a directory; none if it does not exist.
pub(super) fn entries_if_there(directory: &Path) -> Result<Vec<PathBuf>, StateError> {
    let failed = |error| StateError::Read { path: directory.to_owned(), error };
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

/// Removes a file, unless it does not exist.
pub(super) fn remove_if_there(path: &Path) -> Result<(), StateError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StateError::Read { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Converts "not found" of another read to `None`.
pub(super) fn if_there(
    path: &Path,
    read: io::Result<Vec<u8>>,
) -> Result<Option<Vec<u8>>, StateError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateError::Read { path: path.to_owned(), error }),
    }
}
