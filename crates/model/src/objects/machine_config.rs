//! `MachineConfig`: an Ignition config with what Ignition itself cannot do (kernel arguments, the
//! operating system's image, extensions).

use std::collections::BTreeMap;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::metadata::null_as_default;

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// A machine config, as the API server gives it out.
///
/// It serialises in the reference server's order of fields, so that the copies of it that a
/// machine finds on its disk read alike.
#[derive(Debug, Clone, Deserialize)]
pub struct MachineConfig {
    #[serde(default, rename = "apiVersion", deserialize_with = "null_as_default")]
    api_version: String,
    #[serde(default, deserialize_with = "null_as_default")]
    kind: String,
    metadata: Map<String, Value>,
    /// What the machine is to be.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineConfigSpec,
}

/// The wanted state of a machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// The operating system's image, a pull spec; empty leaves it alone.
    #[serde(default, rename = "osImageURL", deserialize_with = "null_as_default")]
    pub os_image_url: String,
    /// The image that extensions are installed from.
    #[serde(
        default,
        rename = "baseOSExtensionsContainerImage",
        deserialize_with = "null_as_default"
    )]
    pub base_os_extensions_container_image: String,
    /// The Ignition config as JSON text, `None` where the machine config has none.
    ///
    /// Text and not a tree: a cluster has many rendered configs of 200 KB, and a tree of one takes
    /// several times as much memory.
    #[serde(default)]
    pub config: Option<Box<RawValue>>,
    /// Arguments for the kernel beside those of the Ignition config; null and absent stay apart
    /// from an empty list when the config is written to the machine.
    #[serde(default)]
    pub kernel_arguments: Option<Vec<String>>,
    /// Names of the operating system's extensions.
    #[serde(default)]
    pub extensions: Option<Vec<String>>,
    /// True if the machine is to run in FIPS mode.
    #[serde(default, deserialize_with = "null_as_default")]
    pub fips: bool,
    /// `default`, `realtime` or `64k-pages`; empty is `default`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub kernel_type: String,
}

impl MachineConfig {
    /// A MachineConfig of this name.
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

    /// Returns `true` if both have the same name, labels, annotations and so on.
    #[must_use]
    pub fn same_metadata(&self, other: &Self) -> bool {
        self.metadata == other.metadata
    }

    /// The MachineConfig's labels, `None` where it has no list of them.
    #[must_use]
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.metadata.get("labels")?.as_object()
    }

    /// The machine config's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The value of one of the machine config's annotations.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }

    /// The Ignition config's JSON text, `None` where the machine config has none.
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
