//! Where a text gives a name a value: environment files, units, YAML, INI, command lines.

/// A name and the literal value that it is given; what is computed later has none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    /// By an equals sign, as against a colon or a space.
    pub(super) is_equation: bool,
}

/// All assignments of a text.
pub(super) fn assignments(text: &str) -> impl Iterator<Item = Assignment<'_>> {
    text.lines().map(str::trim_start).filter(|line| !is_comment(line)).flat_map(in_line)
}

fn is_comment(line: &str) -> bool {
    ["#", ";", "//"].iter().any(|mark| line.starts_with(mark))
}

fn in_line(line: &str) -> impl Iterator<Item = Assignment<'_>> {
    line.char_indices().filter_map(move |(at, c)| {
        let name = name_before(&line[..at]);
        let rest = &line[at + c.len_utf8()..];
        let is_equation = match c {
            '=' => true,
            // `key: value`, not a URL or a time; nothing but a list's dash stands before the key.
            ':' => {
                let is_separate = rest.starts_with([' ', '\t', '"', '\'']);
                let before = line[..at].trim_end_matches(['"', '\'']);
                let before = before[..before.len() - name.len()]
                    .trim_matches([' ', '-', '"', '\'', '{', ',']);
                if !is_separate || !before.is_empty() {
                    return None;
                }
                false
            }
            // `--password value`
            ' ' if line[..at].ends_with(name)
                && !name.is_empty()
                && line[..at - name.len()].ends_with("--") =>
            {
                true
            }
            _ => return None,
        };
        let value = literal(rest)?;
        (!name.is_empty()).then_some(Assignment { name, value, is_equation })
    })
}

/// The identifier that a text ends with, quotes and spaces before the sign left out.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t', '"', '\'']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let start = text
        .rfind(|c| !is_part(c))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    text[start..].trim_start_matches('-')
}

/// A value that is written out.
fn literal(rest: &str) -> Option<&str> {
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let value = match quote {
        Some(quote) => rest[1..].split(quote).next()?,
        None => rest
            .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ')' | ']'))
            .next()?,
    };
    let is_computed =
        value.starts_with(['$', '%', '<', '{', '(', '`', '*', '&', '|', '>', '!', '=', '~', '[']);
    let is_path = value.starts_with(['/', '.']) || value.starts_with("file:");
    let lower = value.to_ascii_lowercase();
    let is_word = matches!(
        &lower[..],
        "" | "true"
            | "false"
            | "yes"
            | "no"
            | "on"
            | "off"
            | "null"
            | "none"
            | "nil"
            | "redacted"
            | "required"
            | "optional"
            | "string"
            | "changeme"
    );
    let is_masked = value.bytes().all(|byte| matches!(byte, b'*' | b'x' | b'X' | b'.'));
    // Code that assigns what it computes.
    let is_code = value.contains("$(") || value.contains("${") || value.contains("{{");
    (!is_computed && !is_path && !is_word && !is_masked && !is_code).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, &str)> {
        assignments(text).map(|it| (it.name, it.value)).collect()
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
        ] {
            assert!(found(text).contains(&(name, value)), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn what_is_computed_or_only_named_has_no_value() {
        for text in [
            "TOKEN=$OTHER",
            "TOKEN=\"$(cat /run/token)\"",
            "# TOKEN=abc",
            "tokenFile: /run/token",
            "token: ${TOKEN}",
            "token: {{ .Token }}",
            "password: ***",
            "at 10:20: token",
        ] {
            let tokens = found(text)
                .into_iter()
                .filter(|(name, _)| name.contains("oken") || *name == "TOKEN");
            assert_eq!(tokens.collect::<Vec<_>>(), [], "{text}");
        }
    }
}
