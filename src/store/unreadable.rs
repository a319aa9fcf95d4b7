//! A file that a server could not read when it is started again, and what helps.

use std::path::PathBuf;

use super::owners::{Status, User};

/// A file that the server could not read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: uid {}, gid {}, mode {:o}: the server runs as uid {}, gid {}, and cannot read it when it is \
     started again: chown {}:{} {}",
    path.display(), found.uid, found.gid, found.mode, user.uid, user.gid,
    user.uid, user.gid, path.display()
)]
pub struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) found: Status,
    pub(super) user: User,
}
