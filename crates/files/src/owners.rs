//! Decides on owners and modes of files; [`super::replace`] applies them.
//!
//! A server often runs as a separate user, and commands as root. A file that a command replaces keeps its owner, group
//! and mode, and a new one belongs to the server's user, so that the server can read it at its next start.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Uid, User as Account, getegid, geteuid, getgrouplist};

const ROOT: u32 = 0;
/// Mode bit of directories like `/tmp`, in which every user creates files: their owner implies nothing about the files.
const STICKY: u32 = 0o1000;
pub const OWNER_READS: u32 = 0o400;
pub(crate) const GROUP_READS: u32 = 0o040;
/// Bits of one digit of a mode.
const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;
pub const OTHERS: u32 = 0o007;
const GROUP_AND_OTHERS: u32 = 0o077;
/// Bits of an old mode that are kept: none to execute, none to write for others.
const KEPT: u32 = 0o664;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

/// Wanted owner, group and mode of a file. `None` keeps those of the writing process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedStatus {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: u32,
}

/// User and group of the process that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub uid: u32,
    pub gid: u32,
}

/// User and group that a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// True if only the group is known, because root owns the files.
    pub is_by_group: bool,
}

/// Process that will read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// This process after a restart; as root, the same as [`Reader::Directory`].
    Itself,
    /// The owner of the directory, if root writes there.
    Directory,
    User(User),
}

impl Status {
    pub fn of(metadata: &Metadata) -> Self {
        let mode = metadata.mode() & 0o7777;
        Self { uid: metadata.uid(), gid: metadata.gid(), mode }
    }

    /// Status of a regular file; `None` for a link.
    pub fn of_file(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        found.is_file().then(|| Self::of(&found))
    }
}

impl Process {
    pub fn current() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    pub fn is_root(self) -> bool {
        self.uid == ROOT
    }
}

impl User {
    /// The user that serves from these files: the owner of the first one that is not root's, `keys` before their
    /// `directory`; otherwise the group that can read a key. `None` if all belong to root.
    pub fn serving(keys: &[Status], directory: Option<Status>) -> Option<Self> {
        let owner = keys.iter().chain(&directory).find(|it| it.uid != ROOT);
        let by_group = || keys.iter().find(|it| it.mode & GROUP_READS != 0 && it.gid != ROOT);
        let user = |it: &Status, is_by_group| Self { uid: it.uid, gid: it.gid, is_by_group };
        owner.map(|it| user(it, false)).or_else(|| by_group().map(|it| user(it, true)))
    }

    /// Returns `true` if the user can read a file. `groups` are its supplementary groups.
    pub fn reads(&self, file: Status, groups: &[u32]) -> bool {
        self.may(READ, file, groups)
    }

    /// Groups of the user in the system's accounts.
    pub fn groups(&self) -> Vec<u32> {
        let account = Account::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        let account = account.filter(|_| !self.is_by_group);
        let name = account.and_then(|it| Some((std::ffi::CString::new(it.name).ok()?, it.gid)));
        let groups = name.and_then(|(name, gid)| getgrouplist(&name, gid).ok());
        groups.unwrap_or_default().into_iter().map(nix::unistd::Gid::as_raw).collect()
    }

    /// Returns `true` if the user can list a directory and open files in it.
    pub fn enters(&self, directory: Status, groups: &[u32]) -> bool {
        self.may(READ | SEARCH, directory, groups)
    }

    fn may(&self, wanted: u32, found: Status, groups: &[u32]) -> bool {
        let is_member = found.gid == self.gid || groups.contains(&found.gid);
        let bits = match (found.uid == self.uid && !self.is_by_group, is_member) {
            (true, _) => found.mode >> 6,
            (false, true) => found.mode >> 3,
            (false, false) => found.mode,
        };
        bits & wanted == wanted
    }
}

impl Reader {
    /// Bits beyond the owner's that it needs to read a file.
    pub fn needed(self, file: Status) -> u32 {
        match self {
            Self::User(user) if user.is_by_group && user.gid == file.gid => GROUP_READS,
            _ => 0,
        }
    }

    /// The user, if ownership matters.
    pub fn user(self, directory: &Path, process: Process) -> Option<User> {
        match self {
            Self::User(user) => Some(user),
            Self::Itself if !process.is_root() => {
                Some(User { uid: process.uid, gid: process.gid, is_by_group: false })
            }
            Self::Itself | Self::Directory if process.is_root() => {
                let directory = Status::of(&std::fs::metadata(directory).ok()?);
                User::serving(&[], Some(directory)).filter(|_| directory.mode & STICKY == 0)
            }
            Self::Itself | Self::Directory => None,
        }
    }
}

/// The wanted status of a file that `process` writes with `mode` for `user`, in the place of the file `before`.
pub(crate) fn wanted(
    before: Option<Status>,
    user: Option<User>,
    process: Process,
    mode: u32,
) -> WantedStatus {
    let new = match user {
        Some(User { uid, gid, is_by_group: true }) => {
            WantedStatus { uid: Some(uid), gid: Some(gid), mode: mode | GROUP_READS }
        }
        Some(user) if user.uid != process.uid => {
            WantedStatus { uid: Some(user.uid), gid: Some(user.gid), mode }
        }
        _ => WantedStatus { uid: None, gid: None, mode },
    };
    let Some(before) = before else { return new };
    let preserved = Status { mode: preserved_mode(before.mode, mode), ..before };
    let is_roots = before.uid == ROOT;
    if process.is_root() {
        // A file of root that the server could not read is given to the server's user.
        return match user {
            Some(user) if is_roots && !user.reads(preserved, &[]) => new,
            _ => WantedStatus {
                uid: Some(preserved.uid),
                gid: Some(preserved.gid),
                mode: preserved.mode,
            },
        };
    }
    // Only root can give a file to root, or to the previous user of the server.
    let is_own = user.is_some_and(|user| user.uid == process.uid);
    let uid = if is_own || is_roots { new.uid } else { Some(preserved.uid) };
    WantedStatus {
        uid,
        gid: group_matters(preserved.mode).then_some(preserved.gid),
        mode: preserved.mode,
    }
}

/// The old mode, as far as it is kept. If all users could read the old file and the new one is private, it is not: the
/// intended readers of the secret are unknown.
fn preserved_mode(before: u32, mode: u32) -> u32 {
    let (is_private, was_public) = (mode & GROUP_AND_OTHERS == 0, before & OTHERS != 0);
    if is_private && was_public { mode } else { before & KEPT | OWNER_READS }
}

pub(crate) fn group_matters(mode: u32) -> bool {
    (mode >> 3 & 0o7) & !(mode & 0o7) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: Process = Process { uid: 0, gid: 0 };
    const SERVERS: Process = Process { uid: 998, gid: 997 };
    const SERVER: User = User { uid: 998, gid: 997, is_by_group: false };
    const BY_GROUP: User = User { uid: 0, gid: 997, is_by_group: true };

    fn status(uid: u32, gid: u32, mode: u32) -> Status {
        Status { uid, gid, mode }
    }

    fn some(uid: u32, gid: u32, mode: u32) -> WantedStatus {
        WantedStatus { uid: Some(uid), gid: Some(gid), mode }
    }

    #[test]
    fn a_file_that_root_replaces_keeps_its_owner_group_and_mode() {
        for (before, user, mode, after) in [
            // A new file belongs to the server's user, and to root only if no other user is known.
            (None, Some(SERVER), 0o600, some(998, 997, 0o600)),
            (None, Some(SERVER), 0o644, some(998, 997, 0o644)),
            (None, Some(BY_GROUP), 0o600, some(0, 997, 0o640)),
            (None, None, 0o600, WantedStatus { uid: None, gid: None, mode: 0o600 }),
            (Some(status(998, 997, 0o600)), Some(SERVER), 0o600, some(998, 997, 0o600)),
            (Some(status(998, 13, 0o640)), Some(SERVER), 0o600, some(998, 13, 0o640)),
            (Some(status(998, 997, 0o600)), Some(SERVER), 0o644, some(998, 997, 0o600)),
            (Some(status(0, 997, 0o640)), Some(BY_GROUP), 0o600, some(0, 997, 0o640)),
            (Some(status(1000, 1000, 0o600)), Some(SERVER), 0o600, some(1000, 1000, 0o600)),
            (Some(status(1000, 1000, 0o600)), None, 0o600, some(1000, 1000, 0o600)),
            (Some(status(0, 0, 0o600)), None, 0o600, some(0, 0, 0o600)),
            // Secret from now on: the readers of the public file are unknown.
            (Some(status(998, 997, 0o644)), Some(SERVER), 0o600, some(998, 997, 0o600)),
            // Files of root that the server could not read.
            (Some(status(0, 0, 0o644)), Some(SERVER), 0o644, some(0, 0, 0o644)),
            (Some(status(0, 0, 0o644)), Some(SERVER), 0o600, some(998, 997, 0o600)),
            (Some(status(0, 0, 0o600)), Some(SERVER), 0o600, some(998, 997, 0o600)),
            // Unreadable for all, or writable for others.
            (Some(status(998, 997, 0o000)), Some(SERVER), 0o600, some(998, 997, 0o400)),
            (Some(status(998, 997, 0o4777)), Some(SERVER), 0o644, some(998, 997, 0o664)),
        ] {
            assert_eq!(wanted(before, user, ROOTS, mode), after, "{before:?} {user:?} {mode:o}");
        }
    }

    #[test]
    fn a_server_takes_over_what_was_roots_and_asks_for_no_group_that_reads_nothing() {
        let own = |mode| WantedStatus { uid: None, gid: None, mode };
        for (before, after) in [
            (None, own(0o600)),
            (Some(status(998, 997, 0o600)), own(0o600)),
            (Some(status(0, 0, 0o600)), own(0o600)),
            (Some(status(1000, 1000, 0o600)), own(0o600)),
            (Some(status(998, 13, 0o640)), WantedStatus { uid: None, gid: Some(13), mode: 0o640 }),
        ] {
            assert_eq!(wanted(before, Some(SERVER), SERVERS, 0o600), after, "{before:?}");
        }
        // A command of another user has no server.
        let before = Some(status(1000, 1000, 0o600));
        let preserved = WantedStatus { uid: Some(1000), gid: None, mode: 0o600 };
        assert_eq!(wanted(before, None, SERVERS, 0o600), preserved);
        let other = User { uid: 1000, ..SERVER };
        assert_eq!(wanted(before, Some(other), SERVERS, 0o600), preserved);
        assert_eq!(wanted(None, Some(other), SERVERS, 0o600), some(1000, 997, 0o600));
    }

    #[test]
    fn the_server_is_who_owns_the_keys_then_the_directory_then_a_group_that_reads_the_keys() {
        let user = |uid, gid, is_by_group| Some(User { uid, gid, is_by_group });
        let (roots, shared) = (status(0, 0, 0o600), status(0, 997, 0o640));
        for (keys, directory, expected) in [
            (vec![], None, None),
            (vec![], Some(status(0, 0, 0o755)), None),
            (vec![], Some(status(998, 997, 0o700)), user(998, 997, false)),
            (vec![roots, roots], Some(status(998, 997, 0o700)), user(998, 997, false)),
            (vec![status(998, 997, 0o600)], Some(status(1000, 1000, 0o755)), user(998, 997, false)),
            (vec![roots, status(998, 997, 0o600)], None, user(998, 997, false)),
            (vec![roots, roots], Some(status(0, 997, 0o750)), None),
            (vec![shared, roots], Some(status(0, 0, 0o755)), user(0, 997, true)),
            (vec![shared], Some(status(998, 997, 0o700)), user(998, 997, false)),
        ] {
            assert_eq!(User::serving(&keys, directory), expected, "{keys:?} {directory:?}");
        }
    }

    #[test]
    fn a_user_reads_as_the_first_that_it_is_of_owner_group_and_others() {
        for (file, groups, is_readable) in [
            (status(998, 0, 0o400), &[][..], true),
            (status(998, 0, 0o044), &[], false),
            (status(0, 997, 0o640), &[], true),
            (status(0, 997, 0o604), &[], false),
            (status(0, 13, 0o640), &[], false),
            (status(0, 13, 0o640), &[13], true),
            (status(0, 0, 0o644), &[], true),
            (status(0, 0, 0o600), &[], false),
        ] {
            assert_eq!(SERVER.reads(file, groups), is_readable, "{file:?} {groups:?}");
        }
        assert!(BY_GROUP.reads(status(0, 997, 0o640), &[]));
        assert!(!BY_GROUP.reads(status(0, 997, 0o600), &[]), "it is not root");
        assert!(SERVER.enters(status(998, 997, 0o700), &[]));
        assert!(!SERVER.enters(status(0, 0, 0o700), &[]));
        assert!(!SERVER.enters(status(0, 0, 0o754), &[]), "it can be listed, and nothing opened");
    }
}
