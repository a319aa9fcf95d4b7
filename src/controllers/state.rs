//! The cluster's objects as the plan sees them, and the objects that its steps come to. Nothing
//! here does I/O.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::infrastructure::Infrastructure;
use crate::ignition::{SpecVersion, pointer};
use crate::pki::{
    Asked, Certificate, CertificateState, Host, Pointer, PointerState, Policy, StoredPair,
};
use crate::user_data::{self, Assessment, LeftAlone};

/// The namespace of the certificates.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The secret of the signing authority, and the config map of the bundle.
pub const AUTHORITY: &str = "machine-config-server-ca";
/// The secret of the serving pair.
pub const SERVING: &str = "machine-config-server-tls";
/// A copy of the serving pair while its secret is made anew with another type.
pub(super) const SERVING_COPY: &str = "machine-config-server-tls-retype";
/// The type that the serving pair's secret has to have.
pub(super) const TLS_TYPE: &str = "kubernetes.io/tls";
/// Where older installations have their authority's certificate, without its key.
pub(super) const ROOT_NAMESPACE: &str = "kube-system";
/// The config map of that.
pub(super) const ROOT: &str = "root-ca";
/// The key of a secret with user data.
pub(super) const USER_DATA: &str = "userData";
/// The label of user data that is made from the bundle.
pub(super) const MANAGED: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
/// The annotation by which an administrator asks for a rotation: any new value.
pub const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";
/// The value that was done last.
const ROTATED: &str = "machineconfiguration.openshift.io/rotate-certificate-handled";
/// Where the authority's previous CAs are, beside `tls.crt` and `tls.key`.
const PREVIOUS: &str = "lineage.pem";

const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
const ISSUER: &str = "auth.openshift.io/certificate-issuer";
const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
const REFRESH: &str = "certificates.openshift.io/refresh-period";

/// The oldest spec that can name a CA and a config to merge, so that old boot images read it.
const POINTER_SPEC: SpecVersion = SpecVersion::V3_1;
const PORT: u16 = 22623;

/// A pool, as the owner of its user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
}

/// The objects, as they were read last.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Secret [`AUTHORITY`].
    pub authority: Option<Secret>,
    /// Config map [`AUTHORITY`].
    pub bundle: Option<ConfigMap>,
    /// Secret [`SERVING`].
    pub serving: Option<Secret>,
    /// Secret [`SERVING_COPY`].
    pub serving_copy: Option<Secret>,
    /// Config map [`ROOT`].
    pub root: Option<ConfigMap>,
    /// The way to the server.
    pub infrastructure: Infrastructure,
    /// Secrets with user data, by name.
    pub user_data: BTreeMap<String, Secret>,
    /// The pools.
    pub pools: Vec<Pool>,
    /// Names given by flags.
    pub hosts: Vec<Host>,
}

/// What has to be done about one secret with user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserData {
    /// Nothing.
    Fine,
    /// It is left alone.
    LeftAlone(LeftAlone),
    /// It is to have this text.
    Write(Vec<u8>),
}

impl State {
    /// What the plan depends on. `refused` are secrets whose writing failed a moment ago.
    #[must_use]
    pub fn observed(&self, refused: &BTreeSet<String>) -> CertificateState {
        let pointers = self.user_data_duties().into_iter().map(|(name, duty)| {
            let state = match duty {
                UserData::Write(_) if refused.contains(&name) => PointerState::Refused,
                UserData::Write(text) => PointerState::Stale(text),
                UserData::Fine | UserData::LeftAlone(_) => PointerState::Settled,
            };
            let secret = self.user_data.get(&name);
            let hosts = secret.map(|secret| user_data::hosts(data(secret, USER_DATA)));
            Pointer { name, state, hosts: hosts.unwrap_or_default() }
        });
        let mut hosts = self.infrastructure.hosts.clone();
        hosts.extend(self.hosts.iter().filter(|h| !self.infrastructure.hosts.contains(h)).cloned());
        CertificateState {
            authority: self.authority.as_ref().map(stored_pair),
            bundle: self.bundle.as_ref().map(|map| map_text(map, "ca-bundle.crt")),
            serving: self.serving.as_ref().map(stored_pair),
            root_authority: self.root.as_ref().map(|map| map_text(map, "ca.crt")),
            pointers: pointers.collect(),
            hosts,
            asked: Asked {
                authority: self.authority.as_ref().is_some_and(is_asked),
                serving: self.serving.as_ref().is_some_and(is_asked),
            },
        }
    }

    /// The bundle's authorities.
    #[must_use]
    pub fn trusted(&self) -> Vec<Certificate> {
        let text = self.bundle.as_ref().map(|map| map_text(map, "ca-bundle.crt"));
        Certificate::read_all(&text.unwrap_or_default())
    }

    /// For each pointer config that names authorities, the newest of them, by its name.
    #[must_use]
    pub fn newest_trusted(&self) -> Vec<String> {
        let newest = |secret: &Secret| {
            let trusted = user_data::authorities(data(secret, USER_DATA));
            let newest = trusted.into_iter().max_by_key(|authority| authority.not_before);
            newest.map(|authority| authority.common_name)
        };
        self.user_data.values().filter_map(newest).collect()
    }

    fn known(&self) -> Vec<Certificate> {
        let text = self.root.as_ref().map(|map| map_text(map, "ca.crt"));
        Certificate::read_all(&text.unwrap_or_default())
    }

    /// What has to be done about each secret with user data, those that are missing included.
    #[must_use]
    pub fn user_data_duties(&self) -> BTreeMap<String, UserData> {
        let mut duties = BTreeMap::new();
        let trusted = self.trusted();
        let secrets = &self.user_data;
        if trusted.is_empty() {
            return duties;
        }
        let known = self.known();
        for (name, secret) in secrets.iter().filter(|(name, _)| name.ends_with("-user-data")) {
            if is_managed(secret) {
                continue;
            }
            let duty = match user_data::assess(data(secret, USER_DATA), &trusted, &known) {
                Assessment::Current => UserData::Fine,
                Assessment::LeftAlone(reason) => UserData::LeftAlone(reason),
                Assessment::Stale(text) => UserData::Write(text),
            };
            duties.insert(name.clone(), duty);
        }
        let host = self.infrastructure.pointer_host.as_ref().or(self.hosts.first());
        for pool in &self.pools {
            let name = managed_name(&pool.name);
            let url = host.map(|host| format!("https://{host}:{PORT}/config/{}", pool.name));
            let present = secrets.get(&name).map(|s| data(s, USER_DATA)).unwrap_or_default();
            // Where no name is known here, the one that it has will be right.
            let is_there = match &url {
                Some(url) => user_data::fetches(present, url),
                None => !present.is_empty(),
            };
            let duty = match (is_there, user_data::assess(present, &trusted, &known), url) {
                (true, Assessment::Current, _) => UserData::Fine,
                (true, Assessment::Stale(text), _) => UserData::Write(text),
                (_, _, Some(url)) => UserData::Write(self.pointer(&url)),
                (_, Assessment::LeftAlone(reason), None) if is_there => UserData::LeftAlone(reason),
                (_, _, None) => continue,
            };
            duties.insert(name, duty);
        }
        duties
    }

    fn pointer(&self, url: &str) -> Vec<u8> {
        let pem: String = self.trusted().iter().map(Certificate::to_pem).collect();
        pointer(url, pem.as_bytes(), POINTER_SPEC).to_string().into_bytes()
    }

    /// The pool that a managed secret belongs to.
    #[must_use]
    pub fn owner(&self, secret: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| managed_name(&pool.name) == secret)
    }

    /// The authority's secret with a new pair, as a patch or as a whole.
    #[must_use]
    pub fn authority_secret(&self, pair: &StoredPair, policy: &Policy) -> Value {
        let mut object = secret_of(
            AUTHORITY,
            self.authority.as_ref(),
            pair,
            policy,
            "CA used to sign the MachineConfigServer TLS certificate",
        );
        object["data"][PREVIOUS] = base64(&pair.previous);
        object
    }

    /// The serving pair's secret with a new pair, as a patch or as a whole.
    #[must_use]
    pub fn serving_secret(&self, pair: &StoredPair, policy: &Policy) -> Value {
        secret_of(
            SERVING,
            self.serving.as_ref(),
            pair,
            policy,
            "Secret containing the MachineConfigServer TLS certificate and key",
        )
    }

    /// The bundle's config map, as a patch or as a whole.
    #[must_use]
    pub fn bundle_map(&self, pem: &str) -> Value {
        let version = self.bundle.as_ref().and_then(|map| map.metadata.resource_version.clone());
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": AUTHORITY,
                "resourceVersion": version,
                "annotations": owner_annotations(
                    "CA bundle that stores all valid CAs for the MachineConfigServer TLS certificate",
                ),
            },
            "data": {"ca-bundle.crt": pem},
        })
    }

    /// A secret with user data, as a patch or as a whole.
    #[must_use]
    pub fn user_data_secret(&self, name: &str, text: &[u8]) -> Value {
        let present = self.user_data.get(name);
        if let Some(secret) = present {
            return json!({
                "metadata": {"resourceVersion": secret.metadata.resource_version},
                "data": {USER_DATA: base64(text)},
            });
        }
        let owners: Vec<Value> = self
            .owner(name)
            .into_iter()
            .map(|pool| {
                json!({
                    "apiVersion": "machineconfiguration.openshift.io/v1",
                    "kind": "MachineConfigPool",
                    "name": pool.name,
                    "uid": pool.uid,
                })
            })
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {MANAGED: ""}, "ownerReferences": owners},
            "type": "Opaque",
            "data": {"disableTemplating": base64(b"true\n"), USER_DATA: base64(text)},
        })
    }

    /// Whether the serving pair's secret has another type than it needs. A type cannot be changed.
    #[must_use]
    pub fn needs_retyping(&self) -> bool {
        self.serving.as_ref().is_some_and(|secret| secret.type_.as_deref() != Some(TLS_TYPE))
    }
}

/// A copy of a serving pair's secret under another name, with the right type.
#[must_use]
pub(super) fn copy_of(secret: &Secret, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": secret.metadata.labels,
            "annotations": secret.metadata.annotations,
        },
        "type": TLS_TYPE,
        "data": secret.data,
    })
}

/// Whether a secret has what the type for serving pairs demands.
pub(super) fn holds_pair(secret: &Secret) -> bool {
    let has = |key| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
    has("tls.crt") && has("tls.key")
}

fn managed_name(pool: &str) -> String {
    format!("{pool}-user-data-managed")
}

fn is_managed(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED))
}

fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether an administrator asked for a rotation: by a new value of one annotation, or by removing
/// the date of expiry from a secret that was made with it.
fn is_asked(secret: &Secret) -> bool {
    let by_value = annotation(secret, ROTATE) != annotation(secret, ROTATED)
        && annotation(secret, ROTATE).is_some();
    let was_dated =
        [NOT_BEFORE, ISSUER, REFRESH].iter().any(|key| annotation(secret, key).is_some());
    by_value || (was_dated && annotation(secret, NOT_AFTER).is_none())
}

fn secret_of(
    name: &str,
    before: Option<&Secret>,
    pair: &StoredPair,
    policy: &Policy,
    description: &str,
) -> Value {
    let mut annotations = owner_annotations(description);
    if let Some(leaf) = Certificate::read_all(&pair.certificates).first() {
        let date = |time: time::OffsetDateTime| time.format(&Rfc3339).unwrap_or_default();
        annotations[NOT_BEFORE] = date(leaf.not_before).into();
        annotations[NOT_AFTER] = date(leaf.not_after).into();
        annotations[ISSUER] = leaf.issuer.clone().into();
        // As Go writes a duration.
        annotations[REFRESH] = format!("{}h0m0s", policy.renewal.whole_hours()).into();
        if !leaf.hosts.is_empty() {
            let hosts: Vec<String> = leaf.hosts.iter().map(bare).collect();
            annotations[HOSTNAMES] = hosts.join(",").into();
        }
    }
    if let Some(asked) = before.and_then(|secret| annotation(secret, ROTATE)) {
        annotations[ROTATED] = asked.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "resourceVersion": before.and_then(|secret| secret.metadata.resource_version.clone()),
            "annotations": annotations,
        },
        "type": TLS_TYPE,
        "data": {"tls.crt": base64(&pair.certificates), "tls.key": base64(&pair.key)},
    })
}

fn owner_annotations(description: &str) -> Value {
    json!({
        "openshift.io/owning-component": "Machine Config Operator",
        "openshift.io/description": description,
    })
}

/// A host as a list has it: an IPv6 address without brackets.
fn bare(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    }
}

fn base64(bytes: &[u8]) -> Value {
    // It serialises as base64, and a string always does.
    serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default()
}

fn data<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |value| &value.0)
}

fn stored_pair(secret: &Secret) -> StoredPair {
    let bytes = |key| data(secret, key).to_vec();
    StoredPair { certificates: bytes("tls.crt"), key: bytes("tls.key"), previous: bytes(PREVIOUS) }
}

fn map_text(map: &ConfigMap, key: &str) -> Vec<u8> {
    let text = map.data.as_ref().and_then(|data| data.get(key));
    text.map(|text| text.clone().into_bytes()).unwrap_or_default()
}
