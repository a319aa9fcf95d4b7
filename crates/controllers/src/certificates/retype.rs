//! Corrects the type of the serving pair's Secret, which is immutable, by a copy, one write at a time. The module does
//! no I/O.
//!
//! ```text
//!  wrong type ─> copied ─> removed ─> made from the copy ─> the copy removed
//! ```
//!
//! After each write the complete pair is in one of the two Secrets, so that a restarted controller can continue.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::{Change, Malformed, ObjectName, ObjectWrite, SecretWrite};

use super::super::NAMESPACE;
use super::names::{CERTIFICATE_KEY, PRIVATE_KEY, SERVING, SERVING_COPY, TLS_TYPE};
use super::secret::value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("has no certificate and has another type: deleting it")]
    NoPair,
    #[error("has another type: copying it")]
    WrongType,
    #[error("copied: deleting the Secret with another type")]
    Copied,
    #[error("the certificate has changed since it was copied")]
    Changed,
    #[error("creating it from its copy, with the right type")]
    Removed,
    #[error("the copy is not needed any more")]
    Done,
    #[error("the copy has no certificate")]
    NoPairInCopy,
}

/// The next write, `None` if the type is right.
pub(super) fn plan(
    serving: Option<&Secret>,
    copy: Option<&Secret>,
) -> Result<Option<(Reason, SecretWrite)>, Malformed> {
    let has_type = |secret: &Secret| secret.type_.as_deref() == Some(TLS_TYPE);
    let (because, write) = match (serving, copy) {
        (None, None) => return Ok(None),
        (Some(serving), None) if has_type(serving) => return Ok(None),
        (Some(serving), Some(copy)) if has_type(serving) => {
            (Reason::Done, remove(SERVING_COPY, copy)?)
        }
        (Some(serving), _) if !holds_pair(serving) => (Reason::NoPair, remove(SERVING, serving)?),
        (Some(serving), None) => (Reason::WrongType, copied(SERVING_COPY, serving)),
        (Some(serving), Some(copy)) if copy.data == serving.data => {
            (Reason::Copied, remove(SERVING, serving)?)
        }
        (Some(_), Some(copy)) => (Reason::Changed, remove(SERVING_COPY, copy)?),
        (None, Some(copy)) if holds_pair(copy) => (Reason::Removed, copied(SERVING, copy)),
        (None, Some(copy)) => (Reason::NoPairInCopy, remove(SERVING_COPY, copy)?),
    };
    Ok(Some((because, write)))
}

/// Returns `true` if a Secret has the keys that the type requires.
fn holds_pair(secret: &Secret) -> bool {
    [CERTIFICATE_KEY, PRIVATE_KEY].iter().all(|key| value(secret, key).is_some())
}

fn remove(name: &str, present: &Secret) -> Result<SecretWrite, Malformed> {
    SecretWrite::delete(ObjectName::secret(NAMESPACE, name), &present.metadata)
}

/// A copy of a Secret with another name and the right type.
fn copied(name: &str, secret: &Secret) -> SecretWrite {
    let object = ObjectName::secret(NAMESPACE, name);
    let copy = Secret {
        metadata: ObjectMeta {
            labels: secret.metadata.labels.clone(),
            annotations: secret.metadata.annotations.clone(),
            ..object.metadata()
        },
        type_: Some(TLS_TYPE.to_owned()),
        data: secret.data.clone(),
        ..Secret::default()
    };
    ObjectWrite { object, change: Change::Create(copy) }
}

#[cfg(test)]
mod tests {
    use kubernetes::write::Precondition;

    use super::*;
    use k8s_openapi::ByteString;

    fn secret(type_: &str, keys: &[&str], value: &str) -> Secret {
        let value = |key: &&str| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()));
        Secret {
            metadata: ObjectMeta {
                uid: Some(format!("uid of {type_}")),
                resource_version: Some("7".to_owned()),
                annotations: Some([("a".to_owned(), "kept".to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(type_.to_owned()),
            data: Some(keys.iter().map(value).collect()),
            ..Secret::default()
        }
    }

    /// A write in a few words.
    fn words(write: &SecretWrite) -> String {
        let name = &write.object.name;
        match &write.change {
            Change::Create(secret) => {
                assert_eq!(secret.type_.as_deref(), Some(TLS_TYPE));
                assert!(secret.metadata.annotations.is_some(), "they come along");
                assert_eq!(secret.metadata.resource_version, None);
                format!("create {name}")
            }
            Change::Delete(Precondition { uid, resource_version }) => {
                format!("delete {name}, {uid}, {resource_version}")
            }
            Change::Patch(_) | Change::Replace(_) => "change".to_owned(),
        }
    }

    #[test]
    fn every_state_on_the_way_has_its_next_write() {
        const PAIR: [&str; 2] = [CERTIFICATE_KEY, PRIVATE_KEY];
        let typed = || Some(secret(TLS_TYPE, &PAIR, "x"));
        let opaque = || Some(secret("Opaque", &PAIR, "x"));
        let other = || Some(secret(TLS_TYPE, &PAIR, "y"));
        let half = |type_| Some(secret(type_, &[CERTIFICATE_KEY], "x"));
        let (serving, copy) = ("machine-config-server-tls", "machine-config-server-tls-retype");
        let remove_opaque = format!("delete {serving}, uid of Opaque, 7");
        let remove_copy = format!("delete {copy}, uid of kubernetes.io/tls, 7");
        let (make_copy, make) = (format!("create {copy}"), format!("create {serving}"));
        // The secret, its copy, and what is to be done.
        let cases = [
            (None, None, None),
            (typed(), None, None),
            (half(TLS_TYPE), None, None),
            (opaque(), None, Some((Reason::WrongType, make_copy))),
            (opaque(), typed(), Some((Reason::Copied, remove_opaque.clone()))),
            (opaque(), other(), Some((Reason::Changed, remove_copy.clone()))),
            (None, typed(), Some((Reason::Removed, make))),
            (typed(), typed(), Some((Reason::Done, remove_copy.clone()))),
            (typed(), other(), Some((Reason::Done, remove_copy.clone()))),
            (half("Opaque"), None, Some((Reason::NoPair, remove_opaque.clone()))),
            (half("Opaque"), typed(), Some((Reason::NoPair, remove_opaque))),
            (None, half(TLS_TYPE), Some((Reason::NoPairInCopy, remove_copy))),
        ];
        for (number, (serving, copy, expected)) in cases.into_iter().enumerate() {
            let planned = plan(serving.as_ref(), copy.as_ref()).unwrap();
            let planned = planned.map(|(because, write)| (because, words(&write)));
            assert_eq!(planned, expected, "case {number}");
        }
    }

    #[test]
    fn a_secret_without_a_version_is_not_removed() {
        let unversioned = Secret { metadata: ObjectMeta::default(), ..secret("Opaque", &[], "x") };
        assert!(plan(Some(&unversioned), None).is_err());
    }
}
