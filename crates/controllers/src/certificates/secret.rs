//! Accessors of Secrets.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::{Malformed, ObjectName};
use model::access::{ACCESS_ANNOTATION, AccessMode};
use pki::StoredPair;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::names::{CERTIFICATE_KEY, PREVIOUS, PREVIOUS_BEFORE, PRIVATE_KEY};

pub fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|value| &value.0[..])
}

pub(super) fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A time for an annotation of `object`.
pub(super) fn date(object: &ObjectName, time: OffsetDateTime) -> Result<String, Malformed> {
    time.format(&Rfc3339).map_err(|error| object.malformed(format!("cannot write a date: {error}")))
}

/// Returns `true` if an administrator marked a Secret with user data as unused by machines.
pub fn is_unused(secret: &Secret) -> bool {
    annotation(secret, ACCESS_ANNOTATION) == Some(AccessMode::Off.label())
}

/// The pair in a Secret, with the rest of a CA's store.
pub fn stored_pair(secret: &Secret) -> StoredPair {
    let bytes = |key| value(secret, key).unwrap_or_default().to_vec();
    let previous = value(secret, PREVIOUS).or_else(|| value(secret, PREVIOUS_BEFORE));
    StoredPair {
        certificates: bytes(CERTIFICATE_KEY),
        key: bytes(PRIVATE_KEY),
        previous: previous.unwrap_or_default().to_vec(),
        unreadable: None,
    }
}
