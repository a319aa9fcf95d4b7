//! Result of an inspection, and its output.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use inspect::{
    Cause, Machine, Trace, as_json, changes, changes_as_text, machine_as_text, trace_as_text,
    warnings_as_text,
};
use model::escape::escaped;
use secrets::redacted;
use serde_json::json;
use table::TerminalStyle;
use time::OffsetDateTime;

use crate::commands::process::terminal;

/// Maximum time of the search for minimal diffs.
const TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Inspection {
    pub(super) name: String,
    pub(super) trace: Option<Trace>,
    pub(super) machine: Option<Machine>,
    /// Fields without effect, one line each.
    pub(super) warnings: Vec<String>,
}

impl Inspection {
    /// A result without a machine, because of `cause`.
    pub(super) fn refused(name: &str, cause: Cause) -> Self {
        let trace = Trace { url: name.to_owned(), steps: Vec::new(), cause: Some(cause) };
        Self { name: name.to_owned(), trace: Some(trace), ..Self::default() }
    }

    /// A pool that does not exist, for the comparison with one that does.
    pub(super) fn absent(name: &str) -> Self {
        let machine = Some(Machine::default());
        Self { name: name.to_owned(), machine, ..Self::default() }
    }

    /// Prints the trace and the machine, as text or JSON.
    pub(super) fn show(&self, is_json: bool, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
        if is_json {
            let page =
                json!({"way": self.trace, "machine": self.machine, "warnings": self.warnings});
            print_json(&page)?;
        } else {
            let style = terminal::style();
            let mut lines: Vec<_> =
                self.trace.iter().flat_map(|trace| trace_as_text(trace, style)).collect();
            if let Some(machine) = &self.machine {
                if !lines.is_empty() {
                    lines.push(String::new());
                }
                lines.extend(machine_as_text(machine, style, now));
            }
            lines.extend(warnings_as_text(&self.warnings, style));
            terminal::print(&lines);
        }
        Ok(if self.machine.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Prints the contents of one file.
    pub(super) fn show_file(&self, path: &str) -> anyhow::Result<ExitCode> {
        let reported = match self.machine.as_ref().map(|machine| machine.file(path)) {
            Some(Ok(bytes)) => {
                // The reader may have closed the pipe.
                let _ = std::io::stdout().write_all(bytes);
                return Ok(ExitCode::SUCCESS);
            }
            Some(Err(reason)) => {
                vec![format!("{}: {}", escaped(path), escaped(&redacted(&reason)))]
            }
            None => {
                self.trace.iter().flat_map(|it| trace_as_text(it, TerminalStyle::PLAIN)).collect()
            }
        };
        writeln!(std::io::stderr(), "{}", reported.join("\n"))?;
        Ok(ExitCode::FAILURE)
    }
}

/// Differences between two machines, as JSON and text.
pub(super) struct Difference {
    pub(super) is_any: bool,
    pub(super) json: serde_json::Value,
    pub(super) lines: Vec<String>,
}

impl Difference {
    /// Compares two results. A machine that does not come up is a difference too.
    pub(super) fn between(got: &Inspection, other: &Inspection) -> Self {
        let style = terminal::style();
        let (Some(before), Some(after)) = (&got.machine, &other.machine) else {
            let ways = [got, other].into_iter().filter(|it| it.machine.is_none());
            let ways: Vec<_> = ways.filter_map(|it| it.trace.as_ref()).collect();
            let lines = ways.iter().flat_map(|trace| trace_as_text(trace, style)).collect();
            return Self { is_any: true, json: json!({"ways": ways}), lines };
        };
        let changes = changes(before, after, Instant::now() + TIMEOUT);
        let is_any = !changes.is_empty();
        let names = json!([got.name, other.name]);
        let json = json!({"between": names, "differs": is_any, "changes": changes});
        let lines = changes_as_text(&changes, [&got.name, &other.name], style);
        Self { is_any, json, lines }
    }

    pub(super) fn show(&self, is_json: bool) -> anyhow::Result<ExitCode> {
        if is_json {
            print_json(&self.json)?;
        } else {
            terminal::print(&self.lines);
        }
        Ok(if self.is_any { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Prints JSON, and escapes control characters that JSON need not escape.
fn print_json(page: &serde_json::Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&as_json(page)?)?;
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || matches!(escaped(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_)) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    terminal::print(&[safe]);
    Ok(())
}
