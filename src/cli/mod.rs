//! The command line: commands and exit codes. Their flags are the settings of [`crate::commands`].

mod certs;
mod cmp;
mod completions;
mod examples;
mod flags;
mod machines;
mod tokens;
mod usage;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use flags::KlogFlags;
use model::escape::escaped;
use time::OffsetDateTime;

use crate::commands;
use crate::commands::bootstrap::{self, BootstrapSettings};
use crate::commands::inspect::{self, InspectSettings};
use crate::commands::node_ca::{self, NodeCaSettings};
use crate::commands::render::{self, RenderSettings};
use crate::commands::serve::{self, ServeSettings};
use crate::commands::start::{self, StartSettings};
use crate::commands::validate::{self, ValidateSettings};
use crate::commands::{controller, issuer};
use crate::telemetry;

pub use usage::one_line;

/// Serves Ignition configs to machines that boot for the first time.
#[derive(Debug, Parser)]
#[command(name = "machine-config-server", version = commands::VERSION, max_term_width = 100,
    after_help = examples::ALL)]
struct Cli {
    #[command(flatten)]
    klog: KlogFlags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the first control-plane machines from a directory, before the cluster exists.
    #[command(after_help = examples::BOOTSTRAP)]
    Bootstrap(BootstrapSettings),
    /// Serve all pools of a running cluster.
    #[command(after_help = examples::START)]
    Start(StartSettings),
    /// Serve all pools of a directory of manifests, and manage the certificates.
    #[command(after_help = examples::SERVE)]
    Serve(ServeSettings),
    /// Manage the certificates and the user data of a cluster.
    #[command(after_help = examples::CONTROLLER)]
    Controller(controller::Settings),
    /// Sign certificates for other services, through cert-manager.
    #[command(after_help = examples::ISSUER)]
    Issuer(issuer::Settings),
    /// Show, check or replace the certificates of a state directory or a cluster.
    #[command(subcommand, after_help = examples::CERTS)]
    Certs(certs::Command),
    /// Add, list, revoke or replace the tokens with which machines fetch configs.
    #[command(subcommand, after_help = examples::TOKENS)]
    Tokens(tokens::Command),
    /// Get certificates from an organisation's CA with CMPv2.
    #[command(subcommand, after_help = examples::CMP)]
    Cmp(cmp::Command),
    /// Show what a machine gets, fetched as Ignition does, and why it does not boot.
    ///
    /// Exit codes: 0 the machine boots, or two configs are the same; 1 it does not boot, or they differ; 2
    /// there is nothing to inspect.
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectSettings),
    /// Show which machines asked a running server for a config, and why one does not boot; give machines names.
    ///
    /// Exits with 1 if a machine is stuck.
    #[command(after_help = examples::MACHINES)]
    Machines(machines::Args),
    /// Print the config of a pool's machines, or their pointer config, without a server.
    #[command(after_help = examples::RENDER)]
    Render(RenderSettings),
    /// Check a directory of manifests before it is served.
    ///
    /// Exits with 1 if a pool would get no config, or a file cannot be used.
    #[command(after_help = examples::VALIDATE)]
    Validate(ValidateSettings),
    /// Keep a node's registry CAs equal to the cluster's.
    #[command(after_help = examples::NODE_CA)]
    NodeCa(NodeCaSettings),
    /// Print the completions of this command line for a shell.
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Args),
    /// Print name, version and commit.
    #[command(after_help = examples::VERSION)]
    Version,
}

/// The command line, for manual pages, completions and tests.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line `args`, the program's name first. Errors are one line on standard error.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // A closed pipe is ignored.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let code = fail(&one_line(&error));
            return if is_inspect(&args) { ExitCode::from(NOTHING_TO_INSPECT) } else { code };
        }
    };
    commands::keep_memory_private();
    let result = match cli.command {
        None => {
            let _ = Cli::command().print_help();
            return ExitCode::SUCCESS;
        }
        Some(Command::Version) => {
            commands::print_line(&commands::version());
            return ExitCode::SUCCESS;
        }
        Some(Command::Inspect(settings)) => {
            let shown = inspect::run(&settings, OffsetDateTime::now_utc());
            return shown.unwrap_or_else(|error| {
                fail(&format!("{error:#}"));
                ExitCode::from(NOTHING_TO_INSPECT)
            });
        }
        Some(Command::Validate(settings)) => {
            return match validate::run(settings) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => fail(&format!("{error:#}")),
            };
        }
        Some(Command::Machines(settings)) => machines::run(&settings),
        Some(Command::Render(settings)) => render::run(&settings),
        Some(Command::Completions(args)) => {
            completions::run(&args, Cli::command());
            return ExitCode::SUCCESS;
        }
        Some(Command::Certs(command)) => certs::run(&command),
        Some(Command::Cmp(command)) => cmp::run(&command),
        Some(Command::Tokens(command)) => tokens::run(&command),
        Some(Command::Controller(settings)) => with_logs(&cli.klog, || controller::run(settings)),
        Some(Command::Issuer(settings)) => with_logs(&cli.klog, || issuer::run(settings)),
        Some(Command::Bootstrap(settings)) => with_logs(&cli.klog, || bootstrap::run(settings)),
        Some(Command::Start(settings)) => with_logs(&cli.klog, || start::run(settings)),
        Some(Command::Serve(settings)) => with_logs(&cli.klog, || serve::run(settings)),
        Some(Command::NodeCa(settings)) => with_logs(&cli.klog, || node_ca::run(settings)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// Exit code of `inspect` if there is nothing to inspect.
const NOTHING_TO_INSPECT: u8 = 2;

/// Returns true if an invalid command line is one of `inspect`.
fn is_inspect(args: &[OsString]) -> bool {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(args);
    matches.is_ok_and(|matches| matches.subcommand_name() == Some("inspect"))
}

/// Runs a command with logs, and writes the last lines after it.
fn with_logs(
    flags: &KlogFlags,
    command: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _logs = telemetry::init_logs(flags.v)?;
    command()
}

fn fail(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "machine-config-server: {}", escaped(message));
    ExitCode::FAILURE
}
