//! Pointer configs that are there already: which authorities they trust, and how they come to
//! trust others with everything else left as it is.
//!
//! A machine's user data may be anything: another tool's, a script, an Ignition config of any spec
//! with more in it than a pointer. Only what is understood is touched, and in it only the entry of
//! the machine config server's authorities.

use std::io::Read as _;

use serde_json::{Map, Value, json};

use crate::ignition::{authority_source, data_url};
use crate::pki::{Certificate, Holder, Host, MendedPointer, Pointer, PointerState};

/// More than any bundle has, so that a small gzip text cannot fill the memory.
const MAX_PEM: u64 = 1 << 20;

/// What a text of user data is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    /// It is left alone, for this reason.
    LeftAlone(LeftAlone),
    /// It trusts what it should.
    Current,
    /// It trusts other authorities. This is the text that trusts those of the bundle.
    Stale(Vec<u8>),
}

/// Why user data is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// A script, another tool's data, broken JSON.
    #[error("it is no Ignition config")]
    NoIgnition,
    /// An Ignition config that names no authorities.
    #[error("it names no certificate authorities")]
    NoAuthorities,
    /// None of the authorities that it names has to do with the machine config server.
    #[error("it trusts only other authorities than the machine config server's")]
    Foreign,
}

impl LeftAlone {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NoIgnition, Self::NoAuthorities, Self::Foreign];

    /// How metrics and events name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoIgnition => "no-ignition",
            Self::NoAuthorities => "no-authorities",
            Self::Foreign => "foreign",
        }
    }
}

/// Judges `user_data` by the bundle that it should trust. `known` are further authorities that were
/// the machine config server's once.
#[must_use]
pub fn assess(user_data: &[u8], bundle: &[Certificate], known: &[Certificate]) -> Assessment {
    let Some(mut config) = ignition_config(user_data) else {
        return Assessment::LeftAlone(LeftAlone::NoIgnition);
    };
    let entries = config.pointer_mut("/ignition/security/tls/certificateAuthorities");
    let Some(Value::Array(entries)) = entries else {
        return Assessment::LeftAlone(LeftAlone::NoAuthorities);
    };
    if entries.is_empty() {
        return Assessment::LeftAlone(LeftAlone::NoAuthorities);
    }
    let is_ours = |certificate: &Certificate| {
        bundle.contains(certificate) || known.contains(certificate) || is_ours_by_name(certificate)
    };
    let mut trusted = Vec::new();
    let mut own_entries = Vec::new();
    let mut foreign = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let certificates = certificates(entry).unwrap_or_default();
        if certificates.iter().any(is_ours) {
            own_entries.push(index);
            let (ours, others): (Vec<_>, Vec<_>) = certificates.into_iter().partition(is_ours);
            trusted.extend(ours);
            foreign.extend(others);
        }
    }
    let Some((&first, rest)) = own_entries.split_first() else {
        return Assessment::LeftAlone(LeftAlone::Foreign);
    };
    let is_current = bundle.iter().all(|wanted| trusted.contains(wanted))
        && trusted.iter().all(|present| bundle.contains(present));
    if is_current {
        return Assessment::Current;
    }
    let pem: String = bundle.iter().chain(&foreign).map(Certificate::to_pem).collect();
    if let Some(Value::Object(entry)) = entries.get_mut(first) {
        // What was said of the contents before holds no more.
        entry.remove("verification");
        entry.remove("compression");
        entry.insert("source".to_owned(), authority_source(pem.as_bytes()).into());
    }
    for index in rest.iter().rev() {
        entries.remove(*index);
    }
    Assessment::Stale(config.to_string().into_bytes())
}

/// A text of user data as a rotation sees it: the pointer config `name`, judged as [`assess`] does.
#[must_use]
pub fn observe(
    name: &str,
    user_data: &[u8],
    bundle: &[Certificate],
    known: &[Certificate],
) -> Pointer {
    let state = match assess(user_data, bundle, known) {
        Assessment::Stale(text) => {
            PointerState::Stale(MendedPointer { holder: holder(name, &text), text })
        }
        Assessment::Current | Assessment::LeftAlone(_) => PointerState::Kept,
    };
    let holder = holder(name, user_data);
    Pointer { name: name.to_owned(), state, hosts: hosts(user_data), holder }
}

/// All authorities that a pointer config trusts, ours or not.
#[must_use]
pub fn authorities(user_data: &[u8]) -> Vec<Certificate> {
    let config = ignition_config(user_data).unwrap_or_default();
    let entries = config.pointer("/ignition/security/tls/certificateAuthorities");
    let entries = entries.and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(certificates).flatten().collect()
}

/// Whether a pointer config fetches from `url`.
#[must_use]
pub fn fetches(user_data: &[u8], url: &str) -> bool {
    ignition_config(user_data).is_some_and(|config| sources(&config).any(|source| source == url))
}

/// The hosts that a pointer config fetches from, in their order.
#[must_use]
pub fn hosts(user_data: &[u8]) -> Vec<Host> {
    let Some(config) = ignition_config(user_data) else { return Vec::new() };
    config_urls(&config).filter_map(|url| url.host()?.parse().ok()).collect()
}

/// The pointer config `name` as somebody who may be locked out. `None` if no certificate matters to
/// it: it fetches nothing over TLS, or names no authorities that are understood.
#[must_use]
pub fn holder(name: &str, user_data: &[u8]) -> Option<Holder> {
    let config = ignition_config(user_data)?;
    let urls = config_urls(&config).filter(|url| url.scheme() == Some(&http::uri::Scheme::HTTPS));
    let hosts: Vec<Host> = urls.filter_map(|url| url.host()?.parse().ok()).collect();
    let trusted = authorities(user_data);
    let matters = !hosts.is_empty() && !trusted.is_empty();
    matters.then(|| Holder { name: name.to_owned(), trusted, hosts })
}

/// The configs that a config fetches from a machine config server.
fn config_urls(config: &Value) -> impl Iterator<Item = http::Uri> {
    let urls = sources(config).filter_map(|source| source.parse::<http::Uri>().ok());
    urls.filter(|url| url.path().starts_with("/config/"))
}

/// Where a config fetches others from.
fn sources(config: &Value) -> impl Iterator<Item = &str> {
    let section = &config["ignition"]["config"];
    let lists = ["merge", "append"].iter().filter_map(|key| section[key].as_array());
    let resources = lists.flatten().chain([&section["replace"]]);
    resources.filter_map(|resource| resource["source"].as_str())
}

fn ignition_config(user_data: &[u8]) -> Option<Value> {
    let config: Value = serde_json::from_slice(user_data).ok()?;
    config.get("ignition").is_some_and(Value::is_object).then_some(config)
}

/// The certificates of one entry, `None` if it is no data URL that is understood.
fn certificates(entry: &Value) -> Option<Vec<Certificate>> {
    let entry: &Map<String, Value> = entry.as_object()?;
    let bytes = data_url::decode(entry.get("source")?.as_str()?).ok()?;
    let is_gzip = entry.get("compression").is_some_and(|kind| kind == &json!("gzip"));
    let pem = if is_gzip {
        let mut pem = Vec::new();
        let decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        decoder.take(MAX_PEM).read_to_end(&mut pem).ok()?;
        pem
    } else {
        bytes
    };
    Some(Certificate::read_all(&pem))
}

/// Whether a certificate has a name that the machine config server's authorities have: this
/// server's own, those of OpenShift's controller, and those of its installer. One that has expired
/// and left the bundle is recognised by this alone.
fn is_ours_by_name(certificate: &Certificate) -> bool {
    certificate.common_name == "root-ca"
        || certificate.common_name.contains("machine-config-server-ca@")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::KeyAlgorithm;
    use crate::pki::VALIDITY;
    use crate::pki::issue::issue_authority;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use time::{Duration, OffsetDateTime};

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

    fn authority(age: i64) -> Certificate {
        let key = KeyAlgorithm::P256.generate().unwrap();
        issue_authority(&key, VALIDITY, NOW - Duration::days(age)).unwrap()
    }

    /// One that has nothing to do with the machine config server.
    fn stranger() -> Certificate {
        let key = KeyAlgorithm::P256.generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
        Certificate::from_der(params.self_signed(&key).unwrap().der()).unwrap()
    }

    fn plain(certificates: &[&Certificate]) -> Value {
        let pem: String = certificates.iter().map(|certificate| certificate.to_pem()).collect();
        let text =
            percent_encoding::percent_encode(pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
        json!({"source": format!("data:,{text}")})
    }

    fn gzipped(certificate: &Certificate) -> Value {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(certificate.to_pem().as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        json!({
            "source": format!("data:;base64,{}", BASE64.encode(bytes)),
            "compression": "gzip",
            "verification": {"hash": "sha512-0"},
        })
    }

    fn config(version: &str, authorities: &[Value]) -> Value {
        json!({
            "ignition": {
                "version": version,
                "x-unknown": [1, {"a": null}],
                "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
                "security": {"tls": {"certificateAuthorities": authorities}},
            },
            "passwd": {"users": [{"name": "core"}]},
        })
    }

    fn assessed(config: &Value, bundle: &[Certificate]) -> Assessment {
        assess(config.to_string().as_bytes(), bundle, &[])
    }

    fn patched(config: &Value, bundle: &[Certificate]) -> Value {
        let Assessment::Stale(text) = assessed(config, bundle) else { panic!("not stale") };
        assert_eq!(assess(&text, bundle, &[]), Assessment::Current, "once is enough");
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn only_the_authorities_change_in_every_spec_and_encoding() {
        let (old, new) = (authority(100), authority(0));
        let bundle = [new.clone(), old.clone()];
        for version in ["2.2.0", "3.1.0", "3.6.0", "3.9.0-experimental"] {
            for entry in [plain(&[&old]), gzipped(&old)] {
                let before = config(version, &[entry]);
                let mut after = patched(&before, &bundle);
                let authorities =
                    after.pointer_mut("/ignition/security/tls/certificateAuthorities");
                let authorities = authorities.unwrap().take();
                let mut rest = before.clone();
                *rest.pointer_mut("/ignition/security/tls/certificateAuthorities").unwrap() =
                    Value::Null;
                assert_eq!(after, rest);
                assert_eq!(authorities.as_array().unwrap().len(), 1);
                assert_eq!(authorities[0].as_object().unwrap().len(), 1, "no stale hash is left");
                assert_eq!(certificates(&authorities[0]).unwrap(), bundle);
            }
        }
    }

    #[test]
    fn what_means_the_same_is_left_as_it_is() {
        let (old, new) = (authority(100), authority(0));
        let bundle = [new.clone(), old.clone()];
        for entries in [
            vec![plain(&[&new, &old])],
            vec![plain(&[&old, &new])],
            vec![plain(&[&old]), gzipped(&new)],
        ] {
            assert_eq!(assessed(&config("3.1.0", &entries), &bundle), Assessment::Current);
        }
    }

    #[test]
    fn strangers_stay_where_they_are() {
        let (old, new, stranger) = (authority(100), authority(0), stranger());
        let bundle = [new.clone()];
        let other = json!({"source": "https://example.com/ca.pem"});
        let after = patched(
            &config("3.1.0", &[plain(&[&stranger]), other.clone(), plain(&[&old])]),
            &bundle,
        );
        let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
        assert_eq!(entries[0], plain(&[&stranger]));
        assert_eq!(entries[1], other);
        assert_eq!(certificates(&entries[2]).unwrap(), bundle);
        // In one text with ours, it stays too.
        let after = patched(&config("3.1.0", &[plain(&[&stranger, &old])]), &bundle);
        let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
        assert_eq!(certificates(&entries[0]).unwrap(), [new, stranger.clone()]);

        let alone = assessed(&config("3.1.0", &[plain(&[&stranger])]), &bundle);
        assert_eq!(alone, Assessment::LeftAlone(LeftAlone::Foreign));
    }

    #[test]
    fn an_authority_without_a_name_of_ours_is_recognised_when_it_is_known() {
        let (known, new) = (stranger(), authority(0));
        let text = config("3.1.0", &[plain(&[&known])]).to_string();
        let Assessment::Stale(text) = assess(text.as_bytes(), std::slice::from_ref(&new), &[known])
        else {
            panic!("not stale")
        };
        assert_eq!(assess(&text, &[new], &[]), Assessment::Current);
    }

    #[test]
    fn what_is_no_pointer_config_is_left_alone() {
        let bundle = [authority(0)];
        for text in ["", "#cloud-config\n", "<powershell>", "[]", "{", "1", r#"{"ignition": 1}"#] {
            let assessed = assess(text.as_bytes(), &bundle, &[]);
            assert_eq!(assessed, Assessment::LeftAlone(LeftAlone::NoIgnition), "{text:?}");
        }
        for config in [
            json!({"ignition": {"version": "3.1.0"}}),
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": []}}}}),
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": "x"}}}}),
        ] {
            assert_eq!(assessed(&config, &bundle), Assessment::LeftAlone(LeftAlone::NoAuthorities));
        }
    }

    #[test]
    fn the_hosts_are_those_of_the_configs_that_are_fetched() {
        let config = json!({"ignition": {"config": {
            "merge": [
                {"source": "https://api-int.example.com:22623/config/worker"},
                {"source": "https://[2001:db8::1]:22623/config/worker"},
                {"source": "https://example.com/other"},
                {"source": "data:,"},
            ],
            "replace": {"source": "http://192.0.2.1:22624/config/worker"},
        }}});
        let hosts: Vec<_> =
            hosts(config.to_string().as_bytes()).iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["api-int.example.com", "[2001:db8::1]", "192.0.2.1"]);
    }

    #[test]
    fn certificates_matter_to_those_that_fetch_over_tls_and_name_authorities() {
        let ca = authority(0);
        let with = |source: &str, authorities: &[Value]| {
            let mut config = config("3.1.0", authorities);
            config["ignition"]["config"]["merge"][0]["source"] = source.into();
            holder("worker.ign", config.to_string().as_bytes())
        };
        let https = "https://api-int.example.com:22623/config/worker";
        let found = with(https, &[plain(&[&ca])]).unwrap();
        assert_eq!(found.name, "worker.ign");
        assert_eq!(found.trusted, std::slice::from_ref(&ca));
        assert_eq!(found.hosts, ["api-int.example.com".parse().unwrap()]);

        assert_eq!(with(https, &[]), None, "it trusts what its system does");
        let plain_http = "http://api-int.example.com:22624/config/worker";
        assert_eq!(with(plain_http, &[plain(&[&ca])]), None);
        assert_eq!(with("https://example.com/other", &[plain(&[&ca])]), None);
        assert_eq!(holder("worker.ign", b"#cloud-config"), None);
    }
}
