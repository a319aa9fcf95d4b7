//! The command `completions`: prints a shell's completion script.

use std::io::Write as _;

use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Shell to print the completions for
    shell: Shell,
}

/// Prints the script for the command line of `program`.
pub(super) fn run(args: &Args, mut program: Command) {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    // A closed pipe is ignored.
    let _ = std::io::stdout().write_all(&script);
}
