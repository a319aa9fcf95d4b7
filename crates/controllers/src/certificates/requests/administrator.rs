//! Requests of administrators to the controller, by annotations on Secrets.
//!
//! Several administrators can write at once: each write has the version that was read as its precondition, and keeps
//! earlier requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kubernetes::apply::{Applied, apply};
use kubernetes::write::{ObjectName, SecretWrite};
use kubernetes::{ControlError, Malformed};

use crate::NAMESPACE;
use crate::certificates::names::{CA, DISTRUST, FORCE, ROTATE, SERVING};
use crate::certificates::state::{ClusterState, requests_force, to_distrust};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdministratorRequest {
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

impl AdministratorRequest {
    /// Writes the request. If the Secret has changed since `state` was read, nothing is written.
    pub async fn apply(
        &self,
        client: &Client,
        state: &ClusterState,
    ) -> Result<Applied, ControlError> {
        let present = match self {
            Self::Rotation { secret: SERVING, .. } => &state.serving,
            Self::Rotation { .. } | Self::Distrust(_) => &state.ca,
        };
        apply(client, &self.write(present.as_ref())?).await
    }

    fn write(&self, present: Option<&Secret>) -> Result<SecretWrite, Malformed> {
        let (name, key) = match self {
            Self::Rotation { secret, .. } => (*secret, ROTATE),
            Self::Distrust(_) => (CA, DISTRUST),
        };
        let object = ObjectName::secret(NAMESPACE, name);
        let present = present.ok_or_else(|| object.malformed("not found"))?;
        let annotations = [(key.to_owned(), self.value(present))].into();
        SecretWrite::patch(object, &present.metadata, annotations, BTreeMap::new())
    }

    /// The annotation's new value, which keeps earlier requests that are not done.
    fn value(&self, present: &Secret) -> String {
        match self {
            Self::Rotation { value, is_forced, .. } if *is_forced || requests_force(present) => {
                format!("{value} {FORCE}")
            }
            Self::Rotation { value, .. } => value.clone(),
            Self::Distrust(fingerprints) => {
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
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kubernetes::write::{Change, ObjectWrite};

    use super::*;
    use crate::certificates::names::ROTATED;

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
        let request = AdministratorRequest::Distrust(vec!["b".to_owned(), "c".to_owned()]);
        for (before, after) in [
            (None, "b,c"),
            (Some(""), "b,c"),
            (Some("a"), "a,b,c"),
            (Some("a,\n b ,x y"), "a,b,x y,c"),
        ] {
            let before: Vec<_> = before.map(|list| (DISTRUST, list)).into_iter().collect();
            assert_eq!(request.value(&secret(&before)), after);
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
            assert_eq!(rotation(is_forced).value(&secret(&annotations)), expected);
        }
    }

    #[test]
    fn a_request_has_the_secret_that_was_read_as_its_precondition() {
        let write = rotation(false).write(Some(&secret(&[])));
        let Ok(ObjectWrite { change: Change::Patch(patch), .. }) = write else {
            panic!("it is patched")
        };
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["annotations"][ROTATE], "now");
        let error = rotation(false).write(None).err().unwrap();
        assert!(error.to_string().ends_with("machine-config-server-ca: not found"), "{error}");
    }
}
