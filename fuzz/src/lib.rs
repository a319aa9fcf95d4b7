//! The targets, a module each with a function that judges one input: `fuzz_targets` has a fuzzer call it, and
//! `tests/it/fuzzed.rs` a test, without one. Here is what they share: certificates that are made once a run, words that
//! stand for them in short inputs, and what has to hold for every Ignition config.

pub mod accept;
pub mod authorization;
pub mod bearer;
pub mod certificate;
pub mod certificate_state;
pub mod cmp;
pub mod data_url;
pub mod host;
pub mod ignition_2;
pub mod ignition_3;
pub mod lockout;
pub mod machine_status;
pub mod manifest;
pub mod network;
pub mod path;
pub mod pem;
pub mod proxy_protocol;
pub mod registry_merge;
pub mod signed;
pub mod signing_request;
pub mod token_records;
pub mod user_data;

use std::sync::LazyLock;

use ignition::{Config, Error, SpecVersion};
use pki::issue::{Signer, Validity, cross_sign, issue_ca, issue_serving};
use pki::{Certificate, KeyAlgorithm, VALIDITY};
use rcgen::KeyPair;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

/// The text that an input begins with.
fn text(data: &[u8]) -> &str {
    data.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// When everything happens.
pub const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 0:00 UTC);

/// A certificate with its key.
pub struct Pair {
    pub certificate: Certificate,
    pub key: KeyPair,
}

impl Pair {
    fn ca(age: Duration) -> Self {
        let key = KeyAlgorithm::P256.generate().expect("a key");
        let certificate = issue_ca(&key, VALIDITY, NOW - age).expect("a certificate");
        Self { certificate, key }
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: &self.certificate, key: &self.key }
    }

    /// The same key once more; keys are not copied otherwise.
    #[must_use]
    pub fn key_again(&self) -> KeyPair {
        KeyPair::from_pem(&self.key.serialize_pem()).expect("a key's own PEM")
    }
}

/// Four authorities: one of today, one that is due, an old one, and one that has expired.
pub static CAS: LazyLock<[Pair; 4]> =
    LazyLock::new(|| [0, 365 * 9, 365 * 5, 365 * 11].map(|days| Pair::ca(Duration::days(days))));

/// A serving pair by each of them.
pub static SERVING: LazyLock<[Pair; 4]> = LazyLock::new(|| {
    [0, 1, 2, 3].map(|index| {
        let ca = &CAS[index];
        let key = KeyAlgorithm::P256.generate().expect("a key");
        let hosts = ["a.example".parse().expect("a host")];
        let begin = ca.certificate.not_before;
        let validity = Validity { begin, end: begin + VALIDITY };
        let certificate = issue_serving(&key, &hosts, ca.signer(), validity);
        Pair { certificate: certificate.expect("a certificate"), key }
    })
});

/// Each authority, signed by the one after it.
pub static CROSS: LazyLock<[Certificate; 4]> = LazyLock::new(|| {
    [0, 1, 2, 3].map(|index| {
        let by = &CAS[(index + 1) % 4];
        let begin = by.certificate.not_before;
        cross_sign(&CAS[index].certificate, by.signer(), begin).expect("a certificate")
    })
});

/// What a letter stands for in PEM: `0` to `3` authorities, `a` to `d` their keys, `e` to `h` serving
/// certificates, `i` to `l` their keys, `m` to `p` cross-certificates.
#[must_use]
pub fn pem_word(letter: u8) -> Option<String> {
    let index = |first: u8| usize::from(letter - first);
    Some(match letter {
        b'0'..=b'3' => CAS[index(b'0')].certificate.to_pem(),
        b'a'..=b'd' => CAS[index(b'a')].key.serialize_pem(),
        b'e'..=b'h' => SERVING[index(b'e')].certificate.to_pem(),
        b'i'..=b'l' => SERVING[index(b'i')].key.serialize_pem(),
        b'm'..=b'p' => CROSS[index(b'm')].to_pem(),
        _ => return None,
    })
}

/// An input with each `@` and letter that `word` knows replaced by what it stands for, some dozens of
/// them at most.
pub fn expanded(data: &[u8], word: impl Fn(u8) -> Option<String>) -> Vec<u8> {
    let mut whole = Vec::with_capacity(data.len());
    let mut rest = data.iter().copied();
    let mut left = 32;
    while let Some(byte) = rest.next() {
        let known = match byte {
            b'@' if left > 0 => rest.clone().next().and_then(&word),
            _ => None,
        };
        match known {
            Some(text) => {
                whole.extend(text.into_bytes());
                left -= 1;
                rest.next();
            }
            None => whole.push(byte),
        }
    }
    whole
}

/// A text, as it is or with one of these versions in it: is it read, then what is served in a version
/// is read again as that version, and says the same once more. Every other one is edited before.
pub fn config(text: &str, versions: &[&str]) {
    let version = versions[text.len() % versions.len()];
    let read = Config::parse(text).ok();
    let Some(mut config) = read.or_else(|| with_version(text, version)) else { return };
    if text.len() % 2 == 1 {
        config.set_file("/etc/set", text.as_bytes());
        config.append_file("/etc/appended", text.as_bytes());
        // Where both kinds of arguments are there, they stay.
        let _ = config.take_kernel_arguments();
    }
    served(&config);
}

fn with_version(text: &str, version: &str) -> Option<Config> {
    let mut value: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    if !value["ignition"].is_object() {
        value["ignition"] = json!({});
    }
    value["ignition"]["version"] = json!(version);
    Config::parse(&value.to_string()).ok()
}

fn served(config: &Config) {
    for to in SpecVersion::ALL {
        let Ok(lowered) = config.clone().lower(to) else { continue };
        let text = serde_json::to_string(&lowered).expect("JSON");
        let again = match Config::parse(&text) {
            Ok(again) => again,
            // A file system that is mounted nowhere: spec 3 has no words for some of what 2.2 says.
            Err(Error::NotLiftable { .. }) if to == SpecVersion::V2_2 => continue,
            Err(error) => panic!("{to}: {error}: {text}"),
        };
        assert_eq!(again.declared(), to, "{text}");
        if to == SpecVersion::V2_2 {
            // Lifting turns the order of files round, and lowering does not.
            assert!(again.lower(to).is_ok(), "{text}");
            continue;
        }
        let once_more = again.lower(to).unwrap_or_else(|error| panic!("{to}: {error}: {text}"));
        assert_eq!(serde_json::to_string(&once_more).expect("JSON"), text);
    }
}
