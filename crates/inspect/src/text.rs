//! Formats a machine, and the trace of its boot, for people.

use escape::{REASON, cut, escaped};
use secrets::redacted;
use table::{Color, TerminalStyle, table};
use time::OffsetDateTime;

use super::machine::Machine;
use super::sections::{Section, facts, sections};
use super::trace::{Outcome, Step, Trace};

/// Formats a machine. `now` decides which certificates are shown as expired.
pub fn machine_as_text(machine: &Machine, look: TerminalStyle, now: OffsetDateTime) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, text) in facts(machine) {
        let name = look.paint(Color::Heading, &format!("{name:<18}"));
        lines.extend(hanging(&name, 18, wrapped(&escaped(&text), look, 18)));
    }
    for Section { heading, columns, rows } in sections(machine, now) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(table_with_heading(heading, columns, &rows, look));
    }
    lines
}

/// Formats a number of bytes.
pub fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// Formats parts without effect, below an empty line; no lines if there are none.
pub fn warnings_as_text(warnings: &[String], look: TerminalStyle) -> Vec<String> {
    if warnings.is_empty() {
        return Vec::new();
    }
    let rows: Vec<_> = warnings.iter().map(|it| vec![redacted(it).into_owned()]).collect();
    let mut lines = vec![String::new()];
    lines.extend(table_with_heading("Without effect", &["WHERE AND WHY"], &rows, look));
    lines
}

fn table_with_heading(
    heading: &str,
    columns: &[&str],
    rows: &[Vec<String>],
    look: TerminalStyle,
) -> Vec<String> {
    let mut lines = vec![look.paint(Color::Heading, &format!("{heading}: {}", rows.len()))];
    lines.extend(table(columns, rows, look));
    lines
}

/// Formats the steps to a machine's config, and the cause of a failed boot.
pub fn trace_as_text(trace: &Trace, look: TerminalStyle) -> Vec<String> {
    let mut lines = vec![look.paint(Color::Heading, &escaped(&cut(&redacted(&trace.url), REASON)))];
    lines.extend(trace.steps.iter().flat_map(|step| step_as_text(step, look)));
    let Some(cause) = &trace.cause else {
        lines.push(look.paint(Color::Good, "A machine gets this config."));
        return lines;
    };
    let text = cause.to_string();
    let text = format!("A machine does not boot: {}", escaped(&cut(&redacted(&text), REASON)));
    lines.extend(wrapped(&text, look, 0).iter().map(|line| look.paint(Color::Bad, line)));
    let then = cause.recovery().sentence();
    lines.extend(wrapped(&format!("Next step: {}. {then}", cause.remedy()), look, 0));
    let section = format!("Runbook, \"A machine does not come up\": {}", cause.label());
    lines.push(look.paint(Color::Faint, &section));
    lines
}

fn step_as_text(step: &Step, look: TerminalStyle) -> Vec<String> {
    let (mark, ink) = match step.outcome {
        Outcome::Fine => ("ok", Color::Good),
        Outcome::Noted => ("--", Color::Notable),
        Outcome::Failed => ("NO", Color::Bad),
    };
    let shown = |seen: &String| escaped(&cut(&redacted(seen), REASON)).into_owned();
    let mut seen: Vec<_> = step.seen.iter().map(shown).collect();
    if let Some(took) = step.took.map(|took| format!("{:.1} ms", took.as_secs_f64() * 1e3)) {
        match seen.last_mut() {
            Some(last) => *last = format!("{last}  {took}"),
            None => seen.push(took),
        }
    }
    let start = format!("  {} {:<9}", look.paint(ink, mark), step.name);
    hanging(&start, 14, seen.iter().flat_map(|seen| wrapped(seen, look, 14)))
}

/// Lines after a start, which is as wide as their indentation.
fn hanging(
    start: &str,
    indentation: usize,
    lines: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let mut lines: Vec<_> =
        lines.into_iter().map(|line| format!("{:indentation$}{line}", "")).collect();
    match lines.first_mut() {
        Some(first) => first.replace_range(..indentation, start),
        None => lines.push(start.to_owned()),
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
    fn the_way_is_shown_at_two_widths() {
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
            cause: Some(crate::Cause::ServerDown("192.0.2.1:22623: Connection refused".into())),
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
