//! A background program of a test, with a log.

use std::fs;
use std::process::{Child, Command, Stdio};

use tempfile::NamedTempFile;

/// A running program, which ends when the value is dropped. Its log is shown if the test has failed.
pub(crate) struct Logged {
    name: &'static str,
    child: Child,
    log: NamedTempFile,
}

impl Logged {
    /// Starts a program, named for messages.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Self {
        let log = NamedTempFile::new().expect("a log file");
        let file = log.reopen().expect("a second handle");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, child, log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Fails the test if the program has ended.
    pub(crate) fn expect_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child of this process") {
            panic!("{} ended with {status}", self.name);
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}'s log:\n{}", self.name, self.log());
        }
    }
}
