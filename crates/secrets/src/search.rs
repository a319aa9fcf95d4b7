//! Combines the rules for bytes, text, JSON, and nested texts.

use std::collections::BTreeSet;

use ignition::contents::{Contents, UnpackBudget, Unreadable};
use serde_json::Value;

use super::assignments::is_computed;
use super::files::FileKind;
use super::found::SearchFindings;
use super::kind::SecretKind;
use super::kubernetes;
use super::lines;
use super::marks;
use super::names::{Sign, by_name};
use super::private_keys::is_binary_key;
use super::skipped::{MAX_BYTES, MAX_NESTED, MAX_UNPACKED_BYTES, Skipped};

/// Kinds of secrets in a file with this path, or in a text without a file.
pub(super) fn find(path: Option<&str>, bytes: &[u8]) -> BTreeSet<SecretKind> {
    let mut budget = UnpackBudget::of(MAX_UNPACKED_BYTES);
    let mut kinds =
        search(path, &bytes[..bytes.len().min(MAX_BYTES)], MAX_NESTED, &mut budget).kinds;
    if bytes.len() > MAX_BYTES {
        kinds.insert(SecretKind::Unsearched(Skipped::Bytes));
    }
    kinds
}

/// Secrets in a text without a file, with their positions.
pub(super) fn search_text(text: &str) -> SearchFindings {
    search(None, text.as_bytes(), MAX_NESTED, &mut UnpackBudget::of(MAX_UNPACKED_BYTES))
}

fn search(
    path: Option<&str>,
    bytes: &[u8],
    depth: usize,
    budget: &mut UnpackBudget,
) -> SearchFindings {
    let mut found = SearchFindings::default();
    if is_binary_key(bytes) {
        found.add_within([SecretKind::PrivateKey]);
        return found;
    }
    let text = String::from_utf8_lossy(bytes);
    let file = path.map(|path| FileKind::of(path, &text));
    if let (Some(path), Some(file)) = (path, file) {
        found.add_within(file.whole(path, &text));
    }
    let json = text.trim_start().starts_with(['{', '[']);
    if let (true, Ok(value)) = (json, serde_json::from_str::<Value>(&text)) {
        let mut kinds = BTreeSet::new();
        walk(&value, depth, budget, &mut kinds);
        let kind = value["kind"].as_str().unwrap_or_default();
        let is_kubeconfig = value.get("current-context").is_some() || kind == "Config";
        let is_encryption = kind.starts_with("EncryptionConfig");
        found.add_within(as_parts_of(kinds, is_kubeconfig, is_encryption));
        return found;
    }
    marks::search(&text, &mut found);
    lines::search(&text, file, &mut found);
    if has_netrc_password(&text) {
        found.add_within([SecretKind::Password]);
    }
    if kubernetes::has_secret(&text) {
        found.add_within([SecretKind::KubernetesSecret]);
    }
    let is_kubeconfig = text.contains("current-context:") || text.contains("kind: Config\n");
    let is_encryption = text.contains("kind: EncryptionConfig");
    found.kinds = as_parts_of(found.kinds, is_kubeconfig, is_encryption);
    found
}

/// Kinds of secrets that are parts of a larger one. All credentials of a kubeconfig count as one, and the API server's
/// EncryptionConfiguration calls its keys secrets.
fn as_parts_of(
    kinds: BTreeSet<SecretKind>,
    is_kubeconfig: bool,
    is_encryption: bool,
) -> BTreeSet<SecretKind> {
    use SecretKind::{EncryptionKey, Kubeconfig, Password, PrivateKey, Token};
    let part = |kind| match kind {
        Token | Password | PrivateKey if is_kubeconfig => Kubeconfig,
        Token if is_encryption => EncryptionKey,
        kind => kind,
    };
    kinds.into_iter().map(part).collect()
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
                match member {
                    Value::String(source) if name == "source" && source.starts_with("data:") => {
                        kinds.extend(in_source(source, value, depth, budget));
                        continue;
                    }
                    Value::String(text) => {
                        kinds.extend(by_name(name, text, Sign::Colon).filter(|_| is_literal(text)));
                    }
                    _ => {}
                }
                walk(member, depth, budget, kinds);
            }
        }
        Value::String(text) if depth > 0 => {
            kinds.extend(search(None, text.as_bytes(), depth - 1, budget).kinds);
        }
        // A single word is judged by its name.
        Value::String(text) if text.contains(['\n', '{']) => {
            kinds.insert(SecretKind::Unsearched(Skipped::Nested));
        }
        _ => {}
    }
}

/// Kinds of secrets in the data URL of a file or a resource in JSON.
fn in_source(
    source: &str,
    file: &Value,
    depth: usize,
    budget: &mut UnpackBudget,
) -> BTreeSet<SecretKind> {
    if depth == 0 {
        return [SecretKind::Unsearched(Skipped::Nested)].into();
    }
    match Contents::of(source, file["compression"].as_str(), budget) {
        Contents::Bytes(bytes) => search(file["path"].as_str(), &bytes, depth - 1, budget).kinds,
        Contents::Unreadable(Unreadable::TooLarge) => {
            [SecretKind::Unsearched(Skipped::Packed)].into()
        }
        _ => BTreeSet::new(),
    }
}

fn is_literal(text: &str) -> bool {
    !text.is_empty() && !is_computed(text) && !marks::is_masked(text)
}

/// Kind of secret that a JSON object is as a whole.
fn of_object(value: &Value) -> Option<SecretKind> {
    if is_registry_logins(value) {
        return Some(SecretKind::RegistryLogin);
    }
    // A JSON web key: the private exponent or number, or the key itself.
    let has = |field| has_text(value, field);
    if has("kty") && (has("d") || value["kty"] == "oct" && has("k")) {
        return Some(SecretKind::PrivateKey);
    }
    let is_filled = |field: &str| value[field].as_object().is_some_and(|it| !it.is_empty());
    let is_secret = value["kind"] == "Secret" && (is_filled("data") || is_filled("stringData"));
    is_secret.then_some(SecretKind::KubernetesSecret)
}

fn has_text(value: &Value, field: &str) -> bool {
    value[field].as_str().is_some_and(|text| !text.is_empty())
}

/// Recognises `{"auths": {"HOST": {"auth": …}}}`, and the old `{"HOST": {"auth": …}}`.
fn is_registry_logins(value: &Value) -> bool {
    let auths = value["auths"].as_object();
    auths.or_else(|| value.as_object()).into_iter().flatten().any(|(host, entry)| {
        let is_host = auths.is_some() || host.contains(['.', ':', '/']);
        let fields = ["auth", "identitytoken", "registrytoken", "password"];
        is_host && fields.iter().any(|field| has_text(entry, field))
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
