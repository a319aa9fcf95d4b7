//! What tells one state of a file from another without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// File systems count time in steps of some milliseconds: a stamp that is younger than this may be
/// that of a later change, too.
pub(crate) const CLOCK_STEP: Duration = Duration::from_millis(20);

/// A file's identity, size and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// When the file was changed last, by the clock of its file system.
    pub(crate) fn changed_at(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.changed;
        // What was changed before 1970 was changed long ago, which is all that matters.
        let since = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let (seconds, nanoseconds) = since.unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
    }
}
