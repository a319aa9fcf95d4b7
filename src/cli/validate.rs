//! `validate`: whether a directory of manifests can be served.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use crate::commands::validate::{self, ValidateSettings};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Exit with 1 where something has no effect: an unknown field, or one that is newer than the config's
    /// spec
    #[arg(long)]
    strict: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { dir, strict, json } = args;
    let is_valid = validate::run(ValidateSettings { directory: dir, is_strict: strict, json })?;
    Ok(if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
