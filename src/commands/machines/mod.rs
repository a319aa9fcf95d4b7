//! The command `machines`: prints a server's boot ledger.

pub(crate) mod approve;
pub(crate) mod cluster;
pub(crate) mod named;
mod removal;
pub(crate) mod remove;

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use common::flags::host_and_port;
use model::access::approval::{ApprovedMachine, WaitingMachine};
use model::access::machine::NamedMachine;
use model::ledger::Severity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use status::overview::{
    APPROVED_COLUMNS, MACHINE_COLUMNS, MachineLine, NAMED_COLUMNS, WAITING_COLUMNS, approved_row,
    machine_row, named_row, waiting_row,
};
use status::page::{Advice, AdvisedMachine};
use table::{Color, table, table_with_word};
use tokio::net::lookup_host;

use super::print_json;
use super::print_line;
use super::process::{block_on, terminal};
use crate::serving::ledger::peers::get;

/// Metrics address of a server that was started without another.
pub(super) const DEFAULT_SERVER: &str = "127.0.0.1:8797";
/// Columns of a terminal that a table uses.
const WIDEST: u16 = 120;
/// Index of the state in [`MACHINE_COLUMNS`].
const STATE: usize = 1;

#[derive(Debug, Args)]
pub(crate) struct MachinesSettings {
    /// Only the machine at this address
    address: Option<IpAddr>,
    /// Metrics address of a server
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_SERVER, value_parser = host_and_port)]
    from: String,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct ServerOverview {
    machines: Vec<MachineLine>,
    #[serde(default)]
    named_machines: Vec<NamedMachine>,
    #[serde(default)]
    waiting_machines: Vec<WaitingMachine>,
    #[serde(default)]
    approved_machines: Vec<ApprovedMachine>,
    silent_servers: Vec<String>,
    pools: Vec<PoolIgnition>,
}

/// Ignition versions of the machines of a pool.
#[derive(Debug, Deserialize)]
struct PoolIgnition {
    name: String,
    oldest_ignition: Option<String>,
    min_ignition: Option<String>,
    with_old_ignition: usize,
    without_tls: usize,
}

impl PoolIgnition {
    /// The pool in a line; `None` without a machine.
    fn line(&self) -> Option<String> {
        let Self { name, oldest_ignition, min_ignition, with_old_ignition, without_tls } = self;
        let mut line = format!("pool {name}: oldest Ignition {}", oldest_ignition.as_ref()?);
        if let Some(min) = min_ignition {
            let _ = write!(line, ", older than {min}: {with_old_ignition}");
        }
        if *without_tls > 0 {
            let _ = write!(line, ", without TLS: {without_tls}");
        }
        Some(line)
    }
}

impl ServerOverview {
    /// Prints the pools, and the machines with names and approvals.
    fn print_rest(&self) {
        if !self.machines.is_empty() {
            print_line("");
            let lines = self.pools.iter().filter_map(PoolIgnition::line);
            lines.for_each(|line| print_line(&line));
        }
        print_table(&NAMED_COLUMNS, &self.named_machines, named_row);
        print_table(&WAITING_COLUMNS, &self.waiting_machines, waiting_row);
        print_table(&APPROVED_COLUMNS, &self.approved_machines, approved_row);
    }
}

fn print_table<T, const N: usize>(
    columns: &[&str; N],
    machines: &[T],
    row: impl Fn(&T) -> Vec<String>,
) {
    if !machines.is_empty() {
        print_line("");
        let rows: Vec<_> = machines.iter().map(row).collect();
        terminal::print(&table(columns, &rows, terminal::style_within(WIDEST)));
    }
}

/// Prints what a stuck machine needs after the fix, and where the runbook has it.
fn print_advice(advice: Advice) {
    if let Some(recovery) = advice.recovery {
        print_line(recovery.sentence());
    }
    print_line(&format!("Runbook, \"{}\": {}", advice.title, advice.url()));
}

/// Nothing listens at the address of a server.
#[derive(Debug, thiserror::Error)]
#[error(
    "no server listens there: start one, or name the --metrics-address of a running one with --from"
)]
pub(super) struct NoServer;

/// Names the next step if nothing listens at the address.
fn explained(error: anyhow::Error) -> anyhow::Error {
    let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if error.downcast_ref().is_some_and(is_refused) { NoServer.into() } else { error }
}

/// Prints the machines, stuck ones first.
///
/// # Errors
/// The server does not answer, or a machine is stuck.
pub(crate) fn run(settings: &MachinesSettings) -> anyhow::Result<()> {
    let mut reported: ServerOverview = block_on(ask(&settings.from))??;
    for line in std::mem::take(&mut reported.silent_servers) {
        tracing::warn!(
            reason = line,
            fix = "check whether that server runs",
            "machines of another server are missing"
        );
    }
    let machines = &mut reported.machines;
    if let Some(address) = settings.address {
        let address = address.to_canonical();
        machines.retain(|line| line.machine.address == address);
        if machines.is_empty() {
            bail!("{}: no request from {address}", settings.from);
        }
    }
    if settings.json {
        let advised = machines.iter().cloned().map(AdvisedMachine::from);
        print_json(&advised.collect::<Vec<_>>())?;
    } else if machines.is_empty() {
        print_line("no machine has requested a config yet");
    } else {
        let rows: Vec<_> = machines.iter().map(machine_row).collect();
        let stuck = (Severity::Stuck.label(), Color::Bad);
        let style = terminal::style_within(WIDEST);
        terminal::print(&table_with_word((&MACHINE_COLUMNS, &rows), STATE, stuck, style));
    }
    if !settings.json && settings.address.is_none() {
        reported.print_rest();
    } else if !settings.json {
        reported.machines.iter().filter_map(Advice::of).for_each(print_advice);
    }
    match reported.machines.iter().filter(|line| line.status.rank == Severity::Stuck).count() {
        0 => Ok(()),
        1 => Err(anyhow!("a machine is stuck")),
        stuck => Err(anyhow!("{stuck} machines are stuck")),
    }
}

/// Asks a server for its overview.
pub(super) async fn ask<T: DeserializeOwned>(from: &str) -> anyhow::Result<T> {
    let addresses: Vec<_> = lookup_host(from).await.with_context(|| from.to_owned())?.collect();
    let mut failure = anyhow!("has no address");
    for address in addresses {
        match get(address, "/api/v1/overview").await {
            Ok(reported) => return Ok(reported),
            Err(error) => failure = explained(error),
        }
    }
    Err(failure.context(from.to_owned()))
}
