//! One of the two servers that follow the cluster, started as `deploy/kubernetes` has it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::machine::{Machine, OTHER};
use crate::servers::{Server, free_address};
use crate::{objects, reference};

/// How long it may take to be ready.
const START: Duration = Duration::from_secs(180);
/// Between two questions whether it is.
const PAUSE: Duration = Duration::from_millis(20);

/// A running server; dropping it ends it.
pub(crate) struct Replica {
    server: Server,
    /// A machine of the pool `master` that boots from it, and gets plain configs.
    pub(crate) machine: Machine,
    pub(crate) started: Started,
}

/// How long after its start a server was there.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    /// The first machine got its config.
    pub(crate) first_answer: Duration,
    /// Every pool is known to render.
    pub(crate) ready: Duration,
}

/// The server that is measured.
pub(crate) enum Program<'a> {
    Ours(&'a Path),
    /// The machine config operator's, which is ready when it answers.
    Reference(&'a Path),
}

impl Replica {
    /// Returns once it is ready.
    pub(crate) fn start(
        runtime: &Runtime,
        program: &Program<'_>,
        cluster: &Cluster,
        scratch: &Path,
        name: &str,
    ) -> Result<Self> {
        let [address, administrators] = [free_address()?, free_address()?];
        let directory = scratch.join(name);
        let (mut command, administrators) = match program {
            Program::Ours(binary) => {
                let addresses = [address, administrators];
                (command(binary, cluster, &directory, addresses)?, Some(administrators))
            }
            Program::Reference(binary) => {
                let token = write_token(cluster, &directory)?;
                (reference::command(binary, cluster, &token, address)?, None)
            }
        };
        let log = directory.join("log");
        let begun = Instant::now();
        let server = Server::start(address, &mut command, &log)?;
        let machine = Machine::new(address, &cluster.pair.certificate, OTHER, false)?;
        let started = until_ready(runtime, begun, &machine, administrators)
            .with_context(|| fs::read_to_string(log).unwrap_or_default())?;
        Ok(Self { server, machine, started })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }
}

fn command(
    binary: &Path,
    cluster: &Cluster,
    directory: &Path,
    [address, administrators]: [SocketAddr; 2],
) -> Result<Command> {
    let token = write_token(cluster, directory)?;
    let mut command = Command::new(binary);
    command
        .env_remove("RUST_LOG")
        .args(["start", "--apiserver-url", "https://api-int.storm.test:6443"])
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .arg("--bootstrap-token-dir")
        .arg(token)
        .arg("--cache-dir")
        .arg(directory.join("cache"))
        .arg("--cert")
        .arg(&cluster.pair.certificate)
        .arg("--key")
        .arg(&cluster.pair.key)
        .args(["--listen-address", &address.ip().to_string()])
        .args(["--secure-port", &address.port().to_string()])
        .args(["--insecure-port", "0"])
        .args(["--metrics-address", &administrators.to_string()]);
    Ok(command)
}

/// The folder that kubelet's bootstrap token is mounted at.
fn write_token(cluster: &Cluster, folder: &Path) -> Result<PathBuf> {
    let token = folder.join("token");
    fs::create_dir_all(&token)?;
    fs::write(token.join("token"), "abcdef.0123456789abcdef")?;
    fs::copy(&cluster.pair.certificate, token.join("ca.crt"))?;
    Ok(token)
}

fn until_ready(
    runtime: &Runtime,
    begun: Instant,
    machine: &Machine,
    administrators: Option<SocketAddr>,
) -> Result<Started> {
    let machine = machine.of_pool(&objects::pool(0));
    let mut buffer = Vec::new();
    until(begun, || runtime.block_on(machine.boot(&mut buffer)).is_ok())
        .context("no machine boots")?;
    let first_answer = begun.elapsed();
    if let Some(administrators) = administrators {
        until(begun, || is_ready(administrators).unwrap_or(false)).context("it is not ready")?;
    }
    Ok(Started { first_answer, ready: begun.elapsed() })
}

pub(crate) fn until(begun: Instant, mut is_so: impl FnMut() -> bool) -> Result<()> {
    while !is_so() {
        if begun.elapsed() > START {
            bail!("waited {} s", START.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Whether every pool renders.
fn is_ready(administrators: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect(administrators)?;
    stream.set_read_timeout(Some(START))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200 "))
}
