//! Requests of administrators to the controller, by annotations on Secrets.
//!
//! Several administrators can write at once: each write has the version that was read as its precondition, and keeps
//! earlier requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;

use super::super::NAMESPACE;
use super::names::{CA, DISTRUST, FORCE, ROTATE, SERVING};
use super::state::{ClusterState, asks_with_force, to_distrust};
use crate::kubernetes::apply::{Applied, apply};
use crate::kubernetes::write::{ObjectName, SecretWrite};
use crate::kubernetes::{ControlError, Malformed};

/// A request of an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdministratorRequest {
    /// A new CA or serving pair.
    Rotation {
        /// Name of the Secret, [`CA`] or [`SERVING`].
        secret: &'static str,
        /// Unique value of the request.
        value: String,
        /// True to rotate even if machines are locked out.
        is_forced: bool,
    },
    /// CAs to distrust for good, by their fingerprints.
    Distrust(Vec<String>),
}

/// Writes a request. If the Secret has changed since `state` was read, nothing is written.
pub(crate) async fn ask(
    client: &Client,
    state: &ClusterState,
    ask: &AdministratorRequest,
) -> Result<Applied, ControlError> {
    let (name, key) = match ask {
        AdministratorRequest::Rotation { secret, .. } => (*secret, ROTATE),
        AdministratorRequest::Distrust(_) => (CA, DISTRUST),
    };
    let present = if name == SERVING { &state.serving } else { &state.ca };
    apply::<Secret, _>(client, &annotation_write(name, present.as_ref(), key, ask)?).await
}

fn annotation_write(
    name: &str,
    present: Option<&Secret>,
    key: &str,
    ask: &AdministratorRequest,
) -> Result<SecretWrite, Malformed> {
    let object = ObjectName::secret(NAMESPACE, name);
    let present = present.ok_or_else(|| object.malformed("not found"))?;
    let annotations = [(key.to_owned(), value(present, ask))].into();
    SecretWrite::patch(object, &present.metadata, annotations, BTreeMap::new())
}

/// The annotation's new value, which keeps earlier requests that are not done.
fn value(present: &Secret, ask: &AdministratorRequest) -> String {
    match ask {
        AdministratorRequest::Rotation { value, is_forced, .. }
            if *is_forced || asks_with_force(present) =>
        {
            format!("{value} {FORCE}")
        }
        AdministratorRequest::Rotation { value, .. } => value.clone(),
        AdministratorRequest::Distrust(fingerprints) => {
            let mut listed = to_distrust(present);
            for fingerprint in fingerprints {
                if !listed.contains(fingerprint) {
                    listed.push(fingerprint.clone());
                }
            }
            listed.join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::super::names::ROTATED;
    use super::*;
    use crate::kubernetes::write::{Change, ObjectWrite};

    fn secret(annotations: &[(&str, &str)]) -> Secret {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Secret {
            metadata: ObjectMeta {
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                annotations: Some(annotations.iter().map(text).collect()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    fn rotation(is_forced: bool) -> AdministratorRequest {
        AdministratorRequest::Rotation { secret: CA, value: "now".to_owned(), is_forced }
    }

    #[test]
    fn what_was_distrusted_before_stays_listed_and_nothing_is_listed_twice() {
        let ask = AdministratorRequest::Distrust(vec!["b".to_owned(), "c".to_owned()]);
        for (before, after) in [
            (None, "b,c"),
            (Some(""), "b,c"),
            (Some("a"), "a,b,c"),
            (Some("a,\n b ,x y"), "a,b,x y,c"),
        ] {
            let before: Vec<_> = before.map(|list| (DISTRUST, list)).into_iter().collect();
            assert_eq!(value(&secret(&before), &ask), after);
        }
    }

    #[test]
    fn a_forced_rotation_stays_forced_until_it_is_done() {
        let forced = (ROTATE, "before --force");
        for (annotations, is_forced, expected) in [
            (vec![], false, "now"),
            (vec![], true, "now --force"),
            (vec![(ROTATE, "before")], false, "now"),
            (vec![forced], false, "now --force"),
            (vec![forced, (ROTATED, "before --force")], false, "now"),
        ] {
            assert_eq!(value(&secret(&annotations), &rotation(is_forced)), expected);
        }
    }

    #[test]
    fn a_request_has_the_secret_that_was_read_as_its_precondition() {
        let write = annotation_write(CA, Some(&secret(&[])), ROTATE, &rotation(false));
        let Ok(ObjectWrite { change: Change::Patch(patch), .. }) = write else {
            panic!("it is patched")
        };
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["annotations"][ROTATE], "now");
        let error = annotation_write(CA, None, ROTATE, &rotation(false)).err().unwrap();
        assert!(error.to_string().ends_with("machine-config-server-ca: not found"), "{error}");
    }
}
