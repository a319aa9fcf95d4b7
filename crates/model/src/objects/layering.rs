//! What decides whether a machine boots straight into an image that was built for its pool:
//! MachineOSConfigs and their builds, and the cluster's own image registry.

use serde::Deserialize;

use super::metadata::{Metadata, null_as_default};

/// `machineconfiguration.openshift.io/v1 MachineOSConfig`: a pool's wish for an image of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MachineOsConfig {
    /// The name.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: MachineOsConfigSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: MachineOsConfigStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineOsConfigSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    machine_config_pool: Metadata,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineOsConfigStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    current_image_pull_spec: String,
}

impl MachineOsConfig {
    /// The pool that the image is for.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.spec.machine_config_pool.name
    }

    /// The image that was built last, a pull spec; empty before the first.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.status.current_image_pull_spec
    }
}

/// `machineconfiguration.openshift.io/v1 MachineOSBuild`: one build of such an image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MachineOsBuild {
    /// The name.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: MachineOsBuildSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: MachineOsBuildStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineOsBuildSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    machine_config: Metadata,
    #[serde(default, rename = "machineOSConfig", deserialize_with = "null_as_default")]
    machine_os_config: Metadata,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct MachineOsBuildStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Condition {
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    status: String,
}

impl MachineOsBuild {
    /// The machine config that is in the image.
    #[must_use]
    pub fn machine_config(&self) -> &str {
        &self.spec.machine_config.name
    }

    /// The MachineOSConfig that the image is built for.
    #[must_use]
    pub fn machine_os_config(&self) -> &str {
        &self.spec.machine_os_config.name
    }

    /// Returns `true` if the build has condition `Succeeded`.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Succeeded" && c.status == "True")
    }
}

/// The namespace of the cluster's own image registry.
pub const REGISTRY_NAMESPACE: &str = "openshift-image-registry";

/// `v1 Service`: a name that the cluster's own image registry has inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Name and namespace.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: ServiceSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct ServiceSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    ports: Vec<ServicePort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ServicePort {
    port: u16,
}

impl Service {
    /// The registry's host as pull specs name it: `name.namespace.svc`, with the first port.
    #[must_use]
    pub fn registry_host(&self) -> String {
        let Metadata { name, namespace } = &self.metadata;
        match &self.spec.ports[..] {
            [first, ..] => format!("{name}.{namespace}.svc:{}", first.port),
            [] => format!("{name}.{namespace}.svc"),
        }
    }
}

/// `route.openshift.io/v1 Route`: a name that the cluster's own image registry has outside.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Route {
    /// Name and namespace.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: RouteSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct RouteSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    host: String,
}

impl Route {
    /// The host, empty while the route has none.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.spec.host
    }
}
