//! Data URLs (RFC 2397), which carry nearly all contents in a config.
//!
//! The grammar is what Ignition accepts, narrower than the RFC in places: the media type is one of the seven top-level
//! types of RFC 2045 or starts with `x-`, and the data is ASCII without control characters. A config of some hundred KB
//! is mostly data URLs, so [`check`] does not decode them.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use super::url::has_whole_escapes;

/// Reasons why Ignition refuses a data URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The text does not start with `data:`.
    #[error("does not start with data:")]
    Prefix,
    /// The media type or a parameter is malformed, or no comma ends them.
    #[error("has a malformed media type")]
    MediaType,
    /// The data has a character that must be percent-encoded, or is not base64.
    #[error("has a character in its data that does not belong there")]
    Character,
    /// A percent sign without two hexadecimal digits.
    #[error("has an incomplete percent-encoding")]
    Percent,
    /// Base64 data of a wrong length or with misplaced padding.
    #[error("has malformed base64 data")]
    Base64,
}

/// Base64 as Go's decoder reads it: padding is required, and stray bits in the last character are ignored.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The data URL of `contents`: `data:,` and the bytes, percent-encoded but for RFC 2396's unreserved characters.
pub fn encode(contents: &[u8]) -> String {
    // Text is mostly letters; half more is room for its spaces, quotes and line ends without growing.
    let mut url = String::with_capacity(6 + contents.len() + contents.len() / 2);
    url.push_str("data:,");
    url.extend(percent_encoding::percent_encode(contents, RESERVED));
    url
}

/// The shortest data URL of bytes that are not text.
pub fn encode_base64(contents: &[u8]) -> String {
    let mut url = String::from("data:;base64,");
    BASE64.encode_string(contents, &mut url);
    url
}

/// Bytes except RFC 2396's unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Decodes a data URL.
pub fn decode(url: &str) -> Result<Vec<u8>, Malformed> {
    check(url)?;
    match split(url)? {
        (Encoding::Base64, data) => BASE64.decode(data).map_err(|_| Malformed::Base64),
        (Encoding::Percent, data) => Ok(percent_encoding::percent_decode_str(data).collect()),
    }
}

/// Validates a data URL as [`decode`] does, without the copy.
pub fn check(url: &str) -> Result<(), Malformed> {
    match split(url)? {
        (Encoding::Base64, data) => check_base64(data.as_bytes()),
        (Encoding::Percent, data) => check_percent(data.as_bytes()),
    }
}

enum Encoding {
    Base64,
    Percent,
}

/// Splits a data URL into its encoding and its data.
fn split(url: &str) -> Result<(Encoding, &str), Malformed> {
    let rest = url.strip_prefix("data:").ok_or(Malformed::Prefix)?;
    let mut rest = media_type(rest)?;
    loop {
        if let Some(data) = rest.strip_prefix(',') {
            return Ok((Encoding::Percent, data));
        }
        rest = rest.strip_prefix(';').ok_or(Malformed::MediaType)?;
        let (name, after) = token(rest);
        if name.is_empty() {
            return Err(Malformed::MediaType);
        }
        if let Some(value) = after.strip_prefix('=') {
            rest = parameter_value(value)?;
        } else if let (true, Some(data)) = (name == "base64", after.strip_prefix(',')) {
            return Ok((Encoding::Base64, data));
        } else {
            return Err(Malformed::MediaType);
        }
    }
}

/// Skips `type/subtype`, which may be missing altogether.
fn media_type(text: &str) -> Result<&str, Malformed> {
    if text.starts_with([';', ',']) {
        return Ok(text);
    }
    let (kind, rest) = token(text);
    let known =
        ["text", "image", "audio", "video", "application", "message", "multipart", "x-", "X-"];
    if !known.iter().any(|prefix| kind.starts_with(prefix)) {
        return Err(Malformed::MediaType);
    }
    let subtype = rest.strip_prefix('/').ok_or(Malformed::MediaType)?;
    Ok(token(subtype).1)
}

/// Skips a parameter's value: a percent-encoded token or a quoted string.
fn parameter_value(text: &str) -> Result<&str, Malformed> {
    let Some(mut quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text);
        if value.is_empty() {
            return Err(Malformed::MediaType);
        }
        return if has_whole_escapes(value) { Ok(rest) } else { Err(Malformed::Percent) };
    };
    loop {
        let (end, found) = quoted
            .char_indices()
            .find(|&(_, c)| matches!(c, '"' | '\\' | '\n') || !c.is_ascii())
            .ok_or(Malformed::MediaType)?;
        match (found, quoted.as_bytes().get(end + 1)) {
            ('"', _) => return Ok(&quoted[end + 1..]),
            ('\\', Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'\\' | b'"')) => {
                quoted = &quoted[end + 2..];
            }
            _ => return Err(Malformed::MediaType),
        }
    }
}

/// Splits off the leading token of RFC 2045: printable ASCII but for the special characters.
fn token(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_graphic() || b"()<>@,;:\\\"/[]?=".contains(&b));
    text.split_at(end.unwrap_or(text.len()))
}

/// Bytes that need no percent-encoding. It is a table because every byte of a config is looked up.
const DATA_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_graphic()
            && !matches!(
                byte,
                b'<' | b'>' | b'#' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'[' | b']' | b'`'
            );
        byte += 1;
    }
    table
};

/// Checks that every byte can be in the data, and every percent sign is followed by two digits.
fn check_percent(text: &[u8]) -> Result<(), Malformed> {
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if !DATA_BYTES[usize::from(byte)] {
            return Err(Malformed::Character);
        }
        if byte == b'%' {
            let mut digit = || bytes.next().is_some_and(u8::is_ascii_hexdigit);
            if !(digit() && digit()) {
                return Err(Malformed::Percent);
            }
        }
    }
    Ok(())
}

fn check_base64(data: &[u8]) -> Result<(), Malformed> {
    let padding = data.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = &data[..data.len() - padding];
    if !digits.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')) {
        return Err(Malformed::Character);
    }
    let expected = match digits.len() % 4 {
        0 => 0,
        1 => return Err(Malformed::Base64),
        over => 4 - over,
    };
    if padding == expected { Ok(()) } else { Err(Malformed::Base64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreserved_characters_stay_and_others_are_percent_encoded() {
        assert_eq!(encode(b"aZ09-_.!~*'()"), "data:,aZ09-_.!~*'()");
        assert_eq!(encode("a b\n/\u{e9}%".as_bytes()), "data:,a%20b%0A%2F%C3%A9%25");
        assert_eq!(encode(b""), "data:,");
    }

    #[test]
    fn what_is_encoded_decodes_to_itself() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(decode(&encode_base64(&all)).unwrap(), all);
        assert_eq!(encode_base64(b"fo"), "data:;base64,Zm8=");
    }

    #[test]
    fn accepted_urls_decode() {
        for (url, bytes) in [
            ("data:,", &b""[..]),
            ("data:,a+b", b"a+b"),
            ("data:;base64,", b""),
            ("data:;base64,Zm9v", b"foo"),
            ("data:;base64,Zm8=", b"fo"),
            ("data:;base64,Zm9=", b"fo"),
            ("data:text/plain;charset=utf-8;base64,Zg==", b"f"),
            ("data:text/plain;charset=\"a\\\"b\",x", b"x"),
            ("data:text/,x", b"x"),
            ("data:x-own/type;a=%20,x", b"x"),
            ("data:,a?b", b"a?b"),
        ] {
            assert_eq!(decode(url).as_deref(), Ok(bytes), "{url}");
        }
    }

    #[test]
    fn malformed_urls_are_told_apart() {
        for (url, error) in [
            ("http:", Malformed::Prefix),
            ("DATA:,x", Malformed::Prefix),
            ("data:", Malformed::MediaType),
            ("data:foo", Malformed::MediaType),
            ("data:foo/bar,x", Malformed::MediaType),
            ("data:text,x", Malformed::MediaType),
            ("data:;,x", Malformed::MediaType),
            ("data:;base64;a=b,x", Malformed::MediaType),
            ("data:;gzip,x", Malformed::MediaType),
            ("data:;a=,x", Malformed::MediaType),
            ("data:;a=\"b", Malformed::MediaType),
            ("data:;a=\"\\q\",x", Malformed::MediaType),
            ("data:;a=%2,x", Malformed::Percent),
            ("data:,%", Malformed::Percent),
            ("data:,%2", Malformed::Percent),
            ("data:,%zz", Malformed::Percent),
            ("data:,a b", Malformed::Character),
            ("data:,a#b", Malformed::Character),
            ("data:,\u{e9}", Malformed::Character),
            ("data:;base64,Zm9v\n", Malformed::Character),
            ("data:;base64,Zm8", Malformed::Base64),
            ("data:;base64,Z", Malformed::Base64),
            ("data:;base64,Zg=", Malformed::Base64),
            ("data:;base64,Zm9v====", Malformed::Base64),
        ] {
            assert_eq!(decode(url), Err(error), "{url}");
        }
    }
}
