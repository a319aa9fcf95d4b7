//! Reads files of other parties within bounds, and directories.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::error::FileError;

/// Maximum size of a file in bytes. The API server's own limit for an object is 1.5 MiB.
pub const MAX_BYTES: u64 = 64 << 20;

/// Reads a regular file of at most [`MAX_BYTES`] bytes. It never blocks: a pipe is an error.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_opened(open(path)?, MAX_BYTES)
}

/// Reads a regular file of at most `most` bytes, which was opened without blocking.
pub fn read_opened(file: File, most: u64) -> io::Result<Vec<u8>> {
    let bytes = read_start_of(file, most + 1)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("is larger than {} MiB", most >> 20)));
    }
    Ok(bytes)
}

/// Reads a text in UTF-8 as [`read`] does.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::other("is not UTF-8"))
}

/// Reads a file as [`read`] does, `None` if it does not exist.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    if_there(path, read(path))
}

/// Converts "not found" to `None`.
pub fn if_there<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, FileError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some).map_err(FileError::at(path)),
    }
}

/// Paths of the entries of a directory.
pub fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

/// Paths of the entries of a directory; none if it does not exist.
pub fn entries_if_there(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    Ok(if_there(directory, entries(directory))?.unwrap_or_default())
}

/// Removes a file, unless it does not exist.
pub fn remove_if_there(path: &Path) -> Result<(), FileError> {
    if_there(path, std::fs::remove_file(path)).map(drop)
}

/// Reads the first `most` bytes of a regular file.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_start_of(open(path)?, most)
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

fn read_start_of(file: File, most: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let expected = metadata.len().min(most).try_into().unwrap_or_default();
    let mut bytes = Vec::with_capacity(expected);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_so_much_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        assert_eq!(read_start(&path, 2).unwrap(), b"te");
        // A hole takes no space on the disk.
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path).unwrap_err().to_string(), "is larger than 64 MiB");

        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        for path in [&pipe, directory.path(), Path::new("/dev/zero")] {
            assert_eq!(read(path).unwrap_err().to_string(), "is not a regular file");
        }
    }
}
