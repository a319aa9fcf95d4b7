//! `MachineConfigPool`: which rendered config the machines of a pool get.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::label_selector::LabelSelector;
use super::metadata::null_as_default;

/// Label of a MachineConfig with the role of the machines that it is for.
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
    /// The pool's name, which is the last part of the URL that its machines ask for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The value of one of the pool's annotations.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key)?.as_str()
    }

    /// The rendered config that the pool is moving to, empty before the first one is rendered.
    #[must_use]
    pub fn spec_configuration(&self) -> &str {
        &self.spec.configuration.name
    }

    /// The rendered config that all the pool's machines once ran, empty before the first.
    #[must_use]
    pub fn status_configuration(&self) -> &str {
        &self.status.configuration.name
    }

    /// A pool that selects the MachineConfigs with its name as their role.
    #[must_use]
    pub fn of_role(name: &str) -> Self {
        let selector = LabelSelector::of_label(ROLE_LABEL, name);
        Self {
            metadata: PoolMetadata { name: name.to_owned(), ..PoolMetadata::default() },
            spec: Spec { machine_config_selector: selector, ..Spec::default() },
            status: Status::default(),
        }
    }

    /// Which MachineConfigs the pool's configuration is merged from.
    #[must_use]
    pub fn machine_config_selector(&self) -> &LabelSelector {
        &self.spec.machine_config_selector
    }

    /// The same pool with `configuration` as the one that it is moving to, and that its machines once ran.
    #[must_use]
    pub fn with_configuration(&self, configuration: &str) -> Self {
        let mut pool = self.clone();
        for held in [&mut pool.spec.configuration, &mut pool.status.configuration] {
            configuration.clone_into(&mut held.name);
        }
        pool
    }

    /// How many machines already run [`Self::spec_configuration`].
    #[must_use]
    pub fn updated_machine_count(&self) -> i64 {
        self.status.updated_machine_count
    }
}
