//! Pointer configs that are there already: which authorities they trust, and how they come to
//! trust others with everything else left as it is.
//!
//! A machine's user data may be anything: another tool's, a script, an Ignition config of any spec
//! with more in it than a pointer. Only what is understood is touched, and in it only the entry of
//! the machine config server's authorities.

use std::io::Read as _;

use serde_json::{Map, Value, json};

use crate::ignition::{authority_source, data_url};
use crate::pki::{Certificate, Holder, Host, Pointer, PointerState};

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
        Assessment::Stale(text) => PointerState::Stale(text),
        Assessment::Current | Assessment::LeftAlone(_) => PointerState::Kept,
    };
    Pointer { name: name.to_owned(), state, hosts: hosts(user_data) }
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
mod tests;
