//! Capabilities of standard output: a terminal's width and colours, or a pipe's plain lines.

use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use table::TerminalStyle;

/// Minimum width that can hold a table.
const NARROWEST: u16 = 40;

/// Style of standard output. `NO_COLOR`, `CLICOLOR_FORCE` and `COLUMNS` override the terminal's properties.
pub(in crate::commands) fn style() -> TerminalStyle {
    style_within(u16::MAX)
}

/// The same for a table that uses at most `widest` columns of a terminal. `COLUMNS` overrides this too.
pub(in crate::commands) fn style_within(widest: u16) -> TerminalStyle {
    let stdout = std::io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = columns.or_else(|| {
        let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout));
        size.flatten().map(|(width, _)| width.0.min(widest))
    });
    let width = width.filter(|width| *width > 0).map(|width: u16| width.max(NARROWEST));
    let is_coloured = AutoStream::choice(&stdout) != ColorChoice::Never;
    TerminalStyle { width, is_coloured }
}

/// Prints escaped lines. A closed pipe is ignored.
pub(in crate::commands) fn print(lines: &[String]) {
    let mut text = lines.join("\n");
    text.push('\n');
    let _ = std::io::stdout().write_all(text.as_bytes());
}
