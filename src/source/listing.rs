//! Lists the files of a directory tree.

use std::collections::{HashMap, HashSet};
use std::fs::DirEntry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::lock::is_state_directory;
use files::stamp::FileStamp;
use files::watch::Targets;
use model::inputs::Problem;
use model::presence::Loss;

use super::place::DirectoryId;

/// Maximum depth of directories that are read. Deeper ones are reported.
const MAX_DEPTH: usize = 32;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) paths: Vec<PathBuf>,
    /// Directories, the top included.
    pub(super) directories: HashMap<PathBuf, DirectoryId>,
    /// Links that lead nowhere.
    dangling: HashSet<PathBuf>,
    /// Where links lead out of the tree.
    pub(super) outside: Targets,
    /// Directories that are too deep to be read.
    too_deep: Vec<PathBuf>,
    /// Directories that cannot be listed, with the reason.
    unreadable: Vec<(PathBuf, String)>,
}

/// A listing, and the stamps of its paths in their order.
pub(super) type Listed = (Listing, Vec<FileStamp>);

impl Listing {
    /// Directories of which nothing or not all was read.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let problem =
            |path: &Path, reason: String| Problem::whole(&path.display().to_string(), reason);
        let too_deep = self.too_deep.iter();
        let too_deep = too_deep.map(move |path| {
            problem(path, format!("not read: more than {MAX_DEPTH} directories deep"))
        });
        let unreadable = self.unreadable.iter();
        let unreadable = unreadable
            .map(move |(path, reason)| problem(path, format!("cannot be listed: {reason}")));
        too_deep.chain(unreadable)
    }

    /// How a file was lost that was in `directory`; `None` for one that is there.
    pub(super) fn loss_of(&self, path: &Path, directory: Option<DirectoryId>) -> Option<Loss> {
        if self.dangling.contains(path) {
            return Some(Loss::Dangling);
        }
        if self.paths.binary_search_by(|it| (**it).cmp(path)).is_ok() {
            return None;
        }
        let now = path.parent().and_then(|above| self.directories.get(above));
        let is_same = now.is_some() && now == directory.as_ref();
        Some(if is_same { Loss::Unlinked } else { Loss::WithDirectory })
    }
}

/// Lists all files of a tree, and follows links. Hidden files and directories are skipped, because kubelet keeps its
/// copies of mounted files in them, and so are state directories, because a server writes there what is no manifest.
pub(super) fn list(root: &Path) -> io::Result<Listed> {
    let top = std::fs::metadata(root)?;
    let mut walk = TreeWalk {
        root: std::fs::canonicalize(root)?,
        visited: HashSet::from([(top.dev(), top.ino())]),
        files: Vec::new(),
        found: Listing::default(),
    };
    walk.found.directories.insert(root.to_owned(), (top.dev(), top.ino()));
    walk.directory(root, 0)?;
    walk.files.sort_by(|(path, _), (other, _)| path.cmp(other));
    let (paths, stamps) = walk.files.into_iter().unzip();
    Ok((Listing { paths, ..walk.found }, stamps))
}

struct TreeWalk {
    /// Top of the tree, without links.
    root: PathBuf,
    /// Device and inode of each visited directory, because links can form cycles.
    visited: HashSet<(u64, u64)>,
    files: Vec<(PathBuf, FileStamp)>,
    found: Listing,
}

impl TreeWalk {
    /// Notes where a link leads, or a directory beyond one, if that is outside of the tree.
    fn note_target(&mut self, path: &Path, is_directory: bool) {
        let Some(target) = self.target(path) else { return };
        let directory = if is_directory { Some(&*target) } else { target.parent() };
        if let Some(directory) = directory.map(Path::to_owned) {
            self.found.outside.insert(target, directory);
        }
    }

    /// Where a path leads, if that is outside of the tree.
    fn target(&self, path: &Path) -> Option<PathBuf> {
        std::fs::canonicalize(path).ok().filter(|target| !target.starts_with(&self.root))
    }

    fn directory(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        let is_outside = !self.found.outside.is_empty() && self.target(directory).is_some();
        let mut entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        entries.sort_by_cached_key(DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(metadata) = std::fs::metadata(&path) else {
                // It has vanished, or is a link that leads nowhere.
                if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                    self.found.dangling.insert(path);
                }
                continue;
            };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link || (is_outside && metadata.is_dir()) {
                self.note_target(&path, metadata.is_dir());
            }
            let is_directory = metadata.is_dir() && !is_state_directory(&path);
            if metadata.is_file() {
                self.files.push((path, FileStamp::of(&metadata)));
            } else if is_directory && depth == MAX_DEPTH {
                self.found.too_deep.push(path);
            } else if is_directory && self.visited.insert((metadata.dev(), metadata.ino())) {
                self.found.directories.insert(path.clone(), (metadata.dev(), metadata.ino()));
                match self.directory(&path, depth + 1) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        self.found.directories.remove(&path);
                        self.found.unreadable.push((path, error.to_string()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Digest of files and their stamps, for this version: a later one may judge the same files otherwise.
pub(super) fn digest_of_stamps<'a>(
    files: impl IntoIterator<Item = (&'a Path, FileStamp)>,
    is_strict: bool,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    is_strict.hash(&mut hasher);
    for file in files {
        file.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_file_was_lost_follows_from_what_is_around_it() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir(path("pools")).unwrap();
        std::fs::write(path("pools/a.yaml"), "").unwrap();
        let (before, _) = list(root.path()).unwrap();
        let directory = before.directories.get(&path("pools")).copied();
        let loss = || list(root.path()).unwrap().0.loss_of(&path("pools/a.yaml"), directory);
        assert_eq!(loss(), None);
        std::fs::remove_file(path("pools/a.yaml")).unwrap();
        assert_eq!(loss(), Some(Loss::Unlinked));
        std::os::unix::fs::symlink("nowhere", path("pools/a.yaml")).unwrap();
        assert_eq!(loss(), Some(Loss::Dangling));
        std::fs::rename(path("pools"), path(".away")).unwrap();
        assert_eq!(loss(), Some(Loss::WithDirectory));
        std::fs::create_dir(path("pools")).unwrap();
        assert_eq!(loss(), Some(Loss::WithDirectory));
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
        let Listing { paths, outside, too_deep, .. } = list(&root).unwrap().0;
        assert_eq!(paths, [root.join("a.yaml"), root.join("pools/b.yaml")]);
        assert!(too_deep.is_empty());
        let above_all = std::fs::canonicalize(above.path()).unwrap();
        assert_eq!(outside, Targets::from([(above_all.clone(), above_all)]));
        // The top directory can be a link.
        std::os::unix::fs::symlink(&root, above.path().join("link")).unwrap();
        assert_eq!(list(&above.path().join("link")).unwrap().1.len(), 2);
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
        let (found, _) = list(root.path()).unwrap();
        assert_eq!((found.paths, found.too_deep), (vec![deepest.join("a.yaml")], vec![too_deep]));
    }
}
