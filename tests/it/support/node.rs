//! A node of Kubernetes with a control plane of its own: `tests/node/start` runs it in namespaces
//! of its own, with the image of the binary under test as `deploy/image` makes it. There is one at a
//! time on a machine; others wait in the script.

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

/// A running node. It ends with this value, and with this process.
pub(crate) struct Node {
    process: Child,
    /// The node ends when this is closed.
    input: Option<ChildStdin>,
    directory: TempDir,
    namespaces: Namespaces,
}

/// The node's network and mounts, for threads of a test.
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

    /// Has this thread in the node's network and among its files for the rest of its life, and the
    /// processes that it starts.
    pub(crate) fn enter(&self) {
        // A thread can leave the mounts alone only once it shares its current folder with no other.
        unshare(CloneFlags::CLONE_FS).expect("a current folder of its own");
        setns(&self.network, CloneFlags::CLONE_NEWNET).expect("the node's network");
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).expect("the node's mounts");
    }
}

impl Node {
    /// One that is ready, with nothing in its cluster.
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
        // The script waits for each part of the node for five minutes at most, and ends.
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let id = line.trim();
        assert!(!id.is_empty(), "the node does not start:\n{}", logs(directory.path()));
        Self { process, input, namespaces: Namespaces::of(id), directory }
    }

    /// Does something in the node's network and with its files, such as to ask a Service.
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

    /// What a command prints that runs in the node. It has to succeed.
    pub(crate) fn run(&self, command: &[&str]) -> String {
        self.try_run(command).unwrap_or_else(|said| panic!("{command:?}: {said}"))
    }

    /// The same, or what it said when it failed.
    pub(crate) fn try_run(&self, command: &[&str]) -> Result<String, String> {
        let output = self.command(command).output().expect("tests/node/in");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// A command that goes on until what is returned is dropped.
    pub(crate) fn start_in(&self, command: &[&str]) -> Running {
        let mut command = self.command(command);
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

    /// `kubectl apply`, by the server's rules.
    pub(crate) fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new_in(&self.directory).expect("a file");
        fs::write(file.path(), object.to_string()).expect("a writable folder");
        self.kubectl(&["apply", "--server-side", "-f", file.path().to_str().expect("text")]);
    }

    /// Waits until the API server serves every kind that has been defined.
    pub(crate) fn serves_all_kinds(&self) {
        cluster::serves_all_kinds(|arguments| self.try_run(&[&["kubectl"], arguments].concat()));
    }

    /// What `kubectl get` says of an object or of several.
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Ends one of the node's programs at once. It is started again.
    pub(crate) fn kill(&self, program: &str) {
        let id = self.run(&["cat", &format!("{}/pids/{program}", self.state().display())]);
        self.run(&["kill", "-KILL", id.trim()]);
    }

    /// Ends one of the node's programs at once, and keeps it away until it is released.
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

    /// For whoever looks why a test has failed.
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

/// A command in a node. It ends with this value.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing left to do.
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
        // It fails when something of the node is left.
        assert!(status.success() || has_failed, "{status}:\n{}", logs(self.directory.path()));
    }
}

/// Where kubelet and what goes with it are.
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
