//! The kind `MachineConfigPool`, which names the rendered config of a pool.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::label_selector::LabelSelector;
use super::metadata::null_as_default;

/// Label of a MachineConfig with the role of its machines.
pub const ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";

/// A pool of machines that share one rendered config.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MachineConfigPool {
    metadata: PoolMetadata,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct PoolMetadata {
    #[serde(default, deserialize_with = "null_as_default")]
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "null_as_default")]
    configuration: Configuration,
    #[serde(default, rename = "machineConfigSelector", deserialize_with = "null_as_default")]
    machine_config_selector: LabelSelector,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Status {
    #[serde(default, deserialize_with = "null_as_default")]
    configuration: Configuration,
    #[serde(default, rename = "updatedMachineCount", deserialize_with = "null_as_default")]
    updated_machine_count: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Configuration {
    #[serde(default, deserialize_with = "null_as_default")]
    name: String,
}

impl MachineConfigPool {
    /// Name of the pool, which is the last part of its machines' URL.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key)?.as_str()
    }

    /// Value of an annotation, empty if it is no text.
    #[must_use]
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
    #[must_use]
    pub fn spec_configuration(&self) -> &str {
        &self.spec.configuration.name
    }

    /// Rendered config that all machines of the pool last had, empty before the first.
    #[must_use]
    pub fn status_configuration(&self) -> &str {
        &self.status.configuration.name
    }

    /// Creates a pool that selects the MachineConfigs with its name as their role.
    #[must_use]
    pub fn of_role(name: &str) -> Self {
        let selector = LabelSelector::of_label(ROLE_LABEL, name);
        Self {
            metadata: PoolMetadata { name: name.to_owned(), ..PoolMetadata::default() },
            spec: Spec { machine_config_selector: selector, ..Spec::default() },
            status: Status::default(),
        }
    }

    /// Selector of the MachineConfigs that are merged for the pool.
    #[must_use]
    pub fn machine_config_selector(&self) -> &LabelSelector {
        &self.spec.machine_config_selector
    }

    /// A copy of the pool with `configuration` in its spec and status.
    #[must_use]
    pub fn with_configuration(&self, configuration: &str) -> Self {
        let mut pool = self.clone();
        for held in [&mut pool.spec.configuration, &mut pool.status.configuration] {
            configuration.clone_into(&mut held.name);
        }
        pool
    }

    /// Number of machines that run [`Self::spec_configuration`].
    #[must_use]
    pub fn updated_machine_count(&self) -> i64 {
        self.status.updated_machine_count
    }
}
