//! Finds assignments of values to names: environment files, units, YAML, INI, XML, command lines.

use std::mem;

use super::found::start;
use super::marks::is_masked;
use super::names::{LONGEST_NAME, Sign, is_key_material};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Assignment<'a> {
    pub(super) name: &'a str,
    /// The rest of the line.
    pub(super) rest: &'a str,
    pub(super) sign: Sign,
}

/// Maximum number of bytes of a value that are examined.
const LONGEST_VALUE: usize = 1_024;

/// Finds the assignments of a line.
pub(super) fn in_line(line: &str) -> impl Iterator<Item = Assignment<'_>> {
    let mut word_start = 0;
    line.bytes().enumerate().filter_map(move |(at, byte)| {
        let (before, rest) = match byte {
            b'=' | b':' | b' ' | b'>' => (&line[..at], &line[at + 1..]),
            _ => return None,
        };
        // `--password value`. Most separators are spaces, and few of those follow an option.
        if byte == b' ' {
            let word = &line[mem::replace(&mut word_start, at + 1)..at];
            let name = word.strip_prefix("--").filter(|it| !it.is_empty() && is_name(it))?;
            return Some(Assignment { name, rest, sign: Sign::Option });
        }
        let name = name_before(before);
        let before_name = before.strip_suffix(name).unwrap_or_default();
        let (rest, sign) = match byte {
            b':' if is_key(before, name, rest) => (rest, Sign::Colon),
            b'=' => {
                let is_option = before_name.ends_with("--");
                let sign = if is_option { Sign::Option } else { Sign::Equation };
                // `=>` of Puppet and Ruby.
                (rest.strip_prefix('>').unwrap_or(rest), sign)
            }
            // `<password>value</password>`
            b'>' if before_name.ends_with('<') => (rest, Sign::Equation),
            _ => return None,
        };
        (!name.is_empty()).then_some(Assignment { name, rest, sign })
    })
}

fn is_name(word: &str) -> bool {
    word.len() <= LONGEST_NAME && word.bytes().all(is_part)
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns `true` if `name:` is a key of YAML or JSON and not a URL or a time: only a list's dash precedes it, or a
/// member between braces. A header, recognised by a hyphen in its name, can be within a command.
fn is_key(before: &str, name: &str, rest: &str) -> bool {
    let is_separate = rest.is_empty() || rest.starts_with([' ', '\t', '"', '\'']);
    let before = before.trim_end_matches(['"', '\'']);
    let start = before.len().saturating_sub(name.len());
    let before = &before[..start];
    let is_first = || before.trim_matches([' ', '-', '"', '\'', '{', ',', '\t']).is_empty();
    let is_in_flow = || {
        let before = before.trim_end_matches([' ', '\t', '"', '\'']);
        before.ends_with(['{', ',']) && is_within_braces(before)
    };
    let is_header =
        name.contains('-') && before.ends_with(['"', '\'']) && super::names::is_secret_header(name);
    is_separate && (is_first() || is_in_flow() || is_header)
}

/// Returns `true` if a text ends within braces: in YAML's flow style, or in JSON within a command.
fn is_within_braces(before: &str) -> bool {
    let mut closed = 0_usize;
    for byte in before.bytes().rev().take(256) {
        match byte {
            b'}' => closed += 1,
            b'{' if closed == 0 => return true,
            b'{' => closed -= 1,
            _ => {}
        }
    }
    false
}

/// The identifier at the end of a text, without quotes and spaces before the sign.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t', '"', '\'', ']', ')', ':', '+']);
    let length =
        text.bytes().rev().take(LONGEST_NAME + 1).take_while(|byte| is_part(*byte)).count();
    text[text.len() - length..].trim_start_matches('-')
}

/// A value that is written out, rather than computed, referenced or masked.
pub(super) fn literal(rest: &str) -> Option<&str> {
    let value = written(rest)?;
    // These characters begin a list, a group or a block; within quotes they are ordinary ones.
    let is_open = !is_quoted(rest) && value.starts_with(['<', '{', '(', '[', '|', '>', '&', '=']);
    // Longer than all of these words.
    let word = start(value, 10).to_ascii_lowercase();
    match &word[..] {
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "none" | "nil" | "redacted"
        | "required" | "optional" | "string" | "changeme" | "ask" | "prompt" | "disabled"
        | "enabled" | "unset" | "undefined" | "stdin" | "env" => None,
        _ if is_open || is_computed(value) || is_masked(value) || is_call(value, rest) => None,
        _ => Some(value),
    }
}

/// Returns `true` if a value refers to another one, or is computed. Punctuation alone does not decide: passwords begin
/// with it too, and one base64 key in 64 with a slash.
pub(super) fn is_computed(value: &str) -> bool {
    const BRACKETS: [(char, char); 6] =
        [('<', '>'), ('{', '}'), ('[', ']'), ('(', ')'), ('%', '%'), ('@', '@')];
    let is_variable = value.starts_with(['$', '`']);
    let is_made = ["$(", "${", "{{"].iter().any(|it| value.contains(it))
        || value.starts_with("%(")
        || value.starts_with("%{");
    let is_bracketed =
        BRACKETS.iter().any(|(open, close)| value.starts_with(*open) && value.ends_with(*close));
    is_variable || is_made || is_bracketed || is_reference(value)
}

/// Returns `true` for a path, an option, or a name after a sign: `!vault`, `*alias`, `%s`, `@field`, `==`.
fn is_reference(value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || b"_!=~*&".contains(&byte);
    let is_path_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/@:%".contains(&byte);
    match value.as_bytes() {
        [b'/' | b'.' | b'!' | b'@' | b'*' | b'%' | b'&' | b'=' | b'~', rest @ ..]
            if rest.iter().all(|byte| is_name(*byte)) =>
        {
            true
        }
        [b'/' | b'.' | b'~', rest @ ..] | [b'%', _, b'/', rest @ ..] => {
            let is_path = value.starts_with('%') || rest.contains(&b'/') || rest.contains(&b'.');
            is_path && rest.iter().all(|byte| is_path_part(*byte)) && !is_key_material(value)
        }
        [b'-', b'-', first, ..] => first.is_ascii_alphabetic(),
        _ => value.starts_with("file:"),
    }
}

/// Returns `true` for calls such as `get_password()` and `os.environ['X']`.
fn is_call(value: &str, rest: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:".contains(&byte);
    let called = value.split_once(['(', '[']).map(|(name, _)| name);
    called.is_some_and(|name| !name.is_empty() && name.bytes().all(is_name))
        && !is_quoted(rest)
        && start(rest, 256).contains([')', ']'])
}

pub(super) fn is_quoted(rest: &str) -> bool {
    unprefixed(rest).starts_with(['"', '\''])
}

/// The part of a value to mask, without quotes; too much rather than too little if its end is unclear. If the name is
/// quoted, all up to the closing quote.
pub(super) fn masked(rest: &str, is_quoted: bool) -> &str {
    if is_quoted {
        return rest.split('"').next().unwrap_or_default();
    }
    let rest = rest.trim_start();
    match rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        Some(quote) => rest[1..].split(quote).next().unwrap_or_default(),
        None => rest.split(char::is_whitespace).next().unwrap_or_default(),
    }
}

/// A value without a prefix of its quote: some languages mark byte strings, and shells escape quotes within quotes.
fn unprefixed(rest: &str) -> &str {
    let rest = rest.trim_start();
    let is_quote = |rest: &&str| rest.starts_with(['"', '\'']);
    let marked = rest.strip_prefix(['b', 'r', 'f', 'u']).filter(is_quote);
    marked.or_else(|| rest.strip_prefix('\\')).unwrap_or(rest)
}

/// The text in the place of a value, literal or not.
fn written(rest: &str) -> Option<&str> {
    let rest = start(unprefixed(rest), LONGEST_VALUE);
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let is_end = |c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ')' | ']' | ';' | '<' | '&' | '}')
    };
    let value = match quote {
        Some(quote) => rest[1..].split(quote).next()?.trim_end_matches('\\'),
        None => rest.split(is_end).next()?,
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, &str)> {
        in_line(text).filter_map(|it| Some((it.name, literal(it.rest)?))).collect()
    }

    #[test]
    fn names_and_literal_values_are_found() {
        for (text, name, value) in [
            ("TOKEN=abc", "TOKEN", "abc"),
            ("export TOKEN='a b'", "TOKEN", "a b"),
            ("Environment=\"TOKEN=abc\" X=", "TOKEN", "abc"),
            ("ExecStart=/bin/x --token=abc --y", "token", "abc"),
            ("ExecStart=/bin/x --token abc", "token", "abc"),
            ("  password: abc", "password", "abc"),
            ("- token: \"abc\"", "token", "abc"),
            ("\"token\": \"abc\",", "token", "abc"),
            ("PrivateKey = abc=", "PrivateKey", "abc="),
            ("  <Password>abc</Password>", "Password", "abc"),
            ("  password => 'abc',", "password", "abc"),
            ("curl -H \"X-Auth-Token: abc\" https://h", "X-Auth-Token", "abc"),
            ("X=a?token=abc&b=c", "token", "abc"),
        ] {
            assert!(found(text).contains(&(name, value)), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn what_is_computed_or_only_named_has_no_value() {
        for text in [
            "TOKEN=$OTHER",
            "TOKEN=\"$(cat /run/token)\"",
            "tokenFile: /run/token",
            "token: ${TOKEN}",
            "token: {{ .Token }}",
            "password: ***",
            "at 10:20: token",
            "echo \"enter the password: now\"",
        ] {
            let secret = |(name, _): &(&str, &str)| {
                let name = name.to_ascii_lowercase();
                name == "token" || name == "password"
            };
            let tokens: Vec<_> = found(text).into_iter().filter(secret).collect();
            assert_eq!(tokens, [], "{text}");
        }
    }
}
