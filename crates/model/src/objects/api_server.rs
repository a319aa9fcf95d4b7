//! The object `APIServer cluster`, with the cluster's TLS profile.

use serde::Deserialize;

use super::metadata::null_as_default;

/// Configuration of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiServer {
    #[serde(default, deserialize_with = "null_as_default")]
    spec: Spec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Spec {
    #[serde(default, rename = "tlsSecurityProfile")]
    tls_security_profile: Option<TlsProfile>,
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
    #[serde(default)]
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

impl ApiServer {
    /// The chosen profile, `None` for the default.
    #[must_use]
    pub fn tls_profile(&self) -> Option<&TlsProfile> {
        self.spec.tls_security_profile.as_ref()
    }
}
