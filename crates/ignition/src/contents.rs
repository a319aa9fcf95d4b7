//! What is in a file of a config: decoded, and unpacked as far as there is a reason to.
//!
//! A config of a few KB may hold gzip that unpacks to more than any memory. Whoever reads many files
//! does so by one [`Room`], which bounds them together.

use std::io::Read as _;

use super::data_url;
use super::spec3::Resource;

/// More than any file that a config carries, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// How much may still be unpacked, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Room(u64);

impl Room {
    pub(super) fn of(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl Default for Room {
    /// For all files of one config.
    fn default() -> Self {
        Self(256 << 20)
    }
}

/// What a source stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// There is no source.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// It is fetched from there, when the machine boots.
    Elsewhere(String),
    /// It cannot be had, for this reason.
    Unreadable(Unreadable),
}

/// Why contents cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The source is no data URL that Ignition accepts.
    #[error("the data URL {0}")]
    DataUrl(#[from] data_url::Malformed),
    /// It is not what `compression` says.
    #[error("it is not the gzip that its compression says")]
    NotGzip,
    /// It is larger than [`MAX_BYTES`], or there is no more room.
    #[error("it unpacks to more than is looked at")]
    TooLarge,
}

impl Contents {
    /// Reads a resource.
    pub fn read(resource: &Resource, room: &mut Room) -> Self {
        let compression = resource.compression.as_deref();
        Self::of(resource.source.as_deref().unwrap_or_default(), compression, room)
    }

    /// Reads a source, whose `compression` is that of the config.
    pub(super) fn of(source: &str, compression: Option<&str>, room: &mut Room) -> Self {
        if source.is_empty() {
            return Self::Nothing;
        }
        if !source.starts_with("data:") {
            return Self::Elsewhere(source.to_owned());
        }
        let bytes = data_url::decode(source).map_err(Unreadable::from);
        let bytes = bytes.and_then(|bytes| match compression {
            Some("gzip") => unpack(&bytes, room),
            _ => Ok(bytes),
        });
        bytes.map_or_else(Self::Unreadable, Self::Bytes)
    }
}

fn unpack(gzip: &[u8], room: &mut Room) -> Result<Vec<u8>, Unreadable> {
    let most = MAX_BYTES.min(room.0);
    let mut bytes = Vec::new();
    let decoder = flate2::read::MultiGzDecoder::new(gzip);
    let read = decoder.take(most + 1).read_to_end(&mut bytes);
    room.0 = room.0.saturating_sub(bytes.len() as u64);
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
        let room = &mut Room::default();
        let mut read = |source: &str, compression| Contents::of(source, compression, room);
        assert_eq!(read("data:,a%20b", None), Contents::Bytes(b"a b".to_vec()));
        assert_eq!(read(&gzip(b"text"), Some("gzip")), Contents::Bytes(b"text".to_vec()));
        assert_eq!(read("", None), Contents::Nothing);
        assert_eq!(read("https://a/b", None), Contents::Elsewhere("https://a/b".to_owned()));
        assert_eq!(read("data:,a", Some("gzip")), Contents::Unreadable(Unreadable::NotGzip));
        assert!(matches!(read("data:,%", None), Contents::Unreadable(Unreadable::DataUrl(_))));
    }

    #[test]
    fn what_unpacks_without_end_is_given_up() {
        let bomb = gzip(&vec![0; 2 << 20]);
        let mut room = Room(5 << 20);
        let mut read = || Contents::of(&bomb, Some("gzip"), &mut room);
        assert!(matches!(read(), Contents::Bytes(_)));
        assert!(matches!(read(), Contents::Bytes(_)));
        assert_eq!(read(), Contents::Unreadable(Unreadable::TooLarge));
        assert_eq!(read(), Contents::Unreadable(Unreadable::TooLarge));
        assert!(room.0 < 1 << 20);
    }
}
