//! Errors of the state directory.

use std::path::{Path, PathBuf};

use files::error::FileError;
use files::lock::LockError;
use files::owners::{OWNER_READS, Status, User};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// A file cannot be read, made or written, or is malformed and not overwritten.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process is changing the directory, or the lock failed.
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(
        "{} is not changed: it does not send machines to {url}, and another program made or changed \
            it; remove it to have it made again",
        path.display()
    )]
    Occupied { path: PathBuf, url: String },
}

impl StateError {
    /// The file that it is about, unless that is a lock.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(FileError { path, .. })
            | Self::Unreadable(Unreadable { path, .. })
            | Self::Occupied { path, .. } => Some(path),
            Self::Lock(_) => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{}: uid {}, gid {}, mode {:o}: the server runs as {} and could not read it after a restart; run: {}",
    path.display(), found.uid, found.gid, found.mode, runs_as(user), self.remedy()
)]
pub(crate) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) found: Status,
    pub(super) user: User,
}

impl Unreadable {
    /// Command that makes the file readable.
    fn remedy(&self) -> String {
        let Self { path, found, user } = self;
        let path = path.display();
        if user.is_by_group {
            return format!("chgrp {} {path} && chmod g+rX {path}", user.gid);
        }
        let owned = format!("chown {}:{} {path}", user.uid, user.gid);
        // The owner's read bit was removed.
        if found.mode & OWNER_READS == 0 {
            return format!("{owned} && chmod u+rX {path}");
        }
        owned
    }
}

fn runs_as(user: &User) -> String {
    if user.is_by_group {
        return format!("a user in group {}", user.gid);
    }
    format!("uid {}, gid {}", user.uid, user.gid)
}
