//! The rules, one for each kind.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::assignments::assignments;
use super::kind::SecretKind;
use crate::ignition::contents::{Contents, Room};

/// A text of more bytes than this is no configuration, and is not searched any further.
const MOST_BYTES: usize = 4 << 20;
/// Texts within texts: a machine config within a file, with files of its own.
const DEPTH: usize = 4;
/// What may be unpacked within one text, in bytes.
const WITHIN: u64 = 16 << 20;

/// What is secret in the contents of a file, or in a unit.
#[must_use]
pub fn find(bytes: &[u8]) -> BTreeSet<SecretKind> {
    let mut kinds = BTreeSet::new();
    let mut room = Room::of(WITHIN);
    search(&bytes[..bytes.len().min(MOST_BYTES)], DEPTH, &mut room, &mut kinds);
    kinds
}

/// Whether a header of this name proves who asks.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_known = matches!(&name[..], "authorization" | "proxy-authorization" | "cookie");
    is_known || ["token", "secret", "api-key", "password"].iter().any(|word| name.contains(word))
}

fn search(bytes: &[u8], depth: usize, room: &mut Room, kinds: &mut BTreeSet<SecretKind>) {
    let text = String::from_utf8_lossy(bytes);
    let json = text.trim_start().starts_with(['{', '[']);
    if let (true, Ok(value)) = (json, serde_json::from_str::<Value>(&text)) {
        search_json(&value, depth, room, kinds);
        return;
    }
    if has_private_key(&text) {
        kinds.insert(SecretKind::PrivateKey);
    }
    if has_password_hash(&text) {
        kinds.insert(SecretKind::PasswordHash);
    }
    if has_url_password(&text) {
        kinds.insert(SecretKind::UrlPassword);
    }
    if has_netrc_password(&text) {
        kinds.insert(SecretKind::Password);
    }
    if has_token(&text) {
        kinds.insert(SecretKind::Token);
    }
    let is_kubeconfig = text.contains("current-context:") || text.contains("kind: Config\n");
    for assignment in assignments(&text) {
        let by_name = by_name(assignment.name, assignment.value, assignment.is_equation);
        kinds.extend(by_name.map(|kind| if is_kubeconfig { SecretKind::Kubeconfig } else { kind }));
    }
}

fn search_json(value: &Value, depth: usize, room: &mut Room, kinds: &mut BTreeSet<SecretKind>) {
    let mut found = BTreeSet::new();
    walk(value, depth, room, &mut found);
    if value.get("current-context").is_some() || value["kind"] == "Config" {
        let is_credential = |kind: &SecretKind| {
            matches!(kind, SecretKind::Token | SecretKind::Password | SecretKind::PrivateKey)
        };
        if found.iter().any(is_credential) {
            found.retain(|kind| !is_credential(kind));
            found.insert(SecretKind::Kubeconfig);
        }
    }
    kinds.extend(found);
}

fn walk(value: &Value, depth: usize, room: &mut Room, kinds: &mut BTreeSet<SecretKind>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, depth, room, kinds)),
        Value::Object(members) => {
            if is_registry_logins(value) {
                kinds.insert(SecretKind::RegistryLogin);
            }
            for (name, member) in members {
                if let Value::String(text) = member {
                    if name == "source" && text.starts_with("data:") {
                        let compression = members.get("compression").and_then(Value::as_str);
                        if let Contents::Bytes(bytes) = Contents::of(text, compression, room)
                            && depth > 0
                        {
                            search(&bytes, depth - 1, room, kinds);
                        }
                        continue;
                    }
                    let is_literal = !text.is_empty() && !text.starts_with(['$', '/', '{', '<']);
                    kinds.extend(by_name(name, text, false).filter(|_| is_literal));
                }
                walk(member, depth, room, kinds);
            }
        }
        Value::String(text) if depth > 0 => search(text.as_bytes(), depth - 1, room, kinds),
        _ => {}
    }
}

/// `{"auths": {"HOST": {"auth": …}}}`, and `{"HOST": {"auth": …}}` of old.
fn is_registry_logins(value: &Value) -> bool {
    let is_login = |entry: &Value| {
        let has = |field: &str| entry[field].as_str().is_some_and(|text| !text.is_empty());
        ["auth", "identitytoken", "registrytoken", "password"].into_iter().any(has)
    };
    let entries = value["auths"].as_object().or_else(|| value.as_object());
    entries.is_some_and(|entries| {
        entries.iter().any(|(host, entry)| {
            let is_host = host.contains('.') || host.contains(':') || host.contains('/');
            (value["auths"].is_object() || is_host) && is_login(entry)
        })
    })
}

/// A block of PEM with a key in it, as it is or in base64.
fn has_private_key(text: &str) -> bool {
    const ENCODED: &str = "LS0tLS1CRUdJTi";
    let is_block = |block: &str| {
        let (label, body) = block.split_once("-----").unwrap_or_default();
        let first = body.trim_start().chars().next();
        label.ends_with("PRIVATE KEY")
            && !label.contains('\n')
            && first.is_some_and(|c| c.is_ascii_alphanumeric())
    };
    if text.contains("AGE-SECRET-KEY-1") || text.split("-----BEGIN ").skip(1).any(is_block) {
        return true;
    }
    text.match_indices(ENCODED).any(|(at, _)| {
        let run = text[at..].split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/'));
        let run = run.take(1).next().unwrap_or_default();
        // The label is all that is needed.
        let start = run.get(..64.min(run.len() / 4 * 4)).unwrap_or_default();
        STANDARD
            .decode(start)
            .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("PRIVATE KEY-----"))
    })
}

/// A hash as crypt(5) writes it.
fn has_password_hash(text: &str) -> bool {
    const METHODS: [&str; 12] = [
        "$1$",
        "$5$",
        "$6$",
        "$7$",
        "$y$",
        "$gy$",
        "$2a$",
        "$2b$",
        "$2y$",
        "$argon2id$",
        "$argon2i$",
        "$apr1$",
    ];
    METHODS.iter().any(|method| {
        text.match_indices(method).any(|(at, _)| {
            let rest = &text[at + method.len()..];
            let is_part = |c: char| c.is_ascii_alphanumeric() || "./$=,-".contains(c);
            rest.chars().take_while(|c| is_part(*c)).count() >= 22
        })
    })
}

/// `machine HOST login USER password PASSWORD`, as netrc(5) has it, in one line or in several.
fn has_netrc_password(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let is_netrc = words.by_ref().any(|word| word == "machine");
    let mut words = words.skip(1);
    is_netrc
        && words.any(|word| word == "login")
        && words.nth(1) == Some("password")
        && words.next().is_some_and(|word| !word.starts_with(['$', '{', '<']))
}

/// `scheme://user:password@host`
fn has_url_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let is_end = |c: char| c.is_whitespace() || "/\"'<>`?#\\".contains(c);
        let authority = rest.split(is_end).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
        password.is_some_and(|it| !it.is_empty() && !it.starts_with(['$', '*', '{', '%']))
    })
}

/// A token that says so itself: a JSON web token, or one of a bearer.
fn has_token(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=');
    let is_jwt = text.match_indices("eyJ").any(|(at, _)| {
        let mut parts = text[at..].split('.');
        let mut long =
            || parts.next().is_some_and(|part| part.len() >= 10 && part.chars().all(is_part));
        long() && long()
    });
    let is_bearer = text.match_indices("Bearer ").any(|(at, word)| {
        text[at + word.len()..]
            .chars()
            .take_while(|c| is_part(*c) || matches!(c, '.' | '~' | '/' | '+'))
            .count()
            >= 16
    });
    is_jwt || is_bearer
}

/// What a literal value of this name is.
fn by_name(name: &str, value: &str, is_equation: bool) -> Option<SecretKind> {
    let key: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let key = key.to_ascii_lowercase();
    let ends = |words: &[&str]| words.iter().any(|word| key.ends_with(word));
    // `passwd: files sss` is a line of nsswitch.conf.
    if ends(&["password", "passphrase"]) || (is_equation && ends(&["passwd"])) {
        return Some(SecretKind::Password);
    }
    // `SetCredential=NAME:VALUE` of a unit; the encrypted one has another name.
    if key == "setcredential" && value.split_once(':').is_some_and(|(_, value)| !value.is_empty()) {
        return Some(SecretKind::Password);
    }
    if key == "passwordhash" {
        return Some(SecretKind::PasswordHash);
    }
    if ends(&["dockerconfigjson", "dockercfg"]) {
        return Some(SecretKind::RegistryLogin);
    }
    if ends(&["privatekey", "clientkeydata", "presharedkey", "psk"]) && value.len() >= 8 {
        return Some(SecretKind::PrivateKey);
    }
    let is_token =
        ends(&["token", "apikey", "accesskey", "secretkey", "clientsecret", "sharedsecret"])
            || (is_equation && ends(&["secret"]));
    // Words such as `bootstrap` are names of tokens.
    (is_token && value.len() >= 8 && !value.contains(' ')).then_some(SecretKind::Token)
}
