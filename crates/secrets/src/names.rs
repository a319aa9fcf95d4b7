//! Classifies a value by its name.

use super::found::is_mixed;
use super::kind::SecretKind::{
    self, EncryptionKey, Password, PasswordHash, PrivateKey, RegistryLogin, SharedKey, Token,
};

/// Syntax of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// `NAME=VALUE`, `<name>value</name>`
    Equation,
    /// `--name value`, `--name=value`
    Option,
    /// `name: value`
    Colon,
}

/// Maximum length of an examined name, in bytes.
pub(super) const LONGEST_NAME: usize = 96;

/// Endings of secret names, without regard to case, `_`, `-` and `.`, with the minimum length of a value in bytes, so
/// that a word that only names a secret does not count.
static ENDINGS: &[(SecretKind, usize, &[&str])] = &[
    (Password, 1, &["password", "passphrase", "passcode", "passwort", "authpass", "bindpw"]),
    (Password, 1, &["rootpw", "sshpw", "bindpasswd", "authtok"]),
    (PasswordHash, 13, &["passwordhash"]),
    (RegistryLogin, 1, &["dockerconfigjson", "dockercfg"]),
    (PrivateKey, 8, &["privatekey", "privatekeydata", "privateexponent", "clientkeydata"]),
    (SharedKey, 5, &["wepkey0", "wepkey1", "wepkey2", "wepkey3"]),
    (SharedKey, 8, &["psk", "sharedkey", "sharedaccesskey", "accountkey", "storagekey"]),
    (SharedKey, 8, &["symmkey", "gossipkey"]),
    (EncryptionKey, 8, &["encryptionkey", "encryptkey", "masterkey"]),
    (EncryptionKey, 64, &["certificatekey"]),
    (Token, 8, &["token", "apikey", "accesskey", "secretkey", "secretkeybase", "clientsecret"]),
    (Token, 8, &["sharedsecret", "appsecret", "cookiesecret", "sessionsecret", "signingkey"]),
    (Token, 8, &["signingsecret", "webhooksecret", "authkey", "hmackey", "licensekey"]),
    (Token, 8, &["licencekey", "activationkey"]),
    (Token, 16, &["secretid"]),
    (Token, 100, &["tokenid"]),
];

/// Words that a secret name ends with, as separate words: `smtp_pass`, `SMTPPass`, and not `bypass`.
const PASSWORD_WORDS: [&str; 4] = ["pass", "pwd", "passwd", "pw"];

/// Names that are secret without an ending, if the value looks like a secret.
const WHOLE: [&str; 6] = ["passwd", "encrypt", "key", "httpbasicauth", "basicauth", "userpwd"];

/// Returns `true` if the result of [`by_name`] depends on the value: a cheap test before the value is read.
pub(super) fn may_be_secret(name: &str) -> bool {
    let mut buffer = [0; LONGEST_NAME];
    squashed(name, &mut buffer).is_some_and(|key| {
        by_ending(key).is_some()
            || PASSWORD_WORDS.iter().any(|word| key.ends_with(word))
            || ["secret", "setcredential", "setcredentialbinary"].iter().any(|it| key.ends_with(it))
            || WHOLE.contains(&key)
    })
}

/// Kind of a literal value with this name, `None` if it is no secret.
pub(super) fn by_name(name: &str, value: &str, sign: Sign) -> Option<SecretKind> {
    if value.is_empty() || name.len() > LONGEST_NAME {
        return None;
    }
    let mut buffer = [0; LONGEST_NAME];
    let key = squashed(name, &mut buffer)?;
    let is_equation = sign != Sign::Colon;
    // In openssl.cnf, `challengePassword` has the text of a prompt.
    if key.ends_with("challengepassword") {
        return None;
    }
    if let Some((least, kind)) = by_ending(key) {
        // A token is one word.
        let is_value = kind == Password || !value.contains(' ') && may_be_key(value);
        return (value.len() >= least && is_value).then_some(kind);
    }
    match key {
        // `SetCredential=NAME:VALUE` of a unit, and the kernel argument; the encrypted form has another name.
        _ if key.ends_with("setcredential") || key.ends_with("setcredentialbinary") => {
            let value = value.split_once(':').map(|(_, value)| value);
            return value.filter(|it| !it.is_empty()).map(|_| Password);
        }
        // `passwd: files sss` is a line of nsswitch.conf.
        "passwd" if !is_equation => return None,
        "encrypt" if value.len() >= 24 && is_base64(value) => return Some(SharedKey),
        // Ceph keys have 28 bytes.
        "key" if value.len() == 40 && value.ends_with("==") && is_base64(value) => {
            return Some(SharedKey);
        }
        "httpbasicauth" | "basicauth" | "userpwd" if value.contains(':') => {
            return Some(Password);
        }
        _ => {}
    }
    if PASSWORD_WORDS.iter().any(|word| key.ends_with(word)) && ends_with_word(name) {
        // `pass=2` is a number, of an attempt or of a file system's check.
        let is_digit = matches!(value.as_bytes(), [b'0'..=b'9']);
        return (!is_digit).then_some(Password);
    }
    // `--tls-secret=NAME` names a Kubernetes object, also with its namespace.
    if sign == Sign::Option && is_object_name(value) {
        return None;
    }
    // `secret: NAME` names one; key material is long, and one word.
    let is_key = is_equation && value.len() >= 8 || value.len() >= 16 && is_base64(value);
    let is_value = is_key && !value.contains(' ') && may_be_key(value);
    (key.ends_with("secret") && is_value).then_some(Token)
}

/// Kind and minimum value length in bytes by the ending of a name.
fn by_ending(key: &str) -> Option<(usize, SecretKind)> {
    let endings = ENDINGS.iter().flat_map(|(kind, least, endings)| {
        let endings = endings.iter().filter(|ending| key.ends_with(**ending));
        endings.map(|ending| (ending.len(), *least, *kind))
    });
    endings.max_by_key(|it| it.0).map(|(_, least, kind)| (least, kind))
}

/// Kind of a value by its name, for values of any length and form.
pub(super) fn by_name_alone(name: &str) -> Option<SecretKind> {
    let mut buffer = [0; LONGEST_NAME];
    let key = squashed(name, &mut buffer)?;
    if let Some((_, kind)) = by_ending(key) {
        return Some(kind);
    }
    if PASSWORD_WORDS.iter().any(|word| key.ends_with(word)) && ends_with_word(name) {
        return Some(Password);
    }
    key.ends_with("secret").then_some(Token)
}

/// Returns `true` if a value consists of words in lower case, like the names of Kubernetes objects.
fn is_object_name(value: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-./".contains(&byte);
    let is_placeholder = |byte: u8| byte.is_ascii_uppercase() || byte == b'/';
    value.contains(['-', '/']) && (value.bytes().all(is_part) || value.bytes().all(is_placeholder))
}

/// Returns `true` if a value can be a token or a key. Those that are not random begin with a letter or a digit.
fn may_be_key(value: &str) -> bool {
    !value.starts_with(['/', '.', '!', '@', '*', '%', '&', '=', '~']) || is_key_material(value)
}

/// Returns `true` if a value is key material in base64, even if it begins like a path: padded, or at least 32
/// characters of all kinds with few slashes.
pub(super) fn is_key_material(value: &str) -> bool {
    let is_padded = value.len() >= 16 && value.ends_with('=');
    let is_long = || value.len() >= 32 && value.split('/').count() * 8 <= value.len();
    is_base64(value) && (is_padded || is_long()) && is_mixed(value)
}

/// A name in lower case, reduced to letters and digits.
fn squashed<'a>(name: &str, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a str> {
    let mut length = 0;
    for byte in name.bytes().filter(u8::is_ascii_alphanumeric) {
        *buffer.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).ok()
}

/// Returns `true` if the last word of a name is one of [`PASSWORD_WORDS`].
fn ends_with_word(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let lower = name.to_ascii_lowercase();
    PASSWORD_WORDS.iter().any(|word| {
        let Some(before) = lower.strip_suffix(word) else { return false };
        let at = before.len();
        let Some(previous) = name[..at].bytes().next_back() else { return true };
        let first = name.as_bytes()[at];
        !previous.is_ascii_alphabetic()
            || previous.is_ascii_lowercase() && first.is_ascii_uppercase()
    })
}

/// Returns `true` if a value can be key material in base64 or hexadecimal digits: one word of such characters that is
/// not a name such as `my-secret`, with other characters or only lower case letters.
pub(super) fn is_base64(value: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let is_varied = value.bytes().any(|byte| !byte.is_ascii_lowercase() && byte != b'/');
    value.bytes().all(is_part) && is_varied
}

/// Returns `true` if a header of this name authenticates the client.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_known = matches!(&name[..], "authorization" | "proxy-authorization" | "cookie");
    let words = ["token", "secret", "api-key", "apikey", "password", "auth-key", "access-key"];
    is_known || words.iter().any(|word| name.contains(word))
}
