//! What standard output can show: a terminal's width and colours, or a pipe's plain lines.

use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use model::table::TerminalStyle;

/// A width below this cannot hold a table.
const NARROWEST: u16 = 40;

/// What standard output can show. `NO_COLOR`, `CLICOLOR_FORCE` and `COLUMNS` go before what a
/// terminal says of itself.
pub(super) fn look() -> TerminalStyle {
    let stdout = std::io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = columns.or_else(|| {
        let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout));
        size.flatten().map(|(width, _)| width.0)
    });
    let width = width.filter(|width| *width > 0).map(|width: u16| width.max(NARROWEST));
    let is_coloured = AutoStream::choice(&stdout) != ColorChoice::Never;
    TerminalStyle { width, is_coloured }
}

/// Prints lines whose parts have been escaped. Nobody may be reading them, which is no reason to
/// stop.
pub(super) fn print(lines: &[String]) {
    let mut text = lines.join("\n");
    text.push('\n');
    let _ = std::io::stdout().write_all(text.as_bytes());
}
