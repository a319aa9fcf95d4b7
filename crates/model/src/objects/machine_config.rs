//! The kind `MachineConfig`: an Ignition config with settings that Ignition does not apply (kernel arguments, the
//! operating system's image, extensions).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::config_text::ConfigText;
use super::metadata::null_as_default;

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";
const KIND: &str = "MachineConfig";

/// Labels of an object; a value that is no text is `None`.
pub type Labels = BTreeMap<String, Option<String>>;

/// A MachineConfig as returned by the API server.
///
/// Fields are serialized in the reference server's order, so that the copies on machines' disks are alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfig {
    #[serde(default, deserialize_with = "known_text", skip_serializing_if = "str::is_empty")]
    kind: Cow<'static, str>,
    #[serde(default, deserialize_with = "known_text", skip_serializing_if = "str::is_empty")]
    api_version: Cow<'static, str>,
    metadata: MetadataText,
    /// Wanted state of a machine.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineConfigSpec,
}

/// Metadata as JSON text: a directory has twenty thousand of them, and a tree needs ten times as much memory. Only the
/// name is read more than once.
#[derive(Debug, Clone)]
struct MetadataText {
    json: Box<str>,
    name: Arc<str>,
}

impl MetadataText {
    fn new(fields: &Map<String, Value>) -> serde_json::Result<Self> {
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        Ok(Self { json: serde_json::to_string(fields)?.into(), name: name.into() })
    }

    fn fields(&self) -> Map<String, Value> {
        // It was written from such a map.
        serde_json::from_str(&self.json).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for MetadataText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for MetadataText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields().serialize(serializer)
    }
}

/// Reads a text that nearly all objects have without a copy of it for each.
fn known_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let text: String = null_as_default(deserializer)?;
    let known = [KIND, API_VERSION].into_iter().find(|known| *known == text);
    Ok(known.map_or(Cow::Owned(text), Cow::Borrowed))
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
    /// Ignition config, `None` if there is none.
    pub config: Option<ConfigText>,
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
    pub fn new(
        name: &str,
        annotations: &BTreeMap<String, String>,
        spec: MachineConfigSpec,
    ) -> Self {
        let mut metadata = json!({"name": name});
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        let metadata = MetadataText { json: metadata.to_string().into(), name: name.into() };
        let (kind, api_version) = (Cow::Borrowed(KIND), Cow::Borrowed(API_VERSION));
        Self { kind, api_version, metadata, spec }
    }

    /// Returns `true` if both have the same metadata.
    pub fn same_metadata(&self, other: &Self) -> bool {
        self.metadata.json == other.metadata.json
    }

    /// Labels, `None` if there are none. They are read from text each time.
    pub fn labels(&self) -> Option<Labels> {
        let fields = self.metadata.fields();
        let labels = fields.get("labels")?.as_object()?.iter();
        Some(labels.map(|(key, value)| (key.clone(), value.as_str().map(str::to_owned))).collect())
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Name of the object, shared with it.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.metadata.name
    }

    /// Value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<String> {
        Some(self.metadata.fields().get("annotations")?.get(key)?.as_str()?.to_owned())
    }

    /// JSON text of the Ignition config, `None` if there is none.
    pub fn ignition(&self) -> Option<Cow<'_, str>> {
        self.spec.config.as_ref().map(ConfigText::text)
    }

    /// Pools whose configs the Ignition config fetches.
    pub fn fetched_pools(&self) -> &[String] {
        self.spec.config.as_ref().map_or(&[], ConfigText::fetched_pools)
    }
}
