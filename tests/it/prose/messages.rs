//! Messages of the program use plain words, the terms of `docs/src/reference/terms.md`, and short sentences; log lines have a
//! constant message and fields, so that they can be searched.

use super::literals::{LogLine, Text, of_sources};
use super::{INSTEAD, phrases, words};

/// What messages do not say, in addition to [`INSTEAD`]; in small letters.
const IN_MESSAGES: &[(&str, &str)] = &[
    ("as it should", "(say what is wrong)"),
    ("as they should", "(say what is wrong)"),
    ("at hand", "available"),
    ("bring", "provide, replace"),
    ("brings", "provides, has"),
    ("by hand", "manually"),
    ("certificate authority", "CA, signing CA"),
    ("is gone", "was removed, not found"),
    ("is none", "is not one, is not one of"),
    ("is to be", "must be"),
    ("known here", "known to this server"),
    ("logins", "registry credentials"),
    ("looked at", "checked, read"),
    ("machine config", "MachineConfig"),
    ("machine configs", "MachineConfigs"),
    ("not there", "not found, missing"),
    ("not written anew", "not written again"),
    ("on the way", "on the network"),
    ("or other", "or another"),
    ("serving pair's", "serving certificate's"),
    ("taken over", "loaded, applied"),
    ("that is there", "existing, present"),
    ("vouch", "sign, verify"),
    ("vouched", "signed, verified"),
    ("vouches", "signs, verifies"),
];

/// Log lines with a message that is not constant, each with the reason.
const NOT_CONSTANT: [(&str, &str, &str); 3] = [
    (
        "src/server/request_log.rs",
        "Pool {} requested by address:",
        "installers search the log for this line of the reference server",
    ),
    (
        "crates/telemetry/src/faults.rs",
        "{message}",
        "each message is a constant of the table there",
    ),
    ("crates/telemetry/src/faults.rs", "{end}", "each message is a constant of the table there"),
];

/// Words of a sentence in a message.
const MAX_WORDS: usize = 40;

/// Names of other components, in small letters, that have words of the lists in them.
const NAMES: [&str; 2] = ["machine config operator", "machine config daemon"];

/// Codes that scripts read, each with its file.
const CODES: [(&str, &str); 2] = [
    ("crates/pki/src/ca_store.rs", "KEPT SERVING PAIR"),
    ("src/commands/certs/mod.rs", "serving pair"),
];

/// A text in small letters without parts that are not prose: placeholders, flags, paths, names of fields and values.
fn prose(text: &str) -> String {
    let (mut shown, mut depth) = (String::new(), 0_usize);
    let text = NAMES.iter().fold(text.to_lowercase(), |text, name| text.replace(name, "§"));
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                shown.push('§');
            }
            _ if depth == 0 => shown.push(c),
            _ => {}
        }
    }
    let code = |word: &str| {
        let inner = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-' && c != '/');
        let is_path = inner.contains('/') && inner.len() > 1;
        let is_name = inner.chars().any(|c| ['_', '=', '@', ':', '.'].contains(&c));
        let is_compound = inner.matches('-').count() > 1;
        inner.starts_with("--") || is_path || is_name || is_compound
    };
    let lines = shown.lines().map(|line| {
        let words = line.split(' ').map(|word| if code(word) { "§" } else { word });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Faults of a text, one line each.
pub(super) fn faults(text: &str) -> Vec<String> {
    let prose = prose(text);
    let mut faults = Vec::new();
    let words = words(&prose);
    for (_, phrase, instead) in phrases(&words, INSTEAD).chain(phrases(&words, IN_MESSAGES)) {
        faults.push(format!("instead of \"{phrase}\" write: {instead}"));
    }
    // "There is no" is plain, "it is no" is not.
    for (at, (_, word)) in words.iter().enumerate() {
        let word_at = |at: usize| words.get(at).map_or("", |(_, word)| word);
        let is_fine = word_at(at + 2) == "longer" || (at > 0 && word_at(at - 1) == "there");
        if word == "is" && word_at(at + 1) == "no" && !is_fine {
            faults.push("instead of \"is no\" write: is not a, has no".to_owned());
        }
    }
    for sentence in prose.split(['.', ';', ':', '\n', '?', '!']) {
        if sentence.split_whitespace().count() > MAX_WORDS {
            faults.push(format!("a sentence of more than {MAX_WORDS} words: make two of it"));
        }
    }
    faults
}

/// The faults of texts, each with its place.
pub(super) fn of_texts<'a>(name: &str, texts: impl IntoIterator<Item = &'a Text>) -> Vec<String> {
    let mut all = Vec::new();
    for Text { line, value } in texts {
        let faults = faults(value);
        all.extend(faults.iter().map(|fault| format!("{name}:{line}: {fault}: {value:?}")));
    }
    all
}

pub(super) fn assert_none(all: &[String]) {
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

/// The fault of a log line, if it has one.
fn log_fault(name: &str, line: &LogLine) -> Option<&'static str> {
    let Some(message) = &line.message else {
        return Some("the message is not a literal");
    };
    let is_exception =
        NOT_CONSTANT.iter().any(|(file, begin, _)| *file == name && message.starts_with(begin));
    if message.contains('{') && !is_exception {
        return Some("the message is not constant: make fields of what it interpolates");
    }
    if message.ends_with('.') {
        return Some("the message ends with a full stop");
    }
    let has = |names: &[&str]| line.fields.iter().any(|field| names.contains(&&**field));
    match &*line.level {
        "error" | "warn" if !has(&["fix"]) => Some("a warning or an error has no field `fix`"),
        _ => None,
    }
}

#[test]
fn log_lines_have_a_constant_message_and_fields() {
    let mut all = Vec::new();
    let mut exceptions = NOT_CONSTANT.to_vec();
    for (name, texts) in of_sources() {
        for line in &texts.log_lines {
            let found = log_fault(&name, line);
            all.extend(found.map(|fault| format!("{name}:{}: {fault}: {line:?}", line.line)));
            let message = line.message.as_deref().unwrap_or_default();
            exceptions.retain(|(file, begin, _)| *file != name || !message.starts_with(begin));
        }
    }
    assert_none(&all);
    assert_eq!(exceptions, [], "an exception that no line needs");
}

#[test]
fn messages_in_the_source_use_plain_words() {
    let mut all = Vec::new();
    for (name, texts) in of_sources() {
        let is_prose =
            |it: &&Text| it.value.trim().contains(' ') && !CODES.contains(&(&*name, &*it.value));
        all.extend(of_texts(&name, texts.literals.iter().filter(is_prose)));
    }
    assert_none(&all);
}

#[test]
fn faults_of_messages_are_found_in_prose_alone() {
    for faulty in [
        "it is told",
        "{0:?} is no name",
        "machine config {0} is not there",
        "nobody, {whoever}",
        "Whoever reads",
    ] {
        assert_ne!(faults(faulty), [""; 0], "{faulty}");
    }
    for fine in [
        "there is no pool of this name",
        "{whoever} failed",
        "use --stands or `mend` it",
        "/etc/our/beside is empty",
        "our_name, away=1, told.txt",
    ] {
        assert_eq!(faults(fine), [""; 0], "{fine}");
    }
    assert_eq!(faults(&["word"; MAX_WORDS + 1].join(" ")).len(), 1);
}

#[test]
fn faults_of_log_lines_are_found() {
    let line = |level: &str, message: Option<&str>, fields: &[&str]| LogLine {
        line: 1,
        level: level.to_owned(),
        fields: fields.iter().map(|it| (*it).to_owned()).collect(),
        message: message.map(str::to_owned),
    };
    let fault = |line| log_fault("src/x.rs", &line).is_some();
    assert!(fault(line("info", None, &[])));
    assert!(fault(line("info", Some("{it}"), &[])));
    assert!(fault(line("info", Some("it."), &[])));
    assert!(fault(line("error", Some("it"), &["pool", "reason"])));
    assert!(fault(line("warn", Some("it"), &[])));
    assert!(!fault(line("error", Some("it"), &["pool", "fix"])));
    assert!(!fault(line("info", Some("it"), &[])));
}

#[test]
fn the_list_is_sorted() {
    assert!(IN_MESSAGES.is_sorted_by_key(|(phrase, _)| phrase));
}
