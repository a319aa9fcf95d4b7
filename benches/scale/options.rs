//! What can be asked for behind `cargo bench --bench scale --`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, value_parser};

use crate::fleet::Fleet;

/// Has two servers follow a large cluster, and boots its machines.
#[derive(Parser)]
#[command(name = "scale", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// MachineConfigPools, each of which names a MachineConfig of its own.
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=9_999))]
    pub(crate) pools: u32,

    /// MachineConfigs, with those that pools name.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) machine_configs: u32,

    /// Pools that get another config, one after the other.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    pub(crate) changes: u32,

    /// Machines that boot, one half from each server.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(2..=1_000_000))]
    pub(crate) machines: u32,

    /// Seconds within which they do, at a constant rate.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,

    /// Seconds for which the servers are watched at rest.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    rest: u64,

    /// What the machines' pools are drawn by.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub(crate) seed: u64,

    /// Fail where a target is missed.
    #[arg(long)]
    pub(crate) check: bool,

    /// Another build of the server to measure.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_machine-config-server"))]
    pub(crate) server: PathBuf,

    /// The server of OpenShift's machine config operator, in place of both servers.
    #[arg(long, conflicts_with_all = ["server", "check"])]
    pub(crate) reference: Option<PathBuf>,

    /// Measure a directory of so many pools in place of a cluster, and one of twice as many.
    #[arg(long, conflicts_with_all = ["reference", "check"])]
    pub(crate) directory: bool,

    /// What cargo passes to every benchmark; it changes nothing.
    #[arg(long, hide = true)]
    bench: bool,

    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

impl Options {
    pub(crate) fn rest(&self) -> Duration {
        Duration::from_secs(self.rest)
    }
}

/// The part that a process plays when it isn't the one that measures.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Be the machines that boot.
    #[command(hide = true)]
    Fleet(Fleet),
}
