//! Tokens in pointer configs: the `Authorization` header of each fetch from a machine config server.
//!
//! Ignition has headers since spec 3.1.0. A URL could carry a token in any spec, but Ignition logs URLs.

use std::ops::Range;

use http::Uri;
use http::uri::Scheme;
use serde_json::json;

use super::config::PointerConfig;
use super::fetch::pool_in;
use super::json_text::{elements, find, place, spliced, string};
use super::written::WrittenConfig;

pub(super) const AUTHORIZATION: &str = "Authorization";
pub(super) const HEADERS: &str = "httpHeaders";

/// A fetch of a pool's config, as written in a pointer config of any spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFetch {
    /// Pool in the URL.
    pub pool: String,
    /// Credential of the fetch.
    pub authorization: Authorization,
}

/// The `Authorization` header of a fetch.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// The fetch has no such header.
    Missing,
    /// Credential after `Bearer`.
    Bearer(String),
    /// Another scheme, several headers, or an unreadable one.
    Other,
}

impl std::fmt::Debug for Authorization {
    /// Hides the credential.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "Missing",
            Self::Bearer(_) => "Bearer(..)",
            Self::Other => "Other",
        })
    }
}

/// Reasons why a pointer config cannot carry a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHeader {
    /// The text is no pointer config, or has no fetch for this pool.
    #[error("does not fetch the config of this pool")]
    NoFetch,
    /// The spec has no headers.
    #[error("its Ignition spec {0} has no headers; use a pointer config of spec 3.1.0 or newer")]
    Spec(String),
    /// The fetch has no TLS, so the token could be read on the network.
    #[error("fetches without TLS, so that others on the network can read the token")]
    Plain,
}

impl PointerConfig<'_> {
    /// The fetches of pools' configs in the text, in their order.
    pub fn written_fetches(&self) -> Vec<WrittenFetch> {
        let Some(written) = self.written else { return Vec::new() };
        let fetch = |(resource, url): (&str, Uri)| WrittenFetch {
            pool: pool_in(&url).unwrap_or_default().to_owned(),
            authorization: authorization(resource),
        };
        resources(&written).into_iter().map(fetch).collect()
    }

    /// Returns `true` if it fetches the config of `pool` from `url` with this token.
    pub fn fetches_with(&self, url: &str, pool: &str, token: &str) -> bool {
        let expected = Authorization::Bearer(token.to_owned());
        let is_with_it =
            |fetch: &WrittenFetch| fetch.pool == pool && fetch.authorization == expected;
        self.fetches_from(url) && self.written_fetches().iter().any(is_with_it)
    }

    /// Sets `credential` in the fetches of `pool`'s config. The rest of the text stays the same, byte for byte.
    ///
    /// # Errors
    /// The reason why it cannot carry a token.
    pub fn with_bearer(&self, pool: &str, credential: &str) -> Result<Vec<u8>, NoHeader> {
        let written = self.written.ok_or(NoHeader::NoFetch)?;
        let mut resources = resources(&written);
        resources.retain(|(_, url)| pool_in(url) == Some(pool));
        if resources.is_empty() {
            return Err(NoHeader::NoFetch);
        }
        let version = written.version().unwrap_or_default();
        if !has_headers(&version) {
            return Err(NoHeader::Spec(version));
        }
        if resources.iter().any(|(_, url)| url.scheme() != Some(&Scheme::HTTPS)) {
            return Err(NoHeader::Plain);
        }
        let change = |(resource, _): (&str, Uri)| header_change(written.text, resource, credential);
        let mut changes: Vec<_> = resources.into_iter().map(change).collect();
        changes.sort_by_key(|(place, _)| place.start);
        Ok(spliced(written.text, &changes).into_bytes())
    }
}

pub(super) fn has_headers(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(3)), Some(Ok(1..))))
}

/// The JSON texts of the fetches from a machine config server, with their URLs.
fn resources<'a>(written: &WrittenConfig<'a>) -> Vec<(&'a str, Uri)> {
    let url = |resource: &'a str| {
        let url: Uri = string(find(resource, &["source"])?)?.parse().ok()?;
        pool_in(&url)?;
        Some((resource, url))
    };
    written.resources().filter_map(url).collect()
}

fn authorization(resource: &str) -> Authorization {
    let headers = find(resource, &[HEADERS]).and_then(elements).unwrap_or_default();
    let mut values = headers.into_iter().filter(|header| is_authorization(header)).map(|header| {
        let value = find(header, &["value"]).and_then(string)?;
        let (scheme, credential) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("Bearer").then(|| credential.trim().to_owned())
    });
    match (values.next(), values.next()) {
        (None, _) => Authorization::Missing,
        (Some(Some(credential)), None) => Authorization::Bearer(credential),
        _ => Authorization::Other,
    }
}

fn is_authorization(header: &str) -> bool {
    let name = find(header, &["name"]).and_then(string);
    name.is_some_and(|name| name.eq_ignore_ascii_case(AUTHORIZATION))
}

/// The edit that sets `credential` as the only `Authorization` of a fetch.
fn header_change(text: &str, resource: &str, credential: &str) -> (Range<usize>, String) {
    let header = json!({"name": AUTHORIZATION, "value": format!("Bearer {credential}")});
    let Some(present) = find(resource, &[HEADERS]) else {
        // A fetch has a source, so the object is not empty and needs a comma.
        let end = place(text, resource).end - 1;
        return (end..end, format!(",\"{HEADERS}\":[{header}]"));
    };
    let headers = elements(present).unwrap_or_default();
    let mut headers: Vec<String> =
        headers.into_iter().filter(|it| !is_authorization(it)).map(str::to_owned).collect();
    headers.push(header.to_string());
    (place(text, present), format!("[{}]", headers.join(",")))
}

#[cfg(test)]
mod tests {
    use ignition::{Config as Ignition, SpecVersion, pointer};

    use super::*;

    const URL: &str = "https://api-int.example.com:22623/config/worker";

    fn plain(version: SpecVersion) -> Vec<u8> {
        pointer(URL, b"-----BEGIN", version).to_string().into_bytes()
    }

    fn fetches_of_pools(text: &[u8]) -> Vec<WrittenFetch> {
        PointerConfig::read(text).written_fetches()
    }

    fn with_bearer(text: &[u8], pool: &str, credential: &str) -> Result<Vec<u8>, NoHeader> {
        PointerConfig::read(text).with_bearer(pool, credential)
    }

    fn bearer(credential: &str) -> Vec<WrittenFetch> {
        let authorization = Authorization::Bearer(credential.to_owned());
        vec![WrittenFetch { pool: "worker".to_owned(), authorization }]
    }

    #[test]
    fn a_token_goes_in_and_is_found_and_replaced() {
        let text = plain(SpecVersion::V3_1);
        assert_eq!(fetches_of_pools(&text)[0].authorization, Authorization::Missing);
        let first = with_bearer(&text, "worker", "mcs-1").unwrap();
        assert_eq!(fetches_of_pools(&first), bearer("mcs-1"));
        let second = with_bearer(&first, "worker", "mcs-22").unwrap();
        assert_eq!(fetches_of_pools(&second), bearer("mcs-22"));
        assert_eq!(with_bearer(&first, "worker", "mcs-1").unwrap(), first);
        let text = String::from_utf8(second.clone()).unwrap();
        assert!(Ignition::parse(&text).is_ok(), "{text}");
    }

    #[test]
    fn every_other_byte_stays() {
        let text = br#" {"ignition": {"version":"3.4.0",
            "config": { "merge":[ {"source":"https://a/b"}, {"httpHeaders": [ {"name":"X","value":"1"} , {"name":"authorization", "value":"Bearer old"}],
              "source" : "https://h:22623/config/worker/" }], "replace":{} } }, "x": 1.10e1} "#;
        let changed = String::from_utf8(with_bearer(text, "worker", "new").unwrap()).unwrap();
        let expected = String::from_utf8_lossy(text).replace(
            r#"[ {"name":"X","value":"1"} , {"name":"authorization", "value":"Bearer old"}]"#,
            r#"[{"name":"X","value":"1"},{"name":"Authorization","value":"Bearer new"}]"#,
        );
        assert_eq!(changed, expected);
        assert_eq!(fetches_of_pools(changed.as_bytes()), bearer("new"));
    }

    #[test]
    fn what_can_bring_nothing_along_says_why() {
        let spec = |version: &str| Err(NoHeader::Spec(version.to_owned()));
        let http = String::from_utf8(plain(SpecVersion::V3_1)).unwrap().replace("https:", "http:");
        for (text, expected) in [
            (plain(SpecVersion::V2_2), spec("2.2.0")),
            (plain(SpecVersion::V3_0), spec("3.0.0")),
            (http.into_bytes(), Err(NoHeader::Plain)),
            (b"#cloud-config".to_vec(), Err(NoHeader::NoFetch)),
            (br#"{"ignition":{"version":"3.1.0"}}"#.to_vec(), Err(NoHeader::NoFetch)),
        ] {
            assert_eq!(with_bearer(&text, "worker", "a"), expected);
        }
        assert_eq!(with_bearer(&plain(SpecVersion::V3_1), "master", "a"), Err(NoHeader::NoFetch));
    }

    #[test]
    fn other_authorization_headers_are_told_apart() {
        let authorization = |headers: &str| {
            let text = format!(
                r#"{{"ignition":{{"version":"3.1.0","config":{{"replace":{{"source":"{URL}","httpHeaders":{headers}}}}}}}}}"#
            );
            fetches_of_pools(text.as_bytes())[0].authorization.clone()
        };
        let name = r#""name":"Authorization""#;
        for (headers, expected) in [
            ("null".to_owned(), Authorization::Missing),
            ("[]".to_owned(), Authorization::Missing),
            (format!(r#"[{{{name},"value":"Basic eA=="}}]"#), Authorization::Other),
            (format!(r"[{{{name}}}]"), Authorization::Other),
            (format!(r#"[{{{name},"value":"bearer x"}}]"#), Authorization::Bearer("x".to_owned())),
            (
                format!(r#"[{{{name},"value":"Bearer x"}},{{{name},"value":"Bearer y"}}]"#),
                Authorization::Other,
            ),
        ] {
            assert_eq!(authorization(&headers), expected, "{headers}");
        }
        assert!(!format!("{:?}", Authorization::Bearer("x".to_owned())).contains('x'));
    }
}
