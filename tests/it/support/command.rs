//! Commands of the built binary that run to their end.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::cluster::Cluster;
use super::server::{Server, binary};

/// What a command printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) error: String,
}

impl Said {
    /// Runs a command.
    #[track_caller]
    pub(crate) fn by(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).output().expect("a program").into()
    }

    /// Both outputs.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.output, self.error)
    }

    /// Asserts that the command has succeeded.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.status, 0, "{}", self.text());
        self
    }

    /// Asserts that the command has succeeded without a warning.
    #[track_caller]
    pub(crate) fn quietly_done(self) -> Self {
        assert_eq!((self.status, &*self.error), (0, ""), "{}", self.output);
        self
    }

    /// Its only output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that the command has failed with a message of these parts.
    #[track_caller]
    pub(crate) fn refused(&self, parts: &[&str]) {
        assert_eq!(self.status, 1, "{}", self.text());
        for part in parts {
            assert!(self.text().contains(part), "{part} in {}", self.text());
        }
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let status = output.status.code().expect("an exit code");
        Self { status, output: text(output.stdout), error: text(output.stderr) }
    }
}

/// Runs a command of the built binary.
pub(crate) fn run(arguments: &[&str]) -> Said {
    Said::by(binary().args(arguments))
}

/// Runs a command of the built binary in a folder.
pub(crate) fn run_in(arguments: &[&str], directory: &Path) -> Said {
    Said::by(binary().args(arguments).current_dir(directory))
}

/// What commands read and change: a state directory, a cluster, or a running server.
pub(crate) trait Store {
    /// A command with the flag that names the store.
    fn command(&self, arguments: &[&str]) -> Command;

    fn run(&self, arguments: &[&str]) -> Said {
        Said::by(&mut self.command(arguments))
    }
}

impl Store for Path {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.args(arguments).arg("--state-dir").arg(self);
        command
    }
}

impl Store for Server {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.args(arguments).arg("--from").arg(self.metrics().address().to_string());
        command
    }
}

impl Store for Cluster {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.args(arguments).arg("--kubeconfig").arg(self.admin());
        command
    }
}

/// Runs commands at the same time, which must all succeed. Returns what they printed.
pub(crate) fn done_at_once(commands: Vec<Command>) -> String {
    at_once(commands).into_iter().map(|said| said.done().text()).collect()
}

/// Runs commands at the same time.
pub(crate) fn at_once(commands: Vec<Command>) -> Vec<Said> {
    let start = |mut command: Command| {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a program")
    };
    let children: Vec<_> = commands.into_iter().map(start).collect();
    children.into_iter().map(|it| it.wait_with_output().expect("a child").into()).collect()
}
