//! The image of the binary under test, by `deploy/image`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::in_repository;

/// The command that builds the image into a directory from prepared parts: the program under test, and short documents.
pub(crate) fn command(out: &Path) -> Command {
    let mut command = Command::new(in_repository("deploy/image"));
    command.arg("--binary").arg(PARTS.join("machine-config-server"));
    command.arg("--documents").arg(PARTS.join("documents"));
    command.arg("--out").arg(out).stdin(Stdio::null());
    command
}

/// Archive of an image. The tests that use it run one after the other: .config/nextest.toml.
pub(crate) fn archive() -> &'static Path {
    &ARCHIVE
}

/// The program without debug information, which is several times the rest.
static PARTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image-parts");
    let documents = directory.join("documents");
    fs::create_dir_all(&documents).expect("a folder");
    let bill = r#"{"bomFormat":"CycloneDX","specVersion":"1.5"}"#;
    fs::write(documents.join("machine-config-server.cdx.json"), bill).expect("a writable folder");
    let mut strip = Command::new("strip");
    strip.arg("--strip-all").arg("-o").arg(directory.join("machine-config-server"));
    run(strip.arg(env!("CARGO_BIN_EXE_machine-config-server")));
    directory
});

static ARCHIVE: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let archive = directory.join("image.tar");
    let modified = |path: PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    let scripts = ["image", "image-root", "oci-layout"];
    let made_of = scripts.map(|name| in_repository("deploy").join(name)).into_iter();
    let made_of = made_of.chain([env!("CARGO_BIN_EXE_machine-config-server").into()]);
    // Each test is a process, and most use the image of the first.
    if modified(archive.clone()) < made_of.map(modified).max().flatten() {
        let made = directory.join("image-in-the-making");
        run(&mut command(&made));
        fs::rename(made.with_extension("tar"), &archive).expect("the archive");
    }
    archive
});

fn run(command: &mut Command) {
    let output = command.output().expect("a command");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
