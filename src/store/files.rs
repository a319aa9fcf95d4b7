//! Files that are replaced whole or not at all.
//!
//! By hand, because tempfile's names are random, so that what a crash leaves behind would pile up,
//! and because it syncs neither the file nor its folder.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A write that failed, with the file it was for.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the operating system says.
    pub error: io::Error,
}

/// Readable by its owner only.
pub const PRIVATE: u32 = 0o600;
/// Readable by all.
pub const PUBLIC: u32 = 0o644;

/// Puts `contents` at `path`: a reader sees the old file or the new one, and after a crash one of
/// them is there. A file that already has these contents and mode is left untouched.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<(), WriteError> {
    if is_as_wanted(path, contents, mode) {
        return Ok(());
    }
    try_replace(path, contents, mode).map_err(|error| WriteError { path: path.to_owned(), error })
}

/// Makes a folder and those above it, for their owner alone.
pub fn create_folder(path: &Path) -> Result<(), WriteError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| WriteError { path: path.to_owned(), error })
}

fn is_as_wanted(path: &Path, contents: &[u8], mode: u32) -> bool {
    let has_mode = std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o777 == mode);
    has_mode && std::fs::read(path).is_ok_and(|present| present == contents)
}

fn try_replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, so that whoever lists the folder does not take it for a file; named by the process,
    // so that two processes do not write into each other's.
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    // One that a crash has left. Whatever else is there by that name is not followed nor written to.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_new(&temporary, contents, mode)
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // What cannot be removed is met by the next try.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The process' umask may have taken bits away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(contents)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        replace(&path, b"old", PUBLIC).unwrap();
        replace(&path, b"new", PRIVATE).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_lies_where_a_file_is_prepared_is_neither_followed_nor_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").unwrap();
        let prepared = folder.path().join(format!(".key.{}", std::process::id()));
        std::os::unix::fs::symlink(&elsewhere, &prepared).unwrap();
        replace(&path, b"ours", PRIVATE).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"theirs");
    }

    #[test]
    fn a_new_folder_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        create_folder(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        create_folder(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_as_wanted_is_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"same", PUBLIC).unwrap();
        let before = path.metadata().unwrap().ino();
        replace(&path, b"same", PUBLIC).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), before);
    }

    #[test]
    fn an_error_names_the_file() {
        let error = replace(Path::new("/nowhere/at/all"), b"", PUBLIC).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/at/all: "), "{error}");
    }
}
