//! What a secret says.

use k8s_openapi::api::core::v1::Secret;
use model::access::{ACCESS_ANNOTATION, AccessMode};
use pki::StoredPair;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::names::{CERTIFICATE_KEY, PREVIOUS, PREVIOUS_BEFORE, PRIVATE_KEY};
use crate::kubernetes::write::{Malformed, ObjectName};

/// One value of a secret.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|value| &value.0[..])
}

/// One annotation of a secret.
pub(super) fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A time as an annotation of `object` has it.
pub(super) fn date(object: &ObjectName, time: OffsetDateTime) -> Result<String, Malformed> {
    time.format(&Rfc3339)
        .map_err(|error| object.malformed(format!("a date cannot be written: {error}")))
}

/// Whether an administrator says that no machine is made from a secret with user data.
#[must_use]
pub fn is_unused(secret: &Secret) -> bool {
    annotation(secret, ACCESS_ANNOTATION) == Some(AccessMode::Off.label())
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
