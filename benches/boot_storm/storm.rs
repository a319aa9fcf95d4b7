//! The load: machines that boot one after the other on each of the places that `concurrency` gives.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::machine::{BUFFER_SIZE, Machine};

/// How long a server may take from its start to its first answer.
const START: Duration = Duration::from_secs(10);

/// One round of load.
#[derive(clap::Args)]
pub(crate) struct Storm {
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// The CA that the server's certificate must come from.
    #[arg(long)]
    pub(crate) ca: PathBuf,
    /// What the machines call themselves.
    #[arg(long)]
    pub(crate) user_agent: String,
    /// A file with the bytes that every machine must get.
    #[arg(long)]
    pub(crate) config: PathBuf,
    #[arg(long)]
    pub(crate) boots: u32,
    #[arg(long)]
    pub(crate) seconds: u64,
    #[arg(long)]
    pub(crate) concurrency: usize,
    /// Whether machines offer the key exchange that a quantum computer cannot undo.
    #[arg(long)]
    pub(crate) post_quantum: bool,
}

/// What a round came to.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) boots: u32,
    pub(crate) boots_a_second: f64,
    /// How long a boot took, from the connection's first packet to its end: the median one, and the
    /// one that a hundredth were slower than.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Storm {
    /// Runs this binary once more, as the machines.
    pub(crate) fn run_in_own_process(&self) -> Result<Outcome> {
        let output = Command::new(env::current_exe()?)
            .arg("storm")
            .args(["--address", &self.address.to_string()])
            .arg("--ca")
            .arg(&self.ca)
            .args(["--user-agent", &self.user_agent])
            .arg("--config")
            .arg(&self.config)
            .args(["--boots", &self.boots.to_string()])
            .args(["--seconds", &self.seconds.to_string()])
            .args(["--concurrency", &self.concurrency.to_string()])
            .args(self.post_quantum.then_some("--post-quantum"))
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "a machine did not boot from {}", self.address);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Boots the machines and prints the outcome for the process that waits for it.
    pub(crate) fn run(&self) -> Result<()> {
        let outcome = Runtime::new()?.block_on(self.drive())?;
        println!("{}", serde_json::to_string(&outcome)?);
        Ok(())
    }

    async fn drive(&self) -> Result<Outcome> {
        let machine = Machine::new(self.address, &self.ca, &self.user_agent, self.post_quantum)?;
        let config: Arc<[u8]> = fs::read(&self.config)?.into();
        let begun = Arc::new(AtomicU32::new(0));
        let (started, boots) = (Instant::now(), self.boots);
        let deadline = started + Duration::from_secs(self.seconds);
        let mut places = JoinSet::new();
        for _ in 0..self.concurrency {
            let (machine, config, begun) = (machine.clone(), config.clone(), begun.clone());
            places.spawn(async move {
                let mut buffer = Vec::with_capacity(BUFFER_SIZE);
                let mut latencies = Vec::new();
                while begun.fetch_add(1, Ordering::Relaxed) < boots && Instant::now() < deadline {
                    let start = Instant::now();
                    let answer = machine.boot(&mut buffer).await?;
                    latencies.push(start.elapsed());
                    ensure!(answer == &config[..], "another config than expected");
                }
                Ok(latencies)
            });
        }
        let mut latencies = Vec::new();
        while let Some(place) = places.join_next().await {
            latencies.extend(place??);
        }
        let took = started.elapsed();
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            latencies.get(latencies.len() * percent / 100).copied().context("no machine booted")
        };
        let boots = u32::try_from(latencies.len())?;
        Ok(Outcome {
            boots,
            boots_a_second: f64::from(boots) / took.as_secs_f64(),
            p50: percentile(50)?,
            p99: percentile(99)?,
        })
    }
}

/// The config that the first machine gets, asked for until the server has come up and, where it makes
/// its CA itself, that is there.
pub(crate) fn first_config(address: SocketAddr, ca: &Path, user_agent: &str) -> Result<Vec<u8>> {
    let attempt = async || -> Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(BUFFER_SIZE);
        Ok(Machine::new(address, ca, user_agent, false)?.boot(&mut buffer).await?.to_vec())
    };
    let deadline = Instant::now() + START;
    Runtime::new()?.block_on(async {
        loop {
            match attempt().await {
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
                last => return last.with_context(|| format!("{address} does not serve")),
            }
        }
    })
}
