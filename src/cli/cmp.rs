//! The command `cmp`: certificates from a CA by CMPv2.

use clap::Subcommand;

use super::examples;
use crate::commands::cmp::{EnrollSettings, enroll};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Get a certificate: a first one for a new key (--subject), one for an existing request (--csr), or a
    /// renewal (--renew).
    #[command(after_help = examples::CMP_ENROLL)]
    Enroll(Box<EnrollSettings>),
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Enroll(settings) = command;
    enroll(settings)
}
