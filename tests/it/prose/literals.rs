//! Texts of the program for people, from the Rust sources: string literals outside of tests, help of the command line, and the
//! calls of log macros.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Lit;

use super::SOURCES;
use crate::support::{in_repository, manifests};

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) line: usize,
    pub(super) value: String,
}

/// A call of a log macro.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    pub(super) line: usize,
    /// Name of the macro.
    pub(super) level: String,
    /// Names of its fields.
    pub(super) fields: Vec<String>,
    /// Its message, `None` if that is not a literal.
    pub(super) message: Option<String>,
}

/// Texts of a file.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) literals: Vec<Text>,
    pub(super) help: Vec<Text>,
    pub(super) log_lines: Vec<LogLine>,
    /// Modules that are compiled for tests only, each in a separate file.
    test_modules: Vec<String>,
}

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Traits whose derivation turns doc comments into help.
const HELP: [&str; 5] = ["Args", "ClapArgs", "Parser", "Subcommand", "ValueEnum"];

impl Texts {
    /// Reads Rust code.
    pub(super) fn of(code: &str) -> Self {
        let mut texts = Self::default();
        texts.walk(code.parse().expect("Rust code"), false);
        texts
    }

    fn walk(&mut self, tokens: TokenStream, is_help: bool) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let (mut at, mut derives_help) = (0, false);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    at += usize::from(is_punct(tokens.get(at), '!'));
                    let Some(TokenTree::Group(group)) = tokens.get(at) else { continue };
                    at += 1;
                    if is_test(group) {
                        at = self.skip_item(&tokens, at);
                    } else {
                        derives_help |= derives(group);
                        self.attribute(group, is_help);
                    }
                }
                TokenTree::Group(group) => {
                    let is_item = group.delimiter() == Delimiter::Brace;
                    self.walk(group.stream(), is_help || (derives_help && is_item));
                    derives_help &= !is_item;
                }
                TokenTree::Ident(name) if LEVELS.contains(&&*name.to_string()) => {
                    if let (true, Some(TokenTree::Group(call))) =
                        (is_punct(tokens.get(at), '!'), tokens.get(at + 1))
                    {
                        let line = name.span().start().line;
                        self.log_lines.push(log_line(line, &name.to_string(), call));
                    }
                }
                TokenTree::Literal(_) => self.literals.extend(text(token)),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    /// Reads an attribute: doc comments are help or no message, all other literals are messages.
    fn attribute(&mut self, group: &Group, is_help: bool) {
        let tokens: Vec<_> = group.stream().into_iter().collect();
        let is_doc = matches!(tokens.first(), Some(TokenTree::Ident(name)) if name == "doc");
        match tokens.last() {
            Some(comment) if is_doc => {
                if is_help {
                    self.help.extend(text(comment));
                }
            }
            _ => self.walk(group.stream(), false),
        }
    }

    /// Returns the place after the item that begins at `at`.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        let begins = at;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let is_body =
                matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            if is_body || is_punct(Some(token), ';') {
                break;
            }
        }
        if let [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Punct(_)] =
            &tokens[begins..at]
            && keyword == "mod"
        {
            self.test_modules.push(name.to_string());
        }
        at
    }
}

fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "").starts_with("cfg(test")
}

fn derives(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.next() == Some("derive") && words.any(|word| HELP.contains(&word))
}

fn text(token: &TokenTree) -> Option<Text> {
    let TokenTree::Literal(literal) = token else { return None };
    let Lit::Str(value) = Lit::new(literal.clone()) else { return None };
    Some(Text { line: literal.span().start().line, value: value.value() })
}

fn log_line(line: usize, level: &str, call: &Group) -> LogLine {
    let tokens: Vec<_> = call.stream().into_iter().collect();
    let (mut fields, mut message) = (Vec::new(), None);
    for argument in tokens.split(|token| is_punct(Some(token), ',')) {
        match argument {
            [only @ TokenTree::Literal(_), ..] if message.is_none() => {
                message = text(only).map(|it| it.value);
            }
            _ if message.is_none() => {
                let name = argument.iter().find(|token| matches!(token, TokenTree::Ident(_)));
                fields.extend(name.map(ToString::to_string));
            }
            _ => {}
        }
    }
    LogLine { line, level: level.to_owned(), fields, message }
}

/// The texts of all files of the program, each with its name; without modules for tests.
pub(super) fn of_sources() -> Vec<(String, Texts)> {
    let mut all = Vec::new();
    let mut skipped = BTreeSet::new();
    for folder in SOURCES {
        for file in manifests::files(&in_repository(folder)) {
            let name = Path::new(folder).join(&file);
            let is_test = name.iter().any(|part| part == "tests" || part == "templates");
            if is_test || file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let code = fs::read_to_string(in_repository("").join(&name)).expect("Rust code");
            let texts = Texts::of(&code);
            let directory = directory_of_modules(&name);
            skipped.extend(texts.test_modules.iter().map(|module| directory.join(module)));
            all.push((name, texts));
        }
    }
    let is_test =
        |name: &Path| skipped.iter().any(|module| name.with_extension("").starts_with(module));
    all.retain(|(name, _)| !is_test(name));
    all.into_iter().map(|(name, texts)| (name.display().to_string(), texts)).collect()
}

/// The directory of a file's modules.
fn directory_of_modules(file: &Path) -> PathBuf {
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") => file.parent().unwrap_or(file).to_owned(),
        _ => file.with_extension(""),
    }
}

#[test]
fn texts_are_read_with_their_lines() {
    let code = r#"
/// Not help
#[derive(Debug, Args)]
struct Flags {
    /// Help of a flag
    #[arg(value_name = "FILE")]
    flag: String,
}
#[error("cannot read {0}")]
struct Error(u8);
fn f() {
    tracing::warn!(%peer, fix = "do it", reason, "it {failed}");
    let x = 'x';
}
#[cfg(test)]
mod other;
#[cfg(test)]
mod tests { const A: &str = "whoever"; }
"#;
    let texts = Texts::of(code);
    let values = |texts: &[Text]| -> Vec<(usize, String)> {
        texts.iter().map(|it| (it.line, it.value.trim().to_owned())).collect()
    };
    assert_eq!(values(&texts.help), [(5, "Help of a flag".to_owned())]);
    assert_eq!(
        values(&texts.literals),
        [(6, "FILE"), (9, "cannot read {0}"), (12, "do it"), (12, "it {failed}")]
            .map(|(line, text)| (line, text.to_owned()))
    );
    let fields = ["peer", "fix", "reason"].map(str::to_owned).to_vec();
    let message = Some("it {failed}".to_owned());
    let level = "warn".to_owned();
    assert_eq!(texts.log_lines, [LogLine { line: 12, level, fields, message }]);
    assert_eq!(texts.test_modules, ["other"]);
}
