//! Manual pages, one for each command, in the form that `man` reads.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::Command;
use clap_mangen::Man;

/// The page of the command with these names below the program's.
///
/// # Errors
/// There is no such command.
pub(super) fn page(program: Command, names: &[String]) -> anyhow::Result<Vec<u8>> {
    let program = built(program);
    let mut command = &program;
    for name in names {
        let mut below = command.get_subcommands().filter(|below| !below.is_hide_set());
        command = below
            .find(|below| below.get_name() == name)
            .ok_or_else(|| anyhow!("man: unknown command {}", names.join(" ")))?;
    }
    Ok(rendered(command)?)
}

/// Writes the pages of all commands into a directory.
pub(super) fn write_all(program: Command, directory: &Path) -> anyhow::Result<()> {
    let program = built(program);
    let write = || {
        fs::create_dir_all(directory)?;
        write_pages(&program, program.get_name(), directory)
    };
    write().with_context(|| directory.display().to_string())
}

/// The program with full names of its commands, such as "machine-config-server certs show".
fn built(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    program
}

/// Writes the page of `command` and those of all below it.
fn write_pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    fs::write(directory.join(format!("{name}.8")), rendered(command)?)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}

fn rendered(command: &Command) -> io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(ToString::to_string);
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone().after_help(""))
        .section("8")
        .source(format!("machine-config-server {version}"))
        .manual("System administration");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    // As they are: a command line that is wrapped is another one.
    if let Some(examples) = examples {
        writeln!(page, ".SH EXAMPLES\n.nf")?;
        for line in examples.lines().skip(1) {
            writeln!(page, "{}", escaped(line.strip_prefix("  ").unwrap_or(line)))?;
        }
        writeln!(page, ".fi")?;
    }
    Ok(page)
}

/// Text that no formatter takes for its own commands.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
