//! Writes the manual pages into a folder, one for each command: `cargo run --example manual -- DIR`.
//!
//! A program of its own, so that what makes them is no part of what ships.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

fn main() -> io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: manual DIR"));
    };
    std::fs::create_dir_all(&directory)?;
    let mut program = machine_config_server::cli::command().disable_help_subcommand(true);
    // Full names, such as "machine-config-server certs show".
    program.build();
    let title = program.get_name().to_owned();
    write_pages(&program, &title, &directory)
}

/// Writes the page of `command` and those of all below it.
fn write_pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    let mut page = std::fs::File::create(directory.join(format!("{name}.8")))?;
    page.write_all(&rendered(command)?)?;
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
