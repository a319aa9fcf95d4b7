//! Combines the rules for bytes, text, JSON, and nested texts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::assignments::is_computed;
use super::files::FileKind;
use super::found::SearchFindings;
use super::kind::SecretKind;
use super::kubernetes;
use super::lines;
use super::marks;
use super::names::{Sign, by_name};
use super::passed_over::{MAX_BYTES, MAX_NESTED, MAX_UNPACKED_BYTES, PassedOver};
use super::private_keys::is_binary_key;
use crate::contents::{Contents, UnpackBudget, Unreadable};

/// Kinds of secrets in a file with this path, or in a text without a file.
pub(super) fn find(path: Option<&str>, bytes: &[u8]) -> BTreeSet<SecretKind> {
    let mut found = SearchFindings::default();
    let mut budget = UnpackBudget::of(MAX_UNPACKED_BYTES);
    search(path, &bytes[..bytes.len().min(MAX_BYTES)], MAX_NESTED, &mut budget, &mut found);
    if bytes.len() > MAX_BYTES {
        found.add_within([SecretKind::Unsearched(PassedOver::Bytes)]);
    }
    found.kinds
}

/// Secrets in a text without a file, with their positions.
pub(super) fn search_text(text: &str) -> SearchFindings {
    let mut found = SearchFindings::default();
    search(
        None,
        text.as_bytes(),
        MAX_NESTED,
        &mut UnpackBudget::of(MAX_UNPACKED_BYTES),
        &mut found,
    );
    found
}

fn search(
    path: Option<&str>,
    bytes: &[u8],
    depth: usize,
    budget: &mut UnpackBudget,
    found: &mut SearchFindings,
) {
    if is_binary_key(bytes) {
        found.add_within([SecretKind::PrivateKey]);
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    let file = path.map(|path| FileKind::of(path, &text));
    if let (Some(path), Some(file)) = (path, file) {
        found.add_within(file.whole(path, &text));
    }
    let json = text.trim_start().starts_with(['{', '[']);
    if let (true, Ok(value)) = (json, serde_json::from_str::<Value>(&text)) {
        found.add_within(search_json(&value, depth, budget));
        return;
    }
    marks::search(&text, found);
    lines::search(&text, file, found);
    if has_netrc_password(&text) {
        found.add_within([SecretKind::Password]);
    }
    if kubernetes::has_secret(&text) {
        found.add_within([SecretKind::KubernetesSecret]);
    }
    if text.contains("current-context:") || text.contains("kind: Config\n") {
        found.kinds = of_kubeconfig(&found.kinds);
    } else if text.contains("kind: EncryptionConfig") {
        let kinds = found.kinds.iter().copied();
        found.kinds = kinds.map(of_encryption).collect();
    }
}

/// Counts all credentials of a kubeconfig as one.
fn of_kubeconfig(kinds: &BTreeSet<SecretKind>) -> BTreeSet<SecretKind> {
    let is_credential =
        |kind| matches!(kind, SecretKind::Token | SecretKind::Password | SecretKind::PrivateKey);
    let kinds = kinds.iter().copied();
    kinds.map(|kind| if is_credential(kind) { SecretKind::Kubeconfig } else { kind }).collect()
}

/// Renames tokens: the API server's EncryptionConfiguration calls its keys secrets.
fn of_encryption(kind: SecretKind) -> SecretKind {
    if kind == SecretKind::Token { SecretKind::EncryptionKey } else { kind }
}

fn search_json(value: &Value, depth: usize, budget: &mut UnpackBudget) -> BTreeSet<SecretKind> {
    let mut kinds = BTreeSet::new();
    walk(value, depth, budget, &mut kinds);
    let kind = value["kind"].as_str().unwrap_or_default();
    if value.get("current-context").is_some() || kind == "Config" {
        kinds = of_kubeconfig(&kinds);
    } else if kind.starts_with("EncryptionConfig") {
        kinds = kinds.into_iter().map(of_encryption).collect();
    }
    kinds
}

fn walk(value: &Value, depth: usize, budget: &mut UnpackBudget, kinds: &mut BTreeSet<SecretKind>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, depth, budget, kinds)),
        Value::Object(members) => {
            kinds.extend(of_object(value));
            // An entry of a container's environment.
            if let (Some(name), Some(text)) = (value["name"].as_str(), value["value"].as_str()) {
                kinds.extend(by_name(name, text, Sign::Equation).filter(|_| is_literal(text)));
            }
            for (name, member) in members {
                if let Value::String(text) = member {
                    if name == "source" && text.starts_with("data:") {
                        let compression = members.get("compression").and_then(Value::as_str);
                        let path = value.get("path").and_then(Value::as_str);
                        if depth == 0 {
                            kinds.insert(SecretKind::Unsearched(PassedOver::Nested));
                            continue;
                        }
                        match Contents::of(text, compression, budget) {
                            Contents::Bytes(bytes) => {
                                kinds.extend(within(path, &bytes, depth, budget));
                            }
                            Contents::Unreadable(Unreadable::TooLarge) => {
                                kinds.insert(SecretKind::Unsearched(PassedOver::Packed));
                            }
                            _ => {}
                        }
                        continue;
                    }
                    kinds.extend(by_name(name, text, Sign::Colon).filter(|_| is_literal(text)));
                }
                walk(member, depth, budget, kinds);
            }
        }
        Value::String(text) if depth > 0 => {
            kinds.extend(within(None, text.as_bytes(), depth, budget));
        }
        // A single word is judged by its name.
        Value::String(text) if text.contains(['\n', '{']) => {
            kinds.insert(SecretKind::Unsearched(PassedOver::Nested));
        }
        _ => {}
    }
}

fn within(
    path: Option<&str>,
    bytes: &[u8],
    depth: usize,
    budget: &mut UnpackBudget,
) -> BTreeSet<SecretKind> {
    let mut found = SearchFindings::default();
    search(path, bytes, depth - 1, budget, &mut found);
    found.kinds
}

fn is_literal(text: &str) -> bool {
    !text.is_empty() && !is_computed(text) && !marks::is_masked(text)
}

/// Kind of secret that a JSON object is as a whole.
fn of_object(value: &Value) -> Option<SecretKind> {
    let has = |field: &str| value[field].as_str().is_some_and(|text| !text.is_empty());
    if is_registry_logins(value) {
        return Some(SecretKind::RegistryLogin);
    }
    // A JSON web key: the private exponent or number, or the key itself.
    if has("kty") && (has("d") || value["kty"] == "oct" && has("k")) {
        return Some(SecretKind::PrivateKey);
    }
    let is_filled = |field: &str| value[field].as_object().is_some_and(|it| !it.is_empty());
    let is_secret = value["kind"] == "Secret" && (is_filled("data") || is_filled("stringData"));
    is_secret.then_some(SecretKind::KubernetesSecret)
}

/// Recognises `{"auths": {"HOST": {"auth": …}}}`, and the old `{"HOST": {"auth": …}}`.
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

/// Recognises `machine HOST login USER password PASSWORD` of netrc(5), in one or several lines.
fn has_netrc_password(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let is_netrc = words.by_ref().any(|word| word == "machine" || word == "default");
    let mut words = words.skip_while(|word| *word != "login");
    let is_login = words.next().is_some();
    is_netrc
        && is_login
        && words.nth(1) == Some("password")
        && words.next().is_some_and(|word| !word.starts_with(['$', '{', '<']))
}
