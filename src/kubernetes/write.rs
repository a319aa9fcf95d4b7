//! Writes to objects of a cluster, as values: what to write, and what it may replace.
//!
//! A write that is not a creation goes to the very object that was read, in the version that was
//! read: its UID and its resource version are preconditions that the API server checks.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value};

/// How an administrator would name an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// `Secret`
    pub kind: &'static str,
    /// Empty for an object of the whole cluster.
    pub namespace: String,
    /// `*` for all of them.
    pub name: String,
}

impl ObjectName {
    /// An object in a namespace.
    #[must_use]
    pub fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// A secret.
    #[must_use]
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::new("Secret", namespace, name)
    }

    /// A config map.
    #[must_use]
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self::new("ConfigMap", namespace, name)
    }

    /// For `map_err`: what is wrong with this object.
    pub(crate) fn malformed(&self, reason: impl Into<String>) -> Malformed {
        Malformed { object: self.clone(), reason: reason.into() }
    }
}

/// Checks that a value is a mapping, where it is there at all. A list would pass for one that says
/// nothing.
pub(crate) fn expect_mapping(
    object: &ObjectName,
    place: &str,
    value: &Value,
) -> Result<(), Malformed> {
    if value.is_object() || value.is_null() {
        return Ok(());
    }
    Err(object.malformed(format!("{place} is no mapping")))
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// An object that cannot be understood. Nothing is made of it, and nothing written in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {reason}")]
pub struct Malformed {
    /// Kind, namespace and name.
    pub object: ObjectName,
    /// What is wrong with it.
    pub reason: String,
}

/// The object that was read, in the version that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Precondition {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Precondition {
    /// Of an object that was read. Without them a write could hit anything: that is refused.
    pub(crate) fn of(object: &ObjectName, metadata: &ObjectMeta) -> Result<Self, Malformed> {
        match (&metadata.uid, &metadata.resource_version) {
            (Some(uid), Some(version)) if !uid.is_empty() && !version.is_empty() => {
                Ok(Self { uid: uid.clone(), resource_version: version.clone() })
            }
            _ => Err(object.malformed("it was read without its uid and resourceVersion")),
        }
    }
}

/// A JSON merge patch (RFC 7396) of a secret or a config map: what it does not name stays.
#[derive(Serialize)]
pub(crate) struct MergePatch<V> {
    metadata: PatchedMetadata,
    /// The values to set, and `None` for those to remove.
    data: BTreeMap<&'static str, Option<V>>,
}

#[derive(Serialize)]
struct PatchedMetadata {
    #[serde(flatten)]
    precondition: Precondition,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl<V> MergePatch<V> {
    pub(crate) fn new(
        precondition: Precondition,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, Option<V>>,
    ) -> Self {
        Self { metadata: PatchedMetadata { precondition, annotations }, data }
    }
}

impl<V> std::fmt::Debug for MergePatch<V> {
    /// Without the values, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MergePatch").field(&self.data.keys()).finish()
    }
}

/// A JSON merge patch of an object's metadata and spec.
#[derive(Debug, Serialize)]
pub(crate) struct FieldsPatch {
    pub(crate) metadata: FieldsMetadata,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) spec: Map<String, Value>,
}

/// The precondition, and fields of the metadata.
#[derive(Debug, Serialize)]
pub(crate) struct FieldsMetadata {
    #[serde(flatten)]
    pub(crate) precondition: Precondition,
    #[serde(flatten)]
    pub(crate) fields: Map<String, Value>,
}

/// A JSON merge patch of an object's status.
#[derive(Debug, Serialize)]
pub(crate) struct StatusPatch {
    pub(crate) metadata: Precondition,
    pub(crate) status: Map<String, Value>,
}

/// A write to one object.
pub(crate) struct ObjectWrite<K, V> {
    pub(crate) object: ObjectName,
    pub(crate) change: Change<K, V>,
}

/// What happens to the object.
pub(crate) enum Change<K, V> {
    /// It is made; one that is there by then stays.
    Create(K),
    /// Some fields of it are set.
    Patch(MergePatch<V>),
    /// All of it is set. The new object has the metadata of the one that was read.
    Replace(K),
    /// It is removed.
    Delete(Precondition),
}

/// A write to a secret.
pub(crate) type SecretWrite = ObjectWrite<Secret, ByteString>;
/// A write to a config map.
pub(crate) type ConfigMapWrite = ObjectWrite<ConfigMap, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_carries_what_was_read_and_removes_what_is_none() {
        let object = ObjectName::secret("ns", "a");
        let metadata = ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        let data = [("new", Some(ByteString(b"x".to_vec()))), ("old", None)];
        let precondition = Precondition::of(&object, &metadata).unwrap();
        let patch = MergePatch::new(precondition, BTreeMap::new(), data.into());
        assert_eq!(
            serde_json::to_value(&patch).unwrap(),
            serde_json::json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "data": {"new": "eA==", "old": null},
            })
        );
        assert!(!format!("{patch:?}").contains("eA"), "no value is shown");
    }

    #[test]
    fn without_uid_and_version_nothing_is_written() {
        let object = ObjectName::secret("ns", "a");
        let some = |text: &str| Some(text.to_owned());
        for (uid, resource_version) in
            [(None, None), (some("u"), None), (None, some("7")), (some(""), some("7"))]
        {
            let metadata = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
            let error = Precondition::of(&object, &metadata).unwrap_err();
            assert_eq!(error.object, object);
        }
    }
}
