//! Objects that describe the cluster rather than one pool: CAs, TLS profile, kubeconfig, ConfigMaps and Secrets.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::metadata::{Metadata, Resource, null_as_default};

/// The object `ControllerConfig machine-config-controller`, with values for all pools.
pub type ControllerConfig = Resource<ControllerConfigSpec, IgnoredAny, ControllerConfigMetadata>;

/// Metadata of a ControllerConfig. Of its annotations, only one that is read counts: another one that changes must not
/// have all pools rendered again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ControllerConfigMetadata {
    #[serde(deserialize_with = "null_as_default")]
    annotations: ReleaseAnnotation,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ReleaseAnnotation {
    /// Text, or anything else in a manifest that no API server has checked.
    #[serde(rename = "machineconfiguration.openshift.io/release-image-version")]
    release: Value,
}

impl ControllerConfigMetadata {
    /// Release of OpenShift whose operator wrote the object, such as 4.22.3; `None` if it is not known.
    pub fn release(&self) -> Option<&str> {
        self.annotations.release.as_str()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ControllerConfigSpec {
    /// CA in PEM by which kubelet verifies clients of the API server; empty if it is not set.
    #[serde(rename = "kubeAPIServerServingCAData", deserialize_with = "base64_bytes")]
    pub(crate) kube_api_server_serving_ca: Vec<u8>,
    /// CA in PEM of the cloud's API; empty if it is not set.
    #[serde(rename = "cloudProviderCAData", deserialize_with = "base64_bytes")]
    pub(crate) cloud_provider_ca: Vec<u8>,
    /// Pull spec of the operating system's image for pools without one in a MachineConfig; empty if it is not set.
    #[serde(rename = "baseOSContainerImage", deserialize_with = "null_as_default")]
    pub(crate) base_os_image: String,
    /// Image with extensions for pools without one in a MachineConfig.
    #[serde(rename = "baseOSExtensionsContainerImage", deserialize_with = "null_as_default")]
    pub(crate) base_os_extensions_image: String,
}

/// The object `Image cluster`, with settings for image registries.
pub type ImageConfig = Resource<ImageConfigSpec, IgnoredAny, IgnoredAny>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfigSpec {
    /// The administrator's ConfigMap of registry CAs, with an empty name if there is none.
    #[serde(default, rename = "additionalTrustedCA", deserialize_with = "null_as_default")]
    pub additional_trusted_ca: Metadata,
}

/// The object `APIServer cluster`, with the cluster's TLS profile.
pub type ApiServer = Resource<ApiServerSpec, IgnoredAny, IgnoredAny>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// The chosen profile, `None` for the default.
    pub tls_security_profile: Option<TlsProfile>,
}

/// A TLS profile: a named or a custom one.
///
/// The names are those of Mozilla's recommendations, which OpenShift's profiles follow.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TlsProfile {
    /// Value `Old`, `Intermediate`, `Modern` or `Custom`; empty is `Intermediate`.
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    pub kind: String,
    /// Settings of a `Custom` profile.
    pub custom: Option<CustomTlsProfile>,
}

/// Settings of a `Custom` profile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CustomTlsProfile {
    /// Cipher suites by their OpenSSL names.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ciphers: Vec<String>,
    /// Minimum version, `VersionTLS10` to `VersionTLS13`.
    #[serde(default, rename = "minTLSVersion", deserialize_with = "null_as_default")]
    pub min_tls_version: String,
}

/// The kind `v1 ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ConfigMap {
    /// Name and namespace.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    data: BTreeMap<String, String>,
    #[serde(default, rename = "binaryData", deserialize_with = "null_as_default")]
    binary_data: BTreeMap<String, Base64>,
}

impl ConfigMap {
    /// Creates a ConfigMap with these texts and bytes.
    pub fn new(
        metadata: Metadata,
        data: BTreeMap<String, String>,
        binary_data: BTreeMap<String, Vec<u8>>,
    ) -> Self {
        let binary_data = binary_data.into_iter().map(|(key, value)| (key, Base64(value)));
        Self { metadata, data, binary_data: binary_data.collect() }
    }

    /// All entries, text and binary, sorted by key. The API server refuses a key that is in both; in a file the binary
    /// one wins, as with the reference.
    pub fn entries(&self) -> BTreeMap<&str, &[u8]> {
        let text = self.data.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        let binary = self.binary_data.iter().map(|(key, value)| (key.as_str(), &value.0[..]));
        text.chain(binary).collect()
    }

    /// Value of a key in `binaryData`.
    pub fn binary(&self, key: &str) -> Option<&[u8]> {
        self.binary_data.get(key).map(|value| &value.0[..])
    }
}

/// The kind `v1 Secret`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret {
    /// Name and namespace.
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    data: BTreeMap<String, Base64>,
    #[serde(default, rename = "stringData", deserialize_with = "null_as_default")]
    string_data: BTreeMap<String, String>,
}

impl Secret {
    /// Creates a Secret with these values.
    pub fn new(metadata: Metadata, data: BTreeMap<String, Vec<u8>>) -> Self {
        let data = data.into_iter().map(|(key, value)| (key, Base64(value))).collect();
        Self { metadata, data, string_data: BTreeMap::new() }
    }

    /// Value of a key. In a file `stringData` wins, as in the API server.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        let text = self.string_data.get(key).map(String::as_bytes);
        text.or_else(|| self.data.get(key).map(|value| &value.0[..]))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// A kubeconfig, `v1 Config`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Kubeconfig(Value);

impl Kubeconfig {
    /// The kubeconfig as JSON, which is valid YAML.
    pub fn to_json(&self) -> String {
        self.0.to_string()
    }

    /// Returns `true` if it has a list of this name, with an item.
    pub fn has_list(&self, name: &str) -> bool {
        self.0[name].as_array().is_some_and(|list| !list.is_empty())
    }
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kubeconfig(..)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        base64_bytes(deserializer).map(Self)
    }
}

/// Decodes base64; null is empty. Line breaks are allowed, as in Go's decoder.
fn base64_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let mut text: String = null_as_default(deserializer)?;
    text.retain(|c| c != '\n' && c != '\r');
    BASE64.decode(text).map_err(|error| serde::de::Error::custom(format!("base64: {error}")))
}
