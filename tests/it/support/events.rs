//! The kernel's notifications about a directory and those in it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use super::wait_for;

/// Time without a change after which the wait asks less often, in milliseconds.
const QUIET: u8 = 50;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) directory: PathBuf,
    /// Name in the directory, empty for the directory itself.
    pub(crate) name: String,
    flags: ReadFlags,
}

impl Event {
    /// Returns `true` if it is a change, and not a read.
    pub(crate) fn changes(&self) -> bool {
        let looks = ReadFlags::ACCESS | ReadFlags::OPEN | ReadFlags::CLOSE_NOWRITE;
        !(self.flags & !(looks | ReadFlags::ISDIR)).is_empty()
    }

    /// Returns `true` if a name disappears, at least for a moment.
    pub(crate) fn removes(&self) -> bool {
        self.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM)
    }
}

/// Notifications about a directory and those in it at the start.
pub(crate) struct Events {
    kernel: OwnedFd,
    mask: WatchFlags,
    directories: RefCell<HashMap<i32, PathBuf>>,
}

impl Events {
    pub(crate) fn of(directory: &Path) -> Self {
        Self::with(directory, WatchFlags::ALL_EVENTS)
    }

    /// Notifications without those of reads.
    pub(crate) fn changes_of(directory: &Path) -> Self {
        let looks = WatchFlags::ACCESS | WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE;
        Self::with(directory, WatchFlags::ALL_EVENTS - looks)
    }

    fn with(directory: &Path, mask: WatchFlags) -> Self {
        let kernel = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        let events = Self { kernel, mask, directories: RefCell::default() };
        events.watch(directory);
        for entry in fs::read_dir(directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.symlink_metadata().expect("an entry").is_dir() {
                events.watch(&path);
            }
        }
        // Listing the directory is an event, too.
        events.drain();
        events
    }

    fn watch(&self, directory: &Path) {
        let watch = add_watch(&self.kernel, directory, self.mask).expect("a watch");
        self.directories.borrow_mut().insert(watch, directory.to_owned());
    }

    /// Notifications since the last call.
    pub(crate) fn drain(&self) -> Vec<Event> {
        let mut buffer = [MaybeUninit::uninit(); 1 << 13];
        let mut reader = Reader::new(&self.kernel, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let flags = event.events();
                    assert!(!flags.contains(ReadFlags::QUEUE_OVERFLOW), "too many events");
                    let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                    let directories = self.directories.borrow();
                    let Some(directory) = directories.get(&event.wd()) else { continue };
                    events.push(Event {
                        directory: directory.clone(),
                        name: name.unwrap_or_default(),
                        flags,
                    });
                }
                Err(Errno::AGAIN) => return events,
                Err(error) => panic!("inotify: {error}"),
            }
        }
    }

    /// Waits until so many changes have happened.
    pub(crate) fn wait_for_changes(&self, count: usize) {
        self.wait_for_changes_or(count, || false);
    }

    /// The same, or until the process that makes them has ended. The last of these changes ends the wait at once.
    pub(crate) fn wait_for_changes_or(&self, count: usize, mut has_ended: impl FnMut() -> bool) {
        let mut seen = 0;
        wait_for("changes", || {
            loop {
                seen += self.drain().iter().filter(|event| event.changes()).count();
                if seen >= count || has_ended() {
                    return Some(());
                }
                let mut next = [PollFd::new(self.kernel.as_fd(), PollFlags::POLLIN)];
                if poll(&mut next, QUIET).expect("a poll") == 0 {
                    return None;
                }
            }
        });
    }
}
