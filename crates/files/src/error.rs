//! Errors that name a file.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// A failed read or write.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    /// Error of the operating system, or what is wrong with the contents.
    pub error: io::Error,
}

impl FileError {
    /// Converts an error to one of `path`, for `map_err`.
    pub fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self { path: path.to_owned(), error: error.into() }
    }

    /// Returns `true` if the file was read, and its contents are malformed or end too early.
    pub fn is_of_contents(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
    }

    /// Creates an error that is none of the operating system.
    pub fn other(path: &Path, reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { path: path.to_owned(), error: io::Error::other(reason) }
    }
}
