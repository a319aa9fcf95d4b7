//! What a secret says.

use k8s_openapi::api::core::v1::Secret;
use pki::StoredPair;

use super::names::{CERTIFICATE_KEY, PREVIOUS, PREVIOUS_BEFORE, PRIVATE_KEY};

/// One value of a secret.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|value| &value.0[..])
}

/// One annotation of a secret.
pub(super) fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A pair of a secret, with what else a CA's store holds.
pub(in crate::controllers) fn stored_pair(secret: &Secret) -> StoredPair {
    let bytes = |key| value(secret, key).unwrap_or_default().to_vec();
    let previous = value(secret, PREVIOUS).or_else(|| value(secret, PREVIOUS_BEFORE));
    StoredPair {
        certificates: bytes(CERTIFICATE_KEY),
        key: bytes(PRIVATE_KEY),
        previous: previous.unwrap_or_default().to_vec(),
        unreadable: None,
    }
}
