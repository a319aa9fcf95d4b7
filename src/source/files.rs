//! Files with their last read state: stamps, last good contents, and problems.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use common::parallel;
use files::bounded;
use files::stamp::FileStamp;
use files::watch::{Scanned, Targets};
use model::escape::and_more;
use model::inputs::Problem;
use model::objects::{Object, ObjectDefect};
use model::presence::{Loss, RETURNS_WITHIN};

use super::listing::Listing;
use super::manifest::{self, Manifest};
use super::object_set::{Objects, identity};
use super::place::{DirectoryId, Place, TextHash};

/// Problem of a file that is left to a later scan, and was never read.
const UNFINISHED: &str = "is being written";
/// Problem of a file without contents.
const EMPTY: &str = "is empty; delete the file to remove its objects";

#[derive(Debug, Default)]
struct File {
    /// Stamp of the last read. `None` forces a read at the next scan: the file was read so soon after a change, or its
    /// clock is so far ahead, that a second change can have the same stamp.
    stamp: Option<FileStamp>,
    digest: Option<u64>,
    /// Number of the last scan that looked at it.
    seen_in: u64,
    objects: Objects,
    /// Last good bytes of a file that is no manifest.
    plain: Option<Bytes>,
    problem: Option<ObjectDefect>,
    /// Parts of the last good objects without effect.
    warnings: Vec<String>,
    /// Directory of the file at the last look.
    directory: Option<DirectoryId>,
    /// Hash of the last good text.
    text: Option<TextHash>,
    /// That text, until it is stored.
    unsaved: Option<Bytes>,
    /// Machines of that text that a command has removed.
    removed: BTreeSet<String>,
    /// Time of the first scan without the file, where lost objects are not kept apart.
    gone_since: Option<SystemTime>,
}

/// Objects that a file no longer has.
#[derive(Debug)]
pub(super) struct FileLoss {
    pub(super) place: Place,
    pub(super) objects: Vec<Object>,
    pub(super) loss: Loss,
}

/// Last good state of a file in an earlier process.
#[derive(Debug)]
pub(super) struct RestoredFile {
    pub(super) place: Place,
    pub(super) bytes: Bytes,
    /// Digest of the file with this state, if its text is another one.
    pub(super) source: Option<u64>,
    /// True for a config without a manifest.
    pub(super) is_plain: bool,
    /// Machines that a command removed while the file was broken.
    pub(super) removed: BTreeSet<String>,
}

/// Last good text of a manifest.
pub(super) struct GoodText<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a TextHash,
    pub(super) directory: Option<DirectoryId>,
    /// Digest of the file.
    pub(super) source: Option<u64>,
    /// The text, until it is stored.
    pub(super) unsaved: Option<&'a Bytes>,
    /// Machines that a command removed while the file was broken.
    pub(super) removed: &'a BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct ReadError {
    pub(super) reason: String,
    pub(super) last_good: Option<Bytes>,
}

/// Files that a scan leaves to a later one, because they may be written.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    /// True if the last scan left any.
    pub(super) has_any: bool,
    /// True if those that were never read are problems.
    pub(super) are_problems: bool,
}

#[derive(Debug)]
pub(super) struct Files {
    known: BTreeMap<PathBuf, File>,
    /// Number of the scan.
    scan: u64,
    now: SystemTime,
    settle: Duration,
    changed: bool,
    /// Outcome of the scan so far.
    outcome: Scanned,
    /// Directories at this scan, by their path.
    directories: HashMap<PathBuf, DirectoryId>,
    /// Objects that files lost in this scan.
    losses: Vec<FileLoss>,
    /// Files that were read, valid and with objects, in this scan, with their directories.
    read: Vec<(PathBuf, Option<DirectoryId>)>,
    pub(super) skipped: Skipped,
    /// True if last good texts have changed since they were stored.
    pub(super) is_unsaved: bool,
    /// True if files with parts without effect are refused.
    is_strict: bool,
}

/// Stamp of a file that is to be read, for [`File::stamp`].
struct NewStamp(Option<FileStamp>);

impl File {
    fn remove_machines(&mut self, names: BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        let is_left = |object: &&Object| !names.iter().any(|name| is_machine(object, name));
        self.objects = self.objects.iter().filter(is_left).cloned().collect();
        self.removed.extend(names);
        // The same text says that they are back.
        self.digest = None;
    }
}

impl Files {
    /// Creates an empty set. With `is_strict`, files with parts without effect are refused.
    pub(super) fn new(is_strict: bool) -> Self {
        Self {
            known: BTreeMap::new(),
            scan: 0,
            now: SystemTime::UNIX_EPOCH,
            settle: Duration::ZERO,
            changed: false,
            outcome: Scanned::SETTLED,
            directories: HashMap::new(),
            losses: Vec::new(),
            read: Vec::new(),
            skipped: Skipped::default(),
            is_unsaved: true,
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
        self.scan += 1;
        self.now = now;
        self.settle = settle;
        self.changed = false;
        self.outcome = Scanned::SETTLED;
        self.skipped.has_any = false;
        self.read.clear();
    }

    /// Notes the directories of a listing, before its files are read.
    pub(super) fn take_directories(&mut self, listing: &Listing) {
        self.directories.clone_from(&listing.directories);
    }

    pub(super) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Gives away the objects of files that a listing no longer has.
    pub(super) fn take_gone(&mut self, listing: &Listing) {
        // Both are sorted.
        let mut listed = listing.paths.iter().peekable();
        let mut is_gone = |path: &&PathBuf| {
            while listed.next_if(|listed| listed < path).is_some() {}
            listed.next_if_eq(path).is_none()
        };
        let gone: Vec<_> = self.known.keys().filter(|path| is_gone(path)).cloned().collect();
        for path in gone {
            let Some(file) = self.known.remove(&path) else { continue };
            self.is_unsaved = true;
            self.changed |= file.problem.is_some();
            let loss = listing.loss_of(&path, file.directory).unwrap_or(Loss::Unlinked);
            let place = Place { path, directory: file.directory, text: file.text };
            self.losses.push(FileLoss { place, objects: file.objects.to_vec(), loss });
        }
    }

    /// Objects that files lost since this was called last.
    pub(super) fn take_losses(&mut self) -> Vec<FileLoss> {
        std::mem::take(&mut self.losses)
    }

    /// Files that were read, valid and with objects, in this scan, with their directories.
    pub(super) fn take_read(&mut self) -> Vec<(PathBuf, Option<DirectoryId>)> {
        std::mem::take(&mut self.read)
    }

    /// Takes over the last good states of files from an earlier process.
    pub(super) fn restore(&mut self, files: Vec<RestoredFile>) {
        let manifests = parallel::map(&files, |file| {
            (!file.is_plain).then(|| manifest::read(&file.bytes)).transpose()
        });
        for (restored, manifest) in files.into_iter().zip(manifests) {
            let RestoredFile { place, bytes, source, removed, .. } = restored;
            let Place { path, directory, text } = place;
            let mut file = File { directory, text, ..File::default() };
            match manifest {
                Ok(None) => file.plain = Some(bytes),
                Ok(Some(Manifest { objects, warnings, .. })) => {
                    // A server that is strict reads again what it refuses, and reports it.
                    let is_refused = self.is_strict && !warnings.is_empty();
                    let digest = source.unwrap_or_else(|| digest(&bytes));
                    file.digest = Some(digest).filter(|_| !is_refused);
                    (file.objects, file.warnings) = (objects.into(), warnings);
                    file.remove_machines(removed);
                }
                Err(_) => continue,
            }
            self.known.insert(path, file);
        }
    }

    /// Removes a machine that a command removes from what broken files last said. Valid ones say what they mean.
    pub(super) fn remove_machine(&mut self, name: &str) {
        let is_it = |object: &Object| is_machine(object, name);
        for file in self.known.values_mut().filter(|file| file.problem.is_some()) {
            if file.objects.iter().any(is_it) {
                file.remove_machines([name.to_owned()].into());
                (self.changed, self.is_unsaved) = (true, true);
            }
        }
    }

    /// Manifests with a last good text.
    pub(super) fn texts(&self) -> impl Iterator<Item = GoodText<'_>> {
        self.known.iter().filter_map(|(path, file)| {
            let File { directory, text, unsaved, digest, removed, .. } = file;
            Some(GoodText {
                path,
                text: text.as_ref()?,
                directory: *directory,
                // That of a file which is broken by now is not the text's.
                source: digest.filter(|_| file.problem.is_none()),
                unsaved: unsaved.as_ref(),
                removed,
            })
        })
    }

    /// Notes that all texts are stored.
    pub(super) fn saved(&mut self) {
        self.is_unsaved = false;
        self.known.values_mut().for_each(|file| file.unsaved = None);
    }

    /// The directory of a file at the last look.
    pub(super) fn directory_of(&self, path: &Path) -> Option<DirectoryId> {
        self.known.get(path)?.directory
    }

    /// A manifest that never was valid, so that nobody knows what is in it.
    pub(super) fn never_read(&self) -> Option<&Path> {
        let is_unknown =
            |file: &File| file.problem.is_some() && file.plain.is_none() && file.text.is_none();
        let mut seen = self.known.iter().filter(|(_, file)| file.seen_in == self.scan);
        seen.find(|(_, file)| is_unknown(file)).map(|(path, _)| &**path)
    }

    /// Returns `true` if anything that was read in this scan has changed.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Ends a scan, and discards files that have been missing for a while. Returns true if anything changed.
    pub(super) fn finish(&mut self) -> bool {
        let Self { known, scan, now, outcome, .. } = self;
        let before = known.len();
        known.retain(|_, file| {
            if file.seen_in == *scan {
                file.gone_since = None;
                return true;
            }
            let since = *file.gone_since.get_or_insert(*now);
            let may_return = now.duration_since(since).is_ok_and(|gone| gone < RETURNS_WITHIN);
            if may_return {
                outcome.again_in(RETURNS_WITHIN);
            }
            may_return
        });
        self.changed || self.known.len() != before
    }

    /// Notes where links lead, so that a watch of the files follows them.
    pub(super) fn leads_outside(&mut self, targets: &Targets) {
        self.outcome.outside.clone_from(targets);
    }

    /// The outcome of the scan for the next one's time. It is unsettled if files need another look.
    pub(super) fn scanned(&self) -> Scanned {
        let is_unsettled = |file: &File| file.stamp.is_none() && file.gone_since.is_none();
        Scanned { is_unsettled: self.known.values().any(is_unsettled), ..self.outcome.clone() }
    }

    /// Notes a change that is in no file.
    pub(super) fn note_change(&mut self) {
        self.changed = true;
    }

    /// Asks for another scan after `wait`.
    pub(super) fn again_in(&mut self, wait: Duration) {
        self.outcome.again_in(wait);
    }

    /// Files with the stamps that they were read with; `None` if one of them is not known by it, or is not valid.
    pub(super) fn stamps<'a>(&self, paths: &'a [PathBuf]) -> Option<Vec<(&'a Path, FileStamp)>> {
        let stamp = |path: &'a PathBuf| {
            let file = self.known.get(path).filter(|file| file.problem.is_none())?;
            Some((&**path, file.stamp?))
        };
        paths.iter().map(stamp).collect()
    }

    pub(super) fn objects(&self, path: &Path) -> &[Object] {
        self.known.get(path).map_or(&[], |file| &file.objects)
    }

    /// The objects of all files.
    pub(super) fn all_objects(&self) -> impl Iterator<Item = (&Path, &Objects)> {
        self.known.iter().map(|(path, file)| (&**path, &file.objects))
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let problem = |(path, file): (&PathBuf, &File)| {
            let defect = file.problem.clone()?;
            let is_seen = file.seen_in == self.scan;
            is_seen.then(|| Problem::whole(&path.display().to_string(), defect))
        };
        self.known.iter().filter_map(problem).collect()
    }

    /// Parts of files in this scan without effect.
    pub(super) fn warnings(&self) -> Vec<Problem> {
        let files = self.known.iter().filter(|(_, file)| file.seen_in == self.scan);
        let warnings =
            files.flat_map(|(path, file)| file.warnings.iter().map(move |it| (path, it)));
        warnings.map(|(path, it)| Problem::part(&path.display().to_string(), it)).collect()
    }

    /// Reads a manifest if it has changed.
    pub(super) fn read(&mut self, path: &Path, being_written: &dyn Fn(&Path) -> bool) {
        self.read_all([(path, None)], being_written);
    }

    /// Reads those of the manifests that changed, on all processors. One with the stamp of its listing is looked at only if that
    /// is new.
    pub(super) fn read_all<'a>(
        &mut self,
        manifests: impl IntoIterator<Item = (&'a Path, Option<FileStamp>)>,
        being_written: &dyn Fn(&Path) -> bool,
    ) {
        let mut jobs = Vec::new();
        for (path, listed) in manifests {
            if let Some(stamp) = self.due(path, listed, being_written) {
                let digest = self.known.get(path).and_then(|file| file.digest);
                jobs.push((path, stamp, digest));
            }
        }
        let results = parallel::map(&jobs, |(path, _, digest)| parse_file(path, *digest));
        for ((path, stamp, _), contents) in jobs.into_iter().zip(results) {
            self.insert(path, stamp, contents);
        }
    }

    /// Reads a manifest if it exists and has changed.
    pub(super) fn read_if_there(&mut self, path: &Path, being_written: &dyn Fn(&Path) -> bool) {
        if path.exists() {
            self.read(path, being_written);
        }
    }

    /// Reads a required file that is no manifest.
    pub(super) fn read_plain(
        &mut self,
        path: &Path,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Result<Bytes, ReadError> {
        if let Some(NewStamp(stamp)) = self.due(path, None, being_written) {
            let file = self.known.entry(path.to_owned()).or_default();
            (file.stamp, file.seen_in) = (stamp, self.scan);
            match bounded::read(path) {
                Ok(bytes) => {
                    let is_changed = file.plain.as_deref() != Some(&bytes[..]);
                    self.changed |= is_changed || file.problem.is_some();
                    self.is_unsaved |= is_changed;
                    file.plain = Some(bytes.into());
                    file.problem = None;
                    file.directory =
                        path.parent().and_then(|above| self.directories.get(above)).copied();
                }
                Err(error) => {
                    let problem = Some(error.to_string().into());
                    self.changed |= file.problem != problem;
                    file.problem = problem;
                }
            }
        }
        let Some(file) = self.known.get(path) else {
            return Err(ReadError { reason: UNFINISHED.to_owned(), last_good: None });
        };
        match (&file.problem, &file.plain) {
            (None, Some(bytes)) => Ok(bytes.clone()),
            (problem, last_good) => Err(ReadError {
                reason: problem.as_ref().map_or_else(String::new, |defect| defect.reason.clone()),
                last_good: last_good.clone(),
            }),
        }
    }

    /// Looks at a file, unless it has not changed since it was `listed`. Returns its stamp if it has changed, unless that was
    /// too recently, or it is open for writing.
    fn due(
        &mut self,
        path: &Path,
        listed: Option<FileStamp>,
        being_written: &dyn Fn(&Path) -> bool,
    ) -> Option<NewStamp> {
        let mut known = self.known.get_mut(path);
        if let Some(file) = &mut known {
            file.seen_in = self.scan;
        }
        let before = known.as_ref().and_then(|file| file.stamp);
        let now = || FileStamp::of(&std::fs::metadata(path).ok()?).into();
        let Some(stamp) = listed.filter(|stamp| before == Some(*stamp)).or_else(now) else {
            // The read returns the error.
            return Some(NewStamp(None));
        };
        if let Some(file) = known.filter(|file| file.stamp == Some(stamp)) {
            let above = path.parent().and_then(|above| self.directories.get(above));
            let was_in = file.directory;
            file.directory = above.copied().or(was_in);
            self.is_unsaved |= file.directory != was_in;
            return None;
        }
        // The time of the change counts: programs can set the modification time.
        let age = self.now.duration_since(stamp.changed_at()).ok();
        let settles_in = age.and_then(|age| self.settle.checked_sub(age));
        if let Some(wait) = settles_in.filter(|wait| !wait.is_zero()) {
            self.outcome.again_in(wait);
            self.skip(path);
            return None;
        }
        if !self.settle.is_zero() && being_written(path) {
            self.outcome.is_unsettled = true;
            self.skip(path);
            return None;
        }
        Some(NewStamp(stamp.is_settled(self.now).then_some(stamp)))
    }

    /// Leaves a file to a later scan.
    fn skip(&mut self, path: &Path) {
        self.skipped.has_any = true;
        if self.skipped.are_problems && named_as_input(path) && !self.known.contains_key(path) {
            let (seen_in, problem) = (self.scan, Some(UNFINISHED.into()));
            self.known.insert(path.to_owned(), File { seen_in, problem, ..File::default() });
            self.changed = true;
        }
    }

    fn insert(&mut self, path: &Path, NewStamp(stamp): NewStamp, contents: Contents) {
        let above = path.parent().and_then(|above| self.directories.get(above)).copied();
        let file = self.known.entry(path.to_owned()).or_default();
        (file.stamp, file.seen_in) = (stamp, self.scan);
        let was_in = file.directory;
        file.directory = above.or(was_in);
        self.is_unsaved |= file.directory != was_in;
        let Contents::Changed { digest, text, result } = contents else { return };
        file.digest = digest;
        let is_strict = self.is_strict;
        let is_blank = text.as_ref().is_some_and(|text| text.trim_ascii().is_empty());
        let result = match result {
            // A file that never had an object and is not named like a manifest is ignored.
            Err(_) if file.text.is_none() && !is_manifest(path, text.as_deref()) => {
                Ok(Manifest::default())
            }
            Ok(_) if is_blank && named_as_manifest(path) => Err(EMPTY.into()),
            // An editor or `cp` empties a file before it writes; to remove objects, the file is deleted.
            Ok(read) if read.objects.is_empty() && !file.objects.is_empty() => Err(EMPTY.into()),
            Ok(read) if is_strict && !read.warnings.is_empty() => Err(refused(&read.warnings)),
            other => other,
        };
        // Without an object in another directory, it says nothing about those of the first one.
        let has_moved = was_in.is_some() && was_in != file.directory;
        let before = std::mem::take(&mut file.objects);
        let place = |directory| Place { path: path.to_owned(), directory, text: file.text.clone() };
        match result {
            Ok(Manifest { objects, warnings, json }) => {
                let text = json.or(text);
                self.changed |= !(objects.is_empty() && before.is_empty());
                self.changed |= warnings != file.warnings || file.problem.is_some();
                let kept: HashSet<_> = objects.iter().map(identity).collect();
                let others: Vec<_> =
                    before.iter().filter(|it| !kept.contains(&identity(it))).cloned().collect();
                let loss = if has_moved { Loss::WithDirectory } else { Loss::ReadWithout };
                if !others.is_empty() {
                    let place = place(was_in.or(file.directory));
                    self.losses.push(FileLoss { place, objects: others, loss });
                }
                file.text =
                    text.as_ref().filter(|_| !objects.is_empty()).map(|it| TextHash::of(it));
                file.unsaved = text.filter(|_| !objects.is_empty());
                file.objects = objects.into();
                file.removed.clear();
                file.warnings = warnings;
                file.problem = None;
                self.is_unsaved = true;
                // One with comments alone is being written, and says as little as an empty one.
                if !file.objects.is_empty() {
                    self.read.push((path.to_owned(), file.directory));
                }
            }
            Err(defect) => {
                self.changed |= file.problem.as_ref() != Some(&defect);
                file.problem = Some(defect);
                // Without a listing nobody takes losses in.
                if is_blank && !self.directories.is_empty() {
                    let (place, loss) = (place(file.directory), Loss::Emptied);
                    self.losses.push(FileLoss { place, objects: before.to_vec(), loss });
                    (file.text, file.unsaved) = (None, None);
                    self.is_unsaved = true;
                } else {
                    file.objects = before;
                }
            }
        }
    }
}

pub(super) fn is_machine(object: &Object, name: &str) -> bool {
    matches!(object, Object::FirstBootMachine(it) if it.name() == name)
}

/// Reason why a strict server refuses a file.
fn refused(warnings: &[String]) -> ObjectDefect {
    let first = warnings.first().map_or("", String::as_str);
    let more = and_more(warnings.len().saturating_sub(1));
    format!("{first}{more}: refused by --strict").into()
}

fn named_as_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Returns `true` if a file with this name can have a config.
fn named_as_input(path: &Path) -> bool {
    let is_plain =
        |extension: &OsStr| ["ign", "bu"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    named_as_manifest(path) || path.extension().is_none_or(is_plain)
}

/// Returns `true` if a file with this text is meant to be a manifest.
fn is_manifest(path: &Path, text: Option<&[u8]>) -> bool {
    let starts = |line: &str| ["apiVersion:", "kind:", "{"].iter().any(|it| line.starts_with(it));
    let text = text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let is_written_as_one =
        || manifest::may_be_manifest(text.as_bytes()) && text.lines().any(starts);
    named_as_manifest(path) || (path.extension().is_none() && is_written_as_one())
}

enum Contents {
    Same,
    Changed { digest: Option<u64>, text: Option<Bytes>, result: Result<Manifest, ObjectDefect> },
}

/// Reads and parses a file, unless the hash of its bytes is `known`.
fn parse_file(path: &Path, known: Option<u64>) -> Contents {
    match bounded::read(path) {
        Ok(bytes) => parse(path, bytes.into(), known),
        Err(error) => {
            Contents::Changed { digest: None, text: None, result: Err(error.to_string().into()) }
        }
    }
}

/// Digest of a file's bytes for this version: a later one reads each file again, and may judge it otherwise.
fn digest(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.write(text);
    hasher.finish()
}

/// Parses a text, unless its hash is `known`.
fn parse(path: &Path, text: Bytes, known: Option<u64>) -> Contents {
    let digest = Some(digest(&text));
    if digest == known {
        return Contents::Same;
    }
    let result = if named_as_manifest(path) || manifest::may_be_manifest(&text) {
        manifest::read(&text).map_err(|error| error.defect())
    } else {
        Ok(Manifest::default())
    };
    Contents::Changed { digest, text: Some(text), result }
}

#[cfg(test)]
mod tests {
    use super::super::listing::list;
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
        files.read(&path, &|_| false);
        assert!(files.finish() && files.scanned() == Scanned::SETTLED);
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
        files.read(&path, &|_| false);
        files.finish();
        for (now, is_kept) in [
            (start, true),
            (start + RETURNS_WITHIN / 2, true),
            // A clock that was set back must not hold it forever.
            (start - RETURNS_WITHIN, false),
        ] {
            files.begin(now, Duration::ZERO);
            assert_eq!((files.finish(), files.objects(&path).len()), (!is_kept, is_kept.into()));
        }
    }

    /// Reads the manifests of a directory, and returns what they have lost.
    fn losses(files: &mut Files, root: &Path) -> Vec<Loss> {
        let (listing, stamps) = list(root).unwrap();
        files.begin(SystemTime::now(), Duration::ZERO);
        files.take_directories(&listing);
        let listed = listing.paths.iter().map(|path| &**path).zip(stamps.into_iter().map(Some));
        files.read_all(listed.filter(|(path, _)| named_as_manifest(path)), &|_| false);
        files.take_losses().iter().map(|lost| lost.loss).collect()
    }

    fn pool(name: &str) -> String {
        format!(r#"{{"kind": "MachineConfigPool", "metadata": {{"name": "{name}"}}}}"#)
    }

    #[test]
    fn what_a_file_of_another_directory_lacks_was_lost_with_the_first_one() {
        let above = tempfile::tempdir().unwrap();
        let (root, aside) = (above.path().join("site"), above.path().join("aside"));
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.yaml"), pool("worker")).unwrap();
        let mut files = Files::new(false);
        assert_eq!(losses(&mut files, &root), []);
        std::fs::rename(&root, aside).unwrap();
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.yaml"), pool("infrastructure")).unwrap();
        assert_eq!(losses(&mut files, &root), [Loss::WithDirectory]);
        std::fs::write(root.join("a.yaml"), pool("edge")).unwrap();
        assert_eq!(losses(&mut files, &root), [Loss::ReadWithout]);
    }

    #[test]
    fn each_new_text_and_place_of_a_file_is_to_be_stored() {
        let above = tempfile::tempdir().unwrap();
        let (root, aside) = (above.path().join("site"), above.path().join("aside"));
        let (manifest, plain) = (root.join("a.yaml"), root.join("edge.ign"));
        let mut files = Files::new(false);
        let mut look = || {
            losses(&mut files, &root);
            files.read_plain(&plain, &|_| false).unwrap();
            let is_unsaved = files.is_unsaved;
            files.saved();
            is_unsaved
        };
        let write = |text: &str| {
            std::fs::write(&manifest, pool("worker")).unwrap();
            std::fs::write(&plain, text).unwrap();
        };
        std::fs::create_dir(&root).unwrap();
        write("{}");
        assert_eq!([look(), look()], [true, false]);
        write("{ }");
        assert_eq!([look(), look()], [true, false], "a new config");
        // As programs do that roll out releases, with the same texts.
        std::fs::rename(&root, aside).unwrap();
        std::fs::create_dir(&root).unwrap();
        write("{ }");
        assert_eq!([look(), look()], [true, false], "a new directory");
    }

    #[test]
    fn a_file_that_was_emptied_says_nothing_with_a_comment_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.yaml");
        let mut files = Files::new(false);
        for (text, lost, is_read) in [
            (&*pool("worker"), &[][..], true),
            ("", &[Loss::Emptied], false),
            ("# pools", &[], false),
            (&pool("edge"), &[], true),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(losses(&mut files, root.path()), lost, "{text}");
            assert_eq!(!files.take_read().is_empty(), is_read, "{text}");
        }
    }

    #[test]
    fn a_machine_that_is_removed_while_its_file_is_broken_is_back_with_a_valid_text_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("machines.yaml");
        let text: String = ["a", "b"].map(machine).concat();
        let names = |files: &Files| {
            let names = files.objects(&path).iter().map(|object| identity(object).name);
            names.collect::<Vec<_>>().concat()
        };
        let mut files = Files::new(false);
        for (text, expected) in [(&*text, "ab"), ("{", "ab")] {
            std::fs::write(&path, text).unwrap();
            files.remove_machine("a");
            losses(&mut files, root.path());
            assert_eq!(names(&files), expected, "{text}");
        }
        files.remove_machine("a");
        assert_eq!(names(&files), "b");
        // After a restart too.
        let GoodText { directory, removed, source: None, .. } = files.texts().next().unwrap()
        else {
            panic!("a digest of the broken file")
        };
        let place = Place { path: path.clone(), directory, text: Some(TextHash::of(b"")) };
        let (bytes, removed) = (text.clone().into(), removed.clone());
        let mut later = Files::new(false);
        later.restore(vec![RestoredFile { place, bytes, source: None, is_plain: false, removed }]);
        losses(&mut later, root.path());
        assert_eq!(names(&later), "b");
        std::fs::write(&path, &text).unwrap();
        losses(&mut later, root.path());
        assert_eq!(names(&later), "ab");
    }

    #[test]
    fn a_strict_server_reports_after_a_restart_what_another_one_accepted() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("config.yaml");
        let text = "kind: MachineConfig\nmetadata: {name: a}\nspec: {typo: 1}\n";
        std::fs::write(&path, text).unwrap();
        for (is_strict, problems) in [(false, 0), (true, 1)] {
            let mut first = Files::new(false);
            losses(&mut first, root.path());
            let GoodText { directory, source, .. } = first.texts().next().unwrap();
            let place = Place { path: path.clone(), directory, text: None };
            let bytes = manifest::read(text.as_bytes()).unwrap().json.unwrap();
            let removed = BTreeSet::new();
            let mut later = Files::new(is_strict);
            later.restore(vec![RestoredFile { place, bytes, source, is_plain: false, removed }]);
            losses(&mut later, root.path());
            assert_eq!((later.problems().len(), later.objects(&path).len()), (problems, 1));
        }
    }

    fn machine(name: &str) -> String {
        format!(
            r#"{{"apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
                "metadata": {{"name": "{name}"}}, "spec": {{"pool": "worker"}}}}"#
        )
    }
}
