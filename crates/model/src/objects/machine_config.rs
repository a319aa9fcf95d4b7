//! The kind `MachineConfig`: an Ignition config with settings that Ignition does not apply (kernel arguments, the
//! operating system's image, extensions).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::metadata::null_as_default;

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// A MachineConfig as returned by the API server.
///
/// Fields are serialized in the reference server's order, so that the copies on machines' disks are alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfig {
    #[serde(default, deserialize_with = "null_as_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    metadata: Map<String, Value>,
    /// Wanted state of a machine.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineConfigSpec,
}

/// Wanted state of a machine, serialized in full.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// Pull spec of the operating system's image; empty does not change it.
    #[serde(rename = "osImageURL", deserialize_with = "null_as_default")]
    pub os_image_url: String,
    /// Image with extensions.
    #[serde(rename = "baseOSExtensionsContainerImage", deserialize_with = "null_as_default")]
    pub base_os_extensions_container_image: String,
    /// Ignition config as JSON text, `None` if there is none.
    ///
    /// Text instead of a tree: a cluster has many rendered configs of 200 KB, and a tree needs several times as much
    /// memory.
    pub config: Option<Box<RawValue>>,
    /// Kernel arguments in addition to those of the Ignition config. Null and absence are distinguished from an empty
    /// list when the config is written to the machine.
    pub kernel_arguments: Option<Vec<String>>,
    /// Names of extensions of the operating system.
    pub extensions: Option<Vec<String>>,
    /// True for FIPS mode.
    #[serde(deserialize_with = "null_as_default")]
    pub fips: bool,
    /// Value `default`, `realtime` or `64k-pages`; empty is `default`.
    #[serde(deserialize_with = "null_as_default")]
    pub kernel_type: String,
}

impl MachineConfig {
    /// Creates a MachineConfig with this name.
    pub fn new(name: &str, annotations: BTreeMap<String, String>, spec: MachineConfigSpec) -> Self {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.into());
        if !annotations.is_empty() {
            let annotations = annotations.into_iter().map(|(key, value)| (key, value.into()));
            metadata.insert("annotations".to_owned(), Value::Object(annotations.collect()));
        }
        let (api_version, kind) = (API_VERSION.to_owned(), "MachineConfig".to_owned());
        Self { kind, api_version, metadata, spec }
    }

    /// Returns `true` if both have the same metadata.
    pub fn same_metadata(&self, other: &Self) -> bool {
        self.metadata == other.metadata
    }

    /// Labels, `None` if there are none.
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.metadata.get("labels")?.as_object()
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }

    /// JSON text of the Ignition config, `None` if there is none.
    pub fn ignition(&self) -> Option<&str> {
        self.spec.config.as_deref().map(RawValue::get)
    }
}
