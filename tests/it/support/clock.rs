//! A process whose clock is elsewhere, by libfaketime. Not by the command `faketime`: a process that is
//! killed leaves what the library shared, and the command refuses to run under the same process number
//! later; and a signal would end the command alone.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets a command's clock: `@2020-01-01 00:00:00` for one that starts there, `-10d` for one that is
/// so far behind. It waits by a clock of its own, which goes on as it is.
pub(crate) fn set_clock(command: &mut Command, clock: &str) {
    let library = library();
    assert!(library.exists(), "no {}: tests/run installs it", library.display());
    command.env("LD_PRELOAD", library);
    command.env("FAKETIME", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("TZ", "UTC");
}

/// Lets a command's clock follow what a file says, in the same words.
pub(crate) fn follow_clock(command: &mut Command, file: &Path) {
    set_clock(command, "");
    command.env_remove("FAKETIME").env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_TIMESTAMP_FILE", file);
}

/// It lies in a folder that is named for the machine's architecture.
fn library() -> PathBuf {
    let architecture = std::env::consts::ARCH;
    format!("/usr/lib/{architecture}-linux-gnu/faketime/libfaketimeMT.so.1").into()
}
