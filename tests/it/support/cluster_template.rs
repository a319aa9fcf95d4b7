//! Copies of etcd stores for clusters that many tests begin with.
//!
//! Applying definitions and manifests takes longer than most of the tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::in_repository;
use super::manifests::files;

/// Directory of a template's store. The first test after a change of the program or a manifest creates it by `make`,
/// which writes a store into the given directory; others wait.
pub(super) fn store(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clusters");
    fs::create_dir_all(&directory).expect("a folder");
    let lock = File::create(directory.join(format!("{name}.lock"))).expect("a file");
    lock.lock().expect("a lock");
    let store = directory.join(name);
    if modified(&store).is_none_or(|made| made < newest_source()) {
        let new = directory.join(format!("{name}.new"));
        for old in [&new, &store] {
            if old.exists() {
                fs::remove_dir_all(old).expect("a folder of an earlier run");
            }
        }
        fs::create_dir(&new).expect("a new folder");
        make(&new);
        fs::rename(new, &store).expect("a rename within a folder");
    }
    store
}

/// Copies a store. Etcd's files are mostly holes.
pub(super) fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["--recursive", "--sparse=always", "--no-target-directory"]);
    let status = command.args([from, to]).status().expect("cp");
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

/// Time of the last change of a template's sources.
fn newest_source() -> SystemTime {
    let program = std::env::current_exe().expect("the program of the tests");
    let directories = ["deploy", "../shared/conformance/crds"].map(in_repository);
    let assets =
        ["KUBEBUILDER_ASSETS", "CERT_MANAGER_KINDS"].into_iter().filter_map(std::env::var_os);
    let directories =
        directories.into_iter().chain(assets.map(PathBuf::from)).filter(|it| it.is_dir());
    let sources = directories
        .flat_map(|directory| files(&directory).into_iter().map(move |it| directory.join(it)));
    let sources = sources.chain([program]).filter_map(|path| modified(&path));
    sources.max().expect("the program's own")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}
