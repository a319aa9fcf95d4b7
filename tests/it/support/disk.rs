//! Small file systems that get full or read-only on request.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, unmounted when the value is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(at: &Path, kibibytes: u32) -> Self {
        let size = format!("size={kibibytes}k,mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at));
        Self(at.to_owned())
    }

    /// Mounts a file onto itself, so that it can be written and not replaced.
    pub(crate) fn pin(file: &Path) -> Self {
        run(Command::new("mount").arg("--bind").arg(file).arg(file));
        Self(file.to_owned())
    }

    pub(crate) fn remount(&self, options: &str) {
        run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server that is about to end can still have it open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("a command");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
