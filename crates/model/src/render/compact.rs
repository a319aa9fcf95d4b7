//! Compresses the file contents of a config, if that makes it smaller.
//!
//! Most of a config is percent-encoded text. Gzip and base64 reduce 440 KB to some 120. The bytes on disk are the same:
//! `compression` has Ignition unpack them, and `verification` is of the unpacked contents in every spec that is
//! compacted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use ignition::data_url;
use sha2::{Digest as _, Sha256};

/// Cache of compressed contents.
///
/// Pools share most of their files, and so do a config's specs, while compressing takes longer than the rest of
/// rendering. It is kept while many configs are rendered.
#[derive(Debug, Default)]
pub struct CompressedContents {
    /// Results by the SHA-256 of the plain data URL; `None` if that is the shorter one.
    known: Mutex<BTreeMap<[u8; 32], Option<String>>>,
}

impl CompressedContents {
    /// Result of [`gzipped()`], which is kept.
    pub(super) fn gzipped(&self, url: &str) -> Option<String> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = Sha256::digest(url).into();
        if let Some(gzipped) = known().get(&digest) {
            return gzipped.clone();
        }
        // Compress without the lock: occasional duplicate work costs less than waiting.
        let gzipped = gzipped(url);
        known().insert(digest, gzipped.clone());
        gzipped
    }
}

/// Text that a compressed resource has in addition to its source.
const FIELD: &str = r#""compression":"gzip","#;

/// Level of gzip. A first request waits for it: level 9 takes twice as long and saves another percent, Zopfli
/// takes a hundred times as long and saves five.
const LEVEL: u32 = 6;

/// The data URL of the gzipped contents of `url`, if it is shorter. The same URL always gives the same bytes.
pub(super) fn gzipped(url: &str) -> Option<String> {
    let contents = data_url::decode(url).ok()?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
    // Writing to a vector does not fail.
    encoder.write_all(&contents).ok()?;
    let gzipped = data_url::encode_base64(&encoder.finish().ok()?);
    (gzipped.len() + FIELD.len() < url.len()).then_some(gzipped)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use ignition::{Config, SpecVersion};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn decompressed(url: &str) -> Vec<u8> {
        let bytes = data_url::decode(url).unwrap();
        let mut contents = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut contents).unwrap();
        contents
    }

    #[test]
    fn text_shrinks_and_what_does_not_stays() {
        let text = b"[Unit]\nDescription=A unit\n".repeat(20);
        let gzipped = gzipped(&data_url::encode(&text)).unwrap();
        assert!(gzipped.len() < 200, "{}", gzipped.len());
        assert_eq!(decompressed(&gzipped), text);
        for url in ["data:,", "data:,short", "data:;base64,", "data:,%", "data:,a b", "data:"] {
            assert_eq!(super::gzipped(url), None, "{url}");
        }
    }

    #[test]
    fn the_field_that_it_takes_is_counted() {
        let longest_kept = (1..400)
            .map(|length| data_url::encode("a".repeat(length).as_bytes()))
            .take_while(|url| gzipped(url).is_none())
            .last()
            .unwrap();
        let first = format!("{longest_kept}a");
        let resource = |fields: &str, url: &str| format!("{fields}\"source\":\"{url}\"");
        let shorter = gzipped(&first).unwrap();
        assert!(resource(FIELD, &shorter).len() < resource("", &first).len());
        // One byte more would not fit: contents this simple compress to the same size when they are one byte longer.
        assert_eq!(resource(FIELD, &shorter).len(), resource("", &longest_kept).len());
    }

    /// The gzip header has a field for the time.
    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let url = data_url::encode(&b"text ".repeat(100));
        let gzipped = gzipped(&url).unwrap();
        let bytes = data_url::decode(&gzipped).unwrap();
        assert_eq!(bytes[..9], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0]);
        let compressed = CompressedContents::default();
        for _ in 0..2 {
            assert_eq!(compressed.gzipped(&url).as_ref(), Some(&gzipped));
            assert_eq!(compressed.gzipped("data:,a"), None);
        }
        assert_eq!(compressed.known.lock().unwrap().len(), 2);
    }

    /// Bytes of some length, at random or in runs, as files have them.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let runs = prop::collection::vec((any::<u8>(), 1..300_usize), 0..20).prop_map(|runs| {
            runs.into_iter().flat_map(|(byte, length)| vec![byte; length]).collect()
        });
        prop_oneof![prop::collection::vec(any::<u8>(), 0..2_000), runs]
    }

    /// A data URL, plain or of gzipped contents.
    fn resource() -> impl Strategy<Value = Value> {
        (contents(), 0..3).prop_map(|(contents, kind)| match kind {
            0 => json!({"source": data_url::encode(&contents)}),
            1 => json!({"source": data_url::encode_base64(&contents)}),
            _ => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&contents).unwrap();
                let source = data_url::encode(&encoder.finish().unwrap());
                json!({"source": source, "compression": "gzip"})
            }
        })
    }

    fn lowered(config: &Config) -> Value {
        json!(config.clone().lower(SpecVersion::V3_1).unwrap())
    }

    /// Contents that the config's files put on disk.
    fn unpacked(config: &Value) -> Vec<Vec<u8>> {
        let files = config["storage"]["files"].as_array().unwrap();
        let resources = files.iter().flat_map(|file| {
            std::iter::once(&file["contents"])
                .chain(file["append"].as_array().into_iter().flatten())
        });
        let unpacked = resources.map(|resource| {
            let source = resource["source"].as_str().unwrap();
            if resource["compression"] == "gzip" {
                decompressed(source)
            } else {
                data_url::decode(source).unwrap()
            }
        });
        unpacked.collect()
    }

    proptest! {
        #[test]
        fn a_compact_config_holds_the_same_in_fewer_bytes_and_gets_no_smaller(
            files in prop::collection::vec((resource(), prop::collection::vec(resource(), 0..3)), 1..4),
        ) {
            let files = files.into_iter().enumerate().map(|(number, (contents, append))| {
                json!({"path": format!("/{number}"), "contents": contents, "append": append})
            });
            let files: Vec<Value> = files.collect();
            let json = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": files}});
            let mut config = Config::parse(&json.to_string()).unwrap();
            let plain = lowered(&config);
            config.compress_files(gzipped);
            let compacted = lowered(&config);
            prop_assert_eq!(unpacked(&compacted), unpacked(&plain));
            let (before, after) = (plain.to_string().len(), compacted.to_string().len());
            prop_assert!(after < before || compacted == plain);
            config.compress_files(gzipped);
            prop_assert_eq!(lowered(&config), compacted);
        }

        #[test]
        fn compressed_contents_are_smaller_and_decompress_to_themselves(contents in contents()) {
            for url in [data_url::encode(&contents), data_url::encode_base64(&contents)] {
                if let Some(gzipped) = gzipped(&url) {
                    prop_assert!(gzipped.len() < url.len());
                    prop_assert_eq!(decompressed(&gzipped), &contents[..]);
                }
            }
        }
    }
}
