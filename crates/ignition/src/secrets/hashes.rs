//! Hashes of passwords, as crypt(5), LDAP, GRUB and databases write them.

use std::ops::Range;

use super::found::{Hit, run, span};
use super::kind::SecretKind;
use super::tokens::Alphabet;

/// Method names, between the first two dollar signs of a hash in the format of crypt(5).
const METHODS: [&str; 22] = [
    "1",
    "3",
    "5",
    "6",
    "7",
    "8",
    "9",
    "y",
    "gy",
    "2a",
    "2b",
    "2x",
    "2y",
    "argon2id",
    "argon2i",
    "argon2d",
    "apr1",
    "scrypt",
    "pbkdf2",
    "pbkdf2-sha256",
    "pbkdf2-sha512",
    "sha1",
];

/// Recognises `$METHOD$…`.
pub(super) fn crypt(text: &str, mark: Range<usize>) -> Hit {
    let method = run(&text[mark.end..], 16, |byte| Alphabet::Url.has(byte));
    let rest = text[mark.end + method.len()..].strip_prefix('$')?;
    let hash = run(rest, 512, |byte| byte.is_ascii_alphanumeric() || b"./$=,-+".contains(&byte));
    let is_hash = METHODS.contains(&method) && hash.len() >= 22;
    is_hash.then(|| (SecretKind::PasswordHash, mark.start..span(text, hash).end))
}

/// Recognises `{SSHA}…` and similar hashes of LDAP and Dovecot.
pub(super) fn ldap(text: &str, mark: Range<usize>) -> Hit {
    const SCHEMES: [&str; 20] = [
        "SHA",
        "SHA1",
        "SHA256",
        "SHA384",
        "SHA512",
        "SSHA",
        "SSHA256",
        "SSHA384",
        "SSHA512",
        "MD5",
        "SMD5",
        "CRYPT",
        "PBKDF2",
        "PBKDF2-SHA1",
        "PBKDF2-SHA256",
        "PBKDF2-SHA512",
        "ARGON2",
        "SCRAM-SHA-1",
        "SCRAM-SHA-256",
        "SCRYPT",
    ];
    let rest = &text[mark.start + 1..];
    let scheme = run(rest, 24, |byte| Alphabet::Url.has(byte));
    let hash = &rest[scheme.len()..];
    // Dovecot adds the encoding.
    let encodings = [".HEX", ".hex", ".B64", ".b64"];
    let hash = encodings.iter().find_map(|it| hash.strip_prefix(it)).unwrap_or(hash);
    let hash = hash.strip_prefix('}')?;
    let is_known = SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let hash = run(hash, 512, |byte| byte.is_ascii_alphanumeric() || b"+/=$.,:-".contains(&byte));
    let is_hash = is_known && hash.len() >= 13;
    is_hash.then(|| (SecretKind::PasswordHash, mark.start..span(text, hash).end))
}

/// Recognises `grub.pbkdf2.sha512.…`.
pub(super) fn grub(text: &str, mark: Range<usize>) -> Hit {
    long(text, mark, 64, |byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// Recognises `pbkdf2_sha256$…` of Django.
pub(super) fn django(text: &str, mark: Range<usize>) -> Hit {
    long(text, mark, 40, |byte| Alphabet::Base64.has(byte) || byte == b'$')
        .filter(|(_, span)| text[span.clone()].contains('$'))
}

/// Recognises `SCRAM-SHA-256$…` of PostgreSQL.
pub(super) fn scram(text: &str, mark: Range<usize>) -> Hit {
    long(text, mark, 60, |byte| Alphabet::Base64.has(byte) || b"$:".contains(&byte))
        .filter(|(_, span)| text[span.clone()].contains('$'))
}

/// Recognises `"md5…"` in pgbouncer's list of users.
pub(super) fn postgres(text: &str, mark: Range<usize>) -> Hit {
    let hash = run(&text[mark.end..], 33, |byte| byte.is_ascii_hexdigit());
    let is_hash = hash.len() == 32 && text[mark.end + 32..].starts_with('"');
    is_hash.then(|| (SecretKind::PasswordHash, mark.start + 1..mark.end + 32))
}

fn long(text: &str, mark: Range<usize>, least: usize, is_part: impl Fn(u8) -> bool) -> Hit {
    let hash = run(&text[mark.end..], 2_048, is_part);
    let span = mark.start..mark.end + hash.len();
    (hash.len() >= least).then_some((SecretKind::PasswordHash, span))
}

/// The hash without a method in a line of shadow(5), passwd(5) or htpasswd: thirteen characters of DES, twenty of
/// BSDi's, or 32 digits of smbpasswd(5). `is_known` if the file is one of those.
pub(super) fn in_fields(line: &str, is_known: bool) -> Option<&str> {
    let (user, rest) = line.split_once(':')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if user.is_empty() || user.len() > 64 || !user.chars().all(is_name) {
        return None;
    }
    let mut fields = rest.split(':');
    let first = fields.next()?;
    let others = fields.clone().count();
    let is_of_crypt =
        |hash: &str| hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte));
    let is_bsdi = first.len() == 20 && first.strip_prefix('_').is_some_and(is_of_crypt);
    if is_bsdi || first.len() == 13 && is_of_crypt(first) {
        let mixed: [fn(&u8) -> bool; 3] =
            [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
        let is_mixed = mixed.iter().all(|is| first.as_bytes().iter().any(is));
        // shadow(5) has nine fields, passwd(5) seven, htpasswd two.
        let is_table = matches!(others, 5 | 7);
        return (is_known || is_table || is_mixed && others == 0).then_some(first);
    }
    // smbpasswd: user, number, two hashes, flags.
    let nt_hash = fields.nth(1)?;
    let is_hash = nt_hash.len() == 32 && nt_hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && is_hash && others >= 3).then_some(nt_hash)
}
