//! The machines: each is new, at an address of its own, and boots once, from one server after the other
//! in turn, at the moment that its number gives, whether or not those before it are done.
//!
//! They come from a process of their own, so that what they cost is in nobody's figures.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::machine::{IGNITION, Machine};
use crate::objects;

/// Where the machines are: 127.1.0.0 and what follows.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 0);

/// Some machines.
#[derive(clap::Args)]
pub(crate) struct Fleet {
    /// The servers.
    #[arg(long, required = true, num_args = 1..)]
    pub(crate) addresses: Vec<SocketAddr>,
    /// The CA that the servers' certificates must come from.
    #[arg(long)]
    pub(crate) ca: PathBuf,
    #[arg(long)]
    pub(crate) machines: u32,
    #[arg(long)]
    pub(crate) seconds: u64,
    #[arg(long)]
    pub(crate) pools: u32,
    /// Not zero.
    #[arg(long)]
    pub(crate) seed: u64,
}

/// What became of those that booted from one server.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Booted {
    pub(crate) boots: u32,
    pub(crate) failed: u32,
    /// From a connection's first packet to its end: of the median one, the one that a hundredth were
    /// slower than, and the slowest.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) worst: Duration,
}

/// The config that the first machine of each pool got: all others must get the same, from either server.
type Configs = Arc<[OnceLock<Vec<u8>>]>;

impl Fleet {
    /// Runs this binary once more, as the machines. Returns what came of each server's.
    pub(crate) fn run_in_own_process(&self) -> Result<Vec<Booted>> {
        let output = Command::new(env::current_exe()?)
            .arg("fleet")
            .arg("--addresses")
            .args(self.addresses.iter().map(ToString::to_string))
            .arg("--ca")
            .arg(&self.ca)
            .args(["--machines", &self.machines.to_string()])
            .args(["--seconds", &self.seconds.to_string()])
            .args(["--pools", &self.pools.to_string()])
            .args(["--seed", &self.seed.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "the machines' process failed");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Boots the machines and prints the outcome for the process that waits for it.
    pub(crate) fn run(&self) -> Result<()> {
        let booted = Runtime::new()?.block_on(self.drive())?;
        println!("{}", serde_json::to_string(&booted)?);
        Ok(())
    }

    async fn drive(&self) -> Result<Vec<Booted>> {
        let machine = |address: &SocketAddr| Machine::new(*address, &self.ca, IGNITION, false);
        let machines: Vec<Machine> = self.addresses.iter().map(machine).collect::<Result<_>>()?;
        let configs: Configs = (0..self.pools).map(|_| OnceLock::new()).collect();
        let mut random = Random(self.seed);
        let interval = Duration::from_secs(self.seconds) / self.machines;
        let started = tokio::time::Instant::now();
        let mut boots = JoinSet::new();
        for number in 0..self.machines {
            sleep_until(started + interval * number).await;
            let pool = random.below(self.pools);
            let server = number as usize % machines.len();
            let address = Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + number);
            let machine = machines[server].of_pool(&objects::pool(pool)).at(address);
            let configs = Arc::clone(&configs);
            boots.spawn(async move { (server, boot(&machine, pool, &configs).await) });
        }
        let mut latencies = vec![Vec::new(); machines.len()];
        while let Some(boot) = boots.join_next().await {
            let (server, latency) = boot?;
            latencies[server].push(latency);
        }
        Ok(latencies.into_iter().map(Booted::of).collect())
    }
}

/// How long it took; `None` where it failed.
async fn boot(machine: &Machine, pool: u32, configs: &Configs) -> Option<Duration> {
    let begun = Instant::now();
    let mut buffer = Vec::new();
    let booted = async {
        let config = machine.boot(&mut buffer).await?;
        let expected = configs.get(pool as usize).context("no such pool")?;
        ensure!(expected.get_or_init(|| config.to_vec()) == config, "another config than expected");
        Ok(begun.elapsed())
    };
    booted.await.inspect_err(|error| eprintln!("{}: {error:#}", objects::pool(pool))).ok()
}

impl Booted {
    fn of(boots: Vec<Option<Duration>>) -> Self {
        let all = boots.len();
        let mut latencies: Vec<Duration> = boots.into_iter().flatten().collect();
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            let index = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
            latencies.get(index).copied().unwrap_or_default()
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            boots: count(latencies.len()),
            failed: count(all - latencies.len()),
            p50: percentile(50),
            p99: percentile(99),
            worst: percentile(100),
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The remainder fits.
        u32::try_from(self.0 % u64::from(end)).unwrap_or_default()
    }
}
