//! A pointer config as it is written: parts of its text, found in place, in an Ignition config of any spec.

use http::Uri;
use http::uri::Scheme;
use ignition::data_url;
use pki::{Certificate, Host};
use rustls::pki_types::CertificateDer;

use super::ca::unpacked;
use super::json_text::{document, elements, find, members, string};
use super::pem::{Block, block};

/// More than any platform takes as user data, in bytes. What is longer is not looked at.
pub const MAX_BYTES: usize = 1 << 20;

/// The text of an Ignition config, as far as pointer configs go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) text: &'a str,
    /// Its section `ignition`.
    section: &'a str,
}

impl<'a> Written<'a> {
    /// `None` if it is no Ignition config, or has more than [`MAX_BYTES`].
    pub(super) fn read(user_data: &'a [u8]) -> Option<Self> {
        if user_data.len() > MAX_BYTES {
            return None;
        }
        let text = std::str::from_utf8(user_data).ok()?;
        let section = find(document(text)?, &["ignition"])?;
        members(section)?;
        Some(Self { text, section })
    }

    /// The spec that it declares.
    pub(super) fn version(&self) -> Option<String> {
        find(self.section, &["version"]).and_then(string)
    }

    /// The entries of its authorities.
    pub(super) fn entries(&self) -> Vec<&'a str> {
        let list = find(self.section, &["security", "tls", "certificateAuthorities"]);
        list.and_then(elements).unwrap_or_default()
    }

    /// All authorities that are understood in its entries.
    pub(super) fn cas(&self) -> Vec<Certificate> {
        let ders = self.entries().into_iter().flat_map(certificates);
        ders.filter_map(|der| Certificate::from_der(&der)).collect()
    }

    /// The other configs that it fetches.
    pub(super) fn resources(&self) -> impl Iterator<Item = &'a str> {
        let section = find(self.section, &["config"]).unwrap_or("{}");
        let lists = ["merge", "append"].into_iter().filter_map(move |verb| find(section, &[verb]));
        lists.filter_map(elements).flatten().chain(find(section, &["replace"]))
    }

    /// Where it fetches other configs from.
    pub(super) fn sources(&self) -> impl Iterator<Item = String> {
        self.resources().filter_map(|resource| string(find(resource, &["source"])?))
    }

    /// The configs that it fetches from a machine config server.
    fn urls(&self) -> impl Iterator<Item = Uri> {
        let urls = self.sources().filter_map(|source| source.parse::<Uri>().ok());
        urls.filter(|url| url.path().starts_with("/config/"))
    }

    /// Those of them that it fetches over TLS.
    pub(super) fn https_urls(&self) -> impl Iterator<Item = Uri> {
        self.urls().filter(|url| url.scheme() == Some(&Scheme::HTTPS))
    }

    /// The hosts that it fetches from.
    pub(super) fn hosts(&self) -> Vec<Host> {
        self.urls().filter_map(|url| url.host()?.parse().ok()).collect()
    }

    /// Those of them that it fetches from over TLS.
    pub(super) fn https_hosts(&self) -> Vec<Host> {
        self.https_urls().filter_map(|url| url.host()?.parse().ok()).collect()
    }
}

/// The certificates of one entry, as DER, whatever their blocks are called. None if it is no data URL that is understood.
pub(super) fn certificates(entry: &str) -> Vec<CertificateDer<'static>> {
    let pem = pem(entry).unwrap_or_default();
    let mut certificates = Vec::new();
    let mut rest = &pem[..];
    while let Some(Block { label, contents, rest: after }) = block(rest) {
        rest = after;
        if label.ends_with(b"CERTIFICATE") || Certificate::from_der(&contents).is_some() {
            certificates.push(contents.into());
        }
    }
    certificates
}

/// What an entry's data URL holds.
pub(super) fn pem(entry: &str) -> Option<Vec<u8>> {
    let bytes = data_url::decode(&string(find(entry, &["source"])?)?).ok()?;
    let compression = find(entry, &["compression"]).and_then(string);
    // One that may go on is not understood: what is beyond would be lost.
    unpacked(bytes, compression.as_deref()).ok()
}
