//! Writes to objects of a cluster, as values.
//!
//! Every write except a creation applies to the version that was read: UID and resource version are preconditions that
//! the API server checks.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use model::objects::ObjectKind;
use serde::Serialize;
use serde_json::Value;

/// An object, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    pub kind: &'static ObjectKind,
    /// Namespace; empty for an object of the whole cluster.
    pub namespace: String,
    /// Name; `*` for all objects.
    pub name: String,
}

impl ObjectName {
    pub fn new(kind: &'static ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::SECRET, namespace, name)
    }

    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self::new(ObjectKind::CONFIG_MAP, namespace, name)
    }

    pub fn pool(name: &str) -> Self {
        Self::new(ObjectKind::MACHINE_CONFIG_POOL, "", name)
    }

    pub fn machine_config(name: &str) -> Self {
        Self::new(ObjectKind::MACHINE_CONFIG, "", name)
    }

    pub fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        }
    }

    /// The object as Events refer to it. `uid` is empty if it is not known.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ObjectReference {
            api_version: Some(self.kind.api_version()),
            kind: known(self.kind.name),
            name: known(&self.name),
            namespace: known(&self.namespace),
            uid: known(uid),
            ..ObjectReference::default()
        }
    }

    /// The object as the owner of others.
    pub fn owner_reference(&self, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: self.kind.api_version(),
            kind: self.kind.name.to_owned(),
            name: self.name.clone(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    /// Converts a reason to an error about this object, for `map_err`.
    pub fn malformed(&self, reason: impl Into<String>) -> Malformed {
        Malformed { object: self.clone(), reason: reason.into() }
    }
}

/// Checks that a value is a mapping, if it is present. A list would pass for an empty one.
pub fn expect_mapping(object: &ObjectName, place: &str, value: &Value) -> Result<(), Malformed> {
    if value.is_object() || value.is_null() {
        return Ok(());
    }
    Err(object.malformed(format!("{place} is not a mapping")))
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind: ObjectKind { name: kind, .. }, namespace, name } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// A malformed object. Nothing is derived from it, and it is not overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {reason}")]
pub struct Malformed {
    pub object: ObjectName,
    pub reason: String,
}

/// UID and version of the object that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    pub uid: String,
    pub resource_version: String,
}

impl Precondition {
    /// The precondition for an object that was read. Metadata without UID or version are an error: the write could hit
    /// any object.
    pub fn of(object: &ObjectName, metadata: &ObjectMeta) -> Result<Self, Malformed> {
        match (&metadata.uid, &metadata.resource_version) {
            (Some(uid), Some(version)) if !uid.is_empty() && !version.is_empty() => {
                Ok(Self { uid: uid.clone(), resource_version: version.clone() })
            }
            _ => {
                Err(object
                    .malformed("the API server returned it without its uid and resourceVersion"))
            }
        }
    }
}

/// A JSON merge patch (RFC 7396) of a Secret or a ConfigMap; unnamed values stay.
#[derive(Serialize)]
pub struct MergePatch<V> {
    metadata: Box<ObjectMeta>,
    /// Values to set, and `None` for those to remove.
    data: BTreeMap<&'static str, Option<V>>,
}

impl<V> MergePatch<V> {
    pub fn new(
        precondition: Precondition,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, Option<V>>,
    ) -> Self {
        let Precondition { uid, resource_version } = precondition;
        let metadata = ObjectMeta {
            uid: Some(uid),
            resource_version: Some(resource_version),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        };
        Self { metadata: Box::new(metadata), data }
    }

    /// The same, and the object belongs to `owner` alone.
    #[must_use]
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.metadata.owner_references = Some(vec![owner]);
        self
    }
}

impl<V> std::fmt::Debug for MergePatch<V> {
    /// Hides the values, which can be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MergePatch").field(&self.data.keys()).finish()
    }
}

pub struct ObjectWrite<K, V> {
    pub object: ObjectName,
    pub change: Change<K, V>,
}

pub enum Change<K, V> {
    /// Creates it; an existing one stays.
    Create(K),
    Patch(MergePatch<V>),
    /// Sets all of it. The new object has the metadata of the one that was read.
    Replace(K),
    Delete(Precondition),
}

impl<K, V> ObjectWrite<K, V> {
    pub fn delete(object: ObjectName, present: &ObjectMeta) -> Result<Self, Malformed> {
        let change = Change::Delete(Precondition::of(&object, present)?);
        Ok(Self { object, change })
    }

    /// Sets annotations and values of an object that was read.
    pub fn patch(
        object: ObjectName,
        present: &ObjectMeta,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, Option<V>>,
    ) -> Result<Self, Malformed> {
        let precondition = Precondition::of(&object, present)?;
        let change = Change::Patch(MergePatch::new(precondition, annotations, data));
        Ok(Self { object, change })
    }
}

impl SecretWrite {
    /// Sets annotations and values of a Secret that was read, or creates one of this type. The type of a present one
    /// cannot be changed.
    pub fn put(
        object: ObjectName,
        present: Option<&Secret>,
        type_: &str,
        annotations: BTreeMap<String, String>,
        data: BTreeMap<&'static str, Option<ByteString>>,
    ) -> Result<Self, Malformed> {
        if let Some(present) = present {
            return Self::patch(object, &present.metadata, annotations, data);
        }
        let data = data.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let new = Secret {
            metadata: ObjectMeta { annotations: Some(annotations), ..object.metadata() },
            type_: Some(type_.to_owned()),
            data: Some(data.collect()),
            ..Secret::default()
        };
        Ok(Self { object, change: Change::Create(new) })
    }
}

pub type SecretWrite = ObjectWrite<Secret, ByteString>;
pub type ConfigMapWrite = ObjectWrite<ConfigMap, String>;

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
