//! Finds secrets by fixed texts that they begin with or contain, all in one pass.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::found::{Hit, SearchFindings, run};
use super::hashes;
use super::kind::SecretKind;
use super::private_keys;
use super::tokens::{Alphabet, TOKENS};

/// Maximum number of masked bytes; a longer secret is a file.
const LONGEST: usize = 4_096;

/// Judges the mark at `Range` of the text; returns the secret's kind and range.
type Check = fn(&str, Range<usize>) -> Hit;

/// Marks that need more than a look at the characters after them.
static CHECKS: &[(&str, Check)] = &[
    ("-----BEGIN ", private_keys::pem),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY", private_keys::announced),
    ("Private-Lines: ", private_keys::announced),
    ("minisign encrypted secret key", private_keys::announced),
    ("AGE-SECRET-KEY-1", private_keys::age),
    ("LS0tLS1CRUdJTi", private_keys::encoded_pem),
    ("MI", private_keys::encoded_der),
    ("://", url_password),
    ("iscsi:", iscsi_password),
    ("eyJ", json_web_token),
    ("ZXlK", encoded_json_web_token),
    ("T3BlbkFJ", openai),
    ("s.", vault),
    ("pat.", harness),
    ("bearer ", bearer),
    ("basic ", basic),
    ("DHHC-1:", nvme_key),
    ("Q~", azure_client_secret),
    ("sig=", signature),
    ("signature=", signature),
    ("$", hashes::crypt),
    ("{s", hashes::ldap),
    ("{md5}", hashes::ldap),
    ("{crypt}", hashes::ldap),
    ("{pbkdf2", hashes::ldap),
    ("{argon2}", hashes::ldap),
    ("grub.pbkdf2.", hashes::grub),
    ("pbkdf2_sha", hashes::django),
    ("SCRAM-SHA-", hashes::scram),
    ("\"md5", hashes::postgres),
];

/// All marks, the checks first, without regard to case, which each rule checks itself.
static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let checks = CHECKS.iter().map(|(mark, _)| *mark);
    let marks = checks.chain(TOKENS.iter().map(|(mark, _, _)| *mark));
    AhoCorasick::builder().ascii_case_insensitive(true).build(marks).ok()
});

/// Finds all secrets that have a mark.
pub(super) fn search(text: &str, found: &mut SearchFindings) {
    // Found secrets are not searched again, so that the work stays proportional to the text.
    let mut done = 0;
    let marks = MARKS.iter().flat_map(|marks| marks.find_overlapping_iter(text));
    for mark in marks {
        if mark.start() < done {
            continue;
        }
        let index = mark.pattern().as_usize();
        let secret = match CHECKS.get(index) {
            Some((_, check)) => check(text, mark.range()),
            None => token(text, mark.range(), TOKENS.get(index - CHECKS.len())),
        };
        if let Some((kind, span)) = secret {
            done = done.max(span.end);
            found.add(kind, span);
        }
    }
}

fn token(text: &str, mark: Range<usize>, shape: Option<&(&str, usize, Alphabet)>) -> Hit {
    let &(prefix, least, alphabet) = shape?;
    let before = text[..mark.start].bytes().next_back();
    // A prefix of letters must begin a word.
    let is_word = prefix.as_bytes()[0].is_ascii_alphanumeric();
    let is_apart = !is_word || !before.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = &text[mark.end..];
    let is_token = text[mark.clone()] == *prefix
        && is_apart
        && run(rest, least, |byte| alphabet.has(byte)).len() == least
        && !is_masked(&rest[..least]);
    let end = mark.end + run(rest, LONGEST, |byte| alphabet.has(byte)).len();
    is_token.then_some((SecretKind::Token, mark.start..end))
}

pub(super) fn is_masked(value: &str) -> bool {
    value.chars().all(|c| matches!(c, '*' | 'x' | 'X' | '.' | '-' | '_' | '…'))
}

/// Recognises `scheme://user:password@host`.
fn url_password(text: &str, mark: Range<usize>) -> Hit {
    let is_part = |byte: u8| !byte.is_ascii_whitespace() && !b"/\"'<>`?#\\".contains(&byte);
    // A password can be longer than a name, but not by much.
    let rest = &text[mark.end..];
    let end = rest.bytes().take(512).take_while(|byte| is_part(*byte)).count();
    let at = rest.as_bytes()[..end].iter().rposition(|byte| *byte == b'@')?;
    let colon = rest.as_bytes()[..at].iter().position(|byte| *byte == b':')?;
    let password = &rest[colon + 1..at];
    let is_literal = !password.is_empty() && !password.starts_with(['$', '*', '{', '%', '<']);
    is_literal.then(|| (SecretKind::UrlPassword, mark.end + colon + 1..mark.end + at))
}

/// Recognises `iscsi:user:password@server` of the kernel arguments `netroot` and `root`.
fn iscsi_password(text: &str, mark: Range<usize>) -> Hit {
    let rest = &text[mark.end..];
    let end = rest.bytes().take(256).take_while(|byte| !byte.is_ascii_whitespace()).count();
    let at = rest.as_bytes()[..end].iter().position(|byte| *byte == b'@')?;
    let login = &rest[..at];
    let (_, password) = login.split_once(':')?;
    let is_url = login.starts_with("//");
    (!password.is_empty() && !is_url).then(|| {
        let start = mark.end + at - password.len();
        (SecretKind::Password, start..mark.end + at)
    })
}

/// Recognises a JSON web token, at least its header and payload.
fn json_web_token(text: &str, mark: Range<usize>) -> Hit {
    let is_part = |byte: u8| Alphabet::Url.has(byte) || byte == b'=';
    if text[..mark.start].bytes().next_back().is_some_and(is_part)
        && !is_after_sign(text, mark.start)
    {
        return None;
    }
    let header = run(&text[mark.start..], LONGEST, is_part);
    let rest = text[mark.start + header.len()..].strip_prefix('.')?;
    if header.len() < 10 || run(rest, 10, is_part).len() < 10 {
        return None;
    }
    let payload = run(rest, LONGEST, |byte| is_part(byte) || byte == b'.');
    Some((SecretKind::Token, mark.start..mark.start + header.len() + 1 + payload.len()))
}

/// Recognises a JSON web token in base64.
fn encoded_json_web_token(text: &str, mark: Range<usize>) -> Hit {
    let is_part = |byte: u8| Alphabet::Base64.has(byte) && byte != b'=';
    let begins = !text[..mark.start].bytes().next_back().is_some_and(is_part);
    if !begins || &text[mark.clone()] != "ZXlK" {
        return None;
    }
    let token = run(&text[mark.start..], LONGEST, is_part);
    let decoded = STANDARD.decode(&token[..token.len() / 4 * 4]).ok()?;
    let decoded = String::from_utf8_lossy(&decoded);
    let is_token = json_web_token(&decoded, 0..3).is_some();
    is_token.then(|| (SecretKind::Token, mark.start..mark.start + token.len()))
}

/// Recognises a key of OpenAI: `sk-`, and a fixed mark in the middle.
fn openai(text: &str, mark: Range<usize>) -> Hit {
    let before = text.as_bytes()[..mark.start].iter().rev().take(128);
    let start = mark.start - before.take_while(|byte| Alphabet::Url.has(**byte)).count();
    let is_key = &text[mark.clone()] == "T3BlbkFJ"
        && mark.start - start >= 20
        && text[start..].starts_with("sk-");
    let rest = run(&text[mark.end..], LONGEST, |byte| is_key && Alphabet::Url.has(byte));
    (rest.len() >= 20).then(|| (SecretKind::Token, start..mark.end + rest.len()))
}

/// Recognises an old token of Vault: `s.`, and 24 letters and digits.
fn vault(text: &str, mark: Range<usize>) -> Hit {
    let before = text[..mark.start].bytes().next_back();
    if before.is_some_and(|byte| Alphabet::Dotted.has(byte)) || &text[mark.clone()] != "s." {
        return None;
    }
    let token = run(&text[mark.end..], 25, |byte| Alphabet::Dotted.has(byte));
    // Names of programs are less mixed.
    let has = |is: fn(&u8) -> bool| token.as_bytes().iter().any(is);
    let is_token = token.len() == 24
        && token.bytes().all(|byte| Alphabet::Word.has(byte))
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit);
    is_token.then(|| (SecretKind::Token, mark.start..mark.end + token.len()))
}

/// Recognises a token of Harness: `pat.`, and parts of 22, 24 and 20 characters.
fn harness(text: &str, mark: Range<usize>) -> Hit {
    let token = run(&text[mark.end..], 80, |byte| Alphabet::Dotted.has(byte));
    let is_token = token.split('.').map(str::len).eq([22, 24, 20]);
    is_token.then(|| (SecretKind::Token, mark.start..mark.end + token.len()))
}

/// Returns `true` if an equals sign precedes a position.
fn is_after_sign(text: &str, at: usize) -> bool {
    text[..at].ends_with('=')
}

/// Recognises a token after `Bearer`.
fn bearer(text: &str, mark: Range<usize>) -> Hit {
    let is_part = |byte: u8| Alphabet::Dotted.has(byte) || b"~/+".contains(&byte);
    let token = run(&text[mark.end..], LONGEST, is_part);
    let is_token = token.len() >= 16 && !is_masked(token);
    is_token.then(|| (SecretKind::Token, mark.end..mark.end + token.len()))
}

/// Recognises user and password in base64 after `Basic`.
fn basic(text: &str, mark: Range<usize>) -> Hit {
    let login = run(&text[mark.end..], 512, |byte| Alphabet::Base64.has(byte));
    let decoded = STANDARD.decode(login).ok()?;
    let is_login = decoded.len() >= 3
        && decoded.contains(&b':')
        && decoded.iter().all(|byte| !byte.is_ascii_control());
    is_login.then(|| (SecretKind::Password, mark.end..mark.end + login.len()))
}

/// Recognises an NVMe over fabrics key, in the format of `nvme gen-dhchap-key`.
fn nvme_key(text: &str, mark: Range<usize>) -> Hit {
    let key = run(&text[mark.end..], 512, |byte| Alphabet::Base64.has(byte) || byte == b':');
    (key.len() >= 40).then(|| (SecretKind::SharedKey, mark.start..mark.end + key.len()))
}

/// Recognises a client secret of Azure: three characters, a digit, `Q~`, and 31 to 34 more.
fn azure_client_secret(text: &str, mark: Range<usize>) -> Hit {
    let is_part = |byte: u8| Alphabet::Dotted.has(byte) || byte == b'~';
    let bytes = text.as_bytes();
    let start = mark.start.checked_sub(4)?;
    let is_before = bytes[start..mark.start].iter().all(|byte| byte.is_ascii() && is_part(*byte))
        && bytes[mark.start - 1].is_ascii_digit();
    let rest = run(&text[mark.end..], 40, is_part);
    let is_secret = is_before && &text[mark.clone()] == "Q~" && (31..=34).contains(&rest.len());
    is_secret.then(|| (SecretKind::Token, start..mark.end + rest.len()))
}

/// Recognises the signature of an Azure (SAS), S3 or Google URL that also has an expiry.
fn signature(text: &str, mark: Range<usize>) -> Hit {
    let before = text[..mark.start].bytes().next_back()?;
    if !b"?&-;\"' ".contains(&before) {
        return None;
    }
    let is_part = |byte: u8| Alphabet::Base64.has(byte) || b"%-_".contains(&byte);
    let value = run(&text[mark.end..], 1_024, is_part);
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>".contains(byte);
    let around = |bytes: &mut dyn Iterator<Item = u8>| -> Vec<u8> {
        bytes.take(400).take_while(|byte| !is_end(byte)).collect()
    };
    if value.len() < 20 {
        return None;
    }
    let mut query = around(&mut text[..mark.start].bytes().rev());
    query.reverse();
    query.extend(around(&mut text[mark.end..].bytes()));
    let query = String::from_utf8_lossy(&query).to_ascii_lowercase();
    let is_signed = ["se=", "sv=", "expires=", "algorithm="].iter().any(|it| query.contains(it));
    is_signed.then(|| (SecretKind::SignedUrl, mark.end..mark.end + value.len()))
}
