//! Why a state directory could not be brought in order, and its files as they are read.

use std::io;
use std::path::{Path, PathBuf};

use pki::IssueError;

use super::unreadable::Unreadable;
use crate::files::bounded;
use crate::files::lock::LockError;
use crate::files::replace::WriteError;

/// Why the folder could not be brought in order.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// Another process is changing the folder, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The server could not read a file when it is started again.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A certificate cannot be issued.
    #[error("{}: {error}", path.display())]
    Issue {
        /// The folder.
        path: PathBuf,
        /// Why not.
        error: IssueError,
    },
    /// Something else is where a pointer config belongs.
    #[error(
        "{} is left as it is: it does not send machines to {url}, and somebody else made it or \
         changed it; remove it to have one made",
        path.display()
    )]
    Occupied {
        /// The file.
        path: PathBuf,
        /// Where it should send machines.
        url: String,
    },
    /// A file holds something else than it should, and nothing is written in its place.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system has no randomness for a new token.
    #[error("{}: the system has no randomness for a new token", path.display())]
    NoRandomness {
        /// The folder.
        path: PathBuf,
    },
    /// The plan finds no end.
    #[error("{}: still not in order after {steps} steps", path.display())]
    Endless {
        /// The folder.
        path: PathBuf,
        /// As many as were taken.
        steps: usize,
    },
}

/// A file, `None` where there is none.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    if_there(path, bounded::read(path))
}

/// The same, of what was read in another way.
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
