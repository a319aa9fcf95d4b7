//! Decodes the contents of a config's files, and unpacks them within limits.
//!
//! A config of a few KB can hold gzip that unpacks to more than any memory. One [`UnpackBudget`] bounds all files that a caller
//! reads.

use std::io::Read as _;

use super::data_url;
use super::spec3::Resource;

/// Maximum unpacked size of one file, in bytes. No config carries a larger one.
pub const MAX_BYTES: u64 = 64 << 20;

/// Remaining bytes that may be unpacked.
#[derive(Debug, Clone, Copy)]
pub struct UnpackBudget(u64);

impl UnpackBudget {
    /// A budget of so many bytes.
    pub fn of(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl Default for UnpackBudget {
    /// Room for all files of one config.
    fn default() -> Self {
        Self(256 << 20)
    }
}

/// Contents of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// The resource has no source.
    Nothing,
    /// Decoded contents.
    Bytes(Vec<u8>),
    /// The machine fetches the contents from this URL when it boots.
    Elsewhere(String),
    /// The contents cannot be decoded, for this reason.
    Unreadable(Unreadable),
}

/// Reasons for contents that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The source is a data URL that Ignition refuses.
    #[error("the data URL {0}")]
    DataUrl(#[from] data_url::Malformed),
    /// The data is not compressed as `compression` specifies.
    #[error("not gzip, which its compression says")]
    NotGzip,
    /// The contents are larger than [`MAX_BYTES`], or than the remaining budget.
    #[error("unpacks to more than the limit")]
    TooLarge,
}

impl Contents {
    /// Decodes a resource.
    pub fn read(resource: &Resource, budget: &mut UnpackBudget) -> Self {
        let compression = resource.compression.as_deref();
        Self::of(resource.source.as_deref().unwrap_or_default(), compression, budget)
    }

    /// Decodes a source with the config's value of `compression`.
    pub fn of(source: &str, compression: Option<&str>, budget: &mut UnpackBudget) -> Self {
        if source.is_empty() {
            return Self::Nothing;
        }
        if !source.starts_with("data:") {
            return Self::Elsewhere(source.to_owned());
        }
        let bytes = data_url::decode(source).map_err(Unreadable::from);
        let bytes = bytes.and_then(|bytes| match compression {
            Some("gzip") => unpack(&bytes, budget),
            _ => Ok(bytes),
        });
        bytes.map_or_else(Self::Unreadable, Self::Bytes)
    }
}

fn unpack(gzip: &[u8], budget: &mut UnpackBudget) -> Result<Vec<u8>, Unreadable> {
    // Ignition expects a header.
    if gzip.is_empty() {
        return Err(Unreadable::NotGzip);
    }
    let most = MAX_BYTES.min(budget.0);
    let mut bytes = Vec::new();
    let decoder = flate2::read::MultiGzDecoder::new(gzip);
    let read = decoder.take(most + 1).read_to_end(&mut bytes);
    budget.0 = budget.0.saturating_sub(bytes.len() as u64);
    read.map_err(|_| Unreadable::NotGzip)?;
    if bytes.len() as u64 > most { Err(Unreadable::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> String {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        data_url::encode_base64(&encoder.finish().unwrap())
    }

    #[test]
    fn contents_are_decoded_and_unpacked() {
        let budget = &mut UnpackBudget::default();
        let mut read = |source: &str, compression| Contents::of(source, compression, budget);
        assert_eq!(read("data:,a%20b", None), Contents::Bytes(b"a b".to_vec()));
        assert_eq!(read(&gzip(b"text"), Some("gzip")), Contents::Bytes(b"text".to_vec()));
        assert_eq!(read("", None), Contents::Nothing);
        assert_eq!(read("https://a/b", None), Contents::Elsewhere("https://a/b".to_owned()));
        assert_eq!(read("data:,a", Some("gzip")), Contents::Unreadable(Unreadable::NotGzip));
        assert_eq!(read("data:,", Some("gzip")), Contents::Unreadable(Unreadable::NotGzip));
        assert!(matches!(read("data:,%", None), Contents::Unreadable(Unreadable::DataUrl(_))));
    }

    #[test]
    fn what_unpacks_without_end_is_given_up() {
        let bomb = gzip(&vec![0; 2 << 20]);
        let mut budget = UnpackBudget(5 << 20);
        let mut read = || Contents::of(&bomb, Some("gzip"), &mut budget);
        assert!(matches!(read(), Contents::Bytes(_)));
        assert!(matches!(read(), Contents::Bytes(_)));
        assert_eq!(read(), Contents::Unreadable(Unreadable::TooLarge));
        assert_eq!(read(), Contents::Unreadable(Unreadable::TooLarge));
        assert!(budget.0 < 1 << 20);
    }
}
