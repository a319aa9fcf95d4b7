//! A directory tree as a value, with modes and owners.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Nodes by path, without the leading slash.
pub(crate) type Tree = BTreeMap<String, Node>;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) what: What,
    /// Permission bits; 0 for a symbolic link, which has none.
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    File(Vec<u8>),
    Directory,
    SymbolicLink(PathBuf),
    /// Another name of the file at this path, which is the first in the tree.
    HardLink(String),
}

/// Reads a folder and all below it.
pub(crate) fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(root, "", &mut tree);
    let mut first_names = BTreeMap::new();
    for (path, node) in &mut tree {
        let metadata = fs::symlink_metadata(root.join(path)).expect("a readable entry");
        if !matches!(node.what, What::File(_)) || metadata.nlink() < 2 {
            continue;
        }
        let first: &String = first_names.entry(metadata.ino()).or_insert_with(|| path.clone());
        if first != path {
            node.what = What::HardLink(first.clone());
        }
    }
    tree
}

fn collect(root: &Path, below: &str, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(below)).expect("a readable folder") {
        let entry = entry.expect("a folder's entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let metadata = entry.metadata().expect("a readable entry");
        let what = if metadata.is_symlink() {
            What::SymbolicLink(fs::read_link(entry.path()).expect("a readable link"))
        } else if metadata.is_dir() {
            What::Directory
        } else {
            What::File(fs::read(entry.path()).expect("a readable file"))
        };
        let mode = if metadata.is_symlink() { 0 } else { metadata.mode() & 0o7777 };
        let node = Node { what, mode, user: metadata.uid(), group: metadata.gid() };
        let is_directory = node.what == What::Directory;
        tree.insert(path.clone(), node);
        if is_directory {
            collect(root, &path, tree);
        }
    }
}

/// Differences between two trees, one for each line.
pub(crate) fn differences(found: &Tree, expected: &Tree) -> Vec<String> {
    let mut paths: Vec<&String> = found.keys().chain(expected.keys()).collect();
    paths.sort();
    paths.dedup();
    let mut lines = Vec::new();
    for path in paths {
        match (found.get(path), expected.get(path)) {
            (Some(found), Some(expected)) if found == expected => {}
            (Some(found), Some(expected)) => {
                lines.push(format!("/{path}: {found:?}, expected {expected:?}"));
            }
            (Some(found), None) => lines.push(format!("/{path}: unexpected {found:?}")),
            (None, _) => lines.push(format!("/{path}: missing")),
        }
    }
    lines
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, mode, user, group } = self;
        write!(f, "{mode:04o} {user}:{group} ")?;
        match what {
            What::File(bytes) => {
                write!(
                    f,
                    "file of {} bytes: {}",
                    bytes.len(),
                    bytes[..bytes.len().min(200)].escape_ascii()
                )
            }
            What::Directory => f.write_str("directory"),
            What::SymbolicLink(target) => write!(f, "link to {}", target.display()),
            What::HardLink(path) => write!(f, "hard link to /{path}"),
        }
    }
}
