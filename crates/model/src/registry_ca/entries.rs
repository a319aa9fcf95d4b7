//! What the entries of one config map say.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::RegistryHost;
use crate::objects::ConfigMap;

/// Certificate authorities (PEM) by the registry that they are for.
pub type Cas = BTreeMap<RegistryHost, Bytes>;

/// The entries of a config map, each on its own: a bad one takes nothing from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// What a machine can trust, one entry a registry.
    pub good: Cas,
    /// The other entries, in the order of their keys.
    pub refused: Vec<Refused>,
    /// Registries that have an entry but no certificate in it. What was good for them before stays
    /// so: a slip of a hand is no reason to take trust away.
    pub spoilt: BTreeSet<RegistryHost>,
}

/// An entry that is not used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// `ConfigMap NAMESPACE/NAME`
    pub place: String,
    /// The entry's key.
    pub key: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Why an entry is not used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The key names no registry.
    NoHost,
    /// No certificate in it can be read.
    NoCertificate,
    /// Another key of the map names the same registry, and is used.
    SameHost(String),
    /// With it, the merged config map would be larger than the API allows.
    TooLarge,
}

impl Reason {
    /// A word for labels.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoHost => "NoHost",
            Self::NoCertificate => "NoCertificate",
            Self::SameHost(_) => "SameHost",
            Self::TooLarge => "TooLarge",
        }
    }
}

impl std::fmt::Display for Refused {
    /// One line, without the place.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = &self.key;
        match &self.reason {
            Reason::NoHost => {
                write!(f, "key {key:?} is no registry host: expected host or host..port")
            }
            Reason::NoCertificate => write!(f, "key {key:?} holds no certificate in PEM"),
            Reason::SameHost(used) => {
                write!(f, "key {key:?} names the same registry as {used:?}, which is used")
            }
            Reason::TooLarge => {
                write!(f, "key {key:?} does not fit: all entries together may have 1 MiB")
            }
        }
    }
}

/// Go's decoder, which the reference reads with, does not look at the bits that padding leaves over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Reads the entries of a config map.
///
/// Text that is base64 as a whole is decoded, as the reference does; PEM never is, for its dashes.
/// All else is handed on as it is. Of several keys for one registry the one in the registry's
/// plainest spelling is used, or else the first.
#[must_use]
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
            entries.spoilt.insert(host);
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
    /// What a machine is to trust: the good entries, and for a registry whose entry is spoilt what
    /// it had in `before`.
    #[must_use]
    pub fn or_last_good(&self, before: &Cas) -> Cas {
        let mut cas = self.good.clone();
        for host in &self.spoilt {
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

/// How an administrator would name a config map.
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

/// Whether a container runtime would find a certificate in it: like Go's, it passes over what it
/// cannot read.
fn holds_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).flatten().any(|der| X509Certificate::from_der(&der).is_ok())
}
