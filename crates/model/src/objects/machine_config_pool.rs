//! The kind `MachineConfigPool`, which names the rendered config of a pool.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::label_selector::LabelSelector;
use super::metadata::{Metadata, Resource, null_as_default};

/// Label of a MachineConfig with the role of its machines.
pub const ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";

/// A pool of machines that share one rendered config.
pub type MachineConfigPool = Resource<PoolSpec, PoolStatus, PoolMetadata>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PoolMetadata {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    annotations: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolSpec {
    #[serde(deserialize_with = "null_as_default")]
    configuration: Metadata,
    /// Selector of the MachineConfigs that are merged for the pool.
    #[serde(deserialize_with = "null_as_default")]
    pub machine_config_selector: LabelSelector,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolStatus {
    #[serde(deserialize_with = "null_as_default")]
    configuration: Metadata,
    /// Number of machines that run the spec's configuration.
    #[serde(deserialize_with = "null_as_default")]
    pub updated_machine_count: i64,
}

impl MachineConfigPool {
    /// Name of the pool, which is the last part of its machines' URL.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key)?.as_str()
    }

    /// Value of an annotation, empty if it is no text.
    pub fn annotation_or_empty(&self, key: &str) -> Option<&str> {
        let value = self.metadata.annotations.get(key).filter(|value| !value.is_null())?;
        Some(value.as_str().unwrap_or_default())
    }

    /// Annotations whose keys begin with `prefix`: the rest of the key, and the value, empty if it is no text.
    pub fn annotations_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.metadata.annotations.iter();
        all.filter_map(move |(key, value)| {
            Some((key.strip_prefix(prefix)?, value.as_str().unwrap_or_default()))
        })
    }

    /// Rendered config that the pool is moving to, empty before the first.
    pub fn spec_configuration(&self) -> &str {
        &self.spec.configuration.name
    }

    /// Rendered config that all machines of the pool last had, empty before the first.
    pub fn status_configuration(&self) -> &str {
        &self.status.configuration.name
    }

    /// Creates a pool that selects the MachineConfigs with its name as their role.
    pub fn of_role(name: &str) -> Self {
        let selector = LabelSelector::of_label(ROLE_LABEL, name);
        Self {
            metadata: PoolMetadata { name: name.to_owned(), ..PoolMetadata::default() },
            spec: PoolSpec { machine_config_selector: selector, ..PoolSpec::default() },
            status: PoolStatus::default(),
        }
    }

    /// A copy of the pool with `configuration` in its spec and status.
    pub fn with_configuration(&self, configuration: &str) -> Self {
        let mut pool = self.clone();
        for held in [&mut pool.spec.configuration, &mut pool.status.configuration] {
            configuration.clone_into(&mut held.name);
        }
        pool
    }
}
