//! Files of registry credentials, as podman, kubelet and Docker write them.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use ignition::data_url::BASE64;
use serde_json::{Map, Value};

/// Maximum length of a registry's name in bytes: a host, a port and a path.
const LONGEST: usize = 512;
/// Punctuation in names: registries are hosts with optional port and path; Docker's own is a URL, and kubelet supports
/// `*`.
const PUNCTUATION: &str = "-._:/*[]";

/// A registry's name in a file of credentials: a host with optional port and path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registry(String);

impl Registry {
    /// Parses a name; `None` for other texts, which may be a misplaced password.
    pub fn parse(text: &str) -> Option<Self> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || PUNCTUATION.contains(c);
        let is_name = !text.is_empty() && text.len() <= LONGEST && text.chars().all(is_part);
        is_name.then(|| Self(text.to_owned()))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Credentials for one registry: an object with `auth`, passed on unchanged.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Value);

impl Credential {
    /// The credentials as JSON.
    pub fn as_json(&self) -> &Value {
        &self.0
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// Credentials by registry. `Debug` shows only the registries.
pub type Credentials = BTreeMap<Registry, Credential>;

/// The entries of a file. A bad one does not affect the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Usable credentials.
    pub good: Credentials,
    /// Refused entries, in the order of the file.
    pub refused: Vec<Refused>,
    /// Registries whose entry is unusable. Their last good credentials stay.
    pub undecodable: BTreeSet<Registry>,
}

impl Entries {
    /// The good entries, and for an undecodable one its credentials in `before`.
    pub fn or_last_good(&self, before: &Credentials) -> Credentials {
        let kept = before.iter().filter(|(registry, _)| self.undecodable.contains(*registry));
        let kept = kept.map(|(registry, credential)| (registry.clone(), credential.clone()));
        kept.chain(self.good.clone()).collect()
    }
}

/// An entry that is not used. The message is one line without credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The key is no registry; it is not shown, since it may be secret.
    #[error(
        "entry {0} of `auths` is for no registry: expected HOST, HOST:PORT or either with /PATH"
    )]
    NoRegistry(usize),
    /// The entry is no object, or has no `auth`.
    #[error("the entry for {} has no `auth`", .0.as_str())]
    NoAuth(Registry),
    /// The value of `auth` is not base64 of `USER:PASSWORD`.
    #[error("the entry for {} has an `auth` that is not base64 of USER:PASSWORD", .0.as_str())]
    NoCredential(Registry),
}

/// Reasons why a text is no file of credentials. The message is one line without the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedCredentials {
    /// The text is no JSON.
    #[error("not JSON (line {line}, column {column})")]
    NoJson {
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
    },
    /// The object `auths` is missing.
    #[error("has no object `auths`")]
    NoAuths,
}

pub(super) fn members(text: &[u8]) -> Result<Map<String, Value>, MalformedCredentials> {
    let value: Value = serde_json::from_slice(text).map_err(|error| {
        MalformedCredentials::NoJson { line: error.line(), column: error.column() }
    })?;
    if let Value::Object(members) = value {
        Ok(members)
    } else {
        Err(MalformedCredentials::NoAuths)
    }
}

impl Entries {
    /// Parses a file of credentials. Members other than `auths` are ignored: they name programs of the machine that
    /// wrote it.
    pub fn parse(text: &[u8]) -> Result<Self, MalformedCredentials> {
        let members = members(text)?;
        let auths = members.get("auths").and_then(Value::as_object);
        let auths = auths.ok_or(MalformedCredentials::NoAuths)?;
        let mut entries = Self::default();
        for (number, (name, entry)) in auths.iter().enumerate() {
            let Some(registry) = Registry::parse(name) else {
                entries.refused.push(Refused::NoRegistry(number + 1));
                continue;
            };
            let refused = match entry.get("auth").and_then(Value::as_str) {
                None | Some("") => Refused::NoAuth(registry.clone()),
                Some(auth) if is_credential(auth) => {
                    entries.good.insert(registry, Credential(entry.clone()));
                    continue;
                }
                Some(_) => Refused::NoCredential(registry.clone()),
            };
            entries.refused.push(refused);
            entries.undecodable.insert(registry);
        }
        Ok(entries)
    }
}

/// Returns `true` for base64 of `USER:PASSWORD`. The password can be empty, next to an identity token.
fn is_credential(auth: &str) -> bool {
    let compact: Vec<u8> = auth.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let decoded = BASE64.decode(compact).unwrap_or_default();
    decoded.iter().position(|byte| *byte == b':').is_some_and(|at| at > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(auths: &Value) -> Entries {
        Entries::parse(json!({"auths": auths}).to_string().as_bytes()).unwrap()
    }

    fn names(credentials: &Credentials) -> Vec<&str> {
        credentials.keys().map(Registry::as_str).collect()
    }

    #[test]
    fn each_entry_stands_on_its_own() {
        let entries = read(&json!({
            "quay.io": {"auth": "dTpw", "email": "me@example.com"},
            "registry.example.com:5000/team": {"auth": "dTpw"},
            "https://index.docker.io/v1/": {"auth": "dTpw\n"},
            "*.azurecr.io": {"auth": "dTo=", "identitytoken": "SECRET"},
            "empty.example": {},
            "blank.example": {"auth": ""},
            "number.example": {"auth": 1},
            "text.example": "SECRET",
            "plain.example": {"auth": "SECRET"},
            "nocolon.example": {"auth": "c2VjcmV0"},
            "nobody.example": {"auth": "OnA="},
            "user:SECRET@host": {"auth": "dTpw"},
            "": {"auth": "dTpw"},
        }));
        let good = [
            "*.azurecr.io",
            "https://index.docker.io/v1/",
            "quay.io",
            "registry.example.com:5000/team",
        ];
        assert_eq!(names(&entries.good), good);
        let quay = &entries.good[&Registry::parse("quay.io").unwrap()];
        assert_eq!(*quay.as_json(), json!({"auth": "dTpw", "email": "me@example.com"}));
        let reported: Vec<_> = entries.refused.iter().map(Refused::to_string).collect();
        let registry = "is for no registry: expected HOST, HOST:PORT or either with /PATH";
        assert_eq!(
            reported,
            [
                "the entry for empty.example has no `auth`".to_owned(),
                "the entry for blank.example has no `auth`".to_owned(),
                "the entry for number.example has no `auth`".to_owned(),
                "the entry for text.example has no `auth`".to_owned(),
                "the entry for plain.example has an `auth` that is not base64 of USER:PASSWORD"
                    .to_owned(),
                "the entry for nocolon.example has an `auth` that is not base64 of USER:PASSWORD"
                    .to_owned(),
                "the entry for nobody.example has an `auth` that is not base64 of USER:PASSWORD"
                    .to_owned(),
                format!("entry 12 of `auths` {registry}"),
                format!("entry 13 of `auths` {registry}"),
            ]
        );
        assert_eq!(entries.undecodable.len(), 7);
        let shown = format!("{entries:?}");
        assert!(shown.contains("quay.io"), "{shown}");
        for secret in ["SECRET", "dTpw", "c2VjcmV0", "OnA=", "dTo="] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn what_is_no_file_of_credentials_is_reported_by_its_place() {
        for (text, reported) in [
            ("", "not JSON (line 1, column 0)"),
            ("{\"auths\":\n SECRET}", "not JSON (line 2, column 2)"),
            ("\"SECRET\"", "has no object `auths`"),
            ("{}", "has no object `auths`"),
            ("{\"auths\": \"SECRET\"}", "has no object `auths`"),
            ("{\"quay.io\": {\"auth\": \"SECRET\"}}", "has no object `auths`"),
        ] {
            assert_eq!(
                Entries::parse(text.as_bytes()).unwrap_err().to_string(),
                reported,
                "{text}"
            );
        }
        assert_eq!(Entries::parse(br#"{"auths": {}}"#), Ok(Entries::default()));
    }

    #[test]
    fn an_undecodable_entry_leaves_what_was_good_and_a_removed_one_does_not() {
        let before = read(&json!({"a": {"auth": "dTpw"}, "b": {"auth": "dTpw"}})).good;
        let after = read(&json!({"a": {}, "c": {"auth": "dTpw"}})).or_last_good(&before);
        assert_eq!(names(&after), ["a", "c"]);
    }
}
