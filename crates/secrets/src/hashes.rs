//! Hashes of passwords, as crypt(5), LDAP, GRUB and databases write them.

use std::ops::Range;

use super::found::{Mark, is_mixed, run};
use super::tokens::Alphabet;

/// Recognises `$METHOD$…`.
pub(super) fn crypt(mark: Mark<'_>) -> Option<Range<usize>> {
    let method = Alphabet::Url.run(mark.after(), 16);
    let rest = mark.after()[method.len()..].strip_prefix('$')?;
    let hash = run(rest, 512, |byte| byte.is_ascii_alphanumeric() || b"./$=,-+".contains(&byte));
    match method {
        "1" | "3" | "5" | "6" | "7" | "8" | "9" | "y" | "gy" | "2a" | "2b" | "2x" | "2y"
        | "argon2id" | "argon2i" | "argon2d" | "apr1" | "scrypt" | "pbkdf2" | "pbkdf2-sha256"
        | "pbkdf2-sha512" | "sha1"
            if hash.len() >= 22 =>
        {
            Some(mark.through(hash))
        }
        _ => None,
    }
}

/// Recognises `{SSHA}…` and similar hashes of LDAP and Dovecot.
pub(super) fn ldap(mark: Mark<'_>) -> Option<Range<usize>> {
    let rest = &mark.with_after()[1..];
    let scheme = Alphabet::Url.run(rest, 24);
    let hash = &rest[scheme.len()..];
    // Dovecot adds the encoding.
    let encodings = [".HEX", ".hex", ".B64", ".b64"];
    let hash = encodings.iter().find_map(|it| hash.strip_prefix(it)).unwrap_or(hash);
    let hash = hash.strip_prefix('}')?;
    let hash = run(hash, 512, |byte| byte.is_ascii_alphanumeric() || b"+/=$.,:-".contains(&byte));
    match &scheme.to_ascii_uppercase()[..] {
        "SHA" | "SHA1" | "SHA256" | "SHA384" | "SHA512" | "SSHA" | "SSHA256" | "SSHA384"
        | "SSHA512" | "MD5" | "SMD5" | "CRYPT" | "PBKDF2" | "PBKDF2-SHA1" | "PBKDF2-SHA256"
        | "PBKDF2-SHA512" | "ARGON2" | "SCRAM-SHA-1" | "SCRAM-SHA-256" | "SCRYPT"
            if hash.len() >= 13 =>
        {
            Some(mark.through(hash))
        }
        _ => None,
    }
}

/// Recognises `grub.pbkdf2.sha512.…`.
pub(super) fn grub(mark: Mark<'_>) -> Option<Range<usize>> {
    let hash = run(mark.after(), 2_048, |byte| byte.is_ascii_alphanumeric() || byte == b'.');
    (hash.len() >= 64).then(|| mark.through(hash))
}

/// Recognises `pbkdf2_sha256$…` of Django.
pub(super) fn django(mark: Mark<'_>) -> Option<Range<usize>> {
    let hash = run(mark.after(), 2_048, |byte| Alphabet::Base64.has(byte) || byte == b'$');
    (hash.len() >= 40 && hash.contains('$')).then(|| mark.through(hash))
}

/// Recognises `SCRAM-SHA-256$…` of PostgreSQL.
pub(super) fn scram(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_part = |byte| Alphabet::Base64.has(byte) || b"$:".contains(&byte);
    let hash = run(mark.after(), 2_048, is_part);
    (hash.len() >= 60 && hash.contains('$')).then(|| mark.through(hash))
}

/// Recognises `"md5…"` in pgbouncer's list of users.
pub(super) fn postgres(mark: Mark<'_>) -> Option<Range<usize>> {
    let hash = Alphabet::Hex.run(mark.after(), 33);
    let is_hash = hash.len() == 32 && mark.after()[32..].starts_with('"');
    is_hash.then(|| mark.start + 1..mark.end + 32)
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
        // shadow(5) has nine fields, passwd(5) seven, htpasswd two.
        let is_table = matches!(others, 5 | 7);
        return (is_known || is_table || is_mixed(first) && others == 0).then_some(first);
    }
    // smbpasswd: user, number, two hashes, flags.
    let nt_hash = fields.nth(1)?;
    let is_hash = nt_hash.len() == 32 && nt_hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && is_hash && others >= 3).then_some(nt_hash)
}
