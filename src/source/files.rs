//! Files with their last read state: stamps, last good contents, and problems.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::DirEntry;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use model::inputs::Problem;
use model::objects::{Object, ObjectDefect};

use super::manifest::{self, Manifest};
use crate::files::bounded;
use crate::files::lock::is_state_directory;
use crate::files::stamp::FileStamp;
use crate::files::watch::Scanned;
use crate::parallel;

/// Maximum depth of directories that are read. Deeper ones are reported.
pub(super) const MAX_DEPTH: usize = 32;
/// Time that a file must be missing before its objects are removed: git and some editors remove a file before they
/// write it again.
const REMOVED: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
struct File {
    /// Stamp of the last read. `None` forces a read at the next scan: the file was read so soon after a change, or its
    /// clock is so far ahead, that a second change can have the same stamp.
    stamp: Option<FileStamp>,
    digest: Option<u64>,
    objects: Vec<Object>,
    /// Last good bytes of a file that is no manifest.
    plain: Option<Bytes>,
    problem: Option<ObjectDefect>,
    /// Parts of the last good objects without effect.
    warnings: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ReadError {
    pub(super) reason: String,
    pub(super) last_good: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct Files {
    known: BTreeMap<PathBuf, File>,
    seen: BTreeSet<PathBuf>,
    now: SystemTime,
    settle: Duration,
    changed: bool,
    /// Outcome of the scan so far.
    outcome: Scanned,
    /// Time of the first look at which a file was missing.
    missing_since: Option<SystemTime>,
    /// True if files with parts without effect are refused.
    is_strict: bool,
}

/// Stamp of a file that is to be read, for [`File::stamp`].
struct NewStamp(Option<FileStamp>);

impl Files {
    /// Creates an empty set. With `is_strict`, files with parts without effect are refused.
    pub(super) fn new(is_strict: bool) -> Self {
        Self {
            known: BTreeMap::new(),
            seen: BTreeSet::new(),
            now: SystemTime::UNIX_EPOCH,
            settle: Duration::ZERO,
            changed: false,
            outcome: Scanned::Settled,
            missing_since: None,
            is_strict,
        }
    }

    /// Returns `true` if files with parts without effect are refused.
    pub(super) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns `true` if a file was read, or an attempt was made: not while another process writes a new one.
    pub(super) fn was_read(&self, path: &Path) -> bool {
        self.known.contains_key(path)
    }

    /// Starts a scan, which skips files that changed within `settle` before `now`.
    pub(super) fn begin(&mut self, now: SystemTime, settle: Duration) {
        self.seen.clear();
        self.now = now;
        self.settle = settle;
        self.changed = false;
        self.outcome = Scanned::Settled;
    }

    /// Returns `true` while a good file is missing that may come back.
    pub(super) fn are_incomplete(&mut self, now: SystemTime) -> bool {
        let is_missing = |(path, file): (&PathBuf, &File)| {
            let is_good =
                file.problem.is_none() && (file.plain.is_some() || !file.objects.is_empty());
            is_good && std::fs::metadata(path).is_err_and(|it| it.kind() == io::ErrorKind::NotFound)
        };
        if !self.known.iter().any(is_missing) {
            self.missing_since = None;
            return false;
        }
        let since = *self.missing_since.get_or_insert(now);
        let may_return = now.duration_since(since).is_ok_and(|missing| missing < REMOVED);
        if !may_return {
            self.missing_since = None;
        }
        may_return
    }

    /// Ends a scan, and forgets missing files. Returns true if anything changed.
    pub(super) fn finish(&mut self) -> bool {
        let before = self.known.len();
        self.known.retain(|path, _| self.seen.contains(path));
        self.changed || self.known.len() != before
    }

    /// Notes that part of what was read is elsewhere, so that its changes are not seen by a watch of the files.
    pub(super) fn leads_elsewhere(&mut self) {
        if self.outcome == Scanned::Settled {
            self.outcome = Scanned::SettledElsewhere;
        }
    }

    /// The outcome of the scan for the next one's time. It is unsettled if files need another look.
    pub(super) fn scanned(&self) -> Scanned {
        let is_unsettled = self.known.values().any(|file| file.stamp.is_none());
        if is_unsettled { Scanned::Unsettled } else { self.outcome }
    }

    pub(super) fn objects(&self, path: &Path) -> &[Object] {
        self.known.get(path).map_or(&[], |file| &file.objects)
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let problem = |(path, file): (&PathBuf, &File)| {
            let defect = file.problem.clone()?;
            self.seen.contains(path).then(|| Problem::whole(&path.display().to_string(), defect))
        };
        self.known.iter().filter_map(problem).collect()
    }

    /// Parts of files in this scan without effect.
    pub(super) fn warnings(&self) -> Vec<Problem> {
        let files = self.known.iter().filter(|(path, _)| self.seen.contains(*path));
        let warnings =
            files.flat_map(|(path, file)| file.warnings.iter().map(move |it| (path, it)));
        warnings.map(|(path, it)| Problem::part(&path.display().to_string(), it)).collect()
    }

    /// Reads those of `paths` that changed, on all processors.
    pub(super) fn read_all(&mut self, paths: &[PathBuf], being_written: &dyn Fn(&Path) -> bool) {
        let mut jobs = Vec::new();
        for path in paths {
            if let Some(stamp) = self.due(path, being_written) {
                let digest = self.known.get(path).and_then(|file| file.digest);
                jobs.push((path, stamp, digest));
            }
        }
        let results = parallel::map(&jobs, |(path, _, digest)| parse_file(path, *digest));
        for ((path, stamp, _), contents) in jobs.into_iter().zip(results) {
            self.keep(path, stamp, contents);
        }
    }

    /// Reads a manifest if it exists and has changed.
    pub(super) fn read_if_there(&mut self, path: &Path, being_written: &dyn Fn(&Path) -> bool) {
        if path.exists() {
            self.read_all(&[path.to_owned()], being_written);
        }
    }

    /// Reads a required file that is no manifest.
    pub(super) fn read_plain(
        &mut self,
        path: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Bytes, ReadError> {
        if let Some(NewStamp(stamp)) = self.due(path, being_written) {
            let file = self.known.entry(path.to_owned()).or_default();
            file.stamp = stamp;
            match bounded::read(path) {
                Ok(bytes) => {
                    self.changed |= file.plain.as_deref() != Some(&bytes[..]);
                    file.plain = Some(bytes.into());
                    file.problem = None;
                }
                Err(error) => file.problem = Some(error.to_string().into()),
            }
        }
        let Some(file) = self.known.get(path) else {
            return Err(ReadError { reason: "is being written".to_owned(), last_good: None });
        };
        match (&file.problem, &file.plain) {
            (None, Some(bytes)) => Ok(bytes.clone()),
            (problem, last_good) => Err(ReadError {
                reason: problem.as_ref().map_or_else(String::new, |defect| defect.reason.clone()),
                last_good: last_good.clone(),
            }),
        }
    }

    /// Looks at a file. Returns its stamp if it has changed, unless that was too recently, or it is open for writing.
    fn due(&mut self, path: &Path, being_written: &dyn Fn(&Path) -> bool) -> Option<NewStamp> {
        self.seen.insert(path.to_owned());
        let Ok(metadata) = std::fs::metadata(path) else {
            // The read returns the error.
            return Some(NewStamp(None));
        };
        let stamp = FileStamp::of(&metadata);
        if self.known.get(path).and_then(|file| file.stamp) == Some(stamp) {
            return None;
        }
        // The time of the change counts: programs can set the modification time.
        let age = self.now.duration_since(stamp.changed_at()).ok();
        let is_fresh = age.is_some_and(|age| age < self.settle);
        if !self.settle.is_zero() && (is_fresh || being_written(path)) {
            self.outcome = Scanned::Unsettled;
            return None;
        }
        Some(NewStamp(stamp.is_settled(self.now).then_some(stamp)))
    }

    fn keep(&mut self, path: &Path, NewStamp(stamp): NewStamp, contents: Contents) {
        let file = self.known.entry(path.to_owned()).or_default();
        file.stamp = stamp;
        let Contents::Changed { digest, result } = contents else { return };
        file.digest = digest;
        let is_strict = self.is_strict;
        let result = match result {
            // An editor or `cp` empties a file before it writes; to remove objects, the file is deleted.
            Ok(read) if read.objects.is_empty() && !file.objects.is_empty() => {
                Err("is empty; delete the file to remove its objects".into())
            }
            // A file that never had an object and is not named like a manifest is ignored.
            Err(_) if file.objects.is_empty() && !named_as_manifest(path) => {
                Ok(Manifest::default())
            }
            Ok(read) if is_strict && !read.warnings.is_empty() => Err(refused(&read.warnings)),
            other => other,
        };
        match result {
            Ok(Manifest { objects, warnings }) => {
                self.changed |= !(objects.is_empty() && file.objects.is_empty());
                self.changed |= warnings != file.warnings;
                file.objects = objects;
                file.warnings = warnings;
                file.problem = None;
            }
            Err(defect) => file.problem = Some(defect),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) paths: Vec<PathBuf>,
    /// True if a link leads out of the tree, where only scans notice changes.
    pub(super) leads_out: bool,
    /// Directories that are too deep to be read.
    pub(super) too_deep: Vec<PathBuf>,
}

/// Lists all files of a tree, and follows links. Hidden files and directories are skipped, because kubelet keeps its
/// copies of mounted files in them, and so are state directories, because a server writes there what is no manifest.
pub(super) fn list(root: &Path) -> io::Result<Listing> {
    let top = std::fs::metadata(root)?;
    let mut walk = TreeWalk {
        root: std::fs::canonicalize(root)?,
        visited: HashSet::from([(top.dev(), top.ino())]),
        found: Listing::default(),
    };
    walk.directory(root, 0)?;
    Ok(walk.found)
}

struct TreeWalk {
    /// Top of the tree, without links.
    root: PathBuf,
    /// Device and inode of each visited directory, because links can form cycles.
    visited: HashSet<(u64, u64)>,
    found: Listing,
}

impl TreeWalk {
    fn directory(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        let mut entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            // A file that has vanished, or a dangling link, is no entry.
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                let is_within =
                    std::fs::canonicalize(&path).is_ok_and(|path| path.starts_with(&self.root));
                self.found.leads_out |= !is_within;
            }
            let is_directory = metadata.is_dir() && !is_state_directory(&path);
            if metadata.is_file() {
                self.found.paths.push(path);
            } else if is_directory && depth == MAX_DEPTH {
                self.found.too_deep.push(path);
            } else if is_directory && self.visited.insert((metadata.dev(), metadata.ino())) {
                match self.directory(&path, depth + 1) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Reason why a strict server refuses a file.
fn refused(warnings: &[String]) -> ObjectDefect {
    let first = warnings.first().map_or("", String::as_str);
    let more = match warnings.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{first}{more}: refused by --strict").into()
}

fn named_as_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

enum Contents {
    Same,
    Changed { digest: Option<u64>, result: Result<Manifest, ObjectDefect> },
}

/// Reads and parses a file, unless the hash of its bytes is `known`.
fn parse_file(path: &Path, known: Option<u64>) -> Contents {
    let bytes = match bounded::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            return Contents::Changed { digest: None, result: Err(error.to_string().into()) };
        }
    };
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let digest = Some(hasher.finish());
    if digest == known {
        return Contents::Same;
    }
    let result = if named_as_manifest(path) || manifest::may_be_manifest(&bytes) {
        manifest::read(&bytes).map_err(|error| error.defect())
    } else {
        Ok(Manifest::default())
    };
    Contents::Changed { digest, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_modification_time_lies_ahead_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.json");
        let pool = r#"{"kind": "MachineConfigPool", "metadata": {"name": "worker"}}"#;
        std::fs::write(&path, pool).unwrap();
        let ahead = SystemTime::now() + Duration::from_secs(100 * 24 * 3600);
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(ahead).unwrap();
        let changed = FileStamp::of(&file.metadata().unwrap()).changed_at();
        let mut files = Files::new(false);
        files.begin(changed + Duration::from_secs(1), Duration::from_millis(60));
        files.read_all(std::slice::from_ref(&path), &|_| false);
        assert!(files.finish() && files.scanned() == Scanned::Settled);
        assert_eq!(files.objects(&path).len(), 1);
    }

    #[test]
    fn a_file_that_is_missing_may_come_back_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.json");
        std::fs::write(&path, r#"{"kind": "MachineConfigPool", "metadata": {"name": "worker"}}"#)
            .unwrap();
        let start = SystemTime::now();
        let mut files = Files::new(false);
        files.begin(start, Duration::ZERO);
        files.read_all(std::slice::from_ref(&path), &|_| false);
        files.finish();
        assert!(!files.are_incomplete(start));
        std::fs::remove_file(&path).unwrap();
        assert!(files.are_incomplete(start));
        assert!(files.are_incomplete(start + REMOVED / 2));
        // A clock that was set back must not hold it forever.
        assert!(!files.are_incomplete(start - REMOVED));
        assert!(files.are_incomplete(start) && !files.are_incomplete(start + REMOVED));
        // A look without it forgets it.
        files.begin(start, Duration::ZERO);
        assert!(files.finish() && !files.are_incomplete(start));
    }

    #[test]
    fn links_that_lead_back_show_no_file_twice() {
        let above = tempfile::tempdir().unwrap();
        let root = above.path().join("root");
        std::fs::create_dir_all(root.join("pools")).unwrap();
        for file in ["a.yaml", "pools/b.yaml"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        // The links come before and after their target in the order of names.
        for (target, link) in [
            (Path::new("."), "0"),
            (Path::new("."), "z"),
            (Path::new(".."), "pools/back"),
            (&root, "whole"),
            (above.path(), "zz-above"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let Listing { paths, leads_out, too_deep } = list(&root).unwrap();
        assert_eq!(paths, [root.join("a.yaml"), root.join("pools/b.yaml")]);
        assert!(too_deep.is_empty());
        assert!(leads_out, "one leads to the folder above");
        // The top directory can be a link.
        std::os::unix::fs::symlink(&root, above.path().join("link")).unwrap();
        assert_eq!(list(&above.path().join("link")).unwrap().paths.len(), 2);
    }
    #[test]
    fn a_directory_that_is_too_deep_is_named() {
        let root = tempfile::tempdir().unwrap();
        let deepest =
            (0..MAX_DEPTH).fold(root.path().to_owned(), |directory, _| directory.join("f"));
        let too_deep = deepest.join("f");
        std::fs::create_dir_all(&too_deep).unwrap();
        for directory in [&deepest, &too_deep] {
            std::fs::write(directory.join("a.yaml"), "").unwrap();
        }
        let found = list(root.path()).unwrap();
        assert_eq!((found.paths, found.too_deep), (vec![deepest.join("a.yaml")], vec![too_deep]));
    }
}
