//! Differences between two machines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use escape::{cut, escaped};
use secrets::redacted;
use serde::Serialize;
use serde_json::Value;
use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};
use table::{Color, TerminalStyle};

use super::machine::{DiskEntry, Machine, NamedEntry};
use super::sections::fact_as_text;
use super::text::bytes;

/// Maximum size of a text, in bytes, for a diff of its lines.
const MAX_TEXT: usize = 4 << 20;
/// Maximum length of a line in characters.
const LINE: usize = 400;
/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Only the second machine has it.
    Added,
    /// Only the first machine has it.
    Removed,
    /// Both have it, and it differs.
    Changed,
}

/// A difference between two machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Kind of the item: `file`, `unit`, `user`, …
    pub what: &'static str,
    /// Name or path.
    pub name: String,
    /// Kind of the change.
    pub change: ChangeKind,
    /// Changed properties, one line each.
    pub details: Vec<String>,
    /// Unified diff of the contents, if they are text and not secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Default)]
struct ComparedItem<'a> {
    /// Properties that can be shown.
    attributes: BTreeMap<&'static str, String>,
    contents: Option<&'a [u8]>,
    is_secret: bool,
}

type ComparedItems<'a> = BTreeMap<(&'static str, String), ComparedItem<'a>>;

/// Differences between `before` and `after`, in the order of the page. After `until`, the diff of a text need not be
/// minimal.
pub fn changes(before: &Machine, after: &Machine, until: Instant) -> Vec<Change> {
    let (before, after) = (items(before), items(after));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changes = keys.into_iter().filter_map(|key| {
        let (what, name) = key;
        let (old, new) = (before.get(key), after.get(key));
        let (change, details, diff) = match (old, new) {
            (Some(old), Some(new)) => {
                let (details, diff) = compare(old, new, until);
                (!details.is_empty()).then_some((ChangeKind::Changed, details, diff))?
            }
            (None, Some(new)) => (ChangeKind::Added, describe(new), None),
            (Some(old), None) => (ChangeKind::Removed, describe(old), None),
            (None, None) => return None,
        };
        Some(Change { what, name: redacted(name).into_owned(), change, details, diff })
    });
    changes.collect()
}

fn items(machine: &Machine) -> ComparedItems<'_> {
    let mut items = ComparedItems::new();
    let mut add = |what, name: &str, item| items.insert((what, name.to_owned()), item);
    for (name, value) in &machine.facts {
        add("fact", name, ComparedItem::new([("value", fact_as_text(value))]));
    }
    for file in &machine.files {
        let attributes = [
            ("mode", file.mode.clone().unwrap_or_else(|| "default".to_owned())),
            ("owner", file.owner.clone()),
            // If the contents are known, they are compared instead of their description.
            ("what", if file.contents.is_some() { String::new() } else { file.what.clone() }),
            ("appended", file.is_appended.to_string()),
        ];
        let item = ComparedItem::new(attributes).with(file.contents.as_deref(), file.is_secret);
        add("file", &file.path, item);
    }
    for unit in &machine.units {
        add("unit", &unit.name, ComparedItem::new([("state", unit.state.clone())]));
        for (name, text, is_secret) in &unit.texts {
            add("unit text", name, ComparedItem::default().with(Some(text.as_bytes()), *is_secret));
        }
    }
    for user in &machine.users {
        let attributes = [
            ("groups", user.groups.join(" ")),
            ("keys", user.keys.join("\n")),
            ("what", user.what.clone()),
        ];
        let hash = user.password_hash.as_deref().map(str::as_bytes);
        add("user", &user.name, ComparedItem::new(attributes).with(hash, true));
    }
    for (what, entries) in [("link or directory", &machine.nodes), ("group", &machine.groups)] {
        for NamedEntry { name, what: text } in entries {
            add(what, name, ComparedItem::new([("what", text.clone())]));
        }
    }
    for DiskEntry { kind, name, what } in &machine.disks {
        add("disk", &format!("{kind} {name}"), ComparedItem::new([("what", what.clone())]));
    }
    items
}

impl<'a> ComparedItem<'a> {
    fn new<const N: usize>(attributes: [(&'static str, String); N]) -> Self {
        Self { attributes: attributes.into(), contents: None, is_secret: false }
    }

    fn with(self, contents: Option<&'a [u8]>, is_secret: bool) -> Self {
        Self { contents, is_secret, ..self }
    }
}

fn describe(item: &ComparedItem<'_>) -> Vec<String> {
    let reported =
        item.attributes.iter().filter(|(_, value)| !value.is_empty() && *value != "false");
    let mut details: Vec<_> =
        reported.map(|(name, value)| format!("{name} {}", redacted(value))).collect();
    if let Some(contents) = item.contents {
        let secret = if item.is_secret { ", secret" } else { "" };
        details.push(format!("{}{secret}", bytes(contents.len())));
    }
    details
}

fn compare(
    old: &ComparedItem<'_>,
    new: &ComparedItem<'_>,
    until: Instant,
) -> (Vec<String>, Option<String>) {
    let mut details = Vec::new();
    for (name, before) in &old.attributes {
        let after = new.attributes.get(name).map_or("", String::as_str);
        if before != after {
            let (before, after) = (redacted(before), redacted(after));
            let reported = |text: &str| if text.is_empty() { "nothing" } else { text }.to_owned();
            details.push(if before == after {
                format!("{name}: differs in what is secret: {before}")
            } else {
                format!("{name}: {} -> {}", reported(&before), reported(&after))
            });
        }
    }
    let (Some(before), Some(after)) = (old.contents, new.contents) else {
        if old.contents.is_some() != new.contents.is_some() {
            details.push("only one of the two configs has the contents".to_owned());
        }
        return (details, None);
    };
    if before == after {
        return (details, None);
    }
    if old.is_secret || new.is_secret {
        details.push("contents differ, and are secret".to_owned());
        return (details, None);
    }
    details.push(format!("contents: {} -> {}", bytes(before.len()), bytes(after.len())));
    let diff = text_diff(before, after, until);
    (details, diff.map(|diff| redacted(&diff).into_owned()))
}

/// A unified diff, `None` for binary or large contents.
fn text_diff(before: &[u8], after: &[u8], until: Instant) -> Option<String> {
    if before.len().max(after.len()) > MAX_TEXT {
        return None;
    }
    let (before, after) = (text(before)?, text(after)?);
    // JSON is often one line, in which a difference is hard to see.
    let (before, after) = match (indented(&before), indented(&after)) {
        (Some(before), Some(after)) => (before, after),
        _ => (before, after),
    };
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (before, after) = (&lines(&before)[..], &lines(&after)[..]);
    // A single algorithm is called directly, so that the library's others are not compiled in.
    let mut found = Compact::new(Replace::new(Capture::new()), before, after);
    let (old, new) = (0..before.len(), 0..after.len());
    let Ok(()) = myers::diff_deadline(&mut found, before, old, after, new, Some(until));
    let hunks = found.into_inner().into_inner().into_grouped_ops(CONTEXT);
    Some(hunks.iter().flat_map(|hunk| unified(hunk, before, after)).collect())
}

/// The lines of a hunk, with its header.
fn unified(hunk: &[DiffOp], before: &[&str], after: &[&str]) -> Vec<String> {
    let all = |of: fn(&DiffOp) -> Range<usize>| {
        let ranges = || hunk.iter().map(of);
        let start = ranges().map(|range| range.start).min().unwrap_or_default();
        let end = ranges().map(|range| range.end).max().unwrap_or_default();
        // Lines are counted from one. An empty range has the line before it.
        format!("{},{}", if start == end { start } else { start + 1 }, end - start)
    };
    let mut lines =
        vec![format!("@@ -{} +{} @@\n", all(DiffOp::old_range), all(DiffOp::new_range))];
    for op in hunk {
        let (old, new) = (&before[op.old_range()], &after[op.new_range()]);
        if let DiffOp::Equal { .. } = op {
            lines.extend(old.iter().map(|line| signed(' ', line)));
        } else {
            lines.extend(old.iter().map(|line| signed('-', line)));
            lines.extend(new.iter().map(|line| signed('+', line)));
        }
    }
    lines
}

/// A line of a diff, cut, with a mark if the text's last line lacks its newline.
fn signed(sign: char, line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => format!("{sign}{}\n", shortened(line)),
        None => format!("{sign}{}\n\\ No newline at end of file\n", shortened(line)),
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then(|| text.to_owned())
}

fn indented(text: &str) -> Option<String> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let value: Value = is_json.then(|| serde_json::from_str(text).ok())??;
    serde_json::to_string_pretty(&value).ok().map(|text| text + "\n")
}

fn shortened(line: &str) -> String {
    match cut(line, LINE) {
        std::borrow::Cow::Borrowed(line) => line.to_owned(),
        std::borrow::Cow::Owned(start) => format!("{start} ({})", bytes(line.len())),
    }
}

/// Formats the differences between two machines with these `names`.
pub fn changes_as_text(changes: &[Change], names: [&str; 2], look: TerminalStyle) -> Vec<String> {
    let [before, after] = names.map(|name| escaped(&redacted(name)).into_owned());
    if changes.is_empty() {
        return vec![format!("{before} and {after} make the same machine.")];
    }
    let mut lines = vec![
        look.paint(Color::Bad, &format!("--- {before}")),
        look.paint(Color::Good, &format!("+++ {after}")),
    ];
    for change in changes {
        let (sign, ink) = match change.change {
            ChangeKind::Added => ("+", Color::Good),
            ChangeKind::Removed => ("-", Color::Bad),
            ChangeKind::Changed => ("~", Color::Notable),
        };
        lines.push(look.paint(ink, &format!("{sign} {} {}", change.what, escaped(&change.name))));
        let details = change.details.iter();
        lines.extend(details.map(|line| format!("    {}", escaped(&shortened(line)))));
        lines.extend(change.diff.iter().flat_map(|diff| diff.split_terminator('\n')).map(|line| {
            let text = format!("    {}", escaped(line));
            match line.chars().next() {
                Some('+') => look.paint(Color::Good, &text),
                Some('-') => look.paint(Color::Bad, &text),
                Some('@') => look.paint(Color::Faint, &text),
                _ => text,
            }
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ignition::{Config, data_url};
    use serde_json::json;

    use super::*;
    use crate::machine;

    fn made(config: &Value) -> Machine {
        machine(&Config::parse(&config.to_string()).unwrap(), None)
    }

    fn with_file(path: &str, text: &str) -> Machine {
        made(&json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": path, "mode": 420, "contents": {"source": data_url::encode(text.as_bytes())}}]},
        }))
    }

    fn reported(before: &Machine, after: &Machine) -> Vec<String> {
        let until = Instant::now() + Duration::from_millis(500);
        changes_as_text(&changes(before, after, until), ["a", "b"], TerminalStyle::PLAIN)
    }

    #[test]
    fn what_is_too_large_is_reported_by_its_size_alone() {
        let text = |bytes: usize| "1234567\n".repeat(bytes / 8);
        let (most, more) = (text(MAX_TEXT), text(MAX_TEXT + 8));
        let compared = reported(&with_file("/a", &most[8..]), &with_file("/a", &most));
        assert!(compared.iter().any(|line| line.contains("@@")), "{compared:?}");
        let lines = reported(&with_file("/a", &most), &with_file("/a", &more));
        let sizes = format!("contents: {MAX_TEXT} bytes -> {} bytes", MAX_TEXT + 8);
        assert!(lines.iter().any(|line| line.contains(&sizes)), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("@@")), "{lines:?}");
    }

    #[test]
    fn the_same_machine_has_no_changes() {
        let one = with_file("/a", "x\n");
        assert_eq!(reported(&one, &one.clone()), ["a and b make the same machine."]);
    }

    #[test]
    fn a_changed_text_is_reported_line_by_line() {
        let lines = reported(&with_file("/a", "1\n2\n3\n"), &with_file("/a", "1\n2b\n3\n"));
        assert_eq!(
            lines,
            [
                "--- a",
                "+++ b",
                "~ file /a",
                "    contents: 6 bytes -> 7 bytes",
                "    @@ -1,3 +1,3 @@",
                "     1",
                "    -2",
                "    +2b",
                "     3",
            ]
        );
    }

    #[test]
    fn an_end_that_is_missing_and_a_carriage_return_are_seen() {
        let lines = reported(&with_file("/a", ""), &with_file("/a", "1"));
        assert_eq!(
            lines[4..],
            ["    @@ -0,0 +1,1 @@", "    +1", r"    \ No newline at end of file"]
        );
        let lines = reported(&with_file("/a", "1\n"), &with_file("/a", "1\r\n"));
        assert_eq!(lines[4..], ["    @@ -1,1 +1,1 @@", "    -1", r"    +1\r"]);
    }

    #[test]
    fn hunks_are_apart_where_much_is_the_same() {
        let text = |a: &str, b: &str| format!("{a}\n1\n2\n3\n4\n5\n6\n7\n{b}\n");
        let lines = reported(&with_file("/a", &text("a", "b")), &with_file("/a", &text("c", "d")));
        assert_eq!(
            lines[4..],
            [
                "    @@ -1,4 +1,4 @@",
                "    -a",
                "    +c",
                "     1",
                "     2",
                "     3",
                "    @@ -6,4 +6,4 @@",
                "     5",
                "     6",
                "     7",
                "    -b",
                "    +d",
            ]
        );
    }

    #[test]
    fn the_least_difference_is_looked_for_until_it_is_time() {
        let lines: Vec<_> = (0..97).map(|n| format!("{n}\n")).collect();
        let text =
            |by: usize| -> String { (0..10_000).map(|n| &*lines[n * by % lines.len()]).collect() };
        let (before, after) = (with_file("/a", &text(1)), with_file("/a", &text(7)));
        let length = |until| {
            let changes = changes(&before, &after, until);
            changes[0].diff.as_ref().unwrap().lines().count()
        };
        let now = Instant::now();
        assert!(length(now) > length(now + Duration::from_mins(10)));
    }

    #[test]
    fn what_comes_and_goes_is_reported() {
        let lines = reported(&with_file("/a", "x"), &with_file("/b", "x"));
        assert_eq!(
            lines[2..],
            [
                "- file /a",
                "    mode 0644",
                "    owner root",
                "    1 byte",
                "+ file /b",
                "    mode 0644",
                "    owner root",
                "    1 byte"
            ]
        );
    }

    #[test]
    fn a_secret_that_changes_is_named_and_not_shown() {
        let secret = |value: &str| with_file("/env", &format!("PASSWORD={value}\n"));
        let lines = reported(&secret("sesame-1"), &secret("sesame-2"));
        assert_eq!(lines[2..], ["~ file /env", "    contents differ, and are secret"]);
        let user = |salt: &str| {
            let hash = format!("$6${salt}${}", "a".repeat(86));
            made(
                &json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "core", "passwordHash": hash}]}}),
            )
        };
        let lines = reported(&user("one"), &user("two"));
        assert_eq!(lines[2..], ["~ user core", "    contents differ, and are secret"]);
    }

    #[test]
    fn nothing_of_a_config_moves_a_cursor() {
        let lines = reported(&with_file("/\u{1b}[2J", "x"), &with_file("/a", "\u{1b}[2J\n"));
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:#?}");
    }

    #[test]
    fn json_is_compared_line_by_line_and_long_lines_are_cut() {
        let text = |value: &str| json!({"a": value, "b": "x".repeat(1_000)}).to_string();
        let lines = reported(&with_file("/a", &text("1")), &with_file("/a", &text("2")));
        assert!(lines.contains(&"    -  \"a\": \"1\",".to_owned()), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.ends_with("bytes)"))
                && lines.iter().all(|line| line.len() < 500)
        );
    }
}
