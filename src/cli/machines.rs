//! `machines`: which machines asked a server, and how it stands with each.

use std::net::IpAddr;

use clap::Args as ClapArgs;

use super::start::host_and_port;
use crate::commands::machines::{self, MachinesSettings};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The machine at this address alone
    address: Option<IpAddr>,
    /// Where a server has its metrics and its page
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8797", value_parser = host_and_port)]
    from: String,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let Args { address, from, json } = args;
    machines::run(&MachinesSettings { from, address, is_json: json })
}
