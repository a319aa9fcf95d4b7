//! The file with registry credentials on a machine.

use serde_json::{Map, Value, json};

use super::credentials::{Credential, Credentials, MalformedCredentials, Registry, members};

/// Reasons why credentials cannot be merged into a MachineConfig's own file. Messages contain nothing of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unmergeable {
    /// The contents are not in the config: the machine fetches them, or appends to an existing file.
    #[error("its contents are not in the config")]
    Elsewhere,
    /// The contents cannot be decoded or unpacked.
    #[error("its contents cannot be read")]
    Unreadable,
    /// The contents are no file of credentials.
    #[error(transparent)]
    Malformed(#[from] MalformedCredentials),
}

/// A file of credentials, with all its members.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialFile(Map<String, Value>);

impl CredentialFile {
    /// Parses a file. An empty one, and one without `auths`, has no credentials.
    pub fn parse(text: &[u8]) -> Result<Self, MalformedCredentials> {
        let mut members = if text.is_empty() { Map::new() } else { members(text)? };
        let auths = members.entry("auths").or_insert_with(|| json!({}));
        if auths.is_object() { Ok(Self(members)) } else { Err(MalformedCredentials::NoAuths) }
    }

    /// Credentials for a registry.
    pub fn credential(&self, registry: &Registry) -> Option<&Value> {
        self.0.get("auths")?.get(registry.as_str())
    }

    /// Sets or removes the credentials for a registry.
    pub fn set(&mut self, registry: &Registry, credential: Option<&Credential>) {
        let Some(Value::Object(auths)) = self.0.get_mut("auths") else { return };
        match credential {
            Some(credential) => {
                auths.insert(registry.as_str().to_owned(), credential.as_json().clone())
            }
            None => auths.shift_remove(registry.as_str()),
        };
    }

    /// The file as JSON, with its members in the original order.
    pub fn to_json(&self) -> Vec<u8> {
        Value::Object(self.0.clone()).to_string().into_bytes()
    }
}

impl std::fmt::Debug for CredentialFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialFile(..)")
    }
}

/// Merges credentials into the `present` JSON file; `None` if it needs no change.
///
/// `credentials` override entries for the same registry; all others stay, in their order.
pub fn merged_file(
    present: Option<&[u8]>,
    credentials: &Credentials,
) -> Result<Option<Vec<u8>>, Unmergeable> {
    let mut file = CredentialFile::parse(present.unwrap_or_default())?;
    let mut is_changed = present.is_none_or(<[u8]>::is_empty);
    for (registry, credential) in credentials {
        if file.credential(registry) != Some(credential.as_json()) {
            file.set(registry, Some(credential));
            is_changed = true;
        }
    }
    Ok(is_changed.then(|| file.to_json()))
}

#[cfg(test)]
mod tests {
    use super::super::Entries;
    use super::*;

    fn credentials(auths: &Value) -> Credentials {
        Entries::parse(json!({"auths": auths}).to_string().as_bytes()).unwrap().good
    }

    fn merged(present: &Value, auths: &Value) -> Option<String> {
        let text = present.to_string();
        let merged = merged_file(Some(text.as_bytes()), &credentials(auths)).unwrap();
        merged.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_secret_wins_for_a_registry_and_all_else_stays() {
        let present = json!({
            "credHelpers": {"ecr": "ecr-login"},
            "auths": {"z": {"auth": "b2xkOnA="}, "a": {"auth": "b2xkOnA="}, "own": {}},
        });
        let secret = json!({"a": {"auth": "bmV3OnA="}, "b": {"auth": "bmV3OnA="}});
        assert_eq!(
            merged(&present, &secret).unwrap(),
            "{\"credHelpers\":{\"ecr\":\"ecr-login\"},\"auths\":{\"z\":{\"auth\":\"b2xkOnA=\"},\
             \"a\":{\"auth\":\"bmV3OnA=\"},\"own\":{},\"b\":{\"auth\":\"bmV3OnA=\"}}}"
        );
        assert_eq!(merged(&present, &json!({"z": {"auth": "b2xkOnA="}})), None);
    }

    #[test]
    fn without_a_file_or_with_an_empty_one_there_is_a_new_one() {
        let credentials = credentials(&json!({"b": {"auth": "dTpw"}, "a": {"auth": "dTpw"}}));
        for present in [None, Some(&b""[..])] {
            let file = merged_file(present, &credentials).unwrap().unwrap();
            assert_eq!(file, br#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#);
        }
    }

    #[test]
    fn a_file_may_have_no_credentials_yet() {
        let file = merged_file(
            Some(b"{\"credsStore\":\"x\"}"),
            &credentials(&json!({"a": {"auth": "dTpw"}})),
        );
        assert_eq!(file.unwrap().unwrap(), br#"{"credsStore":"x","auths":{"a":{"auth":"dTpw"}}}"#);
    }

    #[test]
    fn a_file_that_is_not_understood_is_not_written_over() {
        let reported = |text: &str| {
            merged_file(Some(text.as_bytes()), &credentials(&json!({}))).unwrap_err().to_string()
        };
        assert_eq!(reported("SECRET"), "not JSON (line 1, column 1)");
        assert_eq!(reported("{\"auths\":[]}"), "has no object `auths`");
        assert_eq!(reported("[]"), "has no object `auths`");
    }
}
