//! The terminal of a page: a bash with a network, processes, `/etc`, `/var/lib` and `/run` that nothing else on this machine
//! sees, so that commands use the ports, paths and names that a page shows.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::support::http::Client;
use crate::support::{DEADLINE, wait_for};

/// The address of this machine on the pages.
const ADDRESS: &str = "192.0.2.17";

/// Names that lead to this machine.
const NAMES: [&str; 8] = [
    "localhost",
    "HOST",
    "mcs.example.com",
    "mcs.prod.example.com",
    "api-int.example.com",
    "ca.example.com",
    "mirror.example.com",
    "registry.example.com",
];

/// Typed before a page's commands: what is changed in these folders ends with the terminal. Of this machine's `/etc` there is what
/// Debian's packages need, and nothing that an administrator has there.
const PREPARE: &str = r#"
set -o pipefail
mkdir -p "$PRIVATE/home" "$PRIVATE/tmp" "$PRIVATE/etc/default"
cd /etc
cp -a --parents --target-directory "$PRIVATE/etc" $(ls -d alternatives ca-certificates* containers debian_version dpkg group gshadow \
    host.conf java* ld.so.* localtime login.defs nsswitch.conf os-release pam.* passwd profile protocols resolv.conf security services \
    shadow shells skel ssl subgid subuid systemd terminfo 2>/dev/null)
cd - >/dev/null
mount --bind "$PRIVATE/etc" /etc
for directory in /var/lib /run; do mount -t tmpfs none "$directory"; done
echo "127.0.0.1 $NAMES" >/etc/hosts
"#;

/// A virtual machine whose processor is emulated takes a minute or two.
const LONGEST_BOOT: Duration = Duration::from_secs(1000);

/// Parts of commands that wait for one.
const OF_BOOTS: [&str; 3] = ["/qemu ", "until ", "kubectl wait "];

/// Runs a closure in a network with a loopback interface and [`ADDRESS`].
pub(super) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root, as tests/run is");
        let wires = "ip link set lo up
            ip link add here type veth peer name there
            ip address add $0/24 dev here
            ip link set here up && ip link set there up";
        let status = Command::new("bash").args(["-ec", wires, ADDRESS]).status();
        assert!(status.expect("bash").success(), "no network");
        work()
    };
    thread::scope(|scope| {
        let thread = scope.spawn(work);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Result of a command that has ended.
pub(super) struct Outcome {
    pub(super) code: i32,
    /// Standard output and standard error, as a terminal shows them.
    pub(super) shown: String,
}

/// A command that runs until it is stopped.
struct Server {
    kind: String,
    id: PathBuf,
}

/// A bash in a working directory. It ends with all that it has started when the value is dropped.
pub(super) struct Shell {
    bash: Child,
    input: Option<ChildStdin>,
    private: TempDir,
    servers: Vec<Server>,
    count: usize,
}

impl Shell {
    /// Starts it, with further folders in front of `PATH`, and variables.
    pub(super) fn start(
        directory: &Path,
        programs: &[PathBuf],
        variables: &[(String, String)],
    ) -> Self {
        let private = tempfile::tempdir().expect("a temporary folder");
        let own = Path::new(env!("CARGO_BIN_EXE_machine-config-server"));
        let path = programs.iter().map(|it| it.display().to_string());
        let path = path.chain([
            own.parent().expect("a folder").display().to_string(),
            std::env::var("PATH").unwrap_or_default(),
            "/usr/sbin:/sbin".to_owned(),
        ]);
        let mut bash = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
            .current_dir(directory)
            .env("PATH", path.collect::<Vec<_>>().join(":"))
            .env("PRIVATE", private.path())
            .env("HOME", private.path().join("home"))
            .env("NAMES", NAMES.join(" "))
            .env_remove("RUST_LOG")
            .envs(variables.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare, of util-linux");
        let input = bash.stdin.take();
        let mut shell = Self { bash, input, private, servers: Vec::new(), count: 0 };
        let prepared = shell.run(PREPARE);
        assert_eq!(prepared.code, 0, "{}", prepared.shown);
        shell
    }

    fn note(&self, name: &str) -> PathBuf {
        self.private.path().join(format!("{}.{name}", self.count))
    }

    fn type_in(&mut self, text: &str) {
        let input = self.input.as_mut().expect("an open terminal");
        writeln!(input, "{text}").expect("a running bash");
    }

    /// Types a command, and waits until it has ended.
    pub(super) fn run(&mut self, command: &str) -> Outcome {
        self.count += 1;
        let (shown, code) = (self.note("shown"), self.note("code"));
        let ends = format!(
            "{{ {command}\n}} </dev/null >{} 2>&1; echo $? >{}",
            shown.display(),
            code.display()
        );
        self.type_in(&ends);
        let is_boot = OF_BOOTS.iter().any(|part| command.contains(part));
        let limit = if is_boot { LONGEST_BOOT } else { DEADLINE };
        let started = Instant::now();
        let code = loop {
            if let Some(code) = ended(&code) {
                break code;
            }
            let status = self.bash.try_wait().expect("a child of this process");
            assert!(status.is_none(), "bash has ended at {command}\n{}", read(&shown));
            let is_in_time = started.elapsed() < limit;
            assert!(is_in_time, "waited {limit:?} in vain for {command}\n{}", read(&shown));
            thread::sleep(Duration::from_millis(5));
        };
        Outcome { code, shown: read(&shown) }
    }

    /// Types a command that does not end, after another one of its kind is stopped, and waits until it answers.
    pub(super) fn serve(&mut self, command: &str) -> Result<(), String> {
        let kind = kind(command).to_owned();
        self.stop(&kind);
        self.count += 1;
        let (shown, id) = (self.note("shown"), self.note("id"));
        let starts =
            format!("{command} </dev/null >{} 2>&1 & echo $! >{}", shown.display(), id.display());
        self.type_in(&starts);
        self.servers.push(Server { kind, id: id.clone() });
        let address = administrators(command);
        wait_for(&format!("the start of {command}"), || {
            let id = fs::read_to_string(&id).ok()?;
            let id = id.strip_suffix('\n')?;
            if !self.is_running(id) {
                return Some(Err(format!("{command} has ended:\n{}", read(&shown))));
            }
            let Some(address) = address else {
                return (!read(&shown).is_empty()).then_some(Ok(()));
            };
            let answer = Client::plain(address).try_request("GET", "/healthz", &[]).ok()?;
            (answer.status == 200).then_some(Ok(()))
        })
    }

    /// Everything that the last server of a kind has shown.
    pub(super) fn shown_by_server(&self) -> String {
        let last = self.servers.last().expect("a server");
        read(&last.id.with_extension("shown"))
    }

    fn is_running(&mut self, id: &str) -> bool {
        self.run(&format!("kill -0 {id}")).code == 0
    }

    /// Stops the servers of a kind, and waits until they have ended.
    pub(super) fn stop(&mut self, kind: &str) {
        let (same, others) =
            std::mem::take(&mut self.servers).into_iter().partition(|it| it.kind == kind);
        self.servers = others;
        let same: Vec<Server> = same;
        for server in same {
            let id = read(&server.id);
            self.run(&format!("kill {0}; wait {0}", id.trim()));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It ends when its input does, and with it, as the first of its processes, all others.
        drop(self.input.take());
        let bash = &mut self.bash;
        if thread::panicking() {
            // The command that it waits for may never end.
            let _ = bash.kill();
        }
        wait_for("bash to end", || bash.try_wait().expect("a child of this process"));
    }
}

/// The exit code of a command that has ended.
fn ended(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok()
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Commands of the program that run until they are stopped, with their administrators' ports.
const SERVERS: [(&str, Option<u16>); 6] = [
    ("serve", Some(8797)),
    ("start", Some(8797)),
    ("bootstrap", Some(8797)),
    ("controller", Some(8798)),
    ("issuer", Some(8800)),
    ("node-ca", None),
];

/// How commands of other programs begin that run until they are stopped.
const OTHER_SERVERS: [&str; 4] =
    ["curl -sN ", "dnsmasq ", "python3 -m http.server ", "$machine/qemu -name "];

/// Returns `true` for a command that runs until it is stopped.
pub(super) fn is_server(command: &str) -> bool {
    let is_of_program = SERVERS.iter().any(|(name, _)| kind(command) == *name);
    is_of_program || OTHER_SERVERS.iter().any(|begins| command.starts_with(begins))
}

/// The command of this program, otherwise the program.
fn kind(command: &str) -> &str {
    let mut words = command.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first == "machine-config-server" { words.next().unwrap_or_default() } else { first }
}

/// The address of a server's administrators' listener: what its flag names, or the default.
fn administrators(command: &str) -> Option<SocketAddr> {
    let (_, port) = SERVERS.iter().find(|(name, _)| kind(command) == *name)?;
    let flag = command.split("--metrics-address ").nth(1);
    let named = flag.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    named.or_else(|| port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}
