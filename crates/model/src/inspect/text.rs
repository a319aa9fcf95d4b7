//! Formats a machine, and the trace of its boot, for people.

use ignition::secrets::redacted;
use time::OffsetDateTime;

use super::machine::Machine;
use super::sections::{Section, facts, sections};
use super::trace::{Outcome, Step, Trace};
use crate::escape::{REASON, cut, escaped};
use crate::table::{Color, TerminalStyle, table};

/// Formats a machine. `now` decides which certificates are shown as expired.
#[must_use]
pub fn machine_as_text(machine: &Machine, look: TerminalStyle, now: OffsetDateTime) -> Vec<String> {
    let mut page = Page { look, lines: Vec::new() };
    page.facts(machine);
    for Section { heading, columns, rows } in sections(machine, now) {
        page.table(heading, columns, &rows);
    }
    page.lines
}

/// Formats a number of bytes.
#[must_use]
pub fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// Formats parts without effect; no lines if there are none.
#[must_use]
pub fn warnings_as_text(warnings: &[String], look: TerminalStyle) -> Vec<String> {
    // An empty line separates it from the text above.
    let mut page = Page { look, lines: vec![String::new()] };
    let rows: Vec<_> = warnings.iter().map(|it| vec![redacted(it).into_owned()]).collect();
    page.table("Without effect", &["WHERE AND WHY"], &rows);
    page.lines.split_off(1)
}

struct Page {
    look: TerminalStyle,
    lines: Vec<String>,
}

impl Page {
    fn facts(&mut self, machine: &Machine) {
        for (name, text) in facts(machine) {
            let text = escaped(&text).into_owned();
            let name = self.look.paint(Color::Heading, &format!("{name:<18}"));
            for (index, line) in wrapped(&text, self.look, 18).into_iter().enumerate() {
                let start = if index == 0 { name.clone() } else { " ".repeat(18) };
                self.lines.push(format!("{start}{line}"));
            }
        }
    }

    fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(String::new());
        }
        self.lines.push(self.look.paint(Color::Heading, text));
    }

    /// Adds a table, unless it has no rows.
    fn table(&mut self, heading: &str, names: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.heading(&format!("{heading}: {}", rows.len()));
        self.lines.extend(table(names, rows, self.look));
    }
}

/// Formats the steps to a machine's config, and the cause of a failed boot.
#[must_use]
pub fn trace_as_text(trace: &Trace, look: TerminalStyle) -> Vec<String> {
    let mut lines = vec![look.paint(Color::Heading, &escaped(&cut(&redacted(&trace.url), REASON)))];
    lines.extend(trace.steps.iter().flat_map(|step| step_as_text(step, look)));
    let verdict = match &trace.cause {
        None => vec![look.paint(Color::Good, "A machine gets this config.")],
        Some(cause) => {
            let text = cause.to_string();
            let then = if cause.is_retried() {
                "The machine retries, and boots when this is done."
            } else {
                "The machine has given up: boot it again when this is done."
            };
            let text =
                format!("A machine does not boot: {}", escaped(&cut(&redacted(&text), REASON)));
            let verdict = wrapped(&text, look, 0);
            let mut lines: Vec<_> =
                verdict.iter().map(|line| look.paint(Color::Bad, line)).collect();
            lines.extend(wrapped(&format!("Next step: {}. {then}", cause.remedy()), look, 0));
            let section = format!("Runbook, \"A machine does not come up\": {}", cause.label());
            lines.push(look.paint(Color::Faint, &section));
            lines
        }
    };
    lines.extend(verdict);
    lines
}

fn step_as_text(step: &Step, look: TerminalStyle) -> Vec<String> {
    let (mark, ink) = match step.outcome {
        Outcome::Fine => ("ok", Color::Good),
        Outcome::Noted => ("--", Color::Notable),
        Outcome::Failed => ("NO", Color::Bad),
    };
    let took = step.took.map(|took| format!("  {:.1} ms", took.as_secs_f64() * 1e3));
    let start = format!("  {} {:<9}", look.paint(ink, mark), step.name);
    let mut lines = Vec::new();
    for (index, seen) in step.seen.iter().enumerate() {
        let seen = escaped(&cut(&redacted(seen), REASON)).into_owned();
        let last = took.as_deref().filter(|_| index + 1 == step.seen.len()).unwrap_or_default();
        for (part, line) in wrapped(&format!("{seen}{last}"), look, 14).into_iter().enumerate() {
            let is_first = index == 0 && part == 0;
            let start = if is_first { start.clone() } else { " ".repeat(14) };
            lines.push(format!("{start}{line}"));
        }
    }
    if lines.is_empty() {
        lines.push(format!("{start}{}", took.unwrap_or_default().trim_start()));
    }
    lines
}

/// Wraps a text at spaces, next to an indentation.
fn wrapped(text: &str, look: TerminalStyle, indentation: usize) -> Vec<String> {
    let Some(width) = look.width else { return vec![text.to_owned()] };
    let most = usize::from(width).saturating_sub(indentation).max(20);
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let size = word.chars().count();
        if length > 0 && length + 1 + size > most {
            lines.push(String::new());
            length = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += size;
    }
    // Break long words.
    let parts = lines.into_iter().flat_map(|line| {
        let chars: Vec<char> = line.chars().collect();
        chars.chunks(most).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>()
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_or_where_there_is_none() {
        let look = TerminalStyle { width: Some(30), is_coloured: false };
        assert_eq!(wrapped("a b", look, 0), ["a b"]);
        let long = "one two three four five six seven";
        assert_eq!(wrapped(long, look, 10), ["one two three four", "five six seven"]);
        assert_eq!(
            wrapped(&"x".repeat(45), look, 10),
            ["x".repeat(20), "x".repeat(20), "x".repeat(5)]
        );
        assert_eq!(wrapped(long, TerminalStyle::PLAIN, 10), [long]);
    }

    #[test]
    fn the_way_is_told_at_two_widths() {
        let took = Some(std::time::Duration::from_micros(1_500));
        let step = |name, outcome, seen: &[&str]| Step {
            name,
            outcome,
            seen: seen.iter().map(|seen| (*seen).to_owned()).collect(),
            took,
        };
        let trace = Trace {
            url: "https://mcs.example.com:22623/config/worker".to_owned(),
            steps: vec![
                step("name", Outcome::Fine, &["mcs.example.com is 192.0.2.1"]),
                step(
                    "connect",
                    Outcome::Failed,
                    &["192.0.2.1:22623: Connection refused", "a\n\u{1b}b"],
                ),
            ],
            cause: Some(super::super::Cause::ServerDown(
                "192.0.2.1:22623: Connection refused".into(),
            )),
        };
        let reported =
            |width| trace_as_text(&trace, TerminalStyle { width: Some(width), is_coloured: false });
        assert_eq!(
            reported(60),
            [
                "https://mcs.example.com:22623/config/worker",
                "  ok name     mcs.example.com is 192.0.2.1  1.5 ms",
                "  NO connect  192.0.2.1:22623: Connection refused",
                "              a\\n\\u{1b}b  1.5 ms",
                "A machine does not boot: the server is down:",
                "192.0.2.1:22623: Connection refused",
                "Next step: start the server, or check the load balancer and",
                "the firewall. The machine retries, and boots when this is",
                "done.",
                "Runbook, \"A machine does not come up\": server-down",
            ]
        );
        let wide = reported(120);
        assert_eq!(wide.len(), 8);
        assert!(wide[4].ends_with("the server is down: 192.0.2.1:22623: Connection refused"));
    }
}
