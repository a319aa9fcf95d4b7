//! Objects that decide if a machine boots straight into a layered image of its pool: MachineOSConfigs and their builds,
//! and the cluster's own image registry.

use serde::Deserialize;

use super::metadata::{Metadata, Resource, null_as_default};

/// The kind `machineconfiguration.openshift.io/v1 MachineOSConfig`, which requests a layered image for a pool.
pub type MachineOsConfig = Resource<MachineOsConfigSpec, MachineOsConfigStatus>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOsConfigSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) machine_config_pool: Metadata,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOsConfigStatus {
    /// Pull spec of the last built image; empty before the first.
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) current_image_pull_spec: String,
}

/// The kind `machineconfiguration.openshift.io/v1 MachineOSBuild`, one build of a layered image.
pub type MachineOsBuild = Resource<MachineOsBuildSpec, MachineOsBuildStatus>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOsBuildSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) machine_config: Metadata,
    #[serde(rename = "machineOSConfig", deserialize_with = "null_as_default")]
    pub(crate) machine_os_config: Metadata,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct MachineOsBuildStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    status: String,
}

impl MachineOsBuild {
    /// Returns `true` if the build has condition `Succeeded`.
    pub fn has_succeeded(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Succeeded" && c.status == "True")
    }
}

/// Namespace of the cluster's own image registry.
pub const REGISTRY_NAMESPACE: &str = "openshift-image-registry";

/// The kind `v1 Service`, of which those of the cluster's own image registry are read.
pub type Service = Resource<ServiceSpec>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    ports: Vec<ServicePort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ServicePort {
    port: u16,
}

impl Service {
    /// Host of the registry in pull specs: `name.namespace.svc`, with the first port.
    pub fn registry_host(&self) -> String {
        let Metadata { name, namespace } = &self.metadata;
        match &self.spec.ports[..] {
            [first, ..] => format!("{name}.{namespace}.svc:{}", first.port),
            [] => format!("{name}.{namespace}.svc"),
        }
    }
}

/// The kind `route.openshift.io/v1 Route`, of which those of the cluster's own image registry are read.
pub type Route = Resource<RouteSpec>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RouteSpec {
    /// Host of the route, empty if it has none yet.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) host: String,
}
