//! PEM as Go's `encoding/pem` reads it, which decides how Ignition reads CAs: a block begins and ends on its own lines,
//! can have headers (RFC 1421) and any label, and other text is ignored.

use base64::Engine as _;
use ignition::data_url::BASE64;

pub(super) const BEGIN: &[u8] = b"-----BEGIN ";
/// End of a block, with the line feed before it.
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// Label such as `CERTIFICATE`.
    pub(super) label: &'a [u8],
    pub(super) contents: Vec<u8>,
    pub(super) rest: &'a [u8],
}

/// The first block of a text.
pub(super) fn block(text: &[u8]) -> Option<Block<'_>> {
    let mut rest = text;
    loop {
        let end = find(rest, END)?;
        // A beginning that is followed by another one before an end is no block.
        let begin = rfind(&rest[..end], BEGIN);
        let begin = begin.filter(|begin| *begin == 0 || rest[begin - 1] == b'\n');
        let read = begin.and_then(|begin| contents(&rest[begin + BEGIN.len()..]));
        if let Some(found) = read {
            return Some(found);
        }
        rest = &rest[end + END.len()..];
    }
}

/// Parses a block whose text begins with its label.
fn contents(text: &[u8]) -> Option<Block<'_>> {
    let (label, mut body) = line(text);
    let label = label.strip_suffix(DASHES)?;
    let mut has_headers = false;
    loop {
        if body.is_empty() {
            return None;
        }
        let (header, next) = line(body);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        body = next;
    }
    // In an empty block, the line feed before the end is that of the first line.
    let (encoded, trailer) = match body.strip_prefix(&END[1..]) {
        Some(trailer) if !has_headers => (&b""[..], trailer),
        _ => {
            let end = find(body, END)?;
            (&body[..end], &body[end + END.len()..])
        }
    };
    let (last, rest) = line(trailer);
    if last.strip_prefix(label)? != DASHES {
        return None;
    }
    let encoded: Vec<u8> =
        encoded.iter().copied().filter(|byte| !b" \t\r\n".contains(byte)).collect();
    Some(Block { label, contents: BASE64.decode(encoded).ok()?, rest })
}

/// The first line without its end and trailing white space, and the rest.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = end.map_or((text, &b""[..]), |end| (&text[..end], &text[end + 1..]));
    let line = if end.is_some() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    let kept = line.iter().rposition(|byte| !b" \t".contains(byte)).map_or(0, |last| last + 1);
    (&line[..kept], rest)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn rfind(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).rposition(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, String)> {
        let Block { label, contents, rest } = block(text.as_bytes())?;
        assert_eq!(label, b"A");
        Some((String::from_utf8(contents).unwrap(), String::from_utf8(rest.to_vec()).unwrap()))
    }

    #[test]
    fn a_block_is_what_go_takes_for_one() {
        let block = |text: &str| format!("-----BEGIN A-----\n{text}-----END A-----\n");
        let whole = block("Zm9v\n");
        for (text, rest) in [
            (whole.clone(), ""),
            (whole.replace('\n', "\r\n"), ""),
            (whole.trim_end().to_owned(), ""),
            (whole.replace("A-----\n", "A----- \t\n"), ""),
            (whole.replace("Zm9v", "Z m\n\t9v"), ""),
            (block("Proc-Type: 4\nX:\n\nZm9v\n"), ""),
            (format!("junk\n-----BEGIN A-----\n{whole}\nmore\n"), "\nmore\n"),
            (format!("{}{whole}", block("Zm9\n")), ""),
            (format!("x{whole}{whole}"), ""),
            (format!("{whole}{whole}"), &whole),
        ] {
            assert_eq!(read(&text), Some(("foo".to_owned(), rest.to_owned())), "{text}");
        }
        assert_eq!(read(&block("")), Some((String::new(), String::new())));
    }

    #[test]
    fn what_go_passes_over_is_no_block() {
        let whole = "-----BEGIN A-----\nZm9v\n-----END A-----\n";
        for text in [
            String::new(),
            "x".to_owned(),
            whole.replace('\n', "\r"),
            whole.replace("END A", "END B"),
            whole.replace("END A-----", "END A----"),
            whole.replace("BEGIN A-----", "BEGIN A----"),
            whole.replace("END A-----", "END A-----x"),
            whole.replace("Zm9v\n", "Zm9v"),
            whole.replace("Zm9v", "Zm9"),
            whole.replace("Zm9v", "Zm9-"),
            format!(" {whole}"),
            format!("{}{whole}", whole.trim_end()),
        ] {
            assert_eq!(read(&text), None, "{text}");
        }
    }
}
