//! Stamps that detect changes of a file without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use nix::sys::stat::FileStat;

/// Resolution of file system times: a younger stamp can be that of a later change, too.
const CLOCK_STEP: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size().cast_signed(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub fn of_stat(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Returns `true` if every later change would have another stamp.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        now.duration_since(self.changed_at()).is_ok_and(|age| age >= CLOCK_STEP)
    }

    /// Time of the last change, by the clock of the file system.
    pub fn changed_at(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.changed;
        // A time before 1970 is only known to be long ago.
        let since = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let (seconds, nanoseconds) = since.unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
    }
}
