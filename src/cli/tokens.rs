//! The command `tokens`: access to configs by tokens.

use clap::Subcommand;
use time::OffsetDateTime;

use super::examples;
use crate::commands::state_location::StateLocationFlags;
use crate::commands::tokens::{self, AddSettings, RevokeSettings, RotateSettings};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a token for machines whose pointer configs are kept elsewhere, and print it once
    #[command(after_help = examples::TOKENS_ADD)]
    Add(AddSettings),
    /// Print all tokens, and which pointer configs have none
    #[command(after_help = examples::TOKENS_LIST)]
    List(StateLocationFlags),
    /// Revoke a token
    #[command(after_help = examples::TOKENS_REVOKE)]
    Revoke(RevokeSettings),
    /// Make new tokens for pointer configs; the earlier ones are accepted for a limited time
    #[command(after_help = examples::TOKENS_ROTATE)]
    Rotate(RotateSettings),
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match command {
        Command::Add(settings) => tokens::add(settings, now),
        Command::List(place) => tokens::list(place, now),
        Command::Revoke(settings) => tokens::revoke(settings, now),
        Command::Rotate(settings) => tokens::rotate(settings, now),
    }
}
