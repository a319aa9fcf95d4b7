//! The command `certs`: shows, checks and replaces the certificates of a state directory or a cluster.

use clap::{Args as ClapArgs, Subcommand};
use time::OffsetDateTime;

use super::examples;
use crate::commands::certs::settings::{
    CheckSettings, DistrustSettings, RotateSettings, ShowSettings,
};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what there is.
    #[command(after_help = examples::CERTS_SHOW)]
    Show(ShowSettings),
    /// Tell whether something needs to be done; exit with 1 if so. With --pointer, tell whether a
    /// machine would boot from this file.
    #[command(after_help = examples::CERTS_CHECK)]
    Check(CheckSettings),
    /// Make a new serving pair, or with --ca a new certificate authority first. Machines that hold
    /// older pointer configs go on booting.
    #[command(after_help = examples::CERTS_ROTATE)]
    Rotate(RotateSettings),
    /// Trust CAs never again: whose key has leaked, for one. They leave the bundle, the pointer
    /// configs, what is served, and their keys are deleted. Says first which machines could not boot
    /// any more, and does nothing without --yes.
    #[command(after_help = examples::CERTS_DISTRUST)]
    Distrust(DistrustSettings),
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match &args.command {
        Command::Show(settings) => settings.run(now),
        Command::Check(settings) => settings.run(now),
        Command::Rotate(settings) => settings.run(now),
        Command::Distrust(settings) => settings.run(now),
    }
}
