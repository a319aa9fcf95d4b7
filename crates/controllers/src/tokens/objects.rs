//! Parses and builds the objects of tokens. The module does no I/O.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::{Malformed, ObjectName, SecretWrite};
use model::access::rotation::{FetchCredential, Issued, ObservedTokens, PointerToken};
use model::access::{AccessMode, Records};
use model::pointer_config::PointerConfig;
use serde::Serialize;
use serde_json::Value;

use super::super::NAMESPACE;
use crate::certificates::{ClusterState, is_unused, user_data};
use model::access::ACCESS_ANNOTATION;

/// Field manager that renders `*-user-data-managed` in OpenShift, and removes headers from it.
const OPERATOR: &str = "machine-config-operator";

pub(super) struct TokenObjects {
    /// Objects of the certificates, with all user data.
    pub(super) cluster: ClusterState,
    pub(super) stored: StoredTokens,
    pub(super) pools: BTreeMap<String, AccessMode>,
}

impl TokenObjects {
    /// Input of a plan. `waiting` are Secrets whose last write failed, with the reason if the API server refused it for
    /// good.
    pub(super) fn state(
        &self,
        waiting: &BTreeMap<String, Option<String>>,
    ) -> Result<ObservedTokens, Malformed> {
        let trusted = self.cluster.trusted()?;
        let known = self.cluster.known()?;
        let namespace = &self.cluster.user_data_namespace;
        let mut pointers = Vec::new();
        let secrets = self.cluster.user_data.iter().filter(|(_, secret)| !is_unused(secret));
        for (name, secret) in secrets {
            let title = format!("{namespace}/{name}");
            let may_be_lifted = self.cluster.owner(name).is_some();
            let config = PointerConfig::read(user_data(secret));
            let seen = config.embedded_tokens(&title, &trusted, &known, may_be_lifted);
            let waits = waiting.get(name);
            pointers.extend(seen.into_iter().map(|pointer| PointerToken {
                credential: unless_refused(waits, unless_operators(secret, pointer.credential)),
                waits: waits.is_some(),
                ..pointer
            }));
        }
        let StoredTokens { issued, records, .. } = self.stored.clone();
        Ok(ObservedTokens { issued, records, pointers, pools: self.pools.clone() })
    }

    /// Returns true if nothing must be managed: access is off everywhere, and servers know that.
    pub(super) fn is_off(&self) -> bool {
        let StoredTokens { issued, records, .. } = &self.stored;
        let closed =
            [&issued.enforced, &issued.undetermined, &records.enforced, &records.undetermined];
        self.pools.values().all(|mode| *mode == AccessMode::Off)
            && closed.iter().all(|pools| pools.is_empty())
            && records.without_token.is_empty()
    }
}

/// A write that was refused for good cannot be done; another failure means nothing.
fn unless_refused(waits: Option<&Option<String>>, credential: FetchCredential) -> FetchCredential {
    match (credential, waits) {
        (FetchCredential::Nothing, Some(Some(reason))) => FetchCredential::Cannot(reason.clone()),
        (credential, _) => credential,
    }
}

/// A token is not written into user data that OpenShift's operator would write again without it.
fn unless_operators(secret: &Secret, credential: FetchCredential) -> FetchCredential {
    if credential != FetchCredential::Nothing || !is_operators(secret) {
        return credential;
    }
    FetchCredential::Cannot(format!(
        "{OPERATOR} renders it, without headers: give machines custom user data, and annotate this \
            Secret with {ACCESS_ANNOTATION}=off; if that operator does not run, delete this Secret"
    ))
}

/// Returns `true` if OpenShift's operator wrote its user data last.
fn is_operators(secret: &Secret) -> bool {
    let mut entries = secret.metadata.managed_fields.iter().flatten();
    entries.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let has_written = |fields: &Value| fields.pointer("/f:data/f:userData").is_some();
        entry.manager.as_deref() == Some(OPERATOR) && fields.is_some_and(has_written)
    })
}

fn read<T: Default>(
    name: &str,
    key: &str,
    secret: Option<&Secret>,
    parse: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<T, Malformed> {
    let Some(secret) = secret else { return Ok(T::default()) };
    let object = ObjectName::secret(NAMESPACE, name);
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    let json = data.ok_or_else(|| object.malformed(format!("has no key {key}")))?;
    parse(&json.0).map_err(|error| object.malformed(format!("{key}: {error}")))
}

/// Both Secrets of tokens, and their contents.
#[derive(Clone)]
pub(super) struct StoredTokens {
    pub(super) tokens: Option<Secret>,
    pub(super) access: Option<Secret>,
    pub(super) issued: Issued,
    pub(super) records: Records,
}

impl StoredTokens {
    pub(super) fn read(tokens: Option<Secret>, access: Option<Secret>) -> Result<Self, Malformed> {
        let issued = read(Issued::SECRET, Issued::FILE, tokens.as_ref(), Issued::read)?;
        let records = read(Records::SECRET, Records::FILE, access.as_ref(), Records::read)?;
        Ok(Self { tokens, access, issued, records })
    }
}

pub(super) fn issued_write(
    present: Option<&Secret>,
    issued: &Issued,
) -> Result<SecretWrite, Malformed> {
    let description = "Tokens in user data, for the controller of machine-config-server only";
    json_write(Issued::SECRET, Issued::FILE, description, present, issued)
}

pub(super) fn records_write(
    present: Option<&Secret>,
    records: &Records,
) -> Result<SecretWrite, Malformed> {
    let description = "Tokens as machine-config-servers know them: hashes, pools and times";
    json_write(Records::SECRET, Records::FILE, description, present, records)
}

fn json_write(
    name: &str,
    key: &'static str,
    description: &str,
    present: Option<&Secret>,
    value: &impl Serialize,
) -> Result<SecretWrite, Malformed> {
    let object = ObjectName::secret(NAMESPACE, name);
    let json = serde_json::to_vec(value).map_err(|error| object.malformed(error.to_string()))?;
    let annotation = ("openshift.io/description".to_owned(), description.to_owned());
    // An existing Secret keeps its annotations.
    let annotations = present.is_none().then_some(annotation).into_iter().collect();
    SecretWrite::put(object, present, "Opaque", annotations, [(key, Some(ByteString(json)))].into())
}
