//! Pointer configs without other contents, as this server makes them.

use ignition::{POINTER_SPEC, SpecVersion, data_url, pointer};
use serde_json::Value;

use super::bearer::{AUTHORIZATION, HEADERS, has_headers};
use super::config::PointerConfig;
use super::json_text::{find, string};

impl PointerConfig<'_> {
    /// Returns `true` if it has the form that [`pointer()`] makes, with or without a token.
    pub fn is_plain(&self) -> bool {
        let Some(written) = self.written else { return false };
        let Ok(mut present) = serde_json::from_str::<Value>(written.text) else { return false };
        without_bearer(&mut present);
        let section = &present["ignition"];
        let version = SpecVersion::ALL.into_iter().find(|it| section["version"] == it.as_str());
        let resources = &section["config"];
        let merged = resources.get("merge").unwrap_or(&resources["append"]);
        let url = merged[0]["source"].as_str();
        let ca = &section["security"]["tls"]["certificateAuthorities"][0]["source"];
        let pem = ca.as_str().and_then(|source| data_url::decode(source).ok());
        let (Some(version), Some(url), Some(pem)) = (version, url, pem) else { return false };
        present == pointer(url, &pem, version)
    }

    /// A plain config of an old spec, converted to the oldest spec with headers.
    pub fn lifted(&self) -> Option<Vec<u8>> {
        let written = self.written?;
        if has_headers(&written.version()?) || !self.is_plain() {
            return None;
        }
        let url = written.sources().next()?;
        let ca = written.entries().into_iter().next()?;
        let pem = data_url::decode(&string(find(ca, &["source"])?)?).ok()?;
        Some(pointer(&url, &pem, POINTER_SPEC).to_string().into_bytes())
    }
}

fn without_bearer(pointer: &mut Value) {
    let Some(resource) = pointer.pointer_mut("/ignition/config/merge/0") else { return };
    let is_token_alone = resource
        .get(HEADERS)
        .and_then(Value::as_array)
        .is_some_and(|headers| headers.len() == 1 && headers[0]["name"] == AUTHORIZATION);
    if is_token_alone && let Some(resource) = resource.as_object_mut() {
        resource.shift_remove(HEADERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://api-int.example.com:22623/config/worker";

    fn plain(version: SpecVersion) -> Vec<u8> {
        pointer(URL, b"-----BEGIN", version).to_string().into_bytes()
    }

    fn lifted(text: &[u8]) -> Option<Vec<u8>> {
        PointerConfig::read(text).lifted()
    }

    fn is_plain(text: &[u8]) -> bool {
        PointerConfig::read(text).is_plain()
    }

    #[test]
    fn what_was_made_in_an_older_spec_is_lifted() {
        for version in SpecVersion::ALL {
            let text = plain(version);
            let is_older = version < SpecVersion::V3_1;
            assert_eq!(lifted(&text), is_older.then(|| plain(SpecVersion::V3_1)), "{version}");
        }
        for text in [
            r#"{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://h/config/worker"}]}}}"#,
            r#"{"ignition":{"version":"3.0.0","config":{"merge":{"source":"https://h/config/worker"}}}}"#,
            r#"{"ignition":{"version":"3.0.0","config":{"merge":["https://h/config/worker"]}}}"#,
            r#"{"ignition":{"version":"3.0.0"}}"#,
            r#"{"ignition":[]}"#,
        ] {
            assert_eq!(lifted(text.as_bytes()), None, "{text}");
            assert!(!is_plain(text.as_bytes()), "{text}");
        }
        let more = String::from_utf8(plain(SpecVersion::V3_0)).unwrap();
        let more = more.replacen('{', r#"{"storage":{},"#, 1);
        assert_eq!(lifted(more.as_bytes()), None, "another tool has put more into it");
    }

    #[test]
    fn a_token_makes_no_other_pointer_config_of_it() {
        let text = plain(SpecVersion::V3_1);
        let with = PointerConfig::read(&text).with_bearer("worker", "mcs-1").unwrap();
        assert!(is_plain(&text) && is_plain(&with));
        let more = String::from_utf8(with).unwrap().replace("Authorization", "X-Other");
        assert!(!is_plain(more.as_bytes()));
    }
}
