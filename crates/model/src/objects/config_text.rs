//! Text of an Ignition config, packed in memory.
//!
//! A directory's MachineConfigs and what is merged of them stay in memory, because a change merges them again. They are
//! read only then, or when an answer is rendered.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lz4_flex::{compress_prepend_size, decompress_size_prepended};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::fetched_pools::fetched_pools;

/// Length in bytes from which a text is packed; shorter ones gain nothing.
const MIN_PACKED: usize = 256;

/// JSON text of an Ignition config. A tree would need several times as much memory.
#[derive(Clone)]
pub struct ConfigText {
    stored: Stored,
    /// Read when the text is at hand, because each change of the inputs asks for them.
    fetched_pools: Arc<[String]>,
}

#[derive(Clone)]
enum Stored {
    Plain(Arc<str>),
    Packed(Arc<[u8]>),
}

impl ConfigText {
    /// Takes over JSON.
    pub fn new(json: &RawValue) -> Self {
        let text = json.get();
        let packed = (text.len() >= MIN_PACKED).then(|| compress_prepend_size(text.as_bytes()));
        // What does not shrink, such as contents that are compressed already, is not unpacked each time.
        let packed = packed.filter(|packed| packed.len() < text.len() / 4 * 3);
        let stored =
            packed.map_or_else(|| Stored::Plain(text.into()), |it| Stored::Packed(it.into()));
        Self { stored, fetched_pools: fetched_pools(text).into() }
    }

    /// The text.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.stored {
            Stored::Plain(text) => Cow::Borrowed(text),
            Stored::Packed(packed) => {
                // It was packed from a text.
                let text = decompress_size_prepended(packed).unwrap_or_default();
                Cow::Owned(String::from_utf8(text).unwrap_or_default())
            }
        }
    }

    /// Pools whose configs it fetches.
    pub fn fetched_pools(&self) -> &[String] {
        &self.fetched_pools
    }

    /// Bytes that it takes in memory.
    #[cfg(test)]
    fn held(&self) -> usize {
        match &self.stored {
            Stored::Plain(text) => text.len(),
            Stored::Packed(packed) => packed.len(),
        }
    }
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for ConfigText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&Box::<RawValue>::deserialize(deserializer)?))
    }
}

impl Serialize for ConfigText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = RawValue::from_string(self.text().into_owned());
        json.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn a_text_is_the_same_after_packing_and_takes_less_memory_if_it_repeats_itself() {
        let digest = |number: u8| BASE64.encode(&Sha256::digest([number]));
        let random: String = (0..100).map(digest).collect();
        for text in [String::new(), "é".repeat(5000), random, "data:,a%20b".repeat(400)] {
            let json = serde_json::to_string(&text).unwrap();
            let config: ConfigText = serde_json::from_str(&json).unwrap();
            assert_eq!(config.text(), json);
            assert_eq!(serde_json::to_string(&config).unwrap(), json);
            let is_repetition = text.starts_with("é") || text.starts_with("data:");
            assert_eq!(config.held() < json.len() / 10, is_repetition, "{} bytes", config.held());
        }
    }
}
