//! The documents are in plain English: no old-fashioned words, one term for one thing, short sentences. `CONTRIBUTING.md`,
//! "Style", has the rules. Doc comments begin with a noun or a verb, and avoid the worst of these words.

mod deployed;
mod identifiers;
mod literals;
mod messages;

use std::fs;

use crate::support::book::{PAGES, pages, without_code};
use crate::support::{in_repository, manifests};

/// Documents outside the book that keep to the rules.
const OTHERS: [&str; 5] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "deploy/README.md",
    "deploy/chart/machine-config-server/README.md",
];

/// Words of a sentence outside of tables.
const MAX_WORDS: usize = 40;

/// What is not written, and what is written instead; in small letters.
const INSTEAD: &[(&str, &str)] = &[
    ("amid", "during"),
    ("anew", "again"),
    ("anybody", "anyone, any client"),
    ("are said", "(name who reports it)"),
    ("authorities", "CAs"),
    ("away", "unavailable, down, removed"),
    ("beside", "next to, with"),
    ("besides", "also, in addition"),
    ("cannot be said", "cannot be expressed"),
    ("config map", "ConfigMap"),
    ("config maps", "ConfigMaps"),
    ("everybody", "all clients, everyone"),
    ("for ever", "until …, indefinitely"),
    ("go by", "use"),
    ("go on", "continue"),
    ("goes by", "uses"),
    ("goes on", "continues"),
    ("going by", "using"),
    ("going on", "continuing"),
    ("had to", "must"),
    ("has to", "must"),
    ("have to", "must"),
    ("heed", "respect"),
    ("heeded", "respected"),
    ("hence", "therefore"),
    ("in order", "OK; sorted by; to"),
    ("in step", "equal, updated"),
    ("is said", "(name who reports it)"),
    ("leaves alone", "does not change"),
    ("left alone", "not changed"),
    ("lest", "so that … not"),
    ("may not", "must not, cannot"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("nobody", "no machine, no client, no one"),
    ("obviously", "(leave it out)"),
    ("of course", "(leave it out)"),
    ("of his own", "separate"),
    ("of its own", "its, separate, custom"),
    ("of one's own", "separate, custom"),
    ("of our own", "separate"),
    ("of their own", "their, separate"),
    ("of your own", "separate, custom"),
    ("our", "(name the component)"),
    ("ours", "(name the component)"),
    ("pass over", "ignore"),
    ("passed over", "ignored"),
    ("passes over", "ignores"),
    ("please", "(leave it out)"),
    ("registry login", "registry credentials"),
    ("registry logins", "registry credentials"),
    ("serving pair", "serving certificate"),
    ("serving pairs", "serving certificates"),
    ("shall", "must"),
    ("simply", "(leave it out)"),
    ("somebody", "someone, another component"),
    ("stand", "be, represent"),
    ("stands", "is, represents"),
    ("stood", "was"),
    ("stranger", "unauthenticated client"),
    ("strangers", "unauthenticated clients"),
    ("tell", "report, show"),
    ("telling", "reporting"),
    ("tells", "reports, shows"),
    ("thereof", "of it"),
    ("thus", "therefore"),
    ("told", "reported, shown"),
    ("turned away", "refused"),
    ("turns away", "refuses"),
    ("under way", "in progress"),
    ("we", "(name the component)"),
    ("whereby", "by which"),
    ("whoever", "anyone who, a client that, you"),
    ("whom", "(name the person or machine)"),
];

/// Words of [`INSTEAD`] that are not in doc comments either.
const NOT_IN_COMMENTS: [&str; 13] = [
    "anew",
    "anybody",
    "everybody",
    "goes by",
    "mend",
    "mended",
    "mends",
    "of its own",
    "somebody",
    "stands",
    "told",
    "whoever",
    "whom",
];

/// Words that a doc comment does not begin with.
const OPENINGS: [&str; 4] = ["what", "who", "whether", "those"];

/// Folders of Rust files whose doc comments are checked.
const SOURCES: [&str; 2] = ["src", "crates"];

fn documents() -> impl Iterator<Item = (String, String)> {
    let pages = pages().into_iter().map(|page| format!("{PAGES}/{page}"));
    OTHERS.map(str::to_owned).into_iter().chain(pages).map(|name| {
        let text = fs::read_to_string(in_repository(&name)).expect("a document");
        (name, text)
    })
}

/// A line without the targets of its links.
fn shown(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, rest| shown + " " + rest.split_once(')').map_or("", |(_, it)| it))
}

/// The words of a text in small letters, each with its line; an empty one where a paragraph ends, `§` for code.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (index, line) in without_code(text).iter().enumerate() {
        let shown = shown(line);
        let is_mark = |c: char| !c.is_alphanumeric() && !['\'', '’', '§'].contains(&c);
        let found = shown.split(is_mark).filter(|word| !word.is_empty());
        words.extend(found.map(|word| (index + 1, word.to_lowercase().replace('’', "'"))));
        if shown.trim().is_empty() {
            words.push((index + 1, String::new()));
        }
    }
    words
}

/// A line with what is not written, and what is.
type Fault = (usize, &'static str, &'static str);

/// Lines with what is not written, each with what is.
fn faults(text: &str) -> Vec<Fault> {
    phrases(&words(text), INSTEAD).collect()
}

/// The places of a list's phrases in words.
fn phrases(
    words: &[(usize, String)],
    list: &'static [(&str, &str)],
) -> impl Iterator<Item = Fault> {
    words.iter().enumerate().flat_map(move |(index, (line, _))| {
        let begins_here = move |phrase: &str| {
            let mut rest = words[index..].iter().map(|(_, word)| word.as_str());
            phrase.split(' ').all(|word| rest.next() == Some(word))
        };
        let found = list.iter().filter(move |(phrase, _)| begins_here(phrase));
        found.map(|(phrase, instead)| (*line, *phrase, *instead))
    })
}

/// The lines on which sentences begin that are too long, outside of tables.
fn long_sentences(text: &str) -> Vec<usize> {
    let (mut found, mut count, mut since) = (Vec::new(), 0, 0);
    for (index, line) in without_code(text).iter().enumerate() {
        let shown = shown(line);
        let start = shown.trim_start();
        let is_item = start.split_once(' ').is_some_and(|(mark, _)| {
            ["-", "*"].contains(&mark) || mark.trim_end_matches('.').parse::<u8>().is_ok()
        });
        if start.is_empty() || start.starts_with(['|', '#', '!']) || is_item {
            count = 0;
        }
        if start.starts_with('|') {
            continue;
        }
        for word in shown.split_whitespace().skip(usize::from(is_item)) {
            if count == 0 {
                since = index + 1;
            }
            count += 1;
            if count == MAX_WORDS + 1 {
                found.push(since);
            }
            if word.trim_end_matches([')', '"', '*']).ends_with(['.', ':', ';', '?', '!']) {
                count = 0;
            }
        }
    }
    found
}

/// The doc comments of Rust code, each line at its place. Help texts of flags are left out: they end without
/// a full stop.
fn doc_comments(code: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(text.trim().to_owned())
    };
    let mut lines: Vec<String> =
        code.lines().map(|line| comment(line).unwrap_or_default()).collect();
    let is_comment: Vec<bool> = code.lines().map(|line| comment(line).is_some()).collect();
    let mut start = 0;
    for block in is_comment.chunk_by(|a, b| a == b) {
        let end = start + block.len();
        if !lines[end - 1].ends_with('.') {
            lines[start..end].iter_mut().for_each(String::clear);
        }
        start = end;
    }
    lines.join("\n")
}

/// Lines of doc comments with a word that is not written there, each with what is written.
fn comment_faults(comments: &str) -> Vec<(usize, String)> {
    let worst = faults(comments).into_iter().filter(|(_, it, _)| NOT_IN_COMMENTS.contains(it));
    let worst =
        worst.map(|(line, it, instead)| (line, format!("instead of \"{it}\" write: {instead}")));
    let words = words(comments);
    let begins = |at: usize| at == 0 || words[at - 1].1.is_empty();
    let openings = words
        .iter()
        .enumerate()
        .filter(|(at, (_, word))| begins(*at) && OPENINGS.contains(&&**word));
    let openings = openings.map(|(_, (line, word))| {
        (*line, format!("begin with a noun or a verb, not with \"{word}\""))
    });
    worst.chain(openings).collect()
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb_and_use_plain_words() {
    let mut all = Vec::new();
    for folder in SOURCES {
        for file in manifests::files(&in_repository(folder)) {
            // The comments of the command line are its help.
            let is_help = folder == "src" && file.starts_with("cli");
            if is_help || file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = format!("{folder}/{}", file.display());
            let code = fs::read_to_string(in_repository(&name)).expect("Rust code");
            let faults = comment_faults(&doc_comments(&code));
            all.extend(faults.iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

#[test]
fn faults_of_doc_comments_are_found_in_prose_alone() {
    let faulty =
        "//! What it is.\n\n/// A value.\n///\n/// It is told to `whoever`.\nfn whoever() {}\n";
    let lines: Vec<_> =
        comment_faults(&doc_comments(faulty)).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [5, 1]);
    for fine in [
        "// Told.\n",
        "let told = 1;\n",
        "/// What the token is for\nname: String,\n",
        "/// A `told`.\n",
    ] {
        assert_eq!(comment_faults(&doc_comments(fine)), [], "{fine}");
    }
}

#[test]
fn the_documents_use_plain_words() {
    let mut all = Vec::new();
    for (name, text) in documents() {
        let lines = faults(&text).into_iter().map(|(line, phrase, instead)| {
            format!("{name}:{line}: instead of \"{phrase}\" write: {instead}")
        });
        all.extend(lines);
    }
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

#[test]
fn the_documents_have_short_sentences() {
    let mut all = Vec::new();
    for (name, text) in documents() {
        let lines = long_sentences(&text).into_iter().map(|line| {
            format!("{name}:{line}: a sentence of more than {MAX_WORDS} words: make two of it")
        });
        all.extend(lines);
    }
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

#[test]
fn words_are_found_in_prose_and_nowhere_else() {
    let text = "It goes\nby names.\n\nGoes `x` by.\n\n```text\nwhoever\n```\n[x](whoever.md) `it is \
        told`, Whoever’s\n";
    assert_eq!(faults(text), [(1, "goes by", "uses")]);
    assert_eq!(faults("- of one’s own"), [(1, "of one's own", "separate, custom")]);
    assert_eq!(faults("| a | told |"), [(1, "told", "reported, shown")]);
}

#[test]
fn long_sentences_are_found_in_prose_and_not_in_tables() {
    let many = ["word"; MAX_WORDS].join(" ");
    assert_eq!(long_sentences(&format!("x\n\n{many}\nmore")), [3]);
    for fine in [
        many.clone(),
        format!("{many}.\n{many}."),
        format!("| {many} {many} |"),
        format!("- {many}\n- {many}"),
    ] {
        assert!(long_sentences(&fine).is_empty(), "{fine}");
    }
}

#[test]
fn the_list_is_sorted() {
    assert!(INSTEAD.is_sorted_by_key(|(phrase, _)| phrase));
}
