//! Objects for the issuer. Only their status is written, and other fields stay unchanged.

use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use kubernetes::apply::{Applied, apply_status, list_custom};
use kubernetes::write::Precondition;
use kubernetes::{ControlError, ObjectName};
use model::objects::ObjectKind;
use serde_json::Value;

/// An object as it was read.
pub(super) struct Listed {
    pub(super) name: ObjectName,
    pub(super) object: DynamicObject,
}

impl Listed {
    /// Lists all objects of a kind by their names, none if the cluster does not have it.
    pub(super) async fn all(
        client: &Client,
        kind: &'static ObjectKind,
    ) -> Result<Vec<Self>, ControlError> {
        let objects = list_custom(client, &ObjectName::new(kind, "", "*")).await?;
        let named = |object: DynamicObject| {
            let namespace = object.namespace().unwrap_or_default();
            Self { name: ObjectName::new(kind, &namespace, &object.name_any()), object }
        };
        let mut listed: Vec<_> = objects.into_iter().map(named).collect();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Sets fields of the status, in the version that was read.
    pub(super) async fn write_status(
        &self,
        client: &Client,
        fields: &Value,
    ) -> Result<Applied, ControlError> {
        let precondition = Precondition::of(&self.name, &self.object.metadata)?;
        apply_status(client, &self.name, &precondition, fields).await.map(Applied::from)
    }
}
