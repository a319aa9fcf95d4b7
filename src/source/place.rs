//! Places of texts in a directory.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Device and inode of a directory.
pub(super) type DirectoryId = (u64, u64);

/// SHA-256 of a text, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct TextHash(pub(super) String);

impl TextHash {
    pub(super) fn of(text: &[u8]) -> Self {
        Self(HEXLOWER.encode(&Sha256::digest(text)))
    }
}

/// File in which an object is or was.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// The directory of the file when it was read.
    pub(super) directory: Option<DirectoryId>,
    /// Last good text with the object.
    pub(super) text: Option<TextHash>,
}

/// The directory `root`, as it is stored: a link at the end of its path can lead elsewhere later.
pub(super) fn stored_root(root: &Path) -> String {
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    absolute.to_string_lossy().into_owned()
}

/// Path in the directory `root`, as it is stored.
pub(super) fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
