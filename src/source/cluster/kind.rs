//! Kinds that are watched, and decoding of their objects.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use kube::{Api, Client};
use kubernetes::client;
use model::objects::{OPERATOR_NAMESPACE, Object, ObjectError, ObjectKind, REGISTRY_NAMESPACE};
use model::registry_ca::{MANAGED_NAMESPACE, MERGED_MAP};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A kind that is watched: all objects in one namespace, or a single object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub(super) enum Kind {
    MachineConfigPool,
    /// Only metadata is watched; see [`super::configs`].
    MachineConfig,
    ControllerConfig,
    MachineOsConfig,
    MachineOsBuild,
    /// The ConfigMap with the API server's CAs.
    KubeconfigData,
    Service,
    Route,
    /// The ConfigMap with the CAs of image registries.
    RegistryCas,
    /// The object with the TLS profile of the cluster.
    ApiServer,
    /// Machines with names, in the namespace of the servers.
    FirstBootMachine,
}

/// The objects of a kind that are watched.
struct WatchedResource {
    kind: &'static ObjectKind,
    namespace: Option<&'static str>,
    /// Name, if only one object is watched.
    name: Option<&'static str>,
    may_be_absent: bool,
}

impl WatchedResource {
    const fn all(kind: &'static ObjectKind) -> Self {
        Self { kind, namespace: None, name: None, may_be_absent: false }
    }

    const fn within(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    const fn optional(self) -> Self {
        Self { may_be_absent: true, ..self }
    }
}

impl Kind {
    pub(super) const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    const fn resource(self) -> WatchedResource {
        match self {
            Self::MachineConfig => WatchedResource::all(ObjectKind::MACHINE_CONFIG),
            Self::MachineConfigPool => WatchedResource::all(ObjectKind::MACHINE_CONFIG_POOL),
            Self::ControllerConfig => WatchedResource::all(ObjectKind::CONTROLLER_CONFIG)
                .named("machine-config-controller"),
            Self::MachineOsConfig => WatchedResource::all(ObjectKind::MACHINE_OS_CONFIG).optional(),
            Self::MachineOsBuild => WatchedResource::all(ObjectKind::MACHINE_OS_BUILD).optional(),
            Self::KubeconfigData => WatchedResource::all(ObjectKind::CONFIG_MAP)
                .within(OPERATOR_NAMESPACE)
                .named("kubeconfig-data"),
            Self::RegistryCas => WatchedResource::all(ObjectKind::CONFIG_MAP)
                .within(MANAGED_NAMESPACE)
                .named(MERGED_MAP),
            Self::Service => WatchedResource::all(ObjectKind::SERVICE).within(REGISTRY_NAMESPACE),
            Self::Route => {
                WatchedResource::all(ObjectKind::ROUTE).within(REGISTRY_NAMESPACE).optional()
            }
            Self::ApiServer => {
                WatchedResource::all(ObjectKind::API_SERVER).named("cluster").optional()
            }
            Self::FirstBootMachine => WatchedResource::all(ObjectKind::FIRST_BOOT_MACHINE)
                .within(OPERATOR_NAMESPACE)
                .optional(),
        }
    }

    /// Unique name in the log, in metrics and in the cache: the resource's name as in `kubectl api-resources`, with the
    /// object's name if that is needed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeconfigData => "configmaps/kubeconfig-data",
            Self::RegistryCas => "configmaps/merged-trusted-image-registry-ca",
            other => other.resource().kind.plural,
        }
    }

    /// Returns `true` if the last state of a deleted object stays in force. The writers of registry CAs empty the
    /// ConfigMap to remove all; its deletion means nothing.
    pub(super) fn outlives_deletion(self) -> bool {
        self == Self::RegistryCas
    }

    /// Returns `true` if the cluster can lack the kind: its definition can be missing, and be created later.
    pub(super) fn may_be_absent(self) -> bool {
        self.resource().may_be_absent
    }

    /// Name, if only one object is watched.
    pub(super) fn only(self) -> Option<&'static str> {
        self.resource().name
    }

    pub(super) fn api<K>(self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let WatchedResource { kind, namespace, .. } = self.resource();
        client::api(client, namespace.unwrap_or_default(), kind)
    }

    pub(super) fn describe(self, name: &str) -> String {
        let WatchedResource { kind, namespace, .. } = self.resource();
        let slash = if namespace.is_some() { "/" } else { "" };
        format!("{} {}{slash}{name}", kind.name, namespace.unwrap_or_default())
    }

    pub(super) fn decode(self, json: &RawValue) -> Result<Object, ObjectError> {
        let kind = self.resource().kind;
        let mut value: Value = serde_json::from_str(json.get()).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            // Items in lists of core kinds have no `kind` and `apiVersion`.
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.name.into());
        }
        Object::from_value(value)?.ok_or(ObjectError::NoKind)
    }
}

/// An object with only its metadata parsed, so that one malformed object does not affect the list.
#[derive(Debug, Clone)]
pub(super) struct RawObject {
    metadata: ObjectMeta,
    pub(super) json: Box<RawValue>,
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let OnlyMetadata { metadata } =
            serde_json::from_str(json.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata, json })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_kinds_have_one_name() {
        let names: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
