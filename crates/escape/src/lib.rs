//! Foreign text in single lines of output: names of files, keys and objects are chosen by others, and must not look
//! like more than one line or move a terminal's cursor.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::borrow::Cow;

/// Maximum length of a name, in characters, or in bytes where it is escaped as well.
pub const NAME: usize = 253;
/// Maximum length of an explanation, in characters.
pub const REASON: usize = 1_000;

/// Escapes line ends, cursor movements and changes of the reading direction, so that a text stays one line.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.chars().any(is_control) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line.into()
}

/// The first `most` names of a list, and how many more there are.
pub fn listed<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let first: Vec<_> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The number of reasons after the one that is shown, if there are any: ` (and 2 more)`.
pub fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// The first `most` characters of a text, with an ellipsis in place of what is left out.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

/// The beginning of a text, escaped as Rust escapes a string, in at most `most` bytes, with an ellipsis in place of
/// what is left out. A text that is cut in characters and escaped afterwards can be ten times as long.
pub fn cut_escaped(text: &str, most: usize) -> String {
    let (mut line, mut end) = (String::with_capacity(text.len().min(most)), 0);
    for c in text.chars() {
        if line.len() + '…'.len_utf8() <= most {
            end = line.len();
        }
        match c {
            '\'' => line.push(c),
            _ if is_control(c) => line.extend(c.escape_default()),
            _ => line.extend(c.escape_debug()),
        }
        if line.len() > most {
            line.truncate(end);
            line.push('…');
            return line;
        }
    }
    line
}

/// The beginning of a text that takes at most `most` bytes as a string in JSON, without the quotes, with an ellipsis in
/// place of what is left out. A text that is counted in characters can take six times as many bytes.
pub fn cut_for_json(text: &str, most: usize) -> Cow<'_, str> {
    let (mut taken, mut end) = (0, 0);
    for (index, c) in text.char_indices() {
        if taken + '…'.len_utf8() <= most {
            end = index;
        }
        taken += json_bytes(c);
        if taken > most {
            return format!("{}…", &text[..end]).into();
        }
    }
    text.into()
}

/// Bytes of a character in JSON (RFC 8259 section 7) if only mandatory escapes are used.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

/// A name in quotes, cut and escaped.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", cut_escaped(name, NAME))
}

fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_line_is_more_than_a_line() {
        for (text, line) in [
            ("/manifests/pools.yaml", "/manifests/pools.yaml"),
            ("Größe \u{1f600}", "Größe \u{1f600}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7f}\u{9b}1A", "\\u{1b}[2J\\u{7f}\\u{9b}1A"),
            ("a\u{2028}b\u{202e}c\u{2066}", "a\\u{2028}b\\u{202e}c\\u{2066}"),
        ] {
            assert_eq!(escaped(text), line);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü", 2), "äö…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn a_text_is_cut_by_what_it_takes_escaped() {
        for (text, most, expected) in [
            ("", 0, ""),
            ("worker", 6, "worker"),
            ("workers", 6, "wor…"),
            ("it's \"a\"\t\\", 14, "it's \\\"a\\\"\\t\\\\"),
            ("\u{10ffff}\u{10ffff}", 20, "\\u{10ffff}\\u{10ffff}"),
            ("\u{10ffff}\u{10ffff}", 19, "\\u{10ffff}…"),
            ("ü\u{2028}\u{202e}", 20, "ü\\u{2028}\\u{202e}"),
        ] {
            assert_eq!(cut_escaped(text, most), expected, "{text:?}");
        }
        for c in ['x', '\n', 'ü', '\u{301}', '\u{fffd}', '\u{10ffff}'] {
            let cut = cut_escaped(&c.to_string().repeat(300), NAME);
            assert!(cut.len() <= NAME && cut.len() > NAME - 13 && cut.ends_with('…'), "{cut}");
        }
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
    }

    #[test]
    fn a_text_is_cut_by_what_it_takes_in_json() {
        let in_json = |text: &str| serde_json::to_string(text).unwrap().len() - 2;
        assert_eq!(cut_for_json("rendered-worker-1", 17), "rendered-worker-1");
        assert_eq!(cut_for_json("rendered-worker-1", 16), "rendered-work…");
        assert_eq!(cut_for_json("\u{1}\u{1}\u{1}", 17), "\u{1}\u{1}…");
        assert_eq!(cut_for_json("", 0), "");
        for c in ('\0'..='\u{ff}').chain(['\u{2028}', '\u{fffd}', '\u{1f600}']) {
            assert_eq!(json_bytes(c), in_json(&c.to_string()), "{c:?}");
            let long = c.to_string().repeat(100);
            for most in [3, 50, 51, 52, 53, 54, 55, 600] {
                let cut = cut_for_json(&long, most);
                assert!(in_json(&cut) <= most, "{c:?} {most}");
                assert!(cut == long || in_json(&cut) + 6 > most - 3, "{c:?} {most}: {cut:?}");
                assert_eq!(cut_for_json(&cut, most), cut, "what is cut stays as it is");
            }
        }
    }
}
