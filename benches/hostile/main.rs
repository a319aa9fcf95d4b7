//! Hostile clients of several kinds, each beside machines that boot from another address: whether all
//! of these do, how long the slowest hundredth takes, what the server and the kernel hold, and what the
//! server still holds half a minute after they left.
//!
//! ```text
//! cargo bench --bench hostile                   # the table
//! cargo bench --bench hostile -- --check        # and fail where a target is missed
//! cargo bench --bench hostile -- --only idle --seconds 30
//! ```
//!
//! Attackers, machines and server are processes of their own on the same processors, so that the
//! latencies are those of a machine that is busy with all three. The kernel's memory is that of all
//! TCP sockets of this machine, attackers' and server's, above what it was before.
//!
//! All of it runs in a network of its own where root begins it, which the attacks from IPv6 networks need.

#[allow(dead_code, reason = "one of two benchmarks that use it")]
#[path = "../boot_storm/machine.rs"]
mod machine;
#[path = "../boot_storm/manifests.rs"]
mod manifests;
#[allow(dead_code, reason = "one of two benchmarks that use it")]
#[path = "../boot_storm/processes.rs"]
mod processes;
#[allow(dead_code, reason = "one of two benchmarks that use it")]
#[path = "../boot_storm/servers.rs"]
mod servers;
#[allow(dead_code, reason = "one of two benchmarks that use it")]
#[path = "../boot_storm/storm.rs"]
mod storm;
#[allow(dead_code, reason = "one of several benchmarks that use it")]
#[path = "../boot_storm/units.rs"]
mod units;

mod attacks;
mod network;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::attacks::{Attack, Ports};
use crate::servers::{Pair, Server};
use crate::storm::{Outcome, Storm};
use crate::units::mebibytes;

/// The most that the slowest hundredth may take.
const P99_TARGET: Duration = Duration::from_secs(1);
/// The most that the kernel may hold, in MiB.
const KERNEL_TARGET: f64 = 64.0;
/// The most that the server may hold, and half a minute after the attack, in MiB.
const MEMORY_TARGETS: [f64; 2] = [128.0, 64.0];
/// The most that the server may log, in KiB: a dozen sources with all the lines that they may have, of
/// usual length, or one with the longest.
const LOG_TARGET: u64 = 8 << 10;
/// Keys with which handshakes are attacked: by default, and where targets are held,
const KEYS: [&str; 3] = ["p256", "rsa2048", "rsa4096"];
/// these as well.
const MORE_KEYS: [&str; 3] = ["p384", "p521", "rsa3072"];
/// The user agent of machines that boot: Ignition gets compact configs.
const AGENT: &str = "Ignition/2.14.0";
/// Until an attack stands.
const PREPARATION: Duration = Duration::from_secs(5);
/// After the attackers left.
const CALM: Duration = Duration::from_secs(30);

/// Attacks this server while machines boot from it.
#[derive(Parser)]
#[command(name = "hostile", args_conflicts_with_subcommands = true)]
struct Options {
    /// Seconds that machines boot beside each attack.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Machines that boot at the same time.
    #[arg(long, default_value_t = 4)]
    concurrency: usize,
    /// This attack alone.
    #[arg(long)]
    only: Option<Attack>,
    /// Keys of this kind alone, as the server's --key-algorithm names it. By default P-256, and for attacks
    /// on handshakes RSA as well; with --check, all kinds.
    #[arg(long)]
    key: Option<String>,
    /// Fail where a target is missed.
    #[arg(long)]
    check: bool,
    /// Another build of the server.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_machine-config-server"))]
    server: PathBuf,
    /// What cargo passes to every benchmark; it changes nothing.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The part that a process plays when it isn't the one that measures.
#[derive(Subcommand)]
enum Role {
    /// Be the attackers.
    #[command(hide = true)]
    Attack {
        attack: Attack,
        #[command(flatten)]
        ports: Ports,
    },
    /// Be the machines that boot.
    #[command(hide = true)]
    Storm(Storm),
}

fn main() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let options = Options::parse();
    match &options.role {
        Some(Role::Storm(storm)) => storm.run(),
        Some(Role::Attack { attack, ports }) => {
            tokio::runtime::Runtime::new()?.block_on(attack.run(*ports));
            Ok(())
        }
        None => measure(&options),
    }
}

fn measure(options: &Options) -> Result<()> {
    let has_networks = network::enter()?;
    println!(
        "{:<17}{:<9}{:>8}{:>8}{:>10}{:>10}{:>12}{:>12}{:>12}{:>12}",
        "attack",
        "key",
        "boots",
        "failed",
        "p50, ms",
        "p99, ms",
        "server, MiB",
        "after, MiB",
        "kernel, MiB",
        "log, KiB"
    );
    let mut missed = Vec::new();
    for attack in Attack::value_variants() {
        if options.only.is_some_and(|only| only != *attack) {
            continue;
        }
        if attack.is_from_networks() && !has_networks {
            eprintln!("{attack:?} is left out: only root has IPv6 networks");
            missed.push(format!("{attack:?}"));
            continue;
        }
        for key in keys(options, *attack) {
            if !measure_beside(options, *attack, key)? {
                missed.push(format!("{attack:?} with {key}"));
            }
        }
    }
    if options.check && !missed.is_empty() {
        bail!("missed beside: {}", missed.join(", "));
    }
    Ok(())
}

/// With which keys the server is attacked so.
fn keys(options: &Options, attack: Attack) -> Vec<&str> {
    match &options.key {
        Some(key) => vec![key],
        None if attack.is_on_handshakes() && options.check => [KEYS, MORE_KEYS].concat(),
        None if attack.is_on_handshakes() => KEYS.to_vec(),
        None => vec!["p256"],
    }
}

/// Prints a line of the table, and tells whether the targets were met.
fn measure_beside(options: &Options, attack: Attack, key: &str) -> Result<bool> {
    let beside = boots_beside(options, attack, key).with_context(|| format!("{attack:?}"))?;
    let Beside { outcome, memory, after, kernel, log } = beside;
    let name = attack.to_possible_value().map(|it| it.get_name().to_owned());
    let name = name.unwrap_or_default();
    let (boots, p50, p99) =
        outcome.map_or((0, Duration::ZERO, Duration::MAX), |it| (it.boots, it.p50, it.p99));
    let failed = if outcome.is_some() { "none" } else { "yes" };
    let latency = |time: Duration| match outcome {
        Some(_) => format!("{:.1}", time.as_secs_f64() * 1_000.0),
        None => "-".to_owned(),
    };
    println!(
        "{name:<17}{key:<9}{boots:>8}{failed:>8}{:>10}{:>10}{memory:>12.1}{after:>12.1}{kernel:>12.1}{log:>12}",
        latency(p50),
        latency(p99),
    );
    let is_light = memory <= MEMORY_TARGETS[0] && after <= MEMORY_TARGETS[1] && log <= LOG_TARGET;
    Ok(outcome.is_some() && p99 <= P99_TARGET && kernel <= KERNEL_TARGET && is_light)
}

/// What was seen beside one attack.
struct Beside {
    /// `None` where a machine did not boot.
    outcome: Option<Outcome>,
    /// The most that the server held, in MiB.
    memory: f64,
    /// What it holds half a minute after the attackers left, in MiB.
    after: f64,
    /// The most that the kernel held for TCP above what it did before, in MiB.
    kernel: f64,
    /// What the server wrote to its log, in KiB.
    log: u64,
}

fn boots_beside(options: &Options, attack: Attack, key: &str) -> Result<Beside> {
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let manifests = scratch.path().join("manifests");
    manifests::write(&manifests)?;
    let (server, ports) = start(options, attack, &manifests, scratch.path(), key)?;
    let pair = Pair::made_by_ours(scratch.path());
    let config = storm::first_config(server.address, &pair.ca, AGENT)?;
    let config_file = scratch.path().join("config");
    fs::write(&config_file, &config)?;

    let before = kernel_memory()?;
    let attackers = Attackers::start(attack, ports)?;
    thread::sleep(PREPARATION);
    let storm = Storm {
        address: server.address,
        ca: pair.ca,
        config: config_file,
        boots: u32::MAX,
        seconds: options.seconds,
        concurrency: options.concurrency,
        user_agent: AGENT.to_owned(),
        post_quantum: false,
    };
    let storm = thread::spawn(move || storm.run_in_own_process());
    // What comes up during the preparation counts as well: the server's own peak covers it.
    let mut kernel = kernel_memory()?.saturating_sub(before);
    while !storm.is_finished() {
        kernel = kernel.max(kernel_memory()?.saturating_sub(before));
        thread::sleep(Duration::from_millis(100));
    }
    let outcome = storm.join().ok().context("the machines' thread ended")?.ok();
    let memory = processes::peak_memory(server.pid())?;
    let log = fs::metadata(scratch.path().join("ours.log"))?.len() / 1_024;
    drop(attackers);
    thread::sleep(CALM);
    let after = processes::resident_memory(server.pid())?;
    Ok(Beside {
        outcome,
        memory: mebibytes(memory),
        after: mebibytes(after),
        kernel: mebibytes(kernel),
        log,
    })
}

fn start(
    options: &Options,
    attack: Attack,
    manifests: &Path,
    scratch: &Path,
    key: &str,
) -> Result<(Server, Ports)> {
    let [mut secure, mut insecure, metrics] =
        [servers::free_address()?, servers::free_address()?, servers::free_address()?];
    if attack.is_from_networks() {
        secure.set_ip(Ipv6Addr::LOCALHOST.into());
        insecure.set_ip(Ipv6Addr::LOCALHOST.into());
    }
    let mut command = servers::ours(&options.server, manifests, scratch, secure);
    command
        .args(["--insecure-port", &insecure.port().to_string()])
        .args(["--metrics-address", &metrics.to_string()])
        .args(["--key-algorithm", key]);
    let server = Server::start(secure, &mut command, &scratch.join("ours.log"))?;
    Ok((server, Ports { secure, insecure, metrics }))
}

/// The attackers' process; dropping it ends it.
struct Attackers(Child);

impl Attackers {
    fn start(attack: Attack, ports: Ports) -> Result<Self> {
        let name = attack.to_possible_value().context("no name")?;
        let process = Command::new(env::current_exe()?)
            .args(["attack", name.get_name()])
            .args(["--secure", &ports.secure.to_string()])
            .args(["--insecure", &ports.insecure.to_string()])
            .args(["--metrics", &ports.metrics.to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(process))
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that the kernel holds for TCP sockets, by `/proc/net/sockstat`.
fn kernel_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find(|line| line.starts_with("TCP:")).context("no line on TCP")?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "mem").skip(1);
    let pages: u64 = words.next().context("no memory")?.parse()?;
    let page = rustix::param::page_size();
    ensure!(page > 0, "no page size");
    Ok(pages * page as u64)
}
