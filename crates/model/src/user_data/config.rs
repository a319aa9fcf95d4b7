//! An Ignition config as text, as far as pointer configs go.

use super::json_text::{document, elements, find, members, string};

/// More than any platform takes as user data, in bytes. What is longer is not looked at.
pub const MAX_BYTES: usize = 1 << 20;

/// An Ignition config, as far as it is needed here.
pub(super) struct Config<'a> {
    pub(super) text: &'a str,
    /// Its section `ignition`.
    pub(super) section: &'a str,
}

impl<'a> Config<'a> {
    pub(super) fn read(user_data: &'a [u8]) -> Option<Self> {
        if user_data.len() > MAX_BYTES {
            return None;
        }
        let text = std::str::from_utf8(user_data).ok()?;
        let section = find(document(text)?, &["ignition"])?;
        members(section)?;
        Some(Self { text, section })
    }

    /// The entries of its authorities.
    pub(super) fn authorities(&self) -> Vec<&'a str> {
        let list = find(self.section, &["security", "tls", "certificateAuthorities"]);
        list.and_then(elements).unwrap_or_default()
    }

    /// Where it fetches other configs from.
    pub(super) fn sources(&self) -> impl Iterator<Item = String> {
        self.resources().filter_map(|resource| string(find(resource, &["source"])?))
    }

    /// The other configs that it fetches.
    pub(super) fn resources(&self) -> impl Iterator<Item = &'a str> {
        let section = find(self.section, &["config"]).unwrap_or("{}");
        let lists = ["merge", "append"].into_iter().filter_map(move |verb| find(section, &[verb]));
        lists.filter_map(elements).flatten().chain(find(section, &["replace"]))
    }

    /// The configs that it fetches from a machine config server.
    pub(super) fn urls(&self) -> impl Iterator<Item = http::Uri> {
        let urls = self.sources().filter_map(|source| source.parse::<http::Uri>().ok());
        urls.filter(|url| url.path().starts_with("/config/"))
    }
}
