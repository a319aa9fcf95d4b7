//! Atomic replacement of files, which keep their owner and mode.
//!
//! The crate tempfile is not used: its names are random, so that files would pile up after crashes, and it syncs
//! neither the file nor its directory.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::bounded;
use super::error::FileError;
use crate::owners::{Process, Reader, Status, User, WantedStatus, wanted};

/// Mode of files that only their owner reads.
pub const PRIVATE: u32 = 0o600;
/// Mode of files that all users read.
pub const PUBLIC: u32 = 0o644;

/// Replaces a file atomically: a reader sees the old contents or the new ones, and after a crash one of them is there.
/// Owner, group and mode stay, except that a file of another user becomes this process's own if [`Reader::Itself`] reads
/// it. A new file has `mode`, and belongs to `reader` if root creates it. If the owner cannot be kept, nothing changes.
pub fn replace(path: &Path, contents: &[u8], mode: u32, reader: Reader) -> Result<(), FileError> {
    let process = Process::current();
    let directory = directory_of(path);
    let before = Status::of_file(path);
    let wanted = wanted(before, reader.user(directory, process), process, mode);
    if is_as_wanted(path, contents, wanted) {
        return Ok(());
    }
    try_replace(path, directory, contents, wanted).map_err(FileError::at(path))
}

/// A file that is to be replaced.
pub struct Replacement {
    pub path: PathBuf,
    pub contents: Vec<u8>,
    pub mode: u32,
}

/// Replaces the files of one directory, each as [`replace`] does, with one wait for the disk instead of two for each.
/// Returns the outcome of each.
pub fn replace_all(
    directory: &Path,
    files: &[Replacement],
    reader: Reader,
) -> Vec<Result<(), FileError>> {
    if let [Replacement { path, contents, mode }] = files {
        return vec![replace(path, contents, *mode, reader)];
    }
    let process = Process::current();
    let user = reader.user(directory, process);
    let prepared: Vec<_> = files
        .iter()
        .map(|Replacement { path, contents, mode }| {
            let wanted = wanted(Status::of_file(path), user, process, *mode);
            let is_same = is_as_wanted(path, contents, wanted);
            let prepare = || prepare(path, directory, contents, wanted);
            let prepared = (!is_same).then(prepare).transpose().map_err(FileError::at(path))?;
            Ok(prepared.map(|(temporary, _)| temporary))
        })
        .collect();
    if !prepared.iter().any(|it| matches!(it, Ok(Some(_)))) {
        return prepared.into_iter().map(|it| it.map(drop)).collect();
    }
    let opened = File::open(directory);
    let synced = opened.and_then(|directory| {
        nix::unistd::syncfs(&directory)?;
        Ok(directory)
    });
    let renamed = files.iter().zip(prepared).map(|(Replacement { path, .. }, prepared)| {
        let Some(temporary) = prepared? else { return Ok(()) };
        let renamed = each(&synced).and_then(|_| std::fs::rename(&temporary, path));
        renamed.map_err(|error| {
            let _ = std::fs::remove_file(&temporary);
            FileError::at(path)(error)
        })
    });
    let renamed: Vec<_> = renamed.collect();
    let synced = each(&synced).and_then(File::sync_all);
    let outcomes = files.iter().zip(renamed).map(|(Replacement { path, .. }, renamed)| {
        renamed.and_then(|()| each(&synced).map(drop).map_err(FileError::at(path)))
    });
    outcomes.collect()
}

/// A result that is the same for each of many files.
fn each<T>(result: &io::Result<T>) -> io::Result<&T> {
    result.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

/// Removes the files that killed processes had prepared in a directory, to replace others by them.
pub fn remove_leftovers(directory: &Path) -> Result<(), FileError> {
    let is_leftover = |path: &PathBuf| {
        let process = preparing_process(path);
        // This process prepares nothing yet. Its ID can be that of its predecessor, as in a container.
        let is_alive = |id| id != std::process::id() && Path::new(&format!("/proc/{id}")).exists();
        process.is_some_and(|id| !is_alive(id)) && Status::of_file(path).is_some()
    };
    let paths = bounded::entries_if_there(directory)?.into_iter();
    paths.filter(is_leftover).try_for_each(|path| bounded::remove_if_there(&path))
}

/// The process that prepared a file of this name, if it is one that [`try_replace`] makes.
fn preparing_process(path: &Path) -> Option<u32> {
    let (name, id) = path.file_name()?.to_str()?.strip_prefix('.')?.rsplit_once('.')?;
    let extension = Path::new(name).extension()?.to_str()?;
    ["crt", "ign", "json", "key"].contains(&extension).then(|| id.parse().ok())?
}

/// Creates an empty file for `reader`, if it is missing.
pub(crate) fn create_for(path: &Path, mode: u32, reader: Reader) -> Result<(), FileError> {
    let process = Process::current();
    let wanted = wanted(None, reader.user(directory_of(path), process), process, mode);
    match write_new(path, b"", wanted).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            // The file could not be given to its owner. If it cannot be removed either, the server reports it as
            // unreadable.
            let _ = std::fs::remove_file(path);
            Err(FileError::at(path)(error))
        }
        Ok(()) => Ok(()),
    }
}

/// Creates a directory and its parents for `reader`, readable only by their owner.
pub fn create_directory(path: &Path, reader: Reader) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    let above = directory_of(path);
    if above != path {
        create_directory(above, reader)?;
    }
    let process = Process::current();
    let made = match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.and_then(|()| match reader.user(above, process) {
            Some(user) if process.is_root() => give_directory(path, user, process),
            _ => Ok(()),
        }),
    };
    // What is stored in it could be lost with it. A directory that may not be read cannot be synced.
    let synced = made.and_then(|()| File::open(above).map_or(Ok(()), |above| above.sync_all()));
    synced.map_err(FileError::at(path))
}

/// Changes the owner of a directory that this process has just created.
fn give_directory(path: &Path, user: User, process: Process) -> io::Result<()> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let directory = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if directory.metadata()?.uid() != process.uid {
        return Ok(());
    }
    give(&directory, Some(user.uid), Some(user.gid))?;
    if user.is_by_group {
        directory.set_permissions(Permissions::from_mode(0o750))?;
    }
    Ok(())
}

/// The directory of a file.
pub fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.unwrap_or(if path.is_absolute() { path } else { Path::new(".") })
}

fn is_as_wanted(path: &Path, contents: &[u8], wanted: WantedStatus) -> bool {
    let WantedStatus { uid, gid, mode } = wanted;
    let is_like = match Status::of_file(path) {
        Some(present) => {
            present.mode == mode
                && uid.is_none_or(|uid| uid == present.uid)
                && gid.is_none_or(|gid| gid == present.gid)
        }
        // A link to a file with these contents stays.
        None => std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o777 == mode),
    };
    is_like && bounded::read(path).is_ok_and(|present| present == contents)
}

fn try_replace(
    path: &Path,
    directory: &Path,
    contents: &[u8],
    wanted: WantedStatus,
) -> io::Result<()> {
    let (temporary, file) = prepare(path, directory, contents, wanted)?;
    let replaced = file
        .sync_all()
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| File::open(directory)?.sync_all());
    if replaced.is_err() {
        // The next attempt meets a file that cannot be removed.
        let _ = std::fs::remove_file(&temporary);
    }
    replaced
}

/// Writes a file that is to replace `path`, in its directory. It is not synced. Its mode may keep this process from
/// opening it again.
fn prepare(
    path: &Path,
    directory: &Path,
    contents: &[u8],
    wanted: WantedStatus,
) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The name is hidden, so that other programs do not take it for a file of the directory, and contains the process
    // ID, so that two processes do not share it.
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    // A crash may have left the file. Whatever has the name is neither followed nor written to.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match write_new(&temporary, contents, wanted) {
        Ok(file) => Ok((temporary, file)),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}

fn write_new(path: &Path, contents: &[u8], wanted: WantedStatus) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    // Change the owner by descriptor, before others can read the file.
    give(&file, wanted.uid, wanted.gid)?;
    // The umask can have removed bits.
    file.set_permissions(Permissions::from_mode(wanted.mode))?;
    file.write_all(contents)?;
    Ok(file)
}

/// Changes user and group of a file, if they differ: a service may lack the right to change them.
fn give(file: &File, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let found = file.metadata()?;
    let uid = uid.filter(|uid| *uid != found.uid());
    let gid = gid.filter(|gid| *gid != found.gid());
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    fchown(file, uid, gid).map_err(|error| {
        let user = uid.map(|uid| format!("uid {uid}"));
        let group = gid.map(|gid| format!("gid {gid}"));
        let owners: Vec<_> = user.into_iter().chain(group).collect();
        let owners = owners.join(" and ");
        io::Error::new(
            error.kind(),
            format!(
                "not written: it must belong to {owners}, and the owner of the new file cannot be \
                 set: {error}; run the command as root or as that owner"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_files_one_that_cannot_be_replaced_keeps_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("b.json"), "before").unwrap();
        std::fs::create_dir_all(path("c.json/in-use")).unwrap();
        let file =
            |name: &str| Replacement { path: path(name), contents: name.into(), mode: PRIVATE };
        let files = ["a.json", "b.json", "c.json", "d.json"].map(file);
        for _ in 0..2 {
            let outcomes = replace_all(directory.path(), &files, Reader::Itself);
            let is_written: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
            assert_eq!(is_written, [true, true, false, true]);
            assert!(outcomes[2].as_ref().unwrap_err().to_string().contains("c.json"));
            for name in ["a.json", "b.json", "d.json"] {
                assert_eq!(std::fs::read_to_string(path(name)).unwrap(), name);
            }
            // What was prepared is not left.
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
        }
        assert_eq!(Status::of_file(&path("a.json")).unwrap().mode, PRIVATE);
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        replace(&path, b"old", PUBLIC, Reader::Directory).unwrap();
        replace(&path, b"new", PRIVATE, Reader::Directory).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_lies_where_a_file_is_prepared_is_neither_followed_nor_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").unwrap();
        let prepared = directory.path().join(format!(".key.{}", std::process::id()));
        std::os::unix::fs::symlink(&elsewhere, &prepared).unwrap();
        replace(&path, b"ours", PRIVATE, Reader::Directory).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"theirs");
    }

    #[test]
    fn a_new_directory_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        create_directory(&path, Reader::Directory).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        create_directory(&path, Reader::Directory).unwrap();
    }

    #[test]
    fn a_file_that_is_as_wanted_is_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        replace(&path, b"same", PUBLIC, Reader::Directory).unwrap();
        let before = path.metadata().unwrap().ino();
        replace(&path, b"same", PUBLIC, Reader::Directory).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), before);
    }

    #[test]
    fn an_error_names_the_file() {
        let error = replace(Path::new("/nowhere/at/all"), b"", PUBLIC, Reader::Directory)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/nowhere/at/all: "), "{error}");
    }
}
