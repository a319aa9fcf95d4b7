//! Private keys: in PEM and similar formats, in DER, in keystores, plain or in base64.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::found::{Mark, run};
use super::tokens::Alphabet;

/// Endings of the labels of PEM blocks with a key.
const LABELS: [&str; 5] = [
    "PRIVATE KEY",
    "PRIVATE KEY BLOCK",
    "OpenVPN Static key V1",
    "OpenVPN tls-crypt-v2 client key",
    "OpenVPN tls-crypt-v2 server key",
];

/// Recognises a PEM block, with line ends as they are or as `\n`.
pub(super) fn pem(mark: Mark<'_>) -> Option<Range<usize>> {
    let rest = mark.after();
    let label = run(rest, 64, |byte| byte.is_ascii_alphanumeric() || b" -".contains(&byte));
    let label = &label[..label.find("-----")?];
    if !LABELS.iter().any(|known| label.ends_with(known)) {
        return None;
    }
    let after = &rest[label.len() + 5..];
    let body = after.trim_start_matches([' ', '\t', '\r', '\n']);
    let is_broken = after[..after.len() - body.len()].contains('\n');
    // An escaped line end, in a quoted text.
    let escaped = body.trim_start_matches("\\r").strip_prefix("\\n");
    let body = escaped.unwrap_or(body);
    // The end is searched only for a key, because the search can be long.
    ((is_broken || escaped.is_some()) && begins_base64(body))
        .then(|| mark.through(body.split("-----END").next().unwrap_or_default()))
}

fn begins_base64(body: &str) -> bool {
    body.bytes().next().is_some_and(|byte| Alphabet::Base64.has(byte))
}

/// Recognises a file of another format, by a line that announces the key.
pub(super) fn announced(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_line = matches!(mark.before(), None | Some(b'\n' | b' '));
    let line_end = run(mark.after(), 80, |byte| byte != b'\n').len();
    let body = mark.after()[line_end..].strip_prefix('\n')?;
    (is_line && begins_base64(body)).then(|| mark.through(body))
}

/// Recognises a key of age(1).
pub(super) fn age(mark: Mark<'_>) -> Option<Range<usize>> {
    let key = Alphabet::Capital.run(mark.after(), 128);
    (key.len() >= 5).then(|| mark.through(key))
}

/// Recognises a PEM block in base64.
pub(super) fn encoded_pem(mark: Mark<'_>) -> Option<Range<usize>> {
    // The label suffices.
    let decoded = decoded_start(mark, 80)?;
    let decoded = String::from_utf8_lossy(&decoded);
    let is_key = LABELS.iter().any(|label| decoded.contains(&format!("{label}-----")));
    is_key.then(|| mark.through(base64_lines(mark)))
}

/// Recognises DER in base64, without the lines of PEM around it.
pub(super) fn encoded_der(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_apart = mark.before().is_none_or(|byte| !Alphabet::Base64.has(byte) || byte == b'=');
    if !is_apart || !mark.is("MI") {
        return None;
    }
    let decoded = decoded_start(mark, 64)?;
    // 64 characters have at least 46 bytes. A short word with this beginning is no key.
    (decoded.len() >= 46 && is_der_key(&decoded)).then(|| mark.through(base64_lines(mark)))
}

/// The first characters of base64, at most `most`, decoded.
fn decoded_start(mark: Mark<'_>, most: usize) -> Option<Vec<u8>> {
    let start = Alphabet::Base64.run(mark.with_after(), most);
    STANDARD.decode(&start[..start.len() / 4 * 4]).ok()
}

/// Base64 that can span several lines.
fn base64_lines(mark: Mark<'_>) -> &str {
    let is_part = |byte: u8| Alphabet::Base64.has(byte) || byte.is_ascii_whitespace();
    run(mark.with_after(), usize::MAX, is_part).trim_end()
}

/// Returns `true` if binary data is a key or a keystore.
pub(super) fn is_binary_key(bytes: &[u8]) -> bool {
    // JKS and JCEKS of Java; OpenSSH's own form; a keytab of Kerberos.
    let starts: [&[u8]; 4] =
        [&[0xfe, 0xed, 0xfe, 0xed], &[0xce; 4], b"openssh-key-v1\0", &[5, 2, 0, 0, 0]];
    // An OpenPGP secret key, whose packet has tag 5, in the old form with a length of one or two bytes and
    // in the new one, and version 4.
    let is_openpgp = matches!(bytes, [0x94 | 0xc5, _, 4, ..] | [0x95 | 0xc5, _, _, 4, ..]);
    starts.iter().any(|start| bytes.starts_with(start))
        || is_openpgp && bytes.len() > 32
        || is_der_key(bytes)
}

/// Returns `true` if DER begins like a private key (PKCS #1, PKCS #8, SEC 1) or a PKCS #12 keystore: a sequence of a
/// version, and the next element of that kind. The end can be missing.
pub(super) fn is_der_key(bytes: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    const OCTETS: u8 = 0x04;
    let Some((SEQUENCE, body, _)) = element(bytes) else { return false };
    match element(body) {
        Some((INTEGER, [version], next)) => match (version, element(next)) {
            // PKCS #1: the modulus. PKCS #8: the algorithm; PKCS #12: the contents, each by an object identifier.
            (0 | 1, Some((INTEGER, modulus, _))) => modulus.len() >= 28,
            (0 | 1 | 3, Some((SEQUENCE, [6, ..], _))) => true,
            (1, Some((OCTETS, key, _))) => key.len() >= 14,
            _ => false,
        },
        // PKCS #8, encrypted: the algorithm is PBES2, or one of PKCS #12 or #5.
        Some((SEQUENCE, algorithm, rest)) => {
            const PKCS_5: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5];
            const PKCS_12_PBE: &[u8] = &[6, 10, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1];
            let is_password = algorithm.starts_with(PKCS_5) || algorithm.starts_with(PKCS_12_PBE);
            is_password && (rest.is_empty() || rest[0] == OCTETS)
        }
        _ => false,
    }
}

/// Tag, contents and rest by X.690; the contents can be cut off.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        // BER's indefinite length: up to the end.
        0x80 => (rest.len(), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let fold = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
            (length.iter().fold(0, fold), rest)
        }
        _ => return None,
    };
    let (contents, next) = rest.split_at(length.min(rest.len()));
    Some((tag, contents, next))
}
