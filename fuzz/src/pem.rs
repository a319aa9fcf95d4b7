//! Certificates and keys as they are stored.

use super::{expanded, pem_word};
use pki::certificate::{is_whole_pem, key_of};
use pki::{Certificate, StoredPair};

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = expanded(data, pem_word);
    let _ = is_whole_pem(&text);
    let certificates = Certificate::read_all(&text);
    let written: String = certificates.iter().map(Certificate::to_pem).collect();
    assert_eq!(Certificate::read_all(written.as_bytes()), certificates);
    assert!(is_whole_pem(written.as_bytes()));
    let pair = StoredPair::joined(&text);
    // A text with a certificate that cannot be read has no leaf.
    if let Some(leaf) = pair.leaf() {
        assert_eq!(Some(&leaf), certificates.first());
    }
    let _ = pair.cas();
    if let Some(key) = key_of(&text) {
        let again = key_of(key.serialize_pem().as_bytes()).expect("a key's own PEM");
        assert_eq!(again.public_key_raw(), key.public_key_raw());
        let _ = certificates.iter().filter(|certificate| certificate.matches(&key)).count();
    }
}
