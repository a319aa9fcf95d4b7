//! Alerts, manifests, chart and page keep to the rules of messages.

use std::fs;
use std::path::Path;

use super::literals::{Text, of_sources};
use super::messages::{assert_none, of_texts};
use crate::support::{in_repository, manifests};

/// Annotations of an alert that people read.
const ANNOTATIONS: [&str; 3] = ["summary", "description", "action"];

/// Files below `deploy`, without those that links of the chart repeat.
fn deployed(has_type: impl Fn(&Path) -> bool) -> Vec<String> {
    let files = manifests::files(&in_repository("deploy")).into_iter();
    let is_repeated = |file: &Path| file.iter().any(|part| part == "files" || part == "charts");
    let files = files.filter(|file| has_type(file) && !is_repeated(file));
    files.map(|file| format!("deploy/{}", file.display())).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(in_repository(name)).expect("text")
}

fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    file.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension))
}

/// Values of these keys in YAML, each with its line; folded ones in one line.
fn values(yaml: &str, keys: &[&str]) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let mut inside: Option<usize> = None;
    for (index, line) in yaml.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let (Some(outer), Some(last)) = (inside, found.last_mut())
            && indent > outer
        {
            last.value += line.trim();
            last.value.push(' ');
            continue;
        }
        inside = None;
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        if !keys.contains(&key) {
            continue;
        }
        let value = value.trim().trim_matches('"');
        let is_folded = value == ">-";
        inside = is_folded.then_some(indent);
        let value = if is_folded { String::new() } else { value.to_owned() };
        found.push(Text { line: index + 1, value });
    }
    found
}

/// Comments after `#`, adjacent lines as one text with the first line.
fn comments(text: &str) -> Vec<Text> {
    let mut found: Vec<(usize, Text)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("# ") else { continue };
        match found.last_mut() {
            Some((last, it)) if *last == index => {
                *last = index + 1;
                it.value = format!("{} {comment}", it.value);
            }
            _ => found.push((index + 1, Text { line: index + 1, value: comment.to_owned() })),
        }
    }
    found.into_iter().map(|(_, text)| text).collect()
}

/// Comments of a template of helm's.
fn template_comments(text: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once("/*") {
        let line = text[..text.len() - begun.len()].lines().count();
        let (comment, after) = begun.split_once("*/").unwrap_or((begun, ""));
        found.push(Text { line, value: comment.to_owned() });
        rest = after;
    }
    found
}

/// What people read of HTML: text between tags, and labels. Expressions of the template are left out.
fn html(text: &str) -> Vec<Text> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for part in line.split(['<', '>']) {
            let is_tag = part.contains("=\"") || part.starts_with('/');
            let label = part.split_once("aria-label=\"").and_then(|(_, it)| it.split_once('"'));
            let value = match label {
                Some((label, _)) => label,
                None if is_tag => continue,
                None => part,
            };
            found.push(Text { line: index + 1, value: value.to_owned() });
        }
    }
    found
}

#[test]
fn alerts_use_plain_words_and_name_the_next_step() {
    let mut all = Vec::new();
    let alerts = deployed(|file| file.ends_with("alerts.yaml"));
    assert!(!alerts.is_empty());
    for name in alerts {
        let yaml = read(&name);
        let texts = values(&yaml, &ANNOTATIONS);
        assert_eq!(texts.len(), 3 * yaml.matches("- alert: ").count(), "{name}");
        let unfinished = texts.iter().filter(|it| !it.value.trim_end().ends_with('.'));
        all.extend(unfinished.map(|it| format!("{name}:{}: no full stop at the end", it.line)));
        all.extend(of_texts(&name, &texts));
    }
    assert_none(&all);
}

#[test]
fn comments_of_manifests_and_of_the_chart_use_plain_words() {
    let mut all = Vec::new();
    let has_comments = |file: &Path| {
        let is_service = has_extension(file, &["yaml", "nft", "service", "tmpfiles"]);
        is_service || file.ends_with("debian/default")
    };
    for name in deployed(has_comments) {
        let text = read(&name);
        all.extend(of_texts(&name, &comments(&text)));
        all.extend(of_texts(&name, &template_comments(&text)));
    }
    for name in deployed(|file| has_extension(file, &["tpl"])) {
        all.extend(of_texts(&name, &template_comments(&read(&name))));
    }
    assert_none(&all);
}

#[test]
fn the_notes_of_the_chart_use_plain_words() {
    let name = "deploy/chart/machine-config-server/templates/NOTES.txt";
    let text = Text { line: 1, value: read(name) };
    assert_none(&of_texts(name, [&text]));
}

#[test]
fn the_dashboard_uses_plain_words() {
    let name = "deploy/monitoring/dashboard.json";
    let json = read(name).replace('\"', "");
    let texts = values(&json, &["title", "description", "legendFormat"]);
    assert!(!texts.is_empty());
    assert_none(&of_texts(name, &texts));
}

#[test]
fn pages_use_plain_words() {
    let mut all = Vec::new();
    let folder = "crates/status/src/page";
    let files = manifests::files(&in_repository(folder));
    for file in files.iter().filter(|file| has_extension(file, &["html"])) {
        let name = format!("{folder}/{}", file.display());
        all.extend(of_texts(&name, &html(&read(&name))));
    }
    assert!(!files.is_empty());
    assert_none(&all);
}

#[test]
fn help_uses_plain_words() {
    let mut all = Vec::new();
    let mut count = 0;
    for (name, texts) in of_sources() {
        count += texts.help.len();
        all.extend(of_texts(&name, &paragraphs(&texts.help)));
    }
    assert!(count > 100, "{count} lines of help");
    assert_none(&all);
}

/// Help as paragraphs: a flag's lines follow each other.
fn paragraphs(lines: &[Text]) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let mut last = 0;
    for Text { line, value } in lines {
        match found.last_mut() {
            Some(it) if *line == last + 1 && !value.trim().is_empty() => it.value += value,
            _ => found.push(Text { line: *line, value: value.clone() }),
        }
        last = *line;
    }
    found
}

#[test]
fn texts_of_deployed_files_are_found() {
    let yaml = "summary: It is\naction: >-\n  Do it\n  now.\nexpr: x\n# A\n# comment\n";
    let found = |texts: Vec<Text>| -> Vec<(usize, String)> {
        texts.into_iter().map(|it| (it.line, it.value.trim().to_owned())).collect()
    };
    let expected = [(1, "It is"), (2, "Do it now.")].map(|(line, text)| (line, text.to_owned()));
    assert_eq!(found(values(yaml, &["summary", "action"])), expected);
    assert_eq!(found(comments(yaml)), [(6, "A comment".to_owned())]);
    assert_eq!(found(template_comments("a\n{{- /* Told. */ -}}\n")), [(2, "Told.".to_owned())]);
    let html = html("<p>Told {{ x }}</p><svg aria-label=\"a b\">\n");
    let html = found(html).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty());
    assert_eq!(html.collect::<Vec<_>>(), ["p", "Told {{ x }}", "a b"]);
}
