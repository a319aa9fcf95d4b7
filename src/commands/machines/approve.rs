//! The command `machines approve`.

use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use common::flags::host_and_port;
use controllers::NAMESPACE;
use model::access::approval::{ApprovedObject, Subject, WaitingMachine};
use model::access::machine::{Identity, TokenInUse as _};
use serde::Deserialize;
use time::OffsetDateTime;

use super::named::name;
use super::{DEFAULT_SERVER, ask};
use crate::commands::pool_names::pool_names;
use crate::commands::print_line;
use crate::commands::process::block_on;
use crate::commands::serve::memory;
use crate::commands::stores::location::StateFlags;
use crate::source::directory::last_machine;
use crate::store::state_directory::StateDirectory;

#[derive(Debug, Args)]
pub(crate) struct ApproveSettings {
    /// Name of the machine, or the address that it waits at
    #[arg(value_name = "NAME|ADDRESS", value_parser = name_or_address)]
    machine: String,
    /// Pool of the machine at the address. By default the one that it waits for
    #[arg(long, value_name = "POOL", value_parser = name, add = pool_names())]
    pool: Option<String>,
    /// Metrics address of a server, which knows the machine that waits at the address
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_SERVER, value_parser = host_and_port)]
    from: String,
    #[command(flatten)]
    state: StateFlags,
}

#[derive(Debug, Deserialize)]
struct WaitingOverview {
    waiting_machines: Vec<WaitingMachine>,
}

fn name_or_address(text: &str) -> Result<String, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical().to_string()),
        Err(_) => name(text),
    }
}

/// Approves a machine for one window.
pub(crate) fn run(settings: &ApproveSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let subject = subject(settings)?;
    if let Some(cluster) = settings.state.cluster(NAMESPACE)? {
        cluster.approve_machine(&subject, now)?;
    } else {
        let state = settings.state.directory()?;
        let identity = match &subject {
            Subject::Named(name) => last_identity(&state, name)?,
            Subject::At { pool, .. } => {
                ensure!(state.pools()?.contains(&**pool), "pool {pool} not found");
                None
            }
        };
        state.approve(&subject, now, identity)?;
    }
    print_line(&format!("{subject}: approved; a running server lets it boot within seconds"));
    Ok(())
}

/// Identity of a machine's object as a server has seen it last, if it is known.
fn last_identity(state: &StateDirectory, name: &str) -> anyhow::Result<Option<Identity>> {
    let known = state.machine_token(name)?.filter(|token| !token.is_revoked());
    let token = known.with_context(|| format!("machine {name} not found"))?;
    let Some(machine) = last_machine(&memory(state.path()), name)? else { return Ok(None) };
    let command = state.requested_arming(name)?;
    match ApprovedObject::in_directory(&machine, &token, command) {
        ApprovedObject::Present(identity) => Ok(Some(identity)),
        _ => Ok(None),
    }
}

/// The machine that is meant.
fn subject(settings: &ApproveSettings) -> anyhow::Result<Subject> {
    let ApproveSettings { machine, pool, from, .. } = settings;
    let Ok(address) = machine.parse::<IpAddr>() else {
        ensure!(pool.is_none(), "--pool is for an address, and {machine} is a name");
        return Ok(Subject::Named(machine.as_str().into()));
    };
    if let Some(pool) = pool {
        return Ok(Subject::at(pool, address));
    }
    let WaitingOverview { waiting_machines } = block_on(ask(from))?
        .context("cannot ask which pool the machine waits for; name it with --pool")?;
    let mut there = waiting_machines.into_iter().filter(|waits| waits.address == address);
    match (there.next(), there.next()) {
        (None, _) => bail!("no machine waits at {address}; approve one beforehand with --pool"),
        (Some(_), Some(_)) => {
            bail!("several machines wait at {address}; name the machine, or its pool with --pool")
        }
        (Some(WaitingMachine { name: Some(name), .. }), None) => {
            Ok(Subject::Named(name.as_str().into()))
        }
        (Some(waits), None) => Ok(Subject::at(&waits.pool, address)),
    }
}
