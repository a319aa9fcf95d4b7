//! Kinds that are watched, and decoding of their objects.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use kube::{Api, Client};
use model::objects::{OPERATOR_NAMESPACE, Object, ObjectError, REGISTRY_NAMESPACE};
use model::registry_ca::{MANAGED_NAMESPACE, MERGED_MAP};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kubernetes::client;
use crate::kubernetes::object_kind::ObjectKind;

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

/// A kind in the API, with its objects that are watched.
struct WatchedResource {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespace: Option<&'static str>,
    /// Name, if only one object is watched.
    name: Option<&'static str>,
    may_be_absent: bool,
}

impl WatchedResource {
    const fn new(group: &'static str, kind: &'static str, plural: &'static str) -> Self {
        let (version, namespace, name) = ("v1", None, None);
        Self { group, version, kind, plural, namespace, name, may_be_absent: false }
    }

    const fn within(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    const fn version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    const fn optional(self) -> Self {
        Self { may_be_absent: true, ..self }
    }
}

impl Kind {
    pub(super) const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    fn resource(self) -> WatchedResource {
        const MACHINE_CONFIGURATION: &str = "machineconfiguration.openshift.io";
        let ours = |kind, plural| WatchedResource::new(MACHINE_CONFIGURATION, kind, plural);
        let config_map = |namespace, name| {
            WatchedResource::new("", "ConfigMap", "configmaps").within(namespace).named(name)
        };
        match self {
            Self::MachineConfig => ours("MachineConfig", "machineconfigs"),
            Self::MachineConfigPool => ours("MachineConfigPool", "machineconfigpools"),
            Self::ControllerConfig => {
                ours("ControllerConfig", "controllerconfigs").named("machine-config-controller")
            }
            Self::MachineOsConfig => ours("MachineOSConfig", "machineosconfigs").optional(),
            Self::MachineOsBuild => ours("MachineOSBuild", "machineosbuilds").optional(),
            Self::KubeconfigData => config_map(OPERATOR_NAMESPACE, "kubeconfig-data"),
            Self::RegistryCas => config_map(MANAGED_NAMESPACE, MERGED_MAP),
            Self::Service => {
                WatchedResource::new("", "Service", "services").within(REGISTRY_NAMESPACE)
            }
            Self::ApiServer => {
                WatchedResource::new("config.openshift.io", "APIServer", "apiservers")
                    .named("cluster")
                    .optional()
            }
            Self::FirstBootMachine => WatchedResource::new(
                "machine-config-server.io",
                "FirstBootMachine",
                "firstbootmachines",
            )
            .version("v1alpha1")
            .within(OPERATOR_NAMESPACE)
            .optional(),
            Self::Route => WatchedResource::new("route.openshift.io", "Route", "routes")
                .within(REGISTRY_NAMESPACE)
                .optional(),
        }
    }

    /// Unique name in the log, in metrics and in the cache: the resource's name as in `kubectl api-resources`, with the
    /// object's name if that is needed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeconfigData => "configmaps/kubeconfig-data",
            Self::RegistryCas => "configmaps/merged-trusted-image-registry-ca",
            other => other.resource().plural,
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
        let WatchedResource { group, version, kind, plural, namespace, .. } = self.resource();
        let kind = ObjectKind::new(group, version, kind, plural);
        client::api(client, namespace.unwrap_or_default(), &kind)
    }

    pub(super) fn describe(self, name: &str) -> String {
        let resource = self.resource();
        let slash = if resource.namespace.is_some() { "/" } else { "" };
        format!("{} {}{slash}{name}", resource.kind, resource.namespace.unwrap_or_default())
    }

    pub(super) fn decode(self, json: &RawValue) -> Result<Object, ObjectError> {
        let resource = self.resource();
        let mut value: Value = serde_json::from_str(json.get()).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            // Items in lists of core kinds have no `kind` and `apiVersion`.
            let version = match resource.group {
                "" => resource.version.to_owned(),
                group => format!("{group}/{}", resource.version),
            };
            fields.insert("apiVersion".to_owned(), version.into());
            fields.insert("kind".to_owned(), resource.kind.into());
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
