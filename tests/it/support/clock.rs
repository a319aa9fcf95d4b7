//! Processes with another clock, by libfaketime. The command `faketime` is not used: a killed process leaves the
//! library's shared state, and the command refuses to run with the same process ID later; also, a signal would end only
//! the command.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets a command's clock: `@2020-01-01 00:00:00` to start there, `-10d` to be behind. Its waits use an unchanged
/// clock.
pub(crate) fn set_clock(command: &mut Command, clock: &str) {
    let library = library();
    assert!(library.exists(), "no {}: tests/run installs it", library.display());
    command.env("LD_PRELOAD", library);
    command.env("FAKETIME", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("TZ", "UTC");
}

/// Makes a command's clock follow a file, which has the same syntax.
pub(crate) fn follow_clock(command: &mut Command, file: &Path) {
    set_clock(command, "");
    command.env_remove("FAKETIME").env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_TIMESTAMP_FILE", file);
}

/// Makes all clocks of a command follow a file, also the one that is never set and that its waits use.
pub(crate) fn follow_all_clocks(command: &mut Command, file: &Path) {
    follow_clock(command, file);
    command.env_remove("FAKETIME_DONT_FAKE_MONOTONIC");
}

/// Path of the library, which depends on the machine's architecture.
fn library() -> PathBuf {
    let architecture = std::env::consts::ARCH;
    format!("/usr/lib/{architecture}-linux-gnu/faketime/libfaketimeMT.so.1").into()
}
