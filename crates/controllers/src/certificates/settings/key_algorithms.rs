//! Algorithms of new keys in `pkis.config.openshift.io/cluster`. The module does no I/O.
//!
//! The fields are openshift/api's, `config/v1alpha1/types_pki.go`; the meaning of the modes is openshift/library-go's,
//! `pkg/pki`. Existing keys stay: the object applies to new ones.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use kubernetes::write::{Malformed, ObjectName, expect_mapping};
use model::objects::ObjectKind;
use pki::KeyAlgorithm;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyAlgorithms {
    pub signer: KeyAlgorithm,
    pub serving: KeyAlgorithm,
}

/// Algorithms of OpenShift's best practice, the default of the object.
const DEFAULT: KeyAlgorithms =
    KeyAlgorithms { signer: KeyAlgorithm::P384, serving: KeyAlgorithm::P256 };

#[derive(Deserialize)]
#[serde(tag = "mode")]
enum Management {
    Unmanaged,
    Default,
    Custom { custom: Custom },
}

/// Unknown fields are an error, because they may apply to these certificates.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Custom {
    defaults: Certificates,
    #[serde(default)]
    signer_certificates: Certificates,
    #[serde(default)]
    serving_certificates: Certificates,
    /// No client certificates are issued here.
    #[serde(default, rename = "clientCertificates")]
    _client_certificates: Value,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificates {
    key: Option<Key>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(tag = "algorithm", rename_all = "lowercase", deny_unknown_fields)]
enum Key {
    #[serde(rename = "RSA")]
    Rsa { rsa: Rsa },
    #[serde(rename = "ECDSA")]
    Ecdsa { ecdsa: Ecdsa },
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rsa {
    key_size: u32,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ecdsa {
    curve: Curve,
}

#[derive(Clone, Copy, Deserialize)]
enum Curve {
    P256,
    P384,
    P521,
}

impl KeyAlgorithms {
    pub(crate) fn all(algorithm: KeyAlgorithm) -> Self {
        Self { signer: algorithm, serving: algorithm }
    }

    /// Reads the object, without its metadata. `unmanaged` applies if the object leaves the choice to each component.
    /// Malformed values and unsupported algorithms are an error: no other algorithm replaces a requested one.
    pub(crate) fn read(object: &Value, unmanaged: Self) -> Result<Self, Malformed> {
        const PLACE: &str = "spec.certificateManagement";
        let pki = Self::object();
        expect_mapping(&pki, "spec", &object["spec"])?;
        let management = object["spec"]["certificateManagement"].clone();
        let management: Management = serde_json::from_value(management)
            .map_err(|error| pki.malformed(format!("{PLACE}: {error}")))?;
        let custom = match management {
            Management::Unmanaged => return Ok(unmanaged),
            Management::Default => return Ok(DEFAULT),
            Management::Custom { custom } => custom,
        };
        let algorithm = |of: &str, own: Certificates| {
            let (of, key) = match (own.key, custom.defaults.key) {
                (Some(own), _) => (of, own),
                (None, Some(default)) => ("defaults", default),
                (None, None) => {
                    return Err(pki.malformed(format!("{PLACE}.custom.defaults.key is missing")));
                }
            };
            key.algorithm()
                .map_err(|reason| pki.malformed(format!("{PLACE}.custom.{of}.key: {reason}")))
        };
        Ok(Self {
            signer: algorithm("signerCertificates", custom.signer_certificates)?,
            serving: algorithm("servingCertificates", custom.serving_certificates)?,
        })
    }

    pub(in crate::certificates) fn object() -> ObjectName {
        ObjectName::new(ObjectKind::PKI, "", "cluster")
    }
}

impl Key {
    fn algorithm(self) -> Result<KeyAlgorithm, String> {
        match self {
            Self::Ecdsa { ecdsa: Ecdsa { curve } } => Ok(match curve {
                Curve::P256 => KeyAlgorithm::P256,
                Curve::P384 => KeyAlgorithm::P384,
                Curve::P521 => KeyAlgorithm::P521,
            }),
            Self::Rsa { rsa: Rsa { key_size } } => match key_size {
                2048 => Ok(KeyAlgorithm::Rsa2048),
                3072 => Ok(KeyAlgorithm::Rsa3072),
                4096 => Ok(KeyAlgorithm::Rsa4096),
                bits => Err(format!("cannot make RSA keys of {bits} bits")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(management: &Value) -> Result<KeyAlgorithms, String> {
        let object = json!({"spec": {"certificateManagement": management}});
        let unmanaged = KeyAlgorithms::all(KeyAlgorithm::Rsa2048);
        KeyAlgorithms::read(&object, unmanaged).map_err(|error| error.to_string())
    }

    fn rsa(bits: u32) -> Value {
        json!({"key": {"algorithm": "RSA", "rsa": {"keySize": bits}}})
    }

    fn ecdsa(curve: &str) -> Value {
        json!({"key": {"algorithm": "ECDSA", "ecdsa": {"curve": curve}}})
    }

    #[test]
    fn each_mode_and_override_has_its_algorithms() {
        use KeyAlgorithm::{P256, P384, P521, Rsa2048, Rsa3072, Rsa4096};
        let custom = |custom: Value| json!({"mode": "Custom", "custom": custom});
        let cases = [
            (json!({"mode": "Unmanaged"}), Rsa2048, Rsa2048),
            (json!({"mode": "Default"}), P384, P256),
            (custom(json!({"defaults": ecdsa("P256")})), P256, P256),
            (custom(json!({"defaults": ecdsa("P384")})), P384, P384),
            (custom(json!({"defaults": ecdsa("P521")})), P521, P521),
            (custom(json!({"defaults": rsa(2048)})), Rsa2048, Rsa2048),
            (custom(json!({"defaults": rsa(3072)})), Rsa3072, Rsa3072),
            (
                custom(json!({"defaults": rsa(3072), "signerCertificates": rsa(4096)})),
                Rsa4096,
                Rsa3072,
            ),
            (
                custom(json!({"defaults": rsa(4096), "servingCertificates": ecdsa("P256")})),
                Rsa4096,
                P256,
            ),
            // An unused algorithm can be unsupported.
            (
                custom(json!({
                    "defaults": rsa(8192), "signerCertificates": ecdsa("P384"),
                    "servingCertificates": ecdsa("P256"), "clientCertificates": rsa(8192),
                })),
                P384,
                P256,
            ),
            (custom(json!({"defaults": ecdsa("P256"), "signerCertificates": {}})), P256, P256),
        ];
        for (management, signer, serving) in cases {
            assert_eq!(read(&management), Ok(KeyAlgorithms { signer, serving }), "{management}");
        }
    }

    #[test]
    fn what_is_not_understood_or_cannot_be_made_is_an_error() {
        let custom = |custom: Value| json!({"mode": "Custom", "custom": custom});
        let key = |key: Value| custom(json!({"defaults": {"key": key}}));
        for (management, reason) in [
            (json!(null), "invalid type: null"),
            (json!("Default"), "invalid type: string"),
            (json!({}), "missing field `mode`"),
            (json!({"mode": "Strict"}), "unknown variant `Strict`"),
            (json!({"mode": "Custom"}), "missing field `custom`"),
            (custom(json!({})), "missing field `defaults`"),
            (custom(json!({"defaults": {}})), "custom.defaults.key is missing"),
            (
                custom(json!({"defaults": ecdsa("P256"), "overrides": []})),
                "unknown field `overrides`",
            ),
            (key(json!({"algorithm": "Ed25519"})), "unknown variant `Ed25519`"),
            (key(json!({"algorithm": "RSA"})), "missing field `rsa`"),
            (key(json!({"algorithm": "RSA", "rsa": {"keySize": "2048"}})), "invalid type: string"),
            (
                key(json!({"algorithm": "ECDSA", "ecdsa": {"curve": "P224"}})),
                "unknown variant `P224`",
            ),
            (
                custom(json!({"defaults": rsa(8192)})),
                "custom.defaults.key: cannot make RSA keys of 8192 bits",
            ),
            (
                custom(json!({"defaults": rsa(2048), "signerCertificates": rsa(1024)})),
                "custom.signerCertificates.key: cannot make RSA keys of 1024 bits",
            ),
            (
                custom(json!({"defaults": rsa(2048), "servingCertificates": rsa(5120)})),
                "custom.servingCertificates.key: cannot make RSA keys of 5120 bits",
            ),
        ] {
            let error = read(&management).unwrap_err();
            assert!(error.starts_with("PKI cluster: spec.certificateManagement"), "{error}");
            assert!(error.contains(reason), "{management}: {error}");
        }
        let unmanaged = KeyAlgorithms::all(KeyAlgorithm::P256);
        assert!(KeyAlgorithms::read(&json!({"spec": []}), unmanaged).is_err());
        assert!(KeyAlgorithms::read(&json!({}), unmanaged).is_err());
    }
}
