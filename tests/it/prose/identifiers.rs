//! Names of items in plain words: of functions, types, modules and constants, by the lines that define them.

use std::fs;

use crate::support::{in_repository, manifests};

/// Folders of Rust files whose names are checked.
const FOLDERS: [&str; 4] = ["src", "crates", "tests", "benches"];

/// Words before the kind of an item.
const QUALIFIERS: [&str; 6] = ["async", "const", "default", "extern", "static", "unsafe"];

/// Kinds of items.
const KINDS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "mod", "const", "static", "type", "union"];

/// What is not in a name, and what is instead; in small letters.
const INSTEAD: &[(&str, &str)] = &[
    ("carrier", "embedded_token"),
    ("duties", "assessments"),
    ("duty", "assessment"),
    ("elsewhere", "in_another_directory, on_another_host"),
    ("everybody", "(name them)"),
    ("forget", "discard, remove"),
    ("forgets", "discards, removes"),
    ("forgotten", "discarded, removed"),
    ("heal", "recover, be_temporary"),
    ("keeper", "reconciler, controller"),
    ("nobodys", "(say what is not done)"),
    ("somebody", "another_tool, an_administrator"),
    ("spoil", "damage"),
    ("spoilt", "damaged, undecodable"),
    ("standing", "presence, status"),
    ("stranger", "unauthenticated_client, unknown_key, unrelated_ca"),
    ("strangers", "unauthenticated_clients"),
    ("whoever", "regardless_of_who, any_client"),
    ("whom", "(name the person or machine)"),
    ("yes", "grant"),
    ("yeses", "grants"),
];

/// The name that a line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words =
        line.split_whitespace().skip_while(|word| word.starts_with("pub") || word.ends_with(')'));
    let mut is_item = false;
    loop {
        let word = words.next()?;
        let end = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
        match &word[..end] {
            "mut" if is_item => {}
            kind if end == word.len() && KINDS.contains(&kind) => is_item = true,
            qualifier if QUALIFIERS.contains(&qualifier) => {}
            "" if word == "\"C\"" => {}
            name => return is_item.then_some(name).filter(|name| !name.is_empty()),
        }
    }
}

/// The words of a name in small letters: `snake_case`, `CamelCase` and constants.
fn words_of(name: &str) -> Vec<String> {
    let is_constant = !name.contains(char::is_lowercase);
    let mut words = vec![String::new()];
    for letter in name.chars() {
        let begins = letter == '_' || letter.is_uppercase() && !is_constant;
        if begins {
            words.push(String::new());
        }
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The names of Rust code with a word that is not in a name, each with its line and what is written instead.
fn faults(code: &str) -> Vec<(usize, String)> {
    let names = code.lines().enumerate().filter_map(|(at, line)| Some((at + 1, defined(line)?)));
    let faults = names.flat_map(|(line, name)| {
        let words = words_of(name);
        let found = INSTEAD.iter().filter(move |(it, _)| words.iter().any(|word| word == it));
        found.map(move |(it, instead)| {
            (line, format!("{name}: instead of \"{it}\" write: {instead}"))
        })
    });
    faults.collect()
}

#[test]
fn names_of_items_use_plain_words() {
    let mut all = Vec::new();
    for folder in FOLDERS {
        for file in manifests::files(&in_repository(folder)) {
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = format!("{folder}/{}", file.display());
            let code = fs::read_to_string(in_repository(&name)).expect("Rust code");
            all.extend(faults(&code).iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

#[test]
fn a_word_is_found_in_the_name_of_any_item_and_nowhere_else() {
    for faulty in [
        "fn whoever() {}",
        "    pub(super) async fn forget_machine(&self) {",
        "pub(in crate::commands) fn a_stranger<T>(it: T) {",
        "pub const fn of_strangers() -> u8 {",
        "unsafe extern \"C\" fn duty() {}",
        "enum Standing {",
        "pub struct TokenKeeper;",
        "mod duties;",
        "static STRANGER: u8 = 1;",
        "const FOR_WHOM: u8 = 1;",
        "type Yes = bool;",
    ] {
        let found = faults(&format!("\n{faulty}\n"));
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2], "{faulty}");
    }
    for innocent in [
        "fn outstanding_request() {}",
        "struct HandshakeQueue;",
        "const UNDERSTANDING: u8 = 1;",
        "// fn whoever() {}",
        "let stranger = 1;",
        "std::mem::forget(runtime);",
        "use model::standing::Loss;",
        "\"fn whoever() {}\",",
    ] {
        assert_eq!(faults(innocent), [], "{innocent}");
    }
}

#[test]
fn the_list_of_words_in_names_is_sorted() {
    assert!(INSTEAD.is_sorted_by_key(|(word, _)| word));
}
