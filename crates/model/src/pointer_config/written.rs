//! The text of a pointer config in any spec, with its parts located for edits.

use http::Uri;
use http::uri::Scheme;
use ignition::data_url;
use pki::{Certificate, Host};
use rustls::pki_types::CertificateDer;

use super::ca::unpacked;
use super::json_text::{document, elements, find, members, string};
use super::pem::{Block, block};

/// Maximum size of user data that is read, in bytes, larger than any platform's.
pub const MAX_BYTES: usize = 1 << 20;

/// The text of an Ignition config.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenConfig<'a> {
    pub(super) text: &'a str,
    /// Text of its section `ignition`.
    section: &'a str,
}

impl<'a> WrittenConfig<'a> {
    /// Locates the parts; `None` if it is no Ignition config, or larger than [`MAX_BYTES`].
    pub(super) fn read(user_data: &'a [u8]) -> Option<Self> {
        if user_data.len() > MAX_BYTES {
            return None;
        }
        let text = std::str::from_utf8(user_data).ok()?;
        let section = find(document(text)?, &["ignition"])?;
        members(section)?;
        Some(Self { text, section })
    }

    pub(super) fn version(&self) -> Option<String> {
        find(self.section, &["version"]).and_then(string)
    }

    /// Entries of the CAs.
    pub(super) fn entries(&self) -> Vec<&'a str> {
        let list = find(self.section, &["security", "tls", "certificateAuthorities"]);
        list.and_then(elements).unwrap_or_default()
    }

    /// All readable CAs in its entries.
    pub(super) fn cas(&self) -> Vec<Certificate> {
        let ders = self.entries().into_iter().flat_map(certificates);
        ders.filter_map(|der| Certificate::from_der(&der)).collect()
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = &'a str> {
        let section = find(self.section, &["config"]).unwrap_or("{}");
        let lists = ["merge", "append"].into_iter().filter_map(move |verb| find(section, &[verb]));
        lists.filter_map(elements).flatten().chain(find(section, &["replace"]))
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = String> {
        self.resources().filter_map(|resource| string(find(resource, &["source"])?))
    }

    /// URLs of the configs that it fetches from a machine config server.
    fn urls(&self) -> impl Iterator<Item = Uri> {
        let urls = self.sources().filter_map(|source| source.parse::<Uri>().ok());
        urls.filter(|url| url.path().starts_with("/config/"))
    }

    pub(super) fn https_urls(&self) -> impl Iterator<Item = Uri> {
        self.urls().filter(|url| url.scheme() == Some(&Scheme::HTTPS))
    }

    pub(super) fn hosts(&self) -> Vec<Host> {
        self.urls().filter_map(|url| url.host()?.parse().ok()).collect()
    }

    pub(super) fn https_hosts(&self) -> Vec<Host> {
        self.https_urls().filter_map(|url| url.host()?.parse().ok()).collect()
    }
}

/// The certificates of one entry in DER, regardless of labels. Empty if its data URL is unreadable.
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

pub(super) fn pem(entry: &str) -> Option<Vec<u8>> {
    let bytes = data_url::decode(&string(find(entry, &["source"])?)?).ok()?;
    let compression = find(entry, &["compression"]).and_then(string);
    // An entry that cannot be unpacked as a whole is not edited, because the rest would be lost.
    unpacked(bytes, compression.as_deref()).ok()
}
