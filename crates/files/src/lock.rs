//! The locks of a state directory, released by the kernel if the process dies: one is held while the directory is
//! changed, the other one for the life of a server, because the tokens that a server has in memory are its own.
//!
//! They are on files that only the server's user can open: a lock on the directory itself could be held by anyone who
//! can list it. Every wait has a limit.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, eaccess};

use super::bounded;
use super::error::FileError;
use super::replace::{self, PRIVATE};
use crate::owners::Reader;

/// Name of the file that is locked during a change.
pub const LOCK: &str = ".lock";
/// Name of the directory of pointer configs, which every state directory has.
pub const POINTERS: &str = "user-data";
/// Name of the file that a server locks for its life. It has the server's process ID, for messages only.
pub const SERVER_LOCK: &str = ".server";
/// Bytes that are read of a process ID, more than it has.
const DIGITS: u64 = 20;

const PAUSE: Duration = Duration::from_millis(50);
/// Wait after which a person is informed.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "{}: another process has held this lock for {seconds} s, and nothing was changed; find it \
            with `lslocks`, and try again when it has ended",
        path.display()
    )]
    Held { path: PathBuf, seconds: u64 },
    #[error(
        "{}: {process} serves from this state directory already; end it first, or give this server \
            another --state-dir",
        directory.display()
    )]
    Served { directory: PathBuf, process: String },
    /// The file cannot be created, opened or locked.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Exclusive access to a directory while it is changed.
#[derive(Debug)]
pub struct DirectoryLock {
    /// `None` if this process cannot change anything in the directory.
    _file: Option<File>,
}

/// The right to serve from a directory, which one process has at a time.
#[derive(Debug)]
pub struct ServerLock {
    /// `None` if this process cannot change anything in the directory.
    _file: Option<File>,
}

/// Limit of the wait for another process.
#[derive(Debug, Clone, Copy)]
pub struct LockTimeout {
    limit: Duration,
    /// Called with the directory once the wait is noticeable.
    tell: Option<fn(&Path)>,
}

impl LockTimeout {
    /// Wait of a server: short, because it serves the present files and tries again.
    pub const SERVER: Self = Self { limit: Duration::from_secs(2), tell: None };

    /// Wait of a command: a person waits, and is informed.
    pub const fn of_command(tell: fn(&Path)) -> Self {
        Self { limit: Duration::from_secs(30), tell: Some(tell) }
    }
}

impl DirectoryLock {
    /// Waits for the lock of a directory. Creates the file for `reader` if it is missing.
    pub fn take(directory: &Path, reader: Reader, timeout: LockTimeout) -> Result<Self, LockError> {
        let path = directory.join(LOCK);
        let Some(file) = open(directory, &path, reader)? else { return Ok(Self { _file: None }) };
        let mut tell = timeout.tell;
        let waiting = |waited| {
            if let Some(tell) = tell.take_if(|_| waited >= QUIET) {
                tell(directory);
            }
        };
        if lock_within(&file, timeout.limit, waiting).map_err(FileError::at(&path))? {
            return Ok(Self { _file: Some(file) });
        }
        Err(LockError::Held { path, seconds: timeout.limit.as_secs() })
    }
}

impl ServerLock {
    /// Takes the lock of a directory, after a wait of at most `limit` for another process. Creates the file for `reader` if it
    /// is missing.
    pub fn take(directory: &Path, reader: Reader, limit: Duration) -> Result<Self, LockError> {
        let path = directory.join(SERVER_LOCK);
        let Some(file) = open(directory, &path, reader)? else { return Ok(Self { _file: None }) };
        if lock_within(&file, limit, |_| ()).map_err(FileError::at(&path))? {
            // Another server that finds no ID names none.
            let _ = write_process_id(&path);
            return Ok(Self { _file: Some(file) });
        }
        let text = bounded::read_start(&path, DIGITS).unwrap_or_default();
        let id = String::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        let process =
            id.map_or_else(|| "another process".to_owned(), |id: u32| format!("process {id}"));
        Err(LockError::Served { directory: directory.to_owned(), process })
    }
}

/// Locks a file. Returns `false` if another process has held the lock for `limit`. Before each pause, `waiting` is called with
/// the time so far.
fn lock_within(
    file: &File,
    limit: Duration,
    mut waiting: impl FnMut(Duration),
) -> io::Result<bool> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited = started.elapsed();
        if waited >= limit {
            return Ok(false);
        }
        waiting(waited);
        std::thread::sleep(PAUSE);
    }
}

fn write_process_id(path: &Path) -> io::Result<()> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let mut file = File::options().write(true).truncate(true).custom_flags(flags).open(path)?;
    writeln!(file, "{}", std::process::id())
}

/// Returns `true` if a directory is the state directory of a server, past or present: its first change made the lock.
pub fn is_state_directory(directory: &Path) -> bool {
    directory.join(LOCK).is_file() && directory.join(POINTERS).is_dir()
}

/// Opens the file; `None` if it is missing, and nothing in the directory can be replaced.
fn open(directory: &Path, path: &Path, reader: Reader) -> Result<Option<File>, LockError> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let open = || File::options().read(true).custom_flags(flags).open(path);
    let found = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if eaccess(directory, AccessFlags::W_OK).is_err() {
                return Ok(None);
            }
            replace::create_for(path, PRIVATE, reader)?;
            open()
        }
        found => found,
    };
    Ok(Some(found.map_err(FileError::at(path))?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static REPORTED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn who_waits_is_told_once_and_not_kept_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let take = |limit| {
            let tell = |_: &Path| {
                REPORTED.fetch_add(1, Ordering::Relaxed);
            };
            let timeout = LockTimeout { limit, tell: Some(tell) };
            DirectoryLock::take(directory.path(), Reader::Itself, timeout)
        };
        let lock = take(Duration::ZERO).unwrap();
        let refused = take(QUIET + 3 * PAUSE).unwrap_err().to_string();
        assert!(refused.contains("/.lock: another process has held this lock"), "{refused}");
        assert_eq!(REPORTED.load(Ordering::Relaxed), 1);
        drop(lock);
        take(Duration::ZERO).unwrap();
    }

    #[test]
    fn one_server_has_a_directory_and_another_one_is_told_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let take = || ServerLock::take(directory.path(), Reader::Itself, Duration::ZERO);
        let lock = take().unwrap();
        let refused = take().unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} serves", std::process::id())), "{refused}");
        std::fs::write(directory.path().join(SERVER_LOCK), "").unwrap();
        let refused = take().unwrap_err().to_string();
        assert!(refused.contains("another process serves"), "{refused}");
        drop(lock);
        take().unwrap();
    }

    #[test]
    fn a_server_that_starts_waits_for_a_command_that_has_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let take = |limit| ServerLock::take(directory.path(), Reader::Itself, limit);
        let held = take(Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(Duration::from_secs(60)));
            drop(held);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_lock_on_the_directory_itself_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let other = File::open(directory.path()).unwrap();
        other.lock().unwrap();
        let timeout = LockTimeout { limit: Duration::ZERO, tell: None };
        DirectoryLock::take(directory.path(), Reader::Itself, timeout).unwrap();
    }
}
