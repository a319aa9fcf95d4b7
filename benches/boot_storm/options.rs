//! What can be asked for behind `cargo bench --bench boot_storm --`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::storm::Storm;

/// Boots machines against this server and against nginx, side by side.
#[derive(Parser)]
#[command(name = "boot_storm", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// Boots a round, unless its time is up before.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) boots: u32,

    /// Seconds that a round lasts at most.
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,

    /// Rounds for each of the two servers.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Machines that boot at the same time.
    #[arg(long, default_value_t = 32)]
    pub(crate) concurrency: usize,

    /// Have machines offer X25519MLKEM768, which our server then takes.
    #[arg(long)]
    pub(crate) post_quantum: bool,

    /// Fail where a target is missed.
    #[arg(long)]
    pub(crate) check: bool,

    /// Another build of the server to measure.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_machine-config-server"))]
    pub(crate) server: PathBuf,

    /// A build to measure it against, in nginx's place.
    #[arg(long, conflicts_with = "check")]
    pub(crate) against: Option<PathBuf>,

    /// What cargo passes to every benchmark; it changes nothing.
    #[arg(long, hide = true)]
    bench: bool,

    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// The part that a process plays when it isn't the one that compares.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Be the machines that boot.
    #[command(hide = true)]
    Storm(Storm),
}
