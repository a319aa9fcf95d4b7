//! A Kubernetes node with a control plane: `tests/node/start` runs it in namespaces, with the image of the binary under
//! test from `deploy/image`. A machine runs one at a time; others wait in the script.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;
use tempfile::TempDir;

use super::{cluster, image, in_repository, wait_for};

/// A running node, which ends when the value is dropped, and with this process.
pub(crate) struct Node {
    process: Child,
    /// Standard input of the script; the node ends when it is closed.
    input: Option<ChildStdin>,
    directory: TempDir,
    namespaces: Namespaces,
}

/// Network and mounts of the node, for threads of a test.
#[derive(Clone)]
pub(crate) struct Namespaces {
    network: Arc<File>,
    mounts: Arc<File>,
}

impl Namespaces {
    fn of(process: &str) -> Self {
        let namespace =
            |kind: &str| File::open(format!("/proc/{process}/ns/{kind}")).expect("a namespace");
        Self { network: Arc::new(namespace("net")), mounts: Arc::new(namespace("mnt")) }
    }

    /// Moves this thread and its child processes into the node's network and mounts, permanently.
    pub(crate) fn enter(&self) {
        // A thread can change its mounts only after it has stopped sharing its current directory.
        unshare(CloneFlags::CLONE_FS).expect("a current folder of its own");
        setns(&self.network, CloneFlags::CLONE_NEWNET).expect("the node's network");
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).expect("the node's mounts");
    }
}

impl Node {
    /// Starts a node that is ready, with an empty cluster.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let log = File::create(directory.path().join("start")).expect("a log file");
        let mut process = Command::new(in_repository("tests/node/start"))
            .arg(directory.path())
            .arg(image::archive())
            .env("NODE_ASSETS", assets())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("tests/node/start");
        let input = process.stdin.take();
        // The script waits at most five minutes for each part of the node.
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let id = line.trim();
        assert!(!id.is_empty(), "the node does not start:\n{}", logs(directory.path()));
        Self { process, input, namespaces: Namespaces::of(id), directory }
    }

    /// Runs a closure in the node's network and mounts, to use a Service, say.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.namespaces.enter();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(crate) fn namespaces(&self) -> Namespaces {
        self.namespaces.clone()
    }

    /// Runs a command in the node, and returns its output. It must succeed.
    pub(crate) fn run(&self, command: &[&str]) -> String {
        self.try_run(command).unwrap_or_else(|said| panic!("{command:?}: {said}"))
    }

    /// Runs a command in the node, and returns its output or its error.
    pub(crate) fn try_run(&self, command: &[&str]) -> Result<String, String> {
        let output = self.command(command).output().expect("tests/node/in");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Starts a command in the node, which ends when the result is dropped.
    pub(crate) fn start_in(&self, command: &[&str]) -> Running {
        // What nsenter has started ends with it, also when that is killed.
        let with_it = ["setpriv", "--pdeathsig", "KILL"];
        let mut command = self.command(&[&with_it, command].concat());
        Running(command.stdout(Stdio::null()).spawn().expect("tests/node/in"))
    }

    fn command(&self, command: &[&str]) -> Command {
        let mut inside = Command::new(in_repository("tests/node/in"));
        inside.arg(self.directory.path()).args(command);
        inside.env("NODE_ASSETS", assets()).stdin(Stdio::null());
        inside
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&[&["kubectl"], arguments].concat())
    }

    /// Runs `kubectl apply --server-side`.
    pub(crate) fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new_in(&self.directory).expect("a file");
        fs::write(file.path(), object.to_string()).expect("a writable folder");
        self.kubectl(&["apply", "--server-side", "-f", file.path().to_str().expect("text")]);
    }

    /// Waits until the API server serves every defined kind.
    pub(crate) fn serves_all_kinds(&self) {
        cluster::serves_all_kinds(|arguments| self.try_run(&[&["kubectl"], arguments].concat()));
    }

    /// Output of `kubectl get` as JSON.
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Kills a program of the node, which is restarted.
    pub(crate) fn kill(&self, program: &str) {
        let id = self.run(&["cat", &format!("{}/pids/{program}", self.state().display())]);
        self.run(&["kill", "-KILL", id.trim()]);
    }

    /// Kills a program of the node, and prevents its restart until it is released.
    pub(crate) fn hold(&self, program: &str) {
        File::create(self.held(program)).expect("a writable folder");
        self.kill(program);
    }

    pub(crate) fn release(&self, program: &str) {
        fs::remove_file(self.held(program)).expect("the file");
    }

    fn held(&self, program: &str) -> PathBuf {
        self.directory.path().join("held").join(program)
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Prints the node's state after a failed test.
    fn report(&self) {
        eprintln!("{}", logs(self.directory.path()));
        for command in [
            "for pod in /var/log/pods/*/*/*.log; do echo \"== $pod\"; tail -n 15 \"$pod\"; done",
            "kubectl get events --all-namespaces --sort-by=.lastTimestamp | tail -n 30",
            "kubectl get pods --all-namespaces --output=wide",
        ] {
            let said = self.try_run(&["timeout", "20", "sh", "-c", command]);
            eprintln!("$ {command}\n{}", said.unwrap_or_else(|error| error));
        }
    }
}

/// A command in a node, which ends when the value is dropped.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let has_failed = thread::panicking();
        if has_failed {
            self.report();
        }
        drop(self.input.take());
        let process = &mut self.process;
        let status = wait_for("the node to end", || process.try_wait().expect("a child"));
        // It fails if a part of the node is left.
        assert!(status.success() || has_failed, "{status}:\n{}", logs(self.directory.path()));
    }
}

/// Directory of kubelet and its tools.
pub(crate) fn assets() -> PathBuf {
    std::env::var_os("NODE_ASSETS")
        .expect("NODE_ASSETS names no folder with kubelet: run tests/run")
        .into()
}

/// The last lines of every log.
fn logs(directory: &Path) -> String {
    let mut text = String::new();
    let log = fs::read_dir(directory.join("log")).into_iter().flatten().flatten();
    let log = log.map(|entry| entry.path()).chain([directory.join("start")]);
    for path in log {
        let bytes = fs::read(&path).unwrap_or_default();
        let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        let last = lines[lines.len().saturating_sub(20)..].join(&b'\n');
        let (path, last) = (path.to_string_lossy(), String::from_utf8_lossy(&last));
        text.extend(["== ", &*path, "\n", &*last, "\n"]);
    }
    text
}
