//! Detects changes of files.
//!
//! The kernel's notifications make it fast, and periodic scans make it reliable: notifications can be lost (a full
//! queue), unavailable (network file systems, no inotify watches left), or concern another directory (a link that leads
//! out of the watched one). Directories are watched instead of files, because replaced files, and symbolic links that
//! kubelet swaps, leave a watched file behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::statfs::{FsType, statfs};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

/// Quiet time before a scan, because changes come in bursts, and because a file that has just changed may still be written:
/// the first scan after the change of a single file finds it old enough.
pub const QUIET: Duration = Duration::from_millis(60);
/// Maximum wait for quiet.
const BURST: Duration = Duration::from_millis(200);
/// First interval between scans while files are being written. It doubles up to [`SAFETY`], because a file with a clock
/// ahead seems to be written forever.
const UNSETTLED: Duration = Duration::from_millis(70);
/// Interval between scans without notifications. After long scans it grows, so that an idle server spends a thousandth
/// of its time on them.
const SAFETY: Duration = Duration::from_secs(5);
/// Interval between scans if the kernel provides no notifications, with a hundredth of the time.
const POLL: Duration = Duration::from_millis(700);
/// Silence after which a writer is assumed to have ended.
const WRITER_GONE: Duration = Duration::from_secs(10);
/// Maximum number of directories outside that are watched. Of what is in others only scans notice changes.
const MAX_OUTSIDE: usize = 1_000;
/// Types of file systems on which other machines make changes without notifications: NFS, SMB under three names, 9p,
/// Ceph, FUSE.
const SILENT: [i64; 7] =
    [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997, 0x00c3_6400, 0x6573_5546];

/// Event of a file that is moved, at its old name.
const MOVED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));
/// Event of a file that is moved within what is watched, with both names.
const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::Both));

/// Files and directories outside of the watched ones that links lead to, each with the directory that is notified of it:
/// paths without links.
pub type Targets = BTreeMap<PathBuf, PathBuf>;

/// When the next scan is due without a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Targets of links outside of the watched directories.
    pub outside: Targets,
    /// True if files were skipped of which nobody knows when they are written whole.
    pub is_unsettled: bool,
    /// Wait for files that are not old enough yet.
    pub again_in: Option<Duration>,
}

impl Scanned {
    pub const SETTLED: Self = Self { outside: Targets::new(), is_unsettled: false, again_in: None };
    pub const UNSETTLED: Self =
        Self { outside: Targets::new(), is_unsettled: true, again_in: None };

    /// Asks for another scan after `wait` at the latest.
    pub fn again_in(&mut self, wait: Duration) {
        self.again_in = Some(self.again_in.map_or(wait, |earlier| earlier.min(wait)));
    }
}

/// Watches directories recursively. Must be used within a runtime.
#[derive(Debug)]
pub struct DirectoryWatch {
    directories: Vec<Directory>,
    /// `None` if the kernel provides no notifications.
    watcher: Option<RecommendedWatcher>,
    notices: UnboundedReceiver<notify::Event>,
    /// Targets of links outside of the directories.
    outside: Targets,
    /// Device and inode of each directory that is watched for them.
    watched_outside: BTreeMap<PathBuf, Option<(u64, u64)>>,
    /// Files that are open for writing, with the time of the last notification.
    writers: HashMap<PathBuf, Instant>,
    /// True if a change was noticed since the last scan.
    is_noticed: bool,
    /// Time of the next scan without a notification.
    scan_at: Instant,
    unsettled: Duration,
}

#[derive(Debug)]
struct Directory {
    /// Absolute path, as in notifications.
    path: PathBuf,
    /// Device and inode of the watched directory, `None` if it does not exist.
    watched: Option<(u64, u64)>,
    /// Device and inode of the watched parent, if the path leads through a link.
    parent: Option<(u64, u64)>,
    is_reported: bool,
}

impl DirectoryWatch {
    /// Watches `directories`, which can be missing yet. Without notifications from the kernel, periodic scans replace
    /// them; that is logged, and no error.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let (sender, notices) = unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading a file, as scans do, is no change; closing a written one is.
            let is_change = |event: &notify::Event| !matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
            if let Some(event) = event.ok().filter(is_change) {
                // The receiver is gone when the watch ends.
                let _ = sender.send(event);
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(
                %error,
                interval = ?POLL,
                fix = "raise the sysctl fs.inotify.max_user_instances",
                "no file notifications, reading files periodically"
            );
        });
        let directory = |path: PathBuf| Directory {
            path: absolute(&path),
            watched: None,
            parent: None,
            is_reported: false,
        };
        let mut watch = Self {
            directories: directories.into_iter().map(directory).collect(),
            watcher: watcher.ok(),
            notices,
            outside: Targets::new(),
            watched_outside: BTreeMap::new(),
            writers: HashMap::new(),
            is_noticed: false,
            scan_at: Instant::now() + POLL,
            unsettled: UNSETTLED,
        };
        watch.watch_directories();
        watch
    }

    /// Waits until a scan is due: after a change and a quiet time, or after the interval.
    ///
    /// It is cancel safe: no change is lost.
    pub async fn changed(&mut self) {
        while !self.is_noticed {
            tokio::select! {
                Some(event) = self.notices.recv() => self.note(event),
                () = tokio::time::sleep_until(self.scan_at) => return,
            }
        }
        let end = Instant::now() + BURST;
        loop {
            let quiet = end.min(Instant::now() + QUIET);
            match tokio::time::timeout_at(quiet, self.notices.recv()).await {
                Ok(Some(event)) => self.note(event),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Runs `scan`, which can ask if a program has a file open for writing, and schedules the next scan.
    pub fn scan(&mut self, scan: impl FnOnce(&dyn Fn(&Path) -> bool) -> Scanned) {
        self.is_noticed = false;
        let started = Instant::now();
        self.writers.retain(|_, last| started.duration_since(*last) < WRITER_GONE);
        self.watch_directories();
        let (writers, leads_out) = (&self.writers, !self.outside.is_empty());
        let is_target = |path: &Path| {
            let target = || std::fs::canonicalize(path).ok();
            leads_out && target().is_some_and(|target| writers.contains_key(&target))
        };
        let is_being_written = |path: &Path| {
            !writers.is_empty() && (writers.contains_key(&absolute(path)) || is_target(path))
        };
        let found = scan(&is_being_written);
        let took = started.elapsed();
        let mut wait = if found.is_unsettled {
            let wait = self.unsettled;
            self.unsettled = SAFETY.min(wait * 2);
            wait.max(took)
        } else {
            self.unsettled = UNSETTLED;
            // Another link on the way there may change.
            let is_reported = found.outside.is_empty() && self.is_reported();
            if is_reported { SAFETY.max(took * 1000) } else { POLL.max(took * 100) }
        };
        // A file settles by itself, however often others change.
        if let Some(settled) = found.again_in {
            wait = wait.min(settled.max(took * 4));
        }
        self.scan_at = Instant::now() + wait;
        self.watch_outside(found.outside);
    }

    /// Scans after each change, forever. `scan` may block.
    pub async fn follow(mut self, mut scan: impl FnMut(&dyn Fn(&Path) -> bool) -> Scanned) {
        loop {
            self.changed().await;
            tokio::task::block_in_place(|| self.scan(&mut scan));
        }
    }

    fn is_reported(&self) -> bool {
        let is_reported =
            |directory: &Directory| directory.watched.is_some() && directory.is_reported;
        self.watcher.is_some() && self.directories.iter().all(is_reported)
    }

    fn note(&mut self, event: notify::Event) {
        if event.need_rescan() {
            // Notifications were lost, possibly those of closed files too.
            self.is_noticed = true;
            self.writers.clear();
            return;
        }
        if let (RENAMED, [from, to]) = (event.kind, &*event.paths) {
            // Two other events are about each name. The program that writes the file has it open under the new one.
            if let Some(last) = self.writers.remove(from) {
                self.writers.insert(to.clone(), last);
            }
            return;
        }
        for path in event.paths {
            // The parent directory can have unrelated files.
            let is_within = |directory: &Directory| path.starts_with(&directory.path);
            let is_target = self.outside.contains_key(&path)
                || path.parent().is_some_and(|above| self.outside.contains_key(above));
            if !is_target && !self.directories.iter().any(is_within) {
                continue;
            }
            self.is_noticed = true;
            match event.kind {
                EventKind::Modify(ModifyKind::Data(_)) => {
                    self.writers.insert(path, Instant::now());
                }
                // A program that writes the file still has it open.
                MOVED | EventKind::Modify(ModifyKind::Metadata(_)) => {}
                _ => {
                    self.writers.remove(&path);
                }
            }
        }
    }

    /// Watches what links lead to, so that it is known who writes there.
    fn watch_outside(&mut self, outside: Targets) {
        let Some(watcher) = &mut self.watcher else { return };
        let is_above = |path: &PathBuf| {
            self.directories.iter().any(|directory| directory.path.parent() == Some(path))
        };
        let directories = outside.values().filter(|path| !is_above(path));
        let directories: BTreeSet<_> = directories.take(MAX_OUTSIDE).collect();
        self.watched_outside.retain(|directory, _| {
            let is_wanted = directories.contains(directory);
            if !is_wanted {
                // It may be deleted, and its watch with it.
                let _ = watcher.unwatch(directory);
            }
            is_wanted
        });
        for directory in directories {
            let present = self.watched_outside.entry(directory.clone()).or_default();
            // One that this user cannot list is no fault: scans read the file in it.
            let _ = watch(watcher, directory, RecursiveMode::NonRecursive, present);
        }
        self.outside = outside;
    }

    /// Watches directories that are not watched yet, or have been replaced.
    fn watch_directories(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let paths: Vec<PathBuf> =
            self.directories.iter().map(|directory| directory.path.clone()).collect();
        for directory in &mut self.directories {
            // If a link in the path is swapped, the watched directory gets no notification, so the parent is watched
            // too. Otherwise it is not: a directory is notified when it is moved or removed, and its parent can be
            // busy.
            let is_linked =
                std::fs::canonicalize(&directory.path).is_ok_and(|p| p != directory.path);
            let above = directory.path.parent().filter(|_| is_linked);
            // A directory in a recursive watch must not be watched separately.
            let above = above.filter(|above| !paths.iter().any(|path| above.starts_with(path)));
            if let Some(above) = above {
                watch_or_warn(watcher, above, RecursiveMode::NonRecursive, &mut directory.parent);
            }
            watch_or_warn(
                watcher,
                &directory.path,
                RecursiveMode::Recursive,
                &mut directory.watched,
            );
            directory.is_reported =
                statfs(&directory.path).is_ok_and(|stat| has_notifications(stat.filesystem_type()));
        }
    }
}

/// The files of a directory, each with the time of its change.
pub fn listing(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| Some((path.clone(), changed(&path)?))).collect()
}

fn watch(
    watcher: &mut RecommendedWatcher,
    directory: &Path,
    mode: RecursiveMode,
    present: &mut Option<(u64, u64)>,
) -> notify::Result<()> {
    let identity = std::fs::metadata(directory).ok().map(|found| (found.dev(), found.ino()));
    if identity == *present {
        return Ok(());
    }
    if present.take().is_some() {
        // The old directory may be deleted, and its watch with it.
        let _ = watcher.unwatch(directory);
    }
    if identity.is_some() {
        watcher.watch(directory, mode)?;
        *present = identity;
    }
    Ok(())
}

/// Watches a directory whose changes are to be noticed at once.
fn watch_or_warn(
    watcher: &mut RecommendedWatcher,
    directory: &Path,
    mode: RecursiveMode,
    present: &mut Option<(u64, u64)>,
) {
    if let Err(error) = watch(watcher, directory, mode, present) {
        tracing::warn!(
            folder = %directory.display(),
            %error,
            fix = "raise the sysctl fs.inotify.max_user_watches, or let this user read the directory",
            "cannot watch the directory"
        );
    }
}

/// Returns `true` if a file system of this type notifies of all changes, by other machines too.
fn has_notifications(FsType(kind): FsType) -> bool {
    // The type's width depends on the architecture; the numbers have 32 bits.
    SILENT.iter().all(|silent| kind & 0xffff_ffff != *silent)
}

fn absolute(path: &Path) -> PathBuf {
    // Without a current directory, a relative path has no meaning.
    std::path::absolute(path).unwrap_or_else(|_: io::Error| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const DEADLINE: Duration = Duration::from_secs(180);

    async fn changed(watch: &mut DirectoryWatch) {
        tokio::time::timeout(DEADLINE, watch.changed()).await.unwrap();
    }

    /// Waits for a notification, which on a busy machine comes after the time at which the watch would look by itself.
    async fn noticed(watch: &mut DirectoryWatch) {
        let started = Instant::now();
        while !watch.is_noticed {
            assert!(started.elapsed() < DEADLINE);
            changed(watch).await;
        }
    }

    /// A watch after its first scan, so that only notifications cause the next one soon.
    fn settled(directory: &Path) -> DirectoryWatch {
        let mut watch = DirectoryWatch::new(vec![directory.to_owned()]);
        watch.scan(|_| Scanned::SETTLED);
        watch
    }

    #[tokio::test]
    async fn a_change_is_noticed_at_once_and_by_the_next_wait() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = settled(directory.path());
        std::fs::write(directory.path().join("a"), "b").unwrap();
        noticed(&mut watch).await;
        // Without a scan, the change is reported again.
        changed(&mut watch).await;
        assert!(watch.is_noticed);
    }

    #[tokio::test]
    async fn a_directory_that_comes_late_or_is_replaced_is_watched() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("folder");
        let mut watch = settled(&directory);
        for _ in 0..2 {
            std::fs::create_dir(&directory).unwrap();
            changed(&mut watch).await;
            watch.scan(|_| Scanned::SETTLED);
            assert!(watch.directories[0].watched.is_some());
            std::fs::write(directory.join("a"), "b").unwrap();
            noticed(&mut watch).await;
            watch.scan(|_| Scanned::SETTLED);
            std::fs::rename(&directory, above.path().join("old")).unwrap();
            std::fs::remove_dir_all(above.path().join("old")).unwrap();
            noticed(&mut watch).await;
            watch.scan(|_| Scanned::SETTLED);
            assert!(watch.directories[0].watched.is_none());
        }
    }

    #[tokio::test]
    async fn a_link_to_a_directory_is_followed_when_it_is_swapped() {
        let above = tempfile::tempdir().unwrap();
        let path = |name: &str| above.path().join(name);
        for name in ["one", "two"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::os::unix::fs::symlink("one", path("link")).unwrap();
        let mut watch = settled(&path("link"));
        std::os::unix::fs::symlink("two", path("next")).unwrap();
        std::fs::rename(path("next"), path("link")).unwrap();
        noticed(&mut watch).await;
        watch.scan(|_| Scanned::SETTLED);
        std::fs::write(path("two").join("a"), "b").unwrap();
        noticed(&mut watch).await;
    }

    #[tokio::test]
    async fn what_lies_beside_a_directory_is_no_change() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("folder");
        std::fs::create_dir(above.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &directory).unwrap();
        let mut watch = settled(&directory);
        std::fs::write(above.path().join("beside"), "b").unwrap();
        std::fs::write(directory.join("within"), "b").unwrap();
        // Notifications are ordered: when the second one is here, the first has been ignored.
        noticed(&mut watch).await;
        let writers: Vec<_> = watch.writers.keys().collect();
        assert!(writers.iter().all(|path| path.starts_with(&directory)), "{writers:?}");
    }

    #[tokio::test]
    async fn a_file_that_a_program_has_open_to_write_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let mut watch = settled(directory.path());
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        let mut is_being_written = false;
        while !is_being_written {
            changed(&mut watch).await;
            watch.scan(|names| {
                is_being_written = names(&path);
                Scanned::SETTLED
            });
        }
        drop(file);
        while is_being_written {
            changed(&mut watch).await;
            watch.scan(|names| {
                is_being_written = names(&path);
                Scanned::SETTLED
            });
        }
    }

    #[tokio::test]
    async fn a_program_that_has_a_file_open_to_write_still_has_it_when_the_file_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut watch = settled(directory.path());
        let half = |name: &str| {
            let mut file = std::fs::File::create(path(name)).unwrap();
            file.write_all(b"half").unwrap();
            file
        };
        let file = half(".new");
        std::fs::rename(path(".new"), path("a")).unwrap();
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        // Notifications are ordered: when those of this one are here, the others are.
        let _last = half("last");
        while !watch.writers.contains_key(&path("last")) {
            changed(&mut watch).await;
            watch.scan(|_| Scanned::SETTLED);
        }
        assert!(watch.writers.contains_key(&path("a")), "{:?}", watch.writers);
        drop(file);
        while watch.writers.contains_key(&path("a")) {
            changed(&mut watch).await;
            watch.scan(|_| Scanned::SETTLED);
        }
    }

    #[tokio::test]
    async fn a_file_behind_a_link_that_a_program_has_open_to_write_is_named() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = std::fs::canonicalize(outside.path()).unwrap().join("a");
        let link = inside.path().join("a");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut watch = settled(inside.path());
        let found = |targets: &[&PathBuf]| {
            let targets = targets.iter().map(|it| ((*it).clone(), it.parent().unwrap().to_owned()));
            Scanned { outside: targets.collect(), ..Scanned::SETTLED }
        };
        watch.scan(|_| found(&[&target]));
        std::fs::write(outside.path().join("beside"), "b").unwrap();
        let mut file = std::fs::File::create(&target).unwrap();
        file.write_all(b"half").unwrap();
        let mut is_being_written = false;
        while !is_being_written {
            changed(&mut watch).await;
            watch.scan(|names| {
                is_being_written = names(&link);
                found(&[&target])
            });
        }
        assert_eq!(
            watch.writers.keys().collect::<Vec<_>>(),
            [&target],
            "of files beside it is no word"
        );
        drop(file);
        while is_being_written {
            changed(&mut watch).await;
            watch.scan(|names| {
                is_being_written = names(&link);
                found(&[])
            });
        }
        assert_eq!(watch.watched_outside.len(), 0, "the link is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn at_rest_scans_are_rare_and_unsettled_ones_back_off() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::new(vec![directory.path().to_owned()]);
        let mut waits = Vec::new();
        for _ in 0..12 {
            watch.scan(|_| Scanned::UNSETTLED);
            let started = Instant::now();
            watch.changed().await;
            waits.push(started.elapsed());
        }
        assert!(waits[0] <= 2 * UNSETTLED, "{waits:?}");
        assert!(waits.is_sorted(), "{waits:?}");
        assert!(*waits.last().unwrap() >= SAFETY, "{waits:?}");
        watch.scan(|_| Scanned::SETTLED);
        let started = Instant::now();
        watch.changed().await;
        assert!(started.elapsed() >= SAFETY);
    }

    #[test]
    fn network_file_systems_tell_nothing() {
        assert!(!has_notifications(FsType(nix::libc::NFS_SUPER_MAGIC)));
        assert!(has_notifications(FsType(nix::libc::TMPFS_MAGIC)));
    }
}
