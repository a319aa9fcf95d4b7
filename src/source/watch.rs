//! Notices when files change.
//!
//! The kernel's notifications make it fast, a look from time to time makes it certain:
//! notifications get lost (a full queue, a network file system, a folder that was replaced).
//! Folders are watched and not files, because a file that is replaced, or a symlink that kubelet
//! swaps, leaves a watched file behind.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

/// Changes come in bursts; a look waits for this much quiet,
const QUIET: Duration = Duration::from_millis(25);
/// but no longer than this.
const BURST: Duration = Duration::from_millis(200);
/// How soon to look again at files that were being written.
const UNSETTLED: Duration = Duration::from_millis(70);
/// How often to look without a notification, unless a look takes long.
const IDLE: Duration = Duration::from_millis(700);
/// A writer that has been silent this long is taken to have gone.
const WRITER_GONE: Duration = Duration::from_secs(10);

enum Notice {
    Changed(notify::Event),
    Look,
    Stop,
}

/// Makes a follower look, whether or not a file has changed.
#[derive(Debug, Clone)]
pub struct Waker(Sender<Notice>);

impl Waker {
    /// Has it look soon. A follower that has ended does not.
    pub fn wake(&self) {
        let _ = self.0.send(Notice::Look);
    }
}

/// Ends [`Follower::follow`] when it is dropped.
#[derive(Debug)]
pub struct Stop(Sender<Notice>);

impl Stop {
    /// What makes the follower look before it is stopped.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.0.clone())
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // The follower may have ended already; then there is nobody to tell.
        let _ = self.0.send(Notice::Stop);
    }
}

/// What a look at the files found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Everything was read.
    Settled,
    /// Some files were left alone because they were being written.
    Unsettled,
}

/// Watches folders and everything below them.
#[derive(Debug)]
pub struct Follower {
    folders: Vec<(PathBuf, Option<(u64, u64)>)>,
    watcher: Option<RecommendedWatcher>,
    notices: Receiver<Notice>,
    writers: HashMap<PathBuf, Instant>,
}

impl Follower {
    /// Watches `folders`. Where the kernel gives no notifications (no inotify watches left), the
    /// look from time to time has to do; that is logged and no error.
    #[must_use]
    pub fn new(folders: Vec<PathBuf>) -> (Self, Stop) {
        let (sender, notices) = mpsc::channel();
        let stop = Stop(sender.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if let Ok(event) = event
                && !matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
            {
                // The follower has ended if nobody receives.
                let _ = sender.send(Notice::Changed(event));
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "no file notifications; looking every {IDLE:?}"),
            )
            .ok();
        let folders = folders.into_iter().map(|folder| (folder, None)).collect();
        let mut follower = Self { folders, watcher, notices, writers: HashMap::new() };
        follower.watch();
        (follower, stop)
    }

    /// Calls `look` after each change, until [`Stop`] is dropped.
    pub fn follow(mut self, mut look: impl FnMut(&dyn Fn(&Path) -> bool) -> Look) {
        let mut wait = IDLE;
        loop {
            match self.notices.recv_timeout(wait) {
                Ok(notice) => {
                    if self.gather(notice).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let started = Instant::now();
            self.writers.retain(|_, last| started.duration_since(*last) < WRITER_GONE);
            self.watch();
            let writers = &self.writers;
            wait = match look(&|path| writers.contains_key(path)) {
                Look::Settled => IDLE.max(started.elapsed() * 100),
                Look::Unsettled => UNSETTLED,
            };
        }
    }

    /// Takes in a burst of notices; an error is the order to stop.
    fn gather(&mut self, first: Notice) -> Result<(), Stopped> {
        let end = Instant::now() + BURST;
        let mut notice = first;
        loop {
            match notice {
                Notice::Stop => return Err(Stopped),
                Notice::Changed(event) => self.note_writers(event),
                Notice::Look => {}
            }
            let wait = QUIET.min(end.saturating_duration_since(Instant::now()));
            match self.notices.recv_timeout(wait) {
                Ok(next) => notice = next,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
            }
        }
    }

    /// Who writes to a file and has not closed it yet.
    fn note_writers(&mut self, event: notify::Event) {
        let writing = matches!(event.kind, EventKind::Modify(ModifyKind::Data(_)));
        for path in event.paths {
            if writing {
                self.writers.insert(path, Instant::now());
            } else {
                self.writers.remove(&path);
            }
        }
    }

    /// Watches the folders that are not watched yet, or are others than those that were.
    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for (folder, watched) in &mut self.folders {
            let identity = std::fs::metadata(&*folder).ok().map(|m| (m.dev(), m.ino()));
            if identity == *watched || identity.is_none() {
                continue;
            }
            if watched.is_some() {
                // The old folder may be gone, and its watch with it.
                let _ = watcher.unwatch(folder);
            }
            match watcher.watch(folder, RecursiveMode::Recursive) {
                Ok(()) => {}
                Err(error) => tracing::warn!(folder = %folder.display(), %error, "cannot watch"),
            }
            *watched = identity;
        }
    }
}

struct Stopped;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_and_the_follower_stops_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let (follower, stop) = Follower::new(vec![folder.path().to_owned()]);
        let (sender, looks) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            follower.follow(|_| {
                sender.send(Instant::now()).unwrap();
                Look::Settled
            });
        });
        let written = Instant::now();
        std::fs::write(folder.path().join("a"), "b").unwrap();
        let looked = looks.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(looked - written < Duration::from_secs(1));
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_file_that_a_program_has_open_to_write_is_named() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let (follower, stop) = Follower::new(vec![folder.path().to_owned()]);
        let (sender, looks) = mpsc::channel();
        let watched = path.clone();
        let thread = std::thread::spawn(move || {
            follower.follow(|being_written| {
                sender.send(being_written(&watched)).unwrap();
                Look::Settled
            });
        });
        let next = || looks.recv_timeout(Duration::from_secs(10)).unwrap();
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        while !next() {}
        drop(file);
        while next() {}
        drop(stop);
        thread.join().unwrap();
    }
}
