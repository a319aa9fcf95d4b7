//! The command `cmp`: certificates from a CA by CMPv2.

use clap::{Args as ClapArgs, Subcommand};

use super::examples;
use crate::commands::cmp::{EnrollSettings, enroll};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get a certificate: a first one for a new key (--subject), one for an existing request (--csr), or a
    /// renewal (--renew).
    #[command(after_help = examples::CMP_ENROLL)]
    Enroll(Box<EnrollSettings>),
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let Command::Enroll(settings) = &args.command;
    enroll(settings)
}
