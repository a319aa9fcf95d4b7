//! The command `machines`: machines that asked a server, and machines with names.

use clap::{Args as ClapArgs, Subcommand};
use time::OffsetDateTime;

use super::examples;
use crate::commands::approve::{self, ApproveSettings};
use crate::commands::machines::{self, MachinesSettings};
use crate::commands::named_machines::{self, AddSettings, RearmSettings};

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    shown: MachinesSettings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give a machine a name, and a separate token and pointer config
    #[command(after_help = examples::MACHINES_ADD)]
    Add(AddSettings),
    /// Let a machine that waits for approval have its config
    #[command(after_help = examples::MACHINES_APPROVE)]
    Approve(ApproveSettings),
    /// Let a machine's token open its config again, for another first boot
    #[command(after_help = examples::MACHINES_REARM)]
    Rearm(RearmSettings),
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match &args.command {
        None => machines::run(&args.shown),
        Some(Command::Add(settings)) => named_machines::add(settings, now),
        Some(Command::Approve(settings)) => approve::run(settings, now),
        Some(Command::Rearm(settings)) => named_machines::rearm(settings, now),
    }
}
