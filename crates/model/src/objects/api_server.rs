//! `APIServer cluster`: the TLS profile that the cluster's administrators chose.

use serde::Deserialize;

use super::metadata::null_as_default;

/// The API server's configuration.
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

/// A TLS profile: one of the named ones, or a list of one's own.
///
/// The names are those of Mozilla's recommendations, which OpenShift's profiles follow.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TlsProfile {
    /// `Old`, `Intermediate`, `Modern` or `Custom`; empty is `Intermediate`.
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    pub kind: String,
    /// The list of a `Custom` profile.
    #[serde(default)]
    pub custom: Option<CustomTlsProfile>,
}

/// What a `Custom` profile allows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CustomTlsProfile {
    /// Cipher suites by OpenSSL's names.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ciphers: Vec<String>,
    /// `VersionTLS10` to `VersionTLS13`.
    #[serde(default, rename = "minTLSVersion", deserialize_with = "null_as_default")]
    pub min_tls_version: String,
}

impl ApiServer {
    /// The chosen profile, `None` where the default applies.
    #[must_use]
    pub fn tls_profile(&self) -> Option<&TlsProfile> {
        self.spec.tls_security_profile.as_ref()
    }
}
