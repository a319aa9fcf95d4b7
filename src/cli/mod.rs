//! The command line: commands and exit codes. Their flags are the settings of [`crate::commands`].

mod examples;
mod flags;
mod manual;
mod usage;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;
use examples::titled;
use flags::KlogFlags;
use telemetry::LogFormat;
use time::OffsetDateTime;

use crate::commands::machines::{approve, named, remove};
use crate::commands::{
    self, bootstrap, certs, cmp, controller, health, inspect, issuer, machines, node_ca, render,
    serve, start, tokens, validate,
};

pub use usage::one_line;

/// Serves Ignition configs to machines that boot for the first time.
#[derive(Debug, Parser)]
#[command(name = "machine-config-server", version = commands::VERSION, max_term_width = 100,
    after_help = titled(examples::ALL))]
struct Cli {
    #[command(flatten)]
    klog: KlogFlags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the first control-plane machines from a directory, before the cluster exists.
    #[command(after_help = titled(examples::BOOTSTRAP))]
    Bootstrap(bootstrap::BootstrapSettings),
    /// Serve all pools of a running cluster.
    #[command(after_help = titled(examples::START))]
    Start(start::StartSettings),
    /// Serve all pools of a directory of manifests, and manage the certificates.
    #[command(after_help = titled(examples::SERVE))]
    Serve(serve::ServeSettings),
    /// Manage the certificates and the user data of a cluster.
    #[command(after_help = titled(examples::CONTROLLER))]
    Controller(controller::Settings),
    /// Sign certificates for other services, through cert-manager.
    #[command(after_help = titled(examples::ISSUER))]
    Issuer(issuer::Settings),
    /// Check a directory, a cluster or a server, and print every fault with its fix, the worst first.
    ///
    /// Exits with 1 if machines do not boot, or soon will not.
    #[command(after_help = titled(examples::HEALTH))]
    Health(health::HealthSettings),
    /// Show, check or replace the certificates of a state directory or a cluster.
    #[command(subcommand, arg_required_else_help = false, after_help = titled(examples::CERTS))]
    Certs(Certs),
    /// Add, list, revoke or replace the tokens with which machines fetch configs.
    #[command(subcommand, arg_required_else_help = false, after_help = titled(examples::TOKENS))]
    Tokens(Tokens),
    /// Get certificates from an organisation's CA with CMPv2.
    #[command(subcommand, arg_required_else_help = false, after_help = titled(examples::CMP))]
    Cmp(Cmp),
    /// Show what a machine gets, fetched as Ignition does, and why it does not boot.
    ///
    /// Exit codes: 0 the machine boots, or two configs are the same; 1 it does not boot, or they differ; 2
    /// there is nothing to inspect.
    #[command(after_help = titled(examples::INSPECT))]
    Inspect(inspect::InspectSettings),
    /// Show which machines asked a running server for a config, and why one does not boot; give machines names.
    ///
    /// Exits with 1 if a machine is stuck.
    #[command(after_help = titled(examples::MACHINES))]
    Machines(MachinesArgs),
    /// Print the config of a pool's machines, or their pointer config, without a server.
    #[command(after_help = titled(examples::RENDER))]
    Render(render::RenderSettings),
    /// Check a directory of manifests before it is served.
    ///
    /// Exits with 1 if a pool would get no config, or a file cannot be used.
    #[command(after_help = titled(examples::VALIDATE))]
    Validate(validate::ValidateSettings),
    /// Keep a node's registry CAs equal to the cluster's.
    #[command(after_help = titled(examples::NODE_CA))]
    NodeCa(node_ca::NodeCaSettings),
    /// Print the completions of this command line for a shell.
    #[command(after_help = titled(examples::COMPLETIONS))]
    Completions {
        /// Shell to print the completions for
        #[arg(value_parser = PossibleValuesParser::new(SHELLS.names()))]
        shell: String,
    },
    /// Print the manual page of a command, for `man -l -`.
    #[command(after_help = titled(examples::MAN))]
    Man {
        /// The command; without one, the program
        command: Vec<String>,
        /// Write the pages of all commands into this directory instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
    /// Print name, version and commit.
    #[command(after_help = titled(examples::VERSION))]
    Version,
}

#[derive(Debug, Subcommand)]
enum Certs {
    /// Print the certificates and pointer configs.
    #[command(after_help = titled(examples::CERTS_SHOW))]
    Show(certs::ShowSettings),
    /// Check whether an administrator must act; exit with 1 if so. With --pointer, check whether a machine
    /// can boot from this file.
    #[command(after_help = titled(examples::CERTS_CHECK))]
    Check(certs::CheckSettings),
    /// Issue a new serving certificate, with --ca from a new signing CA. Machines with older pointer configs
    /// continue to boot.
    #[command(after_help = titled(examples::CERTS_ROTATE))]
    Rotate(certs::RotateSettings),
    /// Distrust CAs permanently, for example after a key has leaked. They are removed from the trust bundle,
    /// the pointer configs and the served chain, and their keys are deleted. Prints first which machines
    /// could not boot any more, and changes nothing without --yes.
    #[command(after_help = titled(examples::CERTS_DISTRUST))]
    Distrust(certs::DistrustSettings),
}

#[derive(Debug, Subcommand)]
enum Tokens {
    /// Make a token for machines whose pointer configs are kept elsewhere, and print it once
    #[command(after_help = titled(examples::TOKENS_ADD))]
    Add(tokens::AddSettings),
    /// Print all tokens, and which pointer configs have none
    #[command(after_help = titled(examples::TOKENS_LIST))]
    List(tokens::ListSettings),
    /// Revoke a token
    #[command(after_help = titled(examples::TOKENS_REVOKE))]
    Revoke(tokens::RevokeSettings),
    /// Make new tokens for pointer configs; the earlier ones are accepted for a limited time
    #[command(after_help = titled(examples::TOKENS_ROTATE))]
    Rotate(tokens::RotateSettings),
}

#[derive(Debug, Subcommand)]
enum Cmp {
    /// Get a certificate: a first one for a new key (--subject), one for an existing request (--csr), or a
    /// renewal (--renew).
    #[command(after_help = titled(examples::CMP_ENROLL))]
    Enroll(Box<cmp::EnrollSettings>),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct MachinesArgs {
    #[command(subcommand)]
    command: Option<Machines>,
    #[command(flatten)]
    shown: machines::MachinesSettings,
}

#[derive(Debug, Subcommand)]
enum Machines {
    /// Give a machine a name, and a separate token and pointer config
    #[command(after_help = titled(examples::MACHINES_ADD))]
    Add(named::AddSettings),
    /// Let a machine that waits for approval have its config
    #[command(after_help = titled(examples::MACHINES_APPROVE))]
    Approve(approve::ApproveSettings),
    /// Let a machine's token open its config again, for another first boot
    #[command(after_help = titled(examples::MACHINES_REARM))]
    Rearm(named::RearmSettings),
    /// Remove a machine at once, with its token
    #[command(after_help = titled(examples::MACHINES_REMOVE))]
    Remove(remove::RemoveSettings),
}

/// The command line, for manual pages, completions and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Shells that can complete the command line.
const SHELLS: Shells<'static> = Shells::builtins();
/// Environment variable by which a shell's script asks for completions. Its value is the name of the shell.
const COMPLETE: &str = "MACHINE_CONFIG_SERVER_COMPLETE";

/// Exit code of `inspect` if there is nothing to inspect.
const NOTHING_TO_INSPECT: u8 = 2;

/// Runs the command line `args`, the program's name first. Errors are one line on standard error.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let directory = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(Cli::command).var(COMPLETE);
    match completion.try_complete(args.iter().cloned(), directory.as_deref()) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => return fail(&one_line(&error), false),
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // A closed pipe is ignored.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&one_line(&error), is_inspect(&args)),
    };
    commands::make_memory_private();
    let Some(command) = cli.command else {
        let _ = Cli::command().print_help();
        return ExitCode::SUCCESS;
    };
    let is_inspect = matches!(command, Command::Inspect(_));
    let result = run(command, &cli.klog, &args[0]);
    result.unwrap_or_else(|error| fail(&format!("{error:#}"), is_inspect))
}

fn run(command: Command, klog: &KlogFlags, program: &OsStr) -> anyhow::Result<ExitCode> {
    use Command::{Bootstrap, Controller, Issuer, NodeCa, Serve, Start};
    // Dropped at the end, which writes the last lines.
    let _logs = match command {
        Bootstrap(_) | Start(_) | Serve(_) | Controller(_) | Issuer(_) | NodeCa(_) => {
            telemetry::init_logs(klog.v, klog.log_format)?
        }
        _ => return execute(command, program),
    };
    match execute(command, program) {
        // Collectors of logs get the reason, too.
        Err(error) if klog.log_format == LogFormat::Json => {
            tracing::error!(
                error = format!("{error:#}"),
                fix = "correct what the error names, and start the command again",
                "exiting"
            );
            Ok(ExitCode::FAILURE)
        }
        result => result,
    }
}

fn execute(command: Command, program: &OsStr) -> anyhow::Result<ExitCode> {
    use Command::{Bootstrap, Controller, Issuer, NodeCa, Serve, Start};
    let now = OffsetDateTime::now_utc();
    match command {
        Bootstrap(settings) => bootstrap::run(settings)?,
        Start(settings) => start::run(settings)?,
        Serve(settings) => serve::run(settings)?,
        Controller(settings) => controller::run(settings)?,
        Issuer(settings) => issuer::run(settings)?,
        NodeCa(settings) => node_ca::run(settings)?,
        Command::Certs(Certs::Show(settings)) => certs::show(&settings, now)?,
        Command::Certs(Certs::Check(settings)) => certs::check(&settings, now)?,
        Command::Certs(Certs::Rotate(settings)) => certs::rotate(&settings, now)?,
        Command::Certs(Certs::Distrust(settings)) => certs::distrust(&settings, now)?,
        Command::Tokens(Tokens::Add(settings)) => tokens::add(&settings, now)?,
        Command::Tokens(Tokens::List(settings)) => tokens::list(&settings, now)?,
        Command::Tokens(Tokens::Revoke(settings)) => tokens::revoke(&settings, now)?,
        Command::Tokens(Tokens::Rotate(settings)) => tokens::rotate(&settings, now)?,
        Command::Cmp(Cmp::Enroll(settings)) => cmp::enroll(&settings)?,
        Command::Machines(MachinesArgs { command, shown }) => match command {
            None => machines::run(&shown)?,
            Some(Machines::Add(settings)) => named::add(&settings, now)?,
            Some(Machines::Approve(settings)) => approve::run(&settings, now)?,
            Some(Machines::Rearm(settings)) => named::rearm(&settings, now)?,
            Some(Machines::Remove(settings)) => remove::run(&settings, now)?,
        },
        Command::Render(settings) => render::run(&settings)?,
        Command::Health(settings) => return health::run(settings, now),
        Command::Inspect(settings) => return inspect::run(&settings, now),
        Command::Validate(settings) => return validate::run(settings),
        Command::Completions { shell } => print_completions(&shell, program),
        Command::Man { dir: Some(dir), .. } => manual::write_all(Cli::command(), &dir)?,
        Command::Man { command, dir: None } => {
            // A closed pipe is ignored.
            let _ = std::io::stdout().write_all(&manual::page(Cli::command(), &command)?);
        }
        Command::Version => commands::print_line(&commands::version()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns true if an invalid command line is one of `inspect`.
fn is_inspect(args: &[OsString]) -> bool {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(args);
    matches.is_ok_and(|matches| matches.subcommand_name() == Some("inspect"))
}

/// Prints the script of a shell. It calls the program as it was called now: by its path, or from the PATH.
fn print_completions(shell: &str, program: &OsStr) {
    let name = env!("CARGO_PKG_NAME");
    let is_path = Path::new(program).components().count() > 1;
    let path = std::path::absolute(program).ok().filter(|_| is_path);
    let program = path.as_deref().map_or(Cow::Borrowed(name), Path::to_string_lossy);
    let mut script = Vec::new();
    if let Some(shell) = SHELLS.completer(shell) {
        // Writing into memory does not fail.
        let _ = shell.write_registration(COMPLETE, name, name, &program, &mut script);
    }
    if shell == "zsh" {
        // Loaded from the fpath when it is first asked, it answers as well.
        let function = format!("_clap_dynamic_completer_{}", name.replace('-', "_"));
        let _ = writeln!(script, "[[ $funcstack[1] != _{name} ]] || {function} \"$@\"");
    }
    // A closed pipe is ignored.
    let _ = std::io::stdout().write_all(&script);
}

fn fail(message: &str, is_inspect: bool) -> ExitCode {
    commands::print_stderr(message);
    if is_inspect { ExitCode::from(NOTHING_TO_INSPECT) } else { ExitCode::FAILURE }
}
