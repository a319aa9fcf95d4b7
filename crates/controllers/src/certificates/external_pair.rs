//! A serving pair that another party keeps in a Secret, with a ConfigMap of its CAs. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubernetes::write::{Malformed, ObjectName, SecretWrite};
use model::objects::SecretName;
use pki::{External, StoredPair};

use super::super::NAMESPACE;
use super::names::{EXTERNAL_PAIR, SERVING};
use super::secret::{annotation, stored_pair};

/// Default Secret of the pair.
const PAIR: &str = "machine-config-server-external-tls";
/// Default key of a bundle, as in OpenShift's ConfigMaps of CAs.
const KEY: &str = "ca-bundle.crt";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServingPair {
    /// This controller issues it.
    Own,
    /// Another party writes it into this Secret.
    External(SecretName),
}

const INVALID_PAIR: &str = "expected own, external or external:NAMESPACE/SECRET";

impl FromStr for ServingPair {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "own" => Ok(Self::Own),
            None if text == "external" => {
                let (namespace, name) = (NAMESPACE.to_owned(), PAIR.to_owned());
                Ok(Self::External(SecretName { namespace, name }))
            }
            Some(("external", secret)) => {
                secret.parse().map(Self::External).map_err(|_| INVALID_PAIR)
            }
            _ => Err(INVALID_PAIR),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    pub map: SecretName,
    pub key: String,
}

const INVALID_BUNDLE: &str = "expected NAMESPACE/CONFIGMAP or NAMESPACE/CONFIGMAP:KEY";

impl FromStr for TrustBundle {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (map, key) = text.split_once(':').unwrap_or((text, KEY));
        let map = map.parse().map_err(|_| INVALID_BUNDLE)?;
        if key.is_empty() {
            return Err(INVALID_BUNDLE);
        }
        Ok(Self { map, key: key.to_owned() })
    }
}

impl fmt::Display for TrustBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map: SecretName { namespace, name }, key } = self;
        write!(f, "ConfigMap {namespace}/{name}, {key}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalPair {
    pub secret: SecretName,
    pub trust: TrustBundle,
}

impl fmt::Display for ExternalPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, trust: TrustBundle { map, key } } = self;
        let [secret, map] = [secret, map].map(|it| format!("{}/{}", it.namespace, it.name));
        write!(f, "{secret} {map}:{key}")
    }
}

impl ExternalPair {
    /// The external pair that the serving pair's Secret names. `None` if the controller issues the pair.
    pub(super) fn noted(serving: &Secret) -> Option<Self> {
        let (secret, trust) = annotation(serving, EXTERNAL_PAIR)?.split_once(' ')?;
        Some(Self { secret: secret.parse().ok()?, trust: trust.parse().ok()? })
    }

    /// The write that names the external pair in the Secret, if it differs.
    pub(super) fn note(
        external: Option<&Self>,
        serving: Option<&Secret>,
    ) -> Result<Option<SecretWrite>, Malformed> {
        let Some(serving) = serving else { return Ok(None) };
        let wanted = external.map(Self::to_string).unwrap_or_default();
        if annotation(serving, EXTERNAL_PAIR).unwrap_or_default() == wanted {
            return Ok(None);
        }
        let object = ObjectName::secret(NAMESPACE, SERVING);
        let annotations = [(EXTERNAL_PAIR.to_owned(), wanted)].into();
        SecretWrite::patch(object, &serving.metadata, annotations, BTreeMap::new()).map(Some)
    }

    pub(super) fn secret(&self) -> ObjectName {
        ObjectName::secret(&self.secret.namespace, &self.secret.name)
    }

    pub(super) fn map(&self) -> ObjectName {
        ObjectName::config_map(&self.trust.map.namespace, &self.trust.map.name)
    }

    /// The pair as input of a plan. If one of the objects is malformed, the present pair stays in use.
    pub(super) fn seen(&self, secret: Option<&Secret>, map: Option<&ConfigMap>) -> External {
        let trust = map.and_then(|map| map.data.as_ref()?.get(&self.trust.key));
        let pair = match trust {
            None => Some(StoredPair::unreadable(format!("{} not found", self.trust))),
            Some(_) => secret.map(stored_pair),
        };
        let trust = trust.map(|text| text.clone().into_bytes()).unwrap_or_default();
        External { name: self.secret().to_string(), pair, trust }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    #[test]
    fn a_pair_and_a_bundle_are_named_by_their_parts() {
        let secret = |text: &str| text.parse::<SecretName>().unwrap();
        let external = |text: &str| Ok(ServingPair::External(secret(text)));
        let named = format!("{NAMESPACE}/{PAIR}");
        for (text, expected) in [
            ("own", Ok(ServingPair::Own)),
            ("external", external(&named)),
            ("external:ns/a", external("ns/a")),
            ("external:", Err(INVALID_PAIR)),
            ("external:a", Err(INVALID_PAIR)),
            ("own:ns/a", Err(INVALID_PAIR)),
            ("", Err(INVALID_PAIR)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        let bundle =
            |map: &str, key: &str| Ok(TrustBundle { map: secret(map), key: key.to_owned() });
        for (text, expected) in [
            ("ns/a", bundle("ns/a", KEY)),
            ("ns/a:root.pem", bundle("ns/a", "root.pem")),
            ("ns/a:", Err(INVALID_BUNDLE)),
            ("a", Err(INVALID_BUNDLE)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }

    #[test]
    fn the_serving_secret_says_whose_pair_it_is() {
        let pair = ExternalPair {
            secret: "a/pair".parse().unwrap(),
            trust: "b/roots:root.pem".parse().unwrap(),
        };
        let serving = |value: Option<&str>| Secret {
            metadata: ObjectMeta {
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                annotations: value.map(|it| [(EXTERNAL_PAIR.to_owned(), it.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        };
        let text = pair.to_string();
        assert_eq!(text, "a/pair b/roots:root.pem");
        for (present, external, is_written) in [
            (None, None, false),
            (None, Some(&pair), true),
            (Some(&text[..]), Some(&pair), false),
            (Some("a/other b/roots:root.pem"), Some(&pair), true),
            (Some(&text), None, true),
            (Some(""), None, false),
        ] {
            let serving = serving(present);
            let write = ExternalPair::note(external, Some(&serving)).unwrap();
            assert_eq!(write.is_some(), is_written, "{present:?} {external:?}");
            let noted = ExternalPair::noted(&serving);
            assert_eq!(noted.as_ref() == external, !is_written, "{present:?}");
        }
        assert!(ExternalPair::note(Some(&pair), None).unwrap().is_none());
        assert_eq!(ExternalPair::noted(&serving(Some("garbage"))), None);
    }
}
