//! Runs the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    machine_config_server::cli::main(std::env::args_os())
}
