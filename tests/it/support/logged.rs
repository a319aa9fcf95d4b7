//! A background program of a test, with a log.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::http::Client;
use super::server::free_ports;
use super::wait_for;

/// A running program, which ends when the value is dropped. Its log is shown if the test has failed.
pub(crate) struct Logged {
    name: &'static str,
    child: Child,
    log: NamedTempFile,
    administrators: Option<SocketAddr>,
}

impl Logged {
    /// Starts a program, named for messages.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Self {
        let log = NamedTempFile::new().expect("a log file");
        let child = spawned(name, command, &log);
        Self { name, child, log, administrators: None }
    }

    /// Starts a command of the built binary with a listener for administrators.
    pub(crate) fn observed(name: &'static str, command: &mut Command) -> Self {
        let [address] = free_ports();
        command.arg("--metrics-address").arg(address.to_string());
        let mut program = Self::start(name, command);
        program.administrators = Some(address);
        program
    }

    /// Starts a program that has ended again, with the same log.
    pub(crate) fn restart(&mut self, command: &mut Command) {
        self.child = spawned(self.name, command, &self.log);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a process that is still there");
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the program to end", || child.try_wait().expect("a child of this process"))
    }

    /// Asks it to end, which it must do well.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.ended().success(), "{}", self.log());
    }

    /// Fails the test if the program has ended.
    pub(crate) fn expect_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child of this process") {
            panic!("{} ended with {status}", self.name);
        }
    }

    /// The administrators' listener.
    pub(crate) fn administrators(&self) -> Client {
        Client::plain(self.administrators.expect("a program with a listener"))
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self) -> String {
        self.administrators().get("/metrics").text()
    }

    /// Status and lines of `/readyz`: 0 and none as long as nobody answers.
    pub(crate) fn readiness(&self) -> (u16, String) {
        let answer = self.administrators().try_request("GET", "/readyz", &[]);
        answer.map_or_else(|_| (0, String::new()), |answer| (answer.status, answer.text()))
    }

    /// Value of a metric, whose name includes its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.metrics();
        let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = values.next().unwrap_or_else(|| panic!("no metric {name}:\n{page}"));
        value.parse().expect("a whole number")
    }
}

fn spawned(name: &str, command: &mut Command, log: &NamedTempFile) -> Child {
    let file = File::options().append(true).open(log).expect("the log file");
    let command = command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle"));
    command.stderr(file).spawn().unwrap_or_else(|error| panic!("{name}: {error}"))
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
