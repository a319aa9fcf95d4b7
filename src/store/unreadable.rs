//! A file that a server could not read after a restart, with a remedy.

use std::path::PathBuf;

use crate::files::owners::{OWNER_READS, Status, User};

/// A file that the server could not read.
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
