//! Finds secrets by fixed texts that they begin with or contain, all in one pass.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::found::{Mark, SearchFindings, is_mixed, run, start};
use super::hashes;
use super::kind::SecretKind::{
    self, Password, PasswordHash, PrivateKey, SharedKey, SignedUrl, Token, UrlPassword,
};
use super::private_keys;
use super::tokens::{Alphabet, TOKENS};

/// Maximum number of masked bytes; a longer secret is a file.
const LONGEST: usize = 4_096;

/// Judges a mark; returns the secret's range.
type Check = fn(Mark<'_>) -> Option<Range<usize>>;

/// Marks that need more than a look at the characters after them.
static CHECKS: &[(&str, SecretKind, Check)] = &[
    ("-----BEGIN ", PrivateKey, private_keys::pem),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY", PrivateKey, private_keys::announced),
    ("Private-Lines: ", PrivateKey, private_keys::announced),
    ("minisign encrypted secret key", PrivateKey, private_keys::announced),
    ("AGE-SECRET-KEY-1", PrivateKey, private_keys::age),
    ("LS0tLS1CRUdJTi", PrivateKey, private_keys::encoded_pem),
    ("MI", PrivateKey, private_keys::encoded_der),
    ("://", UrlPassword, url_password),
    ("iscsi:", Password, iscsi_password),
    ("eyJ", Token, json_web_token),
    ("ZXlK", Token, encoded_json_web_token),
    ("T3BlbkFJ", Token, openai),
    ("s.", Token, vault),
    ("pat.", Token, harness),
    ("bearer ", Token, bearer),
    ("basic ", Password, basic),
    ("DHHC-1:", SharedKey, nvme_key),
    ("Q~", Token, azure_client_secret),
    ("sig=", SignedUrl, signature),
    ("signature=", SignedUrl, signature),
    ("$", PasswordHash, hashes::crypt),
    ("{s", PasswordHash, hashes::ldap),
    ("{md5}", PasswordHash, hashes::ldap),
    ("{crypt}", PasswordHash, hashes::ldap),
    ("{pbkdf2", PasswordHash, hashes::ldap),
    ("{argon2}", PasswordHash, hashes::ldap),
    ("grub.pbkdf2.", PasswordHash, hashes::grub),
    ("pbkdf2_sha", PasswordHash, hashes::django),
    ("SCRAM-SHA-", PasswordHash, hashes::scram),
    ("\"md5", PasswordHash, hashes::postgres),
];

/// All marks, without regard to case, which each rule checks itself.
struct Marks {
    /// Marks of [`CHECKS`] first, then the prefixes of tokens.
    all: Option<AhoCorasick>,
    tokens: Vec<(&'static str, usize, Alphabet)>,
}

static MARKS: LazyLock<Marks> = LazyLock::new(|| {
    let tokens = TOKENS.iter().flat_map(|&(prefixes, least, alphabet)| {
        prefixes.iter().map(move |prefix| (*prefix, least, alphabet))
    });
    let tokens: Vec<_> = tokens.collect();
    let marks = CHECKS.iter().map(|it| it.0).chain(tokens.iter().map(|it| it.0));
    Marks { all: AhoCorasick::builder().ascii_case_insensitive(true).build(marks).ok(), tokens }
});

/// Finds all secrets that have a mark.
pub(super) fn search(text: &str, found: &mut SearchFindings) {
    // Found secrets are not searched again, so that the work stays proportional to the text.
    let mut done = 0;
    for it in MARKS.all.iter().flat_map(|marks| marks.find_overlapping_iter(text)) {
        if it.start() < done {
            continue;
        }
        let mark = Mark { text, start: it.start(), end: it.end() };
        let index = it.pattern().as_usize();
        let (kind, span) = match CHECKS.get(index) {
            Some((_, kind, check)) => (*kind, check(mark)),
            None => (Token, MARKS.tokens.get(index - CHECKS.len()).and_then(|it| token(mark, *it))),
        };
        if let Some(span) = span {
            done = done.max(span.end);
            found.add(kind, span);
        }
    }
}

fn token(
    mark: Mark<'_>,
    (prefix, least, alphabet): (&str, usize, Alphabet),
) -> Option<Range<usize>> {
    // A prefix of letters must begin a word.
    let is_word = prefix.as_bytes()[0].is_ascii_alphanumeric();
    if !mark.is(prefix) || is_word && mark.before().is_some_and(|it| it.is_ascii_alphanumeric()) {
        return None;
    }
    let start = alphabet.run(mark.after(), least);
    let is_token = start.len() == least && !is_masked(start);
    is_token.then(|| mark.through(alphabet.run(mark.after(), LONGEST)))
}

pub(super) fn is_masked(value: &str) -> bool {
    value.chars().all(|c| matches!(c, '*' | 'x' | 'X' | '.' | '-' | '_' | '…'))
}

/// Recognises `scheme://user:password@host`.
fn url_password(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_end = |c: char| c.is_ascii_whitespace() || "/\"'<>`?#\\".contains(c);
    // A password can be longer than a name, but not by much.
    let authority = start(mark.after(), 512).split(is_end).next()?;
    let (login, _) = authority.rsplit_once('@')?;
    let (_, password) = login.split_once(':')?;
    let is_literal = !password.is_empty() && !password.starts_with(['$', '*', '{', '%', '<']);
    is_literal.then(|| mark.only(password))
}

/// Recognises `iscsi:user:password@server` of the kernel arguments `netroot` and `root`.
fn iscsi_password(mark: Mark<'_>) -> Option<Range<usize>> {
    let word = start(mark.after(), 256).split(|c: char| c.is_ascii_whitespace()).next()?;
    let (login, _) = word.split_once('@')?;
    let (_, password) = login.split_once(':')?;
    let is_url = login.starts_with("//");
    (!password.is_empty() && !is_url).then(|| mark.only(password))
}

/// Recognises a JSON web token, at least its header and payload.
fn json_web_token(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_part = |byte: u8| Alphabet::Url.has(byte) || byte == b'=';
    if mark.before().is_some_and(|byte| Alphabet::Url.has(byte)) {
        return None;
    }
    let header = run(mark.with_after(), LONGEST, is_part);
    let rest = mark.with_after()[header.len()..].strip_prefix('.')?;
    let is_token = header.len() >= 10 && run(rest, 10, is_part).len() == 10;
    is_token.then(|| mark.through(run(rest, LONGEST, |byte| is_part(byte) || byte == b'.')))
}

/// Recognises a JSON web token in base64.
fn encoded_json_web_token(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_part = |byte: u8| Alphabet::Base64.has(byte) && byte != b'=';
    if mark.before().is_some_and(is_part) || !mark.is("ZXlK") {
        return None;
    }
    let token = run(mark.with_after(), LONGEST, is_part);
    let decoded = STANDARD.decode(&token[..token.len() / 4 * 4]).ok()?;
    let decoded = String::from_utf8_lossy(&decoded);
    json_web_token(Mark { text: &decoded, start: 0, end: 3 }).map(|_| mark.through(token))
}

/// Recognises a key of OpenAI: `sk-`, and a fixed mark in the middle.
fn openai(mark: Mark<'_>) -> Option<Range<usize>> {
    let before = mark.text.as_bytes()[..mark.start].iter().rev().take(128);
    let start = mark.start - before.take_while(|byte| Alphabet::Url.has(**byte)).count();
    let is_key =
        mark.is("T3BlbkFJ") && mark.start - start >= 20 && mark.text[start..].starts_with("sk-");
    let rest = run(mark.after(), LONGEST, |byte| is_key && Alphabet::Url.has(byte));
    (rest.len() >= 20).then(|| start..mark.end + rest.len())
}

/// Recognises an old token of Vault: `s.`, and 24 letters and digits.
fn vault(mark: Mark<'_>) -> Option<Range<usize>> {
    if mark.before().is_some_and(|byte| Alphabet::Dotted.has(byte)) || !mark.is("s.") {
        return None;
    }
    let token = Alphabet::Dotted.run(mark.after(), 25);
    let is_word = token.len() == 24 && token.bytes().all(|byte| Alphabet::Word.has(byte));
    // Names of programs are less mixed.
    (is_word && is_mixed(token)).then(|| mark.through(token))
}

/// Recognises a token of Harness: `pat.`, and parts of 22, 24 and 20 characters.
fn harness(mark: Mark<'_>) -> Option<Range<usize>> {
    let token = Alphabet::Dotted.run(mark.after(), 80);
    token.split('.').map(str::len).eq([22, 24, 20]).then(|| mark.through(token))
}

/// Recognises a token after `Bearer`.
fn bearer(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_part = |byte: u8| Alphabet::Dotted.has(byte) || b"~/+".contains(&byte);
    let token = run(mark.after(), LONGEST, is_part);
    (token.len() >= 16 && !is_masked(token)).then(|| mark.only(token))
}

/// Recognises user and password in base64 after `Basic`.
fn basic(mark: Mark<'_>) -> Option<Range<usize>> {
    let login = Alphabet::Base64.run(mark.after(), 512);
    let decoded = STANDARD.decode(login).ok()?;
    let is_login = decoded.len() >= 3
        && decoded.contains(&b':')
        && decoded.iter().all(|byte| !byte.is_ascii_control());
    is_login.then(|| mark.only(login))
}

/// Recognises an NVMe over fabrics key, in the format of `nvme gen-dhchap-key`.
fn nvme_key(mark: Mark<'_>) -> Option<Range<usize>> {
    let key = run(mark.after(), 512, |byte| Alphabet::Base64.has(byte) || byte == b':');
    (key.len() >= 40).then(|| mark.through(key))
}

/// Recognises a client secret of Azure: three characters, a digit, `Q~`, and 31 to 34 more.
fn azure_client_secret(mark: Mark<'_>) -> Option<Range<usize>> {
    let is_part = |byte: u8| Alphabet::Dotted.has(byte) || byte == b'~';
    let start = mark.start.checked_sub(4)?;
    let before = &mark.text.as_bytes()[start..mark.start];
    let is_before = before.iter().all(|byte| is_part(*byte)) && before[3].is_ascii_digit();
    let rest = run(mark.after(), 40, is_part);
    let is_secret = is_before && mark.is("Q~") && (31..=34).contains(&rest.len());
    is_secret.then(|| start..mark.end + rest.len())
}

/// Recognises the signature of an Azure (SAS), S3 or Google URL that also has an expiry.
fn signature(mark: Mark<'_>) -> Option<Range<usize>> {
    if !b"?&-;\"' ".contains(&mark.before()?) {
        return None;
    }
    let is_part = |byte: u8| Alphabet::Base64.has(byte) || b"%-_".contains(&byte);
    let value = run(mark.after(), 1_024, is_part);
    if value.len() < 20 {
        return None;
    }
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>".contains(byte);
    let around = |bytes: &mut dyn Iterator<Item = u8>| -> Vec<u8> {
        bytes.take(400).take_while(|byte| !is_end(byte)).collect()
    };
    let mut query = around(&mut mark.text[..mark.start].bytes().rev());
    query.reverse();
    query.extend(around(&mut mark.after().bytes()));
    let query = String::from_utf8_lossy(&query).to_ascii_lowercase();
    let is_signed = ["se=", "sv=", "expires=", "algorithm="].iter().any(|it| query.contains(it));
    is_signed.then(|| mark.only(value))
}
