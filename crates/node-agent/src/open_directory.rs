//! A directory accessed by its descriptor: no path is looked up twice, no symbolic link is followed, and every change
//! is one rename.

use std::fs::File as StdFile;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use bytes::Bytes;
use files::bounded;
use files::stamp::FileStamp;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::registry_ca_plan::{RegistryDirectory, State};

/// Mode of a new directory: everyone can read, its owner can write.
const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);
/// Mode of a new file.
pub(super) const FILE: Mode = Mode::from_bits_truncate(0o644);
/// Mode of a new file that only its owner reads.
pub(super) const PRIVATE_FILE: Mode = Mode::from_bits_truncate(0o600);
/// Maximum size of a file that is read: a ConfigMap has at most 1 MiB, and lists are shorter.
const MAX_BYTES: u64 = 4 << 20;
/// Temporary name of a file before its rename. No registry has such a name.
const NEW_FILE: &str = ".machine-config-server.tmp";
/// Temporary name of a registry's directory before its rename.
const NEW_DIRECTORY: &str = ".machine-config-server.new";

/// Names and contents of a registry's files.
pub(super) type Files = [(&'static str, Bytes)];

/// Descriptor of a directory.
#[derive(Debug)]
pub struct OpenDirectory(OwnedFd);

impl OpenDirectory {
    /// Opens a directory, and creates it and its parents if they are missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut directory = Self(nix::fcntl::open(
            if path.is_absolute() { "/" } else { "." },
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?);
        for component in path.components() {
            let name = match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => Path::new(name),
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::other("`..` is not followed"));
                }
            };
            directory = match directory.enter(name) {
                Err(Errno::ENOENT) => {
                    match mkdirat(&directory.0, name, DIRECTORY) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    directory.enter(name)?
                }
                Err(Errno::ENOTDIR | Errno::ELOOP) => {
                    return Err(io::Error::other(format!(
                        "{} is not a directory, and a symbolic link is not followed",
                        name.display()
                    )));
                }
                entered => entered?,
            };
        }
        Ok(directory)
    }

    fn enter(&self, name: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Opens the directory for reading: to list, lock or sync it.
    pub(super) fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// Syncs changes in the directory to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(self.readable()?)?)
    }

    /// The stamp of a file below, `None` if it does not exist.
    pub(super) fn stamp(&self, path: &str) -> io::Result<Option<FileStamp>> {
        Ok(self.stat(path)?.as_ref().map(FileStamp::of_stat))
    }

    fn stat(&self, path: &str) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, path, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if a process that died has left temporary files.
    pub(super) fn is_untidy(&self) -> io::Result<bool> {
        Ok(self.stat(NEW_FILE)?.is_some() || self.stat(NEW_DIRECTORY)?.is_some())
    }

    /// Removes temporary files. `files` are the names of a registry's files.
    pub(super) fn tidy(&self, files: &[&str]) -> io::Result<()> {
        self.unlink(NEW_FILE)?;
        self.clear(files)
    }

    /// Reads a file of this directory, `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        // Opening a pipe must not block.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return Err(io::Error::other("a symbolic link is not followed")),
            // A socket.
            Err(Errno::ENXIO) => return Err(io::Error::other("is not a regular file")),
            Err(error) => return Err(error.into()),
        };
        bounded::read_opened(file.into(), MAX_BYTES).map(Some)
    }

    /// Compares a registry's directory with the wanted files.
    pub(super) fn present(&self, name: &str, files: &Files) -> io::Result<RegistryDirectory> {
        let directory = match self.enter(Path::new(name)) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(RegistryDirectory::Absent),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return Ok(RegistryDirectory::NoDirectory),
            Err(error) => return Err(error.into()),
        };
        let mode = fstatat(&directory.0, "", AtFlags::AT_EMPTY_PATH)?.st_mode;
        let has_mode = mode & 0o7777 == DIRECTORY.bits();
        let mut state = if has_mode { State::Same } else { State::Exposed };
        for (name, wanted) in files {
            state = state.max(directory.state(name, wanted)?);
        }
        let mut listing = Dir::from_fd(directory.readable()?)?;
        let mut is_pure = true;
        for entry in listing.iter() {
            let entry = entry?;
            let entry = entry.file_name().to_bytes();
            let is_known = files.iter().any(|(name, _)| name.as_bytes() == entry);
            is_pure = is_pure && (is_known || entry == b"." || entry == b"..");
        }
        Ok(RegistryDirectory::Directory { files: state, is_pure })
    }

    fn state(&self, name: &str, wanted: &[u8]) -> io::Result<State> {
        let Some(stat) = self.stat(name)? else { return Ok(State::Other) };
        let has_size = usize::try_from(stat.st_size).is_ok_and(|size| size == wanted.len());
        if !is(&stat, SFlag::S_IFREG) || !has_size {
            return Ok(State::Other);
        }
        // An unreadable file can be replaced.
        let is_same = self.read(name).is_ok_and(|found| found.is_some_and(|it| it == wanted));
        let is_ours = stat.st_mode & 0o7777 == FILE.bits() && stat.st_uid == geteuid().as_raw();
        Ok(match (is_same, is_ours) {
            (false, _) => State::Other,
            (true, false) => State::Exposed,
            (true, true) => State::Same,
        })
    }

    /// Replaces a file of this directory atomically.
    pub(super) fn put(&self, name: &str, contents: &[u8], mode: Mode) -> io::Result<()> {
        self.put_into(self, name, contents, mode)?;
        self.sync()
    }

    /// Returns true if a file belongs to this process' user, and no other can read it.
    pub(super) fn is_private(&self, name: &str) -> io::Result<bool> {
        let owner = geteuid().as_raw();
        let others = Mode::S_IRWXG | Mode::S_IRWXO;
        let is_private = |stat: FileStat| {
            !Mode::from_bits_truncate(stat.st_mode).intersects(others) && stat.st_uid == owner
        };
        Ok(self.stat(name)?.is_some_and(is_private))
    }

    /// Writes a file here, and moves it into another directory of the same file system.
    fn put_into(
        &self,
        directory: &Self,
        name: &str,
        contents: &[u8],
        mode: Mode,
    ) -> io::Result<()> {
        self.write_new(NEW_FILE, contents, mode)?;
        let moved = match renameat(&self.0, NEW_FILE, &directory.0, name) {
            Err(Errno::EISDIR) => {
                // An empty directory can be removed without a loss.
                unlinkat(&directory.0, name, UnlinkatFlags::RemoveDir)
                    .and_then(|()| renameat(&self.0, NEW_FILE, &directory.0, name))
            }
            moved => moved,
        };
        if moved.is_err() {
            // The next attempt replaces a file that cannot be removed.
            let _ = unlinkat(&self.0, NEW_FILE, UnlinkatFlags::NoRemoveDir);
        }
        Ok(moved?)
    }

    /// Creates a file, or replaces one that was left by a dead process.
    fn write_new(&self, name: &str, contents: &[u8], mode: Mode) -> io::Result<()> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = match openat(&self.0, name, flags, mode) {
            Err(Errno::EEXIST) => {
                unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?;
                openat(&self.0, name, flags, mode)
            }
            opened => opened,
        };
        let mut file = StdFile::from(opened?);
        // The umask can have removed bits.
        fchmod(&file, mode)?;
        file.write_all(contents)?;
        file.sync_all()
    }

    /// Creates a directory with these files, which appears when it is complete. Returns false if something else has the
    /// name meanwhile.
    pub(super) fn make(&self, name: &str, files: &Files) -> io::Result<bool> {
        self.assemble(files)?;
        match renameat2(&self.0, NEW_DIRECTORY, &self.0, name, RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => self.clear(&names(files)).map(|()| false),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a file or symbolic link with a directory of these files, atomically.
    pub(super) fn exchange(&self, name: &str, files: &Files) -> io::Result<()> {
        self.assemble(files)?;
        renameat2(&self.0, NEW_DIRECTORY, &self.0, name, RenameFlags::RENAME_EXCHANGE)?;
        self.clear(&names(files))
    }

    fn assemble(&self, files: &Files) -> io::Result<()> {
        self.clear(&names(files))?;
        mkdirat(&self.0, NEW_DIRECTORY, DIRECTORY)?;
        let directory = self.enter(Path::new(NEW_DIRECTORY))?;
        fchmod(directory.readable()?, DIRECTORY)?;
        for (name, contents) in files {
            directory.write_new(name, contents, FILE)?;
        }
        Ok(())
    }

    /// Removes an incomplete directory, as a dead process leaves it.
    fn clear(&self, files: &[&str]) -> io::Result<()> {
        match self.enter(Path::new(NEW_DIRECTORY)) {
            Ok(directory) => {
                for name in files {
                    directory.unlink(name)?;
                }
                Ok(unlinkat(&self.0, NEW_DIRECTORY, UnlinkatFlags::RemoveDir)?)
            }
            Err(Errno::ENOENT) => Ok(()),
            Err(_) => self.unlink(NEW_DIRECTORY),
        }
    }

    /// Writes the wrong files of a registry.
    pub(super) fn repair(&self, name: &str, files: &Files) -> io::Result<()> {
        let directory = self.enter(Path::new(name))?;
        let readable = directory.readable()?;
        if fstat(&readable)?.st_mode & 0o7777 != DIRECTORY.bits() {
            fchmod(&readable, DIRECTORY)?;
        }
        for (name, contents) in files {
            if directory.state(name, contents)? != State::Same {
                self.put_into(&directory, name, contents, FILE)?;
            }
        }
        Ok(())
    }

    /// Removes the files of a registry, last written first, and its directory. Returns false if the directory stays
    /// because of other files.
    pub(super) fn remove(&self, name: &str, files: &[&str]) -> io::Result<bool> {
        let directory = self.enter(Path::new(name))?;
        for name in files.iter().rev() {
            directory.unlink(name)?;
        }
        match unlinkat(&self.0, name, UnlinkatFlags::RemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file or symbolic link. A directory stays.
    fn unlink(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT | Errno::EISDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn names(files: &Files) -> Vec<&'static str> {
    files.iter().map(|(name, _)| *name).collect()
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}
