//! The two servers under test: each is a child process on a loopback port, ended by its id.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::machine::HOST;

/// How long a server may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Our server's state, below the scratch directory.
pub(crate) const STATE: &str = "state";

/// A running server; dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Server {
    pub(crate) fn start(address: SocketAddr, command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command
            .spawn()
            .with_context(|| format!("{} does not start", command.get_program().display()))?;
        Ok(Self { address, process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    /// SIGTERM first, since nginx's workers outlive a master that is killed.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The certificate that both servers present, as files in PEM.
pub(crate) struct Pair {
    pub(crate) ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    /// What our server makes on its first start (a P-256 key), and nginx borrows.
    pub(crate) fn made_by_ours(scratch: &Path) -> Self {
        let state = scratch.join(STATE);
        Self {
            ca: state.join("ca.crt"),
            certificate: state.join("tls.crt"),
            key: state.join("tls.key"),
        }
    }
}

/// `binary` on a directory of manifests, with its state in `scratch`, and with TLS alone.
pub(crate) fn start_ours(binary: &Path, manifests: &Path, scratch: &Path) -> Result<Server> {
    let address = free_address()?;
    let mut command = ours(binary, manifests, scratch, address);
    command.args(["--insecure-port", "0", "--metrics-address", "off"]);
    Server::start(address, &mut command, &scratch.join("ours.log"))
}

/// Another build beside ours, with a copy of its state: a state directory has one server.
pub(crate) fn start_other(binary: &Path, manifests: &Path, scratch: &Path) -> Result<Server> {
    let own = scratch.join("other");
    fs::create_dir(&own)?;
    let states = [scratch.join(STATE), own.join(STATE)];
    let copied = Command::new("cp").args(["--archive", "--"]).args(states).status()?;
    ensure!(copied.success(), "the state cannot be copied");
    start_ours(binary, manifests, &own)
}

/// Our server as a command, which has to be told about the other ports.
pub(crate) fn ours(
    binary: &Path,
    manifests: &Path,
    scratch: &Path,
    address: SocketAddr,
) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .arg(manifests)
        .arg("--state-dir")
        .arg(scratch.join(STATE))
        .args(["--host", HOST])
        .args(["--listen-address", &address.ip().to_string()])
        .args(["--secure-port", &address.port().to_string()]);
    command
}

/// nginx with `config/master` under `scratch` as a static file. Its settings are the defaults but for
/// what favours it: no access log, no session tickets that no machine would ever use.
pub(crate) fn start_nginx(pair: &Pair, scratch: &Path) -> Result<Server> {
    let address = free_address()?;
    let prefix = scratch.join("nginx");
    fs::create_dir(&prefix)?;
    let configuration = format!(
        "daemon off;
# The scratch directory belongs to the user who starts the benchmark, root included.
{user}
worker_processes {workers};
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  default_type application/json;
  server {{
    listen {address} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache off;
    ssl_session_tickets off;
    root {root};
  }}
}}
",
        user = if rustix::process::geteuid().is_root() { "user root;" } else { "" },
        workers = std::thread::available_parallelism()?,
        certificate = pair.certificate.display(),
        key = pair.key.display(),
        root = scratch.display(),
    );
    let file = prefix.join("nginx.conf");
    fs::write(&file, configuration)?;
    let mut command = Command::new("nginx");
    // `-e`: without it, nginx opens the system's error log before it has read its configuration.
    command.arg("-e").arg("stderr").arg("-p").arg(&prefix).arg("-c").arg(&file);
    Server::start(address, &mut command, &scratch.join("nginx.log"))
}

/// A port that was free a moment ago: neither server says which one it got for port 0.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
