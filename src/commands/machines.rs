//! The command `machines`: prints a server's boot ledger.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use model::ledger::Severity;
use model::overview::{
    MACHINE_COLUMNS, MachineLine, NAMED_COLUMNS, NamedMachine, machine_row, named_row,
};
use model::table::table;
use serde::Deserialize;
use tokio::net::lookup_host;

use super::{print_line, terminal};
use crate::flags::host_and_port;
use crate::serving::peers::get;

#[derive(Debug, Args)]
pub struct MachinesSettings {
    /// Only the machine at this address
    address: Option<IpAddr>,
    /// Metrics address of a server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8797", value_parser = host_and_port)]
    from: String,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Reported {
    machines: Vec<MachineLine>,
    #[serde(default)]
    named_machines: Vec<NamedMachine>,
    silent_servers: Vec<String>,
    pools: Vec<ReportedPool>,
}

/// Ignition versions of the machines of a pool.
#[derive(Debug, Deserialize)]
struct ReportedPool {
    name: String,
    oldest_ignition: Option<String>,
    min_ignition: Option<String>,
    with_old_ignition: usize,
    without_tls: usize,
}

impl ReportedPool {
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

/// Prints the machines, stuck ones first.
///
/// # Errors
/// The server does not answer, or a machine is stuck.
pub fn run(settings: &MachinesSettings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Reported { mut machines, named_machines, silent_servers, pools } =
        runtime.block_on(ask(&settings.from))?;
    for line in silent_servers {
        tracing::warn!(
            reason = line,
            fix = "check whether that server runs",
            "machines of another server are missing"
        );
    }
    if let Some(address) = settings.address {
        let address = address.to_canonical();
        machines.retain(|line| line.machine.address == address);
        if machines.is_empty() {
            bail!("{}: no request from {address}", settings.from);
        }
    }
    if settings.json {
        print_line(&serde_json::to_string(&machines)?);
    } else if machines.is_empty() {
        print_line("no machine has requested a config yet");
    } else {
        let rows: Vec<_> = machines.iter().map(machine_row).collect();
        terminal::print(&table(&MACHINE_COLUMNS, &rows, terminal::look()));
        if settings.address.is_none() {
            print_line("");
            pools.iter().filter_map(ReportedPool::line).for_each(|line| print_line(&line));
        }
    }
    if !settings.json && settings.address.is_none() && !named_machines.is_empty() {
        print_line("");
        let rows: Vec<_> = named_machines.iter().map(named_row).collect();
        terminal::print(&table(&NAMED_COLUMNS, &rows, terminal::look()));
    }
    match machines.iter().filter(|line| line.standing.rank == Severity::Stuck).count() {
        0 => Ok(()),
        1 => Err(anyhow!("a machine is stuck")),
        stuck => Err(anyhow!("{stuck} machines are stuck")),
    }
}

async fn ask(from: &str) -> anyhow::Result<Reported> {
    let addresses: Vec<_> = lookup_host(from).await.with_context(|| from.to_owned())?.collect();
    let mut failure = anyhow!("has no address");
    for address in addresses {
        match get(address, "/api/v1/overview").await {
            Ok(reported) => return Ok(reported),
            Err(error) => failure = error,
        }
    }
    Err(failure.context(from.to_owned()))
}
