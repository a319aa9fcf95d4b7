//! The command `certs`: shows, checks and replaces the certificates of a state directory or a cluster.

use clap::Subcommand;
use time::OffsetDateTime;

use super::examples;
use crate::commands::certs::settings::{
    CheckSettings, DistrustSettings, RotateSettings, ShowSettings,
};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the certificates and pointer configs.
    #[command(after_help = examples::CERTS_SHOW)]
    Show(ShowSettings),
    /// Check whether an administrator must act; exit with 1 if so. With --pointer, check whether a machine
    /// can boot from this file.
    #[command(after_help = examples::CERTS_CHECK)]
    Check(CheckSettings),
    /// Issue a new serving certificate, with --ca from a new signing CA. Machines with older pointer configs
    /// continue to boot.
    #[command(after_help = examples::CERTS_ROTATE)]
    Rotate(RotateSettings),
    /// Distrust CAs permanently, for example after a key has leaked. They are removed from the trust bundle,
    /// the pointer configs and the served chain, and their keys are deleted. Prints first which machines
    /// could not boot any more, and changes nothing without --yes.
    #[command(after_help = examples::CERTS_DISTRUST)]
    Distrust(DistrustSettings),
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match command {
        Command::Show(settings) => settings.run(now),
        Command::Check(settings) => settings.run(now),
        Command::Rotate(settings) => settings.run(now),
        Command::Distrust(settings) => settings.run(now),
    }
}
