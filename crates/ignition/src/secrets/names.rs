//! Classifies a value by its name.

use super::kind::SecretKind;

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

/// Endings of secret names, without regard to case, `_`, `-` and `.`, each with the minimum length of a value in bytes,
/// so that a word that only names a secret does not count.
static ENDINGS: &[(&str, usize, SecretKind)] = &[
    ("password", 1, SecretKind::Password),
    ("passphrase", 1, SecretKind::Password),
    ("passcode", 1, SecretKind::Password),
    ("passwort", 1, SecretKind::Password),
    ("authpass", 1, SecretKind::Password),
    ("bindpw", 1, SecretKind::Password),
    ("rootpw", 1, SecretKind::Password),
    ("sshpw", 1, SecretKind::Password),
    ("bindpasswd", 1, SecretKind::Password),
    ("authtok", 1, SecretKind::Password),
    ("passwordhash", 13, SecretKind::PasswordHash),
    ("dockerconfigjson", 1, SecretKind::RegistryLogin),
    ("dockercfg", 1, SecretKind::RegistryLogin),
    ("privatekey", 8, SecretKind::PrivateKey),
    ("privatekeydata", 8, SecretKind::PrivateKey),
    ("privateexponent", 8, SecretKind::PrivateKey),
    ("clientkeydata", 8, SecretKind::PrivateKey),
    ("presharedkey", 8, SecretKind::SharedKey),
    ("psk", 8, SecretKind::SharedKey),
    ("saepassword", 1, SecretKind::Password),
    ("wepkey0", 5, SecretKind::SharedKey),
    ("wepkey1", 5, SecretKind::SharedKey),
    ("wepkey2", 5, SecretKind::SharedKey),
    ("wepkey3", 5, SecretKind::SharedKey),
    ("sharedkey", 8, SecretKind::SharedKey),
    ("sharedaccesskey", 8, SecretKind::SharedKey),
    ("accountkey", 8, SecretKind::SharedKey),
    ("storagekey", 8, SecretKind::SharedKey),
    ("symmkey", 8, SecretKind::SharedKey),
    ("gossipkey", 8, SecretKind::SharedKey),
    ("encryptionkey", 8, SecretKind::EncryptionKey),
    ("encryptkey", 8, SecretKind::EncryptionKey),
    ("masterkey", 8, SecretKind::EncryptionKey),
    ("certificatekey", 64, SecretKind::EncryptionKey),
    ("token", 8, SecretKind::Token),
    ("tokenid", 100, SecretKind::Token),
    ("apikey", 8, SecretKind::Token),
    ("accesskey", 8, SecretKind::Token),
    ("secretkey", 8, SecretKind::Token),
    ("secretkeybase", 8, SecretKind::Token),
    ("secretid", 16, SecretKind::Token),
    ("clientsecret", 8, SecretKind::Token),
    ("sharedsecret", 8, SecretKind::Token),
    ("appsecret", 8, SecretKind::Token),
    ("cookiesecret", 8, SecretKind::Token),
    ("sessionsecret", 8, SecretKind::Token),
    ("signingkey", 8, SecretKind::Token),
    ("signingsecret", 8, SecretKind::Token),
    ("webhooksecret", 8, SecretKind::Token),
    ("authkey", 8, SecretKind::Token),
    ("hmackey", 8, SecretKind::Token),
    ("licensekey", 8, SecretKind::Token),
    ("licencekey", 8, SecretKind::Token),
    ("activationkey", 8, SecretKind::Token),
];

/// Words that a secret name ends with, as separate words: `smtp_pass`, `SMTPPass`, and not `bypass`.
const PASSWORD_WORDS: [&str; 4] = ["pass", "pwd", "passwd", "pw"];

/// Names that are secret without an ending, if the value looks like a secret.
const WHOLE: [&str; 6] = ["passwd", "encrypt", "key", "httpbasicauth", "basicauth", "userpwd"];

/// Returns `true` if the result of [`by_name`] depends on the value: a cheap test before the value is read.
pub(super) fn may_be_secret(name: &str) -> bool {
    let mut buffer = [0; LONGEST_NAME];
    squashed(name, &mut buffer).is_some_and(|key| {
        ENDINGS.iter().any(|(ending, _, _)| key.ends_with(ending))
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
        let is_value = kind == SecretKind::Password || !value.contains(' ') && may_be_key(value);
        return (value.len() >= least && is_value).then_some(kind);
    }
    match key {
        // `SetCredential=NAME:VALUE` of a unit, and the kernel argument; the encrypted form has another name.
        _ if key.ends_with("setcredential") || key.ends_with("setcredentialbinary") => {
            let value = value.split_once(':').map(|(_, value)| value);
            return value.filter(|it| !it.is_empty()).map(|_| SecretKind::Password);
        }
        // `passwd: files sss` is a line of nsswitch.conf.
        "passwd" if !is_equation => return None,
        "encrypt" if value.len() >= 24 && is_base64(value) => return Some(SecretKind::SharedKey),
        // Ceph keys have 28 bytes.
        "key" if value.len() == 40 && value.ends_with("==") && is_base64(value) => {
            return Some(SecretKind::SharedKey);
        }
        "httpbasicauth" | "basicauth" | "userpwd" if value.contains(':') => {
            return Some(SecretKind::Password);
        }
        _ => {}
    }
    if PASSWORD_WORDS.iter().any(|word| key.ends_with(word)) && ends_with_word(name) {
        // `pass=2` is a number, of an attempt or of a file system's check.
        let is_digit = value.len() == 1 && value.bytes().all(|byte| byte.is_ascii_digit());
        return (!is_digit).then_some(SecretKind::Password);
    }
    // `--tls-secret=NAME` names a Kubernetes object, also with its namespace.
    if sign == Sign::Option && is_object_name(value) {
        return None;
    }
    // `secret: NAME` names one; key material is long, and one word.
    let is_key = is_equation && value.len() >= 8 || value.len() >= 16 && is_base64(value);
    let is_value = is_key && !value.contains(' ') && may_be_key(value);
    (key.ends_with("secret") && is_value).then_some(SecretKind::Token)
}

/// Kind and minimum value length in bytes by the ending of a name.
fn by_ending(key: &str) -> Option<(usize, SecretKind)> {
    let endings = ENDINGS.iter().filter(|(ending, _, _)| key.ends_with(ending));
    endings.max_by_key(|it| it.0.len()).map(|(_, least, kind)| (*least, *kind))
}

/// Kind of a value by its name, for values of any length and form.
pub(super) fn by_name_alone(name: &str) -> Option<SecretKind> {
    let mut buffer = [0; LONGEST_NAME];
    let key = squashed(name, &mut buffer)?;
    if let Some((_, kind)) = by_ending(key) {
        return Some(kind);
    }
    if PASSWORD_WORDS.iter().any(|word| key.ends_with(word)) && ends_with_word(name) {
        return Some(SecretKind::Password);
    }
    key.ends_with("secret").then_some(SecretKind::Token)
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
    let sorts: [fn(&u8) -> bool; 3] =
        [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
    let is_mixed = || sorts.iter().all(|is| value.as_bytes().iter().any(is));
    let is_padded = value.len() >= 16 && value.ends_with('=');
    let is_long = || value.len() >= 32 && value.split('/').count() * 8 <= value.len();
    is_base64(value) && (is_padded || is_long()) && is_mixed()
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
