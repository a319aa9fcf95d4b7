//! Parses the book in `docs/src`, for tests that follow it as an administrator would.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::in_repository;

/// The folder of the book's pages.
pub(crate) const PAGES: &str = "docs/src";

/// A fenced block, without the indentation of a list that it is in.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The text of a page, by its path below [`PAGES`].
pub(crate) fn page(name: &str) -> String {
    let path = in_repository(PAGES).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Paths of all pages below [`PAGES`], sorted, without the summary.
pub(crate) fn pages() -> BTreeSet<String> {
    let is_page = |name: &String| {
        Path::new(name).extension().is_some_and(|it| it == "md") && name != "SUMMARY.md"
    };
    files("").into_iter().filter(is_page).collect()
}

/// The paths of all files of a folder below [`PAGES`].
pub(crate) fn files(directory: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(in_repository(PAGES).join(directory)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = Path::new(directory).join(entry.file_name()).to_str().expect("text").to_owned();
        if entry.path().is_dir() {
            found.append(&mut files(&name));
        } else {
            found.insert(name);
        }
    }
    found
}

/// The fenced blocks of a text.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for line in text.lines() {
        let indentation = line.len() - line.trim_start().len();
        match (open.take(), line.trim_start().strip_prefix("```")) {
            (None, None) => {}
            (None, Some(language)) => {
                let block = Block { language: language.to_owned(), text: String::new() };
                open = Some((indentation, block));
            }
            (Some((_, block)), Some(_)) => blocks.push(block),
            (Some((of_list, mut block)), None) => {
                block.text.push_str(line.get(of_list.min(indentation)..).expect("spaces"));
                block.text.push('\n');
                open = Some((of_list, block));
            }
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

/// The first example of a page that contains this part.
pub(crate) fn example(name: &str, part: &str) -> String {
    let mut examples = blocks(&page(name)).into_iter().map(|block| block.text);
    let found = examples.find(|text| text.contains(part));
    found.unwrap_or_else(|| panic!("{name}: no example with {part:?}"))
}

/// The commands of a text's console blocks as they are typed, each with the output that follows it. A command goes on after a
/// backslash, in indented lines, and until the end of a here-document.
pub(crate) fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in blocks(text).into_iter().filter(|block| block.language == "console") {
        let mut is_open = false;
        for line in block.text.lines() {
            let begins = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
            match begins {
                Some(command) if !is_open => commands.push((command.to_owned(), String::new())),
                _ => {
                    let (command, output) = commands.last_mut().expect("a command before it");
                    let is_command = is_open || (output.is_empty() && line.starts_with("  "));
                    let text = if is_command { command } else { output };
                    text.push('\n');
                    text.push_str(line);
                }
            }
            let (command, _) = commands.last().expect("a command");
            let is_document = command.contains("<<'END'") && !command.ends_with("\nEND");
            is_open = is_document || (command.ends_with('\\') && command.ends_with(line));
        }
    }
    commands
}

/// The lines of a text with `§` instead of inline code, and empty lines instead of code blocks.
pub(crate) fn without_code(text: &str) -> Vec<String> {
    let (mut is_block, mut is_code) = (false, false);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut kept = String::new();
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            for (index, part) in line.split('`').enumerate() {
                if index > 0 {
                    is_code = !is_code;
                    kept.push_str(if is_code { "§" } else { "" });
                }
                kept.push_str(if is_code { "" } else { part });
            }
        }
        is_code &= !line.trim().is_empty() && !is_block;
        lines.push(kept);
    }
    lines
}

/// The anchors of a text's headings, as GitHub and mdBook make them.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let code = without_code(text);
    let headings = text.lines().zip(&code).filter(|(_, code)| code.starts_with('#'));
    let anchors = headings.filter_map(|(line, _)| {
        let line = line.trim_start_matches('#').strip_prefix(' ')?;
        let kept = line.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
    });
    anchors.collect()
}

/// Replaces a text that must be present.
pub(crate) fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "no {old:?} in:\n{text}");
    text.replace(old, new)
}
