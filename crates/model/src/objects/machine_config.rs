//! The kind `MachineConfig`: an Ignition config with settings that Ignition does not apply (kernel arguments, the
//! operating system's image, extensions).

use std::collections::BTreeMap;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::metadata::null_as_default;

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// A MachineConfig as returned by the API server.
///
/// Fields are serialized in the reference server's order, so that the copies on machines' disks are alike.
#[derive(Debug, Clone, Deserialize)]
pub struct MachineConfig {
    #[serde(default, rename = "apiVersion", deserialize_with = "null_as_default")]
    api_version: String,
    #[serde(default, deserialize_with = "null_as_default")]
    kind: String,
    metadata: Map<String, Value>,
    /// Wanted state of a machine.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineConfigSpec,
}

/// Wanted state of a machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// Pull spec of the operating system's image; empty does not change it.
    #[serde(default, rename = "osImageURL", deserialize_with = "null_as_default")]
    pub os_image_url: String,
    /// Image with extensions.
    #[serde(
        default,
        rename = "baseOSExtensionsContainerImage",
        deserialize_with = "null_as_default"
    )]
    pub base_os_extensions_container_image: String,
    /// Ignition config as JSON text, `None` if there is none.
    ///
    /// Text instead of a tree: a cluster has many rendered configs of 200 KB, and a tree needs several times as much
    /// memory.
    #[serde(default)]
    pub config: Option<Box<RawValue>>,
    /// Kernel arguments in addition to those of the Ignition config. Null and absence are distinguished from an empty
    /// list when the config is written to the machine.
    #[serde(default)]
    pub kernel_arguments: Option<Vec<String>>,
    /// Names of extensions of the operating system.
    #[serde(default)]
    pub extensions: Option<Vec<String>>,
    /// True for FIPS mode.
    #[serde(default, deserialize_with = "null_as_default")]
    pub fips: bool,
    /// Value `default`, `realtime` or `64k-pages`; empty is `default`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub kernel_type: String,
}

impl MachineConfig {
    /// Creates a MachineConfig with this name.
    #[must_use]
    pub fn new(name: &str, annotations: BTreeMap<String, String>, spec: MachineConfigSpec) -> Self {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.into());
        if !annotations.is_empty() {
            let annotations = annotations.into_iter().map(|(key, value)| (key, value.into()));
            metadata.insert("annotations".to_owned(), Value::Object(annotations.collect()));
        }
        let (api_version, kind) = (API_VERSION.to_owned(), "MachineConfig".to_owned());
        Self { api_version, kind, metadata, spec }
    }

    /// Returns `true` if both have the same metadata.
    #[must_use]
    pub fn same_metadata(&self, other: &Self) -> bool {
        self.metadata == other.metadata
    }

    /// Labels, `None` if there are none.
    #[must_use]
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.metadata.get("labels")?.as_object()
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }

    /// JSON text of the Ignition config, `None` if there is none.
    #[must_use]
    pub fn ignition(&self) -> Option<&str> {
        self.spec.config.as_deref().map(RawValue::get)
    }
}

impl Serialize for MachineConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.kind.is_empty() {
            map.serialize_entry("kind", &self.kind)?;
        }
        if !self.api_version.is_empty() {
            map.serialize_entry("apiVersion", &self.api_version)?;
        }
        map.serialize_entry("metadata", &self.metadata)?;
        map.serialize_entry("spec", &self.spec)?;
        map.end()
    }
}

impl Serialize for MachineConfigSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("osImageURL", &self.os_image_url)?;
        map.serialize_entry(
            "baseOSExtensionsContainerImage",
            &self.base_os_extensions_container_image,
        )?;
        map.serialize_entry("config", &self.config)?;
        map.serialize_entry("kernelArguments", &self.kernel_arguments)?;
        map.serialize_entry("extensions", &self.extensions)?;
        map.serialize_entry("fips", &self.fips)?;
        map.serialize_entry("kernelType", &self.kernel_type)?;
        map.end()
    }
}
