//! Parses the entries of a ConfigMap with registry CAs.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use bytes::Bytes;
use ignition::data_url::BASE64;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::host::RegistryHost;
use crate::objects::ConfigMap;

/// CAs in PEM by registry.
pub type Cas = BTreeMap<RegistryHost, Bytes>;

/// The entries of a ConfigMap. A bad one does not affect the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Usable CAs, one entry for each registry.
    pub good: Cas,
    /// Refused entries, in the order of their keys.
    pub refused: Vec<Refused>,
    /// Registries that have an entry without a readable certificate. Their last good value stays, because a mistake
    /// should not remove trust.
    pub undecodable: BTreeSet<RegistryHost>,
}

/// An entry that is not used. The message is one line without the ConfigMap's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("key {key:?} {reason}")]
pub struct Refused {
    /// Name in the form `ConfigMap NAMESPACE/NAME`.
    pub place: String,
    /// Key of the entry.
    pub key: String,
    /// Reason for the refusal.
    pub reason: Reason,
}

/// Reasons why an entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error, strum::IntoStaticStr)]
pub enum Reason {
    /// The key is no registry host.
    #[error("is not a registry host: expected host or host..port")]
    NoHost,
    /// The value has no readable certificate.
    #[error("has no certificate in PEM")]
    NoCertificate,
    /// Another key for the same registry is used.
    #[error("names the same registry as {0:?}, which is used")]
    SameHost(String),
    /// The merged ConfigMap would exceed the API's size limit.
    #[error("does not fit: all entries together can have 1 MiB")]
    TooLarge,
}

impl Reason {
    /// Value of the label in metrics: the name of the variant.
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// Parses the entries of a ConfigMap.
///
/// Text that is base64 as a whole is decoded, as in the reference; PEM is not, because it has dashes. Other values stay
/// as they are. Of several keys for one registry the normalised spelling is used, otherwise the first.
pub fn read(map: &ConfigMap) -> Entries {
    let place = place(map);
    let mut entries = Entries::default();
    let refuse = |entries: &mut Entries, key: &str, reason| {
        entries.refused.push(Refused { place: place.clone(), key: key.to_owned(), reason });
    };
    let mut by_identity: BTreeMap<String, Vec<(&str, RegistryHost, Bytes)>> = BTreeMap::new();
    for (key, raw) in map.entries() {
        let Ok(host) = RegistryHost::parse(key) else {
            refuse(&mut entries, key, Reason::NoHost);
            continue;
        };
        let value = match map.binary(key) {
            Some(_) => Bytes::copy_from_slice(raw),
            None => unwrapped(raw),
        };
        if holds_certificate(&value) {
            by_identity.entry(host.identity()).or_default().push((key, host, value));
        } else {
            refuse(&mut entries, key, Reason::NoCertificate);
            entries.undecodable.insert(host);
        }
    }
    for (identity, mut same) in by_identity {
        same.sort_by(|(a, a_host, _), (b, b_host, _)| {
            let is_plain = |host: &RegistryHost| host.as_str() == identity;
            (!is_plain(a_host), a).cmp(&(!is_plain(b_host), b))
        });
        let mut same = same.into_iter();
        let Some((used, host, value)) = same.next() else { continue };
        entries.good.insert(host, value);
        for (key, ..) in same {
            refuse(&mut entries, key, Reason::SameHost(used.to_owned()));
        }
    }
    entries.refused.sort();
    entries
}

impl Entries {
    /// CAs for machines: the good entries, and for an undecodable one its value in `before`.
    pub fn or_last_good(&self, before: &Cas) -> Cas {
        let mut cas = self.good.clone();
        for host in &self.undecodable {
            if let Some(value) = before.get(host) {
                let identity = host.identity();
                if !self.good.keys().any(|good| good.identity() == identity) {
                    cas.insert(host.clone(), value.clone());
                }
            }
        }
        cas
    }
}

pub(super) fn place(map: &ConfigMap) -> String {
    format!("ConfigMap {}/{}", map.metadata.namespace, map.metadata.name)
}

fn unwrapped(text: &[u8]) -> Bytes {
    let compact: Vec<u8> = text.iter().copied().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
    match BASE64.decode(compact) {
        Ok(decoded) => decoded.into(),
        Err(_) => Bytes::copy_from_slice(text),
    }
}

/// Returns `true` if a container runtime would find a certificate: like Go, it skips unreadable blocks.
pub fn holds_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).flatten().any(|der| X509Certificate::from_der(&der).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_refused_entries_stay_when_a_variant_gets_another_name() {
        let same = Reason::SameHost("a".to_owned());
        let reasons = [Reason::NoHost, Reason::NoCertificate, same, Reason::TooLarge];
        let labels = ["NoHost", "NoCertificate", "SameHost", "TooLarge"];
        assert_eq!(reasons.each_ref().map(Reason::label), labels);
    }
}
