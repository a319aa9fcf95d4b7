//! The image of the binary under test, by `deploy/image`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;

use super::in_repository;

/// The command that builds the image into a directory from prepared parts: the program under test, and short documents.
pub(crate) fn command(out: &Path) -> Command {
    let mut command = Command::new(in_repository("deploy/image"));
    command.arg("--binary").arg(PARTS.join("machine-config-server"));
    command.arg("--documents").arg(PARTS.join("documents"));
    command.arg("--out").arg(out).stdin(Stdio::null());
    command
}

/// Archive of an image.
pub(crate) fn archive() -> &'static Path {
    &ARCHIVE
}

/// The program without debug information, which is several times the rest.
static PARTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image-parts");
    let documents = directory.join("documents");
    let _alone = alone();
    let (program, stripped) =
        (env!("CARGO_BIN_EXE_machine-config-server"), directory.join("machine-config-server"));
    if modified(&stripped) < modified(Path::new(program)) {
        fs::create_dir_all(&documents).expect("a folder");
        let bill = r#"{"bomFormat":"CycloneDX","specVersion":"1.5"}"#;
        fs::write(documents.join("machine-config-server.cdx.json"), bill)
            .expect("a writable folder");
        let made = stripped.with_extension("new");
        run(Command::new("strip").arg("--strip-all").arg("-o").arg(&made).arg(program));
        fs::rename(made, stripped).expect("the program");
    }
    directory
});

static ARCHIVE: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let archive = directory.join("image.tar");
    let scripts = ["image", "image-root", "oci-layout"];
    let made_of = scripts.map(|name| in_repository("deploy").join(name)).into_iter();
    let made_of = made_of.chain([PARTS.join("machine-config-server")]);
    // Each test is a process, and most use the image of the first.
    let _alone = alone();
    if modified(&archive) < made_of.map(|path| modified(&path)).max().flatten() {
        let made = directory.join("image-in-the-making");
        run(&mut command(&made));
        fs::rename(made.with_extension("tar"), &archive).expect("the archive");
    }
    archive
});

/// Keeps other processes from making the same until it is dropped.
fn alone() -> File {
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("image.lock"));
    let lock = lock.expect("a file");
    lock.lock().expect("a lock");
    lock
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn run(command: &mut Command) {
    let output = command.output().expect("a command");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
