//! The built binary as a process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::clock::follow_clock;
use super::http::{Client, loopback};
use super::pair::Pair;
use super::stopwatch::processor_ticks;
use super::{DEADLINE, in_repository, wait_for};

/// A running server, which ends when the value is dropped. Its log is shown if the test has failed.
pub(crate) struct Server {
    child: Child,
    secure: SocketAddr,
    insecure: SocketAddr,
    metrics: SocketAddr,
    directory: TempDir,
}

impl Server {
    /// Runs `serve` on a directory of manifests, with generated certificates. Returns when it is ready.
    pub(crate) fn serve(manifests: &Path, flags: &[&str]) -> Self {
        Self::serve_when_up(manifests, flags).until_ready()
    }

    /// Runs `serve` on the sample cluster. Returns when it is ready.
    pub(crate) fn sample_cluster(flags: &[&str]) -> Self {
        Self::serve(&in_repository("ignition-fixtures"), flags)
    }

    /// Runs `serve` on the sample cluster, with a clock that follows a file. Returns when it is ready.
    pub(crate) fn with_clock(file: &Path, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let state = directory.path().join("state");
        let mut command = serving(&in_repository("ignition-fixtures"), &state);
        command.args(flags);
        follow_clock(&mut command, file);
        Self::start(command, directory).until_ready()
    }

    /// Runs `serve` on manifests with problems. Returns when it answers.
    pub(crate) fn serve_when_up(manifests: &Path, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let mut command = serving(manifests, &directory.path().join("state"));
        command.args(flags);
        Self::start(command, directory)
    }

    /// Runs `serve` with a separate state directory. Returns when it is ready.
    pub(crate) fn serve_with_state(manifests: &Path, state: &Path) -> Self {
        Self::prepared(serving(manifests, state)).until_ready()
    }

    /// Runs a serving command with added listen addresses. Returns when it answers.
    pub(crate) fn prepared(command: Command) -> Self {
        Self::start(command, tempfile::tempdir().expect("a temporary folder"))
    }

    /// Runs `bootstrap` on a directory in its layout. Returns when it answers.
    pub(crate) fn bootstrap(base: &Path, certificate: &Path, key: &Path, flags: &[&str]) -> Self {
        let mut command = binary();
        command.arg("bootstrap").arg("--server-basedir").arg(base);
        command.arg("--cert").arg(certificate).arg("--key").arg(key).args(flags);
        Self::start(command, tempfile::tempdir().expect("a temporary folder"))
    }

    /// Runs `start` in a cluster. Returns when it answers, which can be before it is ready.
    pub(crate) fn in_cluster(kubeconfig: &Path, token: &Path, pair: &Pair, flags: &[&str]) -> Self {
        let mut command = binary();
        command.args(["start", "--apiserver-url", "https://api-int.example.com:6443"]);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--bootstrap-token-dir").arg(token);
        command.arg("--cert").arg(&pair.certificate).arg("--key").arg(&pair.key).args(flags);
        Self::start(command, tempfile::tempdir().expect("a temporary folder"))
    }

    /// Starts the command. Returns when it answers.
    fn start(mut command: Command, directory: TempDir) -> Self {
        command.args(["--listen-address", "127.0.0.1"]);
        Self::start_as_told(command, directory)
    }

    /// Runs `serve` on the sample cluster at another address, which accepts connections to 127.0.0.1 too.
    pub(crate) fn serve_on(address: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let state = directory.path().join("state");
        let mut command = serving(&in_repository("ignition-fixtures"), &state);
        command.args(["--listen-address", address]).args(flags);
        Self::start_as_told(command, directory).until_ready()
    }

    /// Runs a serving command with this TLS port, which clients know already.
    pub(crate) fn prepared_at(mut command: Command, secure: SocketAddr) -> Self {
        let [insecure, metrics] = free_ports();
        command.args(["--listen-address", "127.0.0.1"]);
        let directory = tempfile::tempdir().expect("a temporary folder");
        Self::start_at([secure, insecure, metrics], command, directory)
    }

    /// Runs a serving command on all addresses of this network. Returns when it answers.
    pub(crate) fn prepared_everywhere(mut command: Command) -> Self {
        command.args(["--listen-address", "0.0.0.0"]);
        Self::start_as_told(command, tempfile::tempdir().expect("a temporary folder"))
    }

    fn start_as_told(command: Command, directory: TempDir) -> Self {
        Self::start_at(free_ports(), command, directory)
    }

    /// Runs a serving command. Returns when it answers, which can be before it has read its inputs.
    pub(crate) fn prepared_unread(mut command: Command) -> Self {
        command.args(["--listen-address", "127.0.0.1"]);
        let directory = tempfile::tempdir().expect("a temporary folder");
        Self::begin_at(free_ports(), command, directory)
    }

    fn start_at(ports: [SocketAddr; 3], command: Command, directory: TempDir) -> Self {
        let reads_directory = command.get_args().next().is_some_and(|first| first == "serve");
        let server = Self::begin_at(ports, command, directory);
        let client = server.plain();
        let is_read = || {
            let answer = client.try_request("GET", "/readyz", &[]).ok()?;
            (!answer.text().contains("inputs have not been read yet")).then_some(())
        };
        if reads_directory {
            wait_for("the server to have read its directory", is_read);
        }
        server
    }

    fn begin_at(ports: [SocketAddr; 3], mut command: Command, directory: TempDir) -> Self {
        let [secure, insecure, metrics] = ports;
        let log = File::create(directory.path().join("log")).expect("a log file");
        let child = command
            .args(["--secure-port", &secure.port().to_string()])
            .args(["--insecure-port", &insecure.port().to_string()])
            .args(["--metrics-address", &metrics.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the built binary");
        let mut server = Self { child, secure, insecure, metrics, directory };
        let answers = Client::plain(insecure);
        wait_for("the server to be up", || {
            if let Some(status) = server.child.try_wait().expect("a child of this process") {
                panic!("the server ended with {status}:\n{}", server.log());
            }
            answers.try_request("GET", "/healthz", &[]).ok().filter(|r| r.status == 200)
        });
        server
    }

    /// Waits until `/readyz` answers 200.
    pub(crate) fn until_ready(self) -> Self {
        let client = self.plain();
        wait_for("the server to be ready", || {
            client.try_request("GET", "/readyz", &[]).ok().filter(|r| r.status == 200)
        });
        self
    }

    pub(crate) fn secure(&self) -> SocketAddr {
        self.secure
    }

    pub(crate) fn insecure(&self) -> SocketAddr {
        self.insecure
    }

    /// State directory of `serve`: certificates and pointer configs.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The pointer config that `serve` has made for a pool, once it is there.
    pub(crate) fn pointer(&self, pool: &str) -> String {
        let path = self.state().join(format!("user-data/{pool}.ign"));
        wait_for("the pointer config", || fs::read_to_string(&path).ok())
    }

    pub(crate) fn ca(&self) -> Vec<u8> {
        fs::read(self.state().join("ca.crt")).expect("the server's CA")
    }

    pub(crate) fn plain(&self) -> Client {
        Client::plain(self.insecure)
    }

    /// A TLS client that trusts the CA of `serve`.
    pub(crate) fn tls(&self) -> Client {
        Client::tls(self.secure, &self.ca())
    }

    pub(crate) fn metrics(&self) -> Client {
        Client::plain(self.metrics)
    }

    /// A page of the administrators' listener.
    pub(crate) fn page(&self, path: &str) -> String {
        self.metrics().get(path).text()
    }

    pub(crate) fn overview(&self) -> Value {
        self.metrics().get("/api/v1/overview").json()
    }

    /// What the overview reports as degraded.
    pub(crate) fn degraded(&self) -> String {
        self.overview()["degraded"].to_string()
    }

    /// Lines that the overview reports as degraded.
    pub(crate) fn degraded_lines(&self) -> Vec<String> {
        let overview = self.overview();
        let lines = overview["degraded"].as_array().expect("a list").iter();
        lines.map(|line| line.as_str().expect("words").to_owned()).collect()
    }

    /// A machine with a name, as the overview shows it.
    pub(crate) fn named_machine(&self, name: &str) -> Value {
        let overview = self.overview();
        let machines = overview["named_machines"].as_array().expect("a list");
        machines.iter().find(|machine| machine["name"] == name).cloned().unwrap_or_default()
    }

    /// What the ledger has of the machine at 127.0.0.`last`.
    pub(crate) fn machine(&self, last: u8) -> Value {
        self.metrics().get(&format!("/api/v1/machines/{}", loopback(last))).json()
    }

    /// Status and lines of `/readyz` for administrators.
    pub(crate) fn readiness(&self) -> (u16, String) {
        let answer = self.metrics().get("/readyz");
        (answer.status, answer.text())
    }

    /// Waits until a line of `/readyz` for administrators says this, and returns the line.
    pub(crate) fn reported(&self, what: &str) -> String {
        let line = |text: &str| text.lines().find(|line| line.contains(what)).map(str::to_owned);
        wait_for(&format!("readiness to say {what:?}"), || line(&self.page("/readyz")))
    }

    /// Value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.page("/metrics");
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = values.next().unwrap_or_else(|| panic!("no metric {name}:\n{text}"));
        value.parse().expect("a number")
    }

    /// Value of a counter for a reason, 0 without one.
    pub(crate) fn counted(&self, name: &str, reason: &str) -> u64 {
        let text = self.page("/metrics");
        let series = format!("{name}{{reason=\"{reason}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Standard output and standard error.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).expect("the log file");
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Used processor time, in the kernel's ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("procfs");
        processor_ticks(&stat)
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Resident memory without the pages of the program's file.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, kind: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("procfs");
        let line = status.lines().find(|line| line.starts_with(kind)).expect(kind);
        let kibibytes = line.split_whitespace().nth(1).expect("a number");
        1024 * kibibytes.parse::<u64>().expect("a number")
    }

    /// Copies the state directory to a new directory, without temporary files, whose names begin with a dot.
    pub(crate) fn copy_state(&self, to: &Path) {
        fs::create_dir(to).expect("a writable folder");
        let entries = fs::read_dir(self.state()).expect("a state directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_in_place = |path: &PathBuf| {
            path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
        };
        let copied = Command::new("cp").arg("-a").args(paths.filter(is_in_place)).arg(to).status();
        assert!(copied.expect("cp").success());
    }

    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs").count()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a process that is still there");
    }

    /// Terminates the server, and waits for its end.
    pub(crate) fn stop(mut self) {
        self.terminate();
        self.ended();
        println!("the log of a server that was stopped:\n{}", self.log());
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the server to end", || child.try_wait().expect("a child of this process"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// The binary under test, without a command.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-server"));
    command.env_remove("RUST_LOG");
    command
}

/// The command `serve` on a directory of manifests with this state directory, for the host `localhost`.
pub(crate) fn serving(manifests: &Path, state: &Path) -> Command {
    let mut command = binary();
    command.arg("serve").arg(manifests).arg("--state-dir").arg(state);
    command.args(["--host", "localhost"]);
    command
}

/// The same with this mode of access.
pub(crate) fn serving_with_access(manifests: &Path, state: &Path, mode: &str) -> Command {
    let mut command = serving(manifests, state);
    command.args(["--access", mode]);
    command
}

/// Output of a command that must end by itself; 124 is the status of one that had to be ended.
pub(crate) fn limited_output(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.arg(DEADLINE.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited.output().expect("timeout")
}

/// Free loopback addresses. They are below the range of outgoing connections, so that a test's clients do not take
/// them.
pub(crate) fn free_ports<const N: usize>() -> [SocketAddr; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    std::array::from_fn(|_| {
        (0..PORTS)
            .find_map(|_| {
                let step = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, OWN_PORTS.first + step));
                TcpListener::bind(address).is_ok().then_some(address)
            })
            .expect("a free port")
    })
}

/// Number of ports for each process.
const PORTS: u16 = 125;

/// Ports for this process among all that run tests: otherwise another process could find a port free before a server
/// listens on it. The locks are in one folder whatever TMPDIR says.
static OWN_PORTS: LazyLock<OwnPorts> = LazyLock::new(|| {
    let blocks = (0..160).map(|block| {
        let first = 10_000 + block * PORTS;
        let path = Path::new("/tmp").join(format!("machine-config-server-tests.port-{first}"));
        (first, path)
    });
    let mut blocks = blocks.filter_map(|(first, path)| {
        let lock = File::options().create(true).append(true).open(path).ok()?;
        lock.try_lock().ok()?;
        Some(OwnPorts { first, lock })
    });
    blocks.next().expect("ports that no other process has")
});

struct OwnPorts {
    first: u16,
    /// Held while the process lives, and others that have it open.
    lock: File,
}

/// Keeps this process's ports from others while a process has it open.
pub(crate) fn port_lock() -> File {
    OWN_PORTS.lock.try_clone().expect("a second handle")
}

/// Creates the directory of the bootstrap token.
pub(crate) fn make_token_directory(directory: &Path) {
    fs::create_dir(directory).expect("a new folder");
    fs::write(directory.join("token"), "abcdef.0123456789abcdef").expect("a writable folder");
    fs::write(directory.join("ca.crt"), "CA of the token\n").expect("a writable folder");
}
