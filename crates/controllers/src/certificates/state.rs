//! The cluster's objects as they were read, and the input of a plan derived from them. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::{Malformed, ObjectName};
use model::pointer_config::{Assessment, PointerConfig};
use pki::{
    Certificate, CertificateState, External, Host, KeyAlgorithm, PointerState, RotationRequest,
    StoredPair,
};
use serde_json::Value;

use super::names::{
    BUNDLE_KEY, DISTRUST, FORCE, FORCED, HOSTNAMES, ISSUER, NOT_AFTER, NOT_BEFORE, REFRESH,
    ROOT_KEY, ROTATE, ROTATED, USER_DATA,
};
use super::requests::ca::CaRequest;
use super::secret::{annotation, is_unused, stored_pair, value};
use super::settings::infrastructure::Infrastructure;
use super::settings::key_algorithms::KeyAlgorithms;
use crate::NAMESPACE;

/// Prefix of the names of user data that single machines have.
pub(super) const OF_MACHINES: &str = "machines/";

/// A pool that owns user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub uid: String,
    /// Value of its access annotation.
    pub access: Option<String>,
}

/// The objects as last read.
#[derive(Clone, Default)]
pub struct ClusterState {
    /// Secret of the signing CA.
    pub ca: Option<Secret>,
    pub bundle: Option<ConfigMap>,
    pub serving: Option<Secret>,
    /// Copy of the serving pair, while its Secret is replaced by one of another type.
    pub serving_copy: Option<Secret>,
    /// ConfigMap with the CA of an older installation.
    pub root: Option<ConfigMap>,
    pub infrastructure: Infrastructure,
    /// Secrets with user data, by name. Those of machines with names are in the controller's namespace, and have
    /// [`OF_MACHINES`] before it.
    pub user_data: BTreeMap<String, Secret>,
    pub user_data_namespace: String,
    /// True if the cluster has an internal release image.
    pub has_release_image: bool,
    pub release_image_pair: Option<Secret>,
    /// The object PKI without its metadata.
    pub pki: Option<Value>,
    /// All pools. Each has user data.
    pub pools: Vec<Pool>,
    /// Hosts given by flags.
    pub hosts: Vec<Host>,
    /// External pair; nothing is issued if it is set.
    pub external: Option<External>,
    /// Request for a CA, unless the CA is self-signed.
    pub ca_request: Option<CaRequest>,
}

impl ClusterState {
    /// Input of a plan. `assessments` are those of user data, and `refused` are Secrets whose last write failed.
    pub fn certificates(
        &self,
        assessments: &BTreeMap<String, Assessment>,
        refused: &BTreeSet<String>,
    ) -> Result<CertificateState, Malformed> {
        // Secrets without an assessment too: they may be the only evidence of the CAs that machines trust.
        let names: BTreeSet<&String> = self.user_data.keys().chain(assessments.keys()).collect();
        let pools = self.pools.iter().map(|pool| pool.name.clone()).collect();
        let pointers = names.into_iter().map(|name| {
            let secret = self.user_data.get(name);
            let config = PointerConfig::read(secret.map(user_data).unwrap_or_default());
            let title = self.user_data_title(name);
            let assessment = assessments.get(name).cloned().unwrap_or(Assessment::Current);
            let is_refused = refused.contains(name) && matches!(assessment, Assessment::Stale(_));
            let mut pointer = config.trust(name, &title, assessment);
            if is_refused {
                pointer.state = PointerState::Refused;
            }
            if secret.is_some_and(|secret| is_judged(name, secret, &config, &pools)) {
                pointer.faults = config.lockouts(&title, &pools);
            }
            pointer
        });
        let mut hosts = self.infrastructure.hosts.clone();
        hosts.extend(self.hosts.iter().filter(|h| !self.infrastructure.hosts.contains(h)).cloned());
        Ok(CertificateState {
            ca: self.ca.as_ref().map(stored_pair),
            bundle: self.bundle_pem()?.map(Into::into),
            serving: self.serving.as_ref().map(stored_pair),
            root_ca: self.root_pem()?.map(Into::into),
            pointers: pointers.collect(),
            hosts,
            are_hosts_used: true,
            external: self.external.clone(),
            issuer: self.ca_request.as_ref().map(|it| it.seen(self.ca.as_ref())),
            // The reference's controller sorts the bundle by bytes.
            is_shared: true,
            requested: RotationRequest {
                ca: self.ca.as_ref().is_some_and(is_rotation_requested),
                serving: self.serving.as_ref().is_some_and(is_rotation_requested),
                force: self.is_forced(),
                distrust: self.ca.as_ref().map(to_distrust).unwrap_or_default(),
            },
        })
    }

    /// Returns `true` if the present request is forced, or follows from a forced CA.
    fn is_forced(&self) -> bool {
        let secrets = [&self.ca, &self.serving].into_iter().flatten();
        let forced_over = self.ca.as_ref().and_then(|secret| annotation(secret, FORCED));
        secrets.into_iter().any(requests_force)
            || forced_over.is_some() && forced_over == self.serving_digest().as_deref()
    }

    /// Annotated names of the serving certificate.
    pub fn serving_names(&self) -> Option<&str> {
        annotation(self.serving.as_ref()?, HOSTNAMES)
    }

    /// The SHA-256 of the serving certificate.
    pub(super) fn serving_digest(&self) -> Option<String> {
        Some(stored_pair(self.serving.as_ref()?).leaf()?.fingerprint())
    }

    /// Name of a Secret with user data in messages.
    pub fn user_data_title(&self, name: &str) -> String {
        self.user_data_object(name).to_string()
    }

    pub(crate) fn user_data_object(&self, name: &str) -> ObjectName {
        match name.strip_prefix(OF_MACHINES) {
            Some(name) => ObjectName::secret(NAMESPACE, name),
            None => ObjectName::secret(&self.user_data_namespace, name),
        }
    }

    /// Returns `true` for the name of user data that a single machine has.
    pub fn is_of_machine(name: &str) -> bool {
        name.starts_with(OF_MACHINES)
    }

    /// CAs of the bundle.
    pub fn trusted(&self) -> Result<Vec<Certificate>, Malformed> {
        Ok(Certificate::read_all(self.bundle_pem()?.unwrap_or_default().as_bytes()))
    }

    /// CAs that are or were the machine config server's, in the bundle or not.
    pub fn known(&self) -> Result<Vec<Certificate>, Malformed> {
        let mut known = Certificate::read_all(self.root_pem()?.unwrap_or_default().as_bytes());
        let stored = self.ca.as_ref().map(stored_pair);
        known.extend(stored.iter().flat_map(StoredPair::cas));
        Ok(known)
    }

    /// Algorithms of new keys, `unmanaged` if no object specifies them.
    pub(crate) fn key_algorithms(
        &self,
        unmanaged: KeyAlgorithm,
    ) -> Result<KeyAlgorithms, Malformed> {
        let unmanaged = KeyAlgorithms::all(unmanaged);
        self.pki.as_ref().map_or(Ok(unmanaged), |pki| KeyAlgorithms::read(pki, unmanaged))
    }

    /// Subject of the newest CA in each pointer config that has CAs.
    pub fn newest_trusted(&self) -> Vec<String> {
        let newest = |secret: &Secret| {
            let trusted = PointerConfig::read(user_data(secret)).trusted();
            let newest = trusted.into_iter().max_by_key(|ca| ca.not_before);
            newest.map(|ca| ca.common_name)
        };
        self.user_data.values().filter_map(newest).collect()
    }

    fn bundle_pem(&self) -> Result<Option<&str>, Malformed> {
        self.bundle.as_ref().map(|map| text(map, BUNDLE_KEY)).transpose()
    }

    fn root_pem(&self) -> Result<Option<&str>, Malformed> {
        self.root.as_ref().map(|map| text(map, ROOT_KEY)).transpose()
    }
}

/// A text of a ConfigMap. A missing key is an error, not an empty text.
fn text<'a>(map: &'a ConfigMap, key: &str) -> Result<&'a str, Malformed> {
    let ObjectMeta { namespace, name, .. } = &map.metadata;
    let text = map.data.as_ref().and_then(|data| data.get(key));
    text.map(String::as_str).ok_or_else(|| {
        let (namespace, name) = (namespace.as_deref(), name.as_deref());
        ObjectName::config_map(namespace.unwrap_or_default(), name.unwrap_or_default())
            .malformed(format!("has no key {key}"))
    })
}

/// User data of a Secret, empty if it has none.
pub fn user_data(secret: &Secret) -> &[u8] {
    value(secret, USER_DATA).unwrap_or_default()
}

/// Returns `true` if a fault of a Secret with user data keeps machines from booting: it belongs to a pool, or fetches a
/// pool's config. Other tools have user data too.
fn is_judged(
    name: &str,
    secret: &Secret,
    config: &PointerConfig<'_>,
    pools: &BTreeSet<String>,
) -> bool {
    let pool = name.trim_end_matches("-managed").trim_end_matches("-user-data");
    let is_pointer =
        pools.contains(pool) || !config.written_fetches().is_empty() || !config.hosts().is_empty();
    is_pointer && !is_unused(secret)
}

/// Returns `true` if a forced rotation is requested and not done.
pub(super) fn requests_force(secret: &Secret) -> bool {
    let value = annotation(secret, ROTATE).unwrap_or_default();
    is_requested_by_value(secret) && value.split_whitespace().any(|word| word == FORCE)
}

pub(super) fn to_distrust(secret: &Secret) -> Vec<String> {
    let listed = annotation(secret, DISTRUST).unwrap_or_default();
    let named = listed.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    named.map(str::to_owned).collect()
}

/// Returns `true` if an administrator requested a rotation: by a new value of an annotation, or by removing the
/// annotated expiry.
fn is_rotation_requested(secret: &Secret) -> bool {
    is_requested_by_value(secret) || is_requested_by_removal(secret)
}

pub(super) fn is_requested_by_removal(secret: &Secret) -> bool {
    let was_dated =
        [NOT_BEFORE, ISSUER, REFRESH].iter().any(|key| annotation(secret, key).is_some());
    was_dated && annotation(secret, NOT_AFTER).is_none()
}

fn is_requested_by_value(secret: &Secret) -> bool {
    let value = annotation(secret, ROTATE);
    value.is_some() && value != annotation(secret, ROTATED)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use model::pointer_config::LeftAlone;
    use pki::RepairedPointer;
    use pki::issue::issue_ca;

    use super::*;

    fn secret(annotations: &[(&str, &str)], data: &[(&str, &str)]) -> Secret {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let bytes = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))
        };
        Secret {
            metadata: ObjectMeta {
                annotations: Some(annotations.iter().map(text).collect()),
                ..ObjectMeta::default()
            },
            data: Some(data.iter().map(bytes).collect()),
            ..Secret::default()
        }
    }

    fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("ns".to_owned()),
                ..ObjectMeta::default()
            },
            data: (!data.is_empty()).then(|| data.iter().map(text).collect()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn a_rotation_is_asked_for_by_a_new_value_or_a_missing_date() {
        let dated = [(NOT_BEFORE, "x"), (NOT_AFTER, "x"), (ISSUER, "x"), (REFRESH, "x")];
        let with = |more: &[(&'static str, &'static str)]| [&dated, more].concat();
        let cases = [
            ("nothing is said", vec![], false),
            ("all dates", with(&[]), false),
            ("a first value", with(&[(ROTATE, "1")]), true),
            ("a value that was done", with(&[(ROTATE, "1"), (ROTATED, "1")]), false),
            ("a new value", with(&[(ROTATE, "2"), (ROTATED, "1")]), true),
            ("a value that was taken away", with(&[(ROTATED, "1")]), false),
            ("an empty value", with(&[(ROTATE, "")]), true),
            ("the date is removed", dated[..1].to_vec(), true),
            ("the date is removed, the issuer left", vec![(ISSUER, "x")], true),
            ("it was never dated", vec![(HOSTNAMES_OF_OTHERS, "x")], false),
        ];
        for (case, annotations, asked) in cases {
            assert_eq!(is_rotation_requested(&secret(&annotations, &[])), asked, "{case}");
        }
        assert!(!is_rotation_requested(&Secret::default()));
    }

    #[test]
    fn force_is_for_one_request_and_for_the_pair_that_was_served_then() {
        let state = |ca: &[(&str, &str)], pair: &[(&str, &str)]| ClusterState {
            ca: Some(secret(ca, &[])),
            serving: Some(secret(pair, &[])),
            ..ClusterState::default()
        };
        let now = (ROTATE, "now --force");
        assert!(!state(&[], &[]).is_forced());
        assert!(!state(&[(ROTATE, "now")], &[]).is_forced());
        assert!(!state(&[(ROTATE, "now --forceful")], &[]).is_forced());
        assert!(state(&[now], &[]).is_forced());
        assert!(state(&[], &[now]).is_forced());
        let done = [now, (ROTATED, "now --force")];
        assert!(!state(&done, &done).is_forced());
        // A request by removing the date.
        let dated = [now, (ROTATED, "now --force"), (ISSUER, "x")];
        assert!(is_rotation_requested(&secret(&dated, &[])) && !state(&dated, &[]).is_forced());

        // The CA is made, and the pair follows; but a later pair is not forced.
        let key = KeyAlgorithm::P256.generate().unwrap();
        let now = time::macros::datetime!(2026-11-21 0:00 UTC);
        let issue = |validity| issue_ca(&key, validity, now).unwrap();
        let [then, later] = [1, 2].map(|days| issue(time::Duration::days(days)));
        for (served, is_forced) in [(&then, true), (&later, false)] {
            let forced = [(FORCED, &then.fingerprint()[..])];
            let mut state = state(&forced, &[]);
            state.serving = Some(secret(&[], &[("tls.crt", &served.to_pem())]));
            assert_eq!(state.is_forced(), is_forced);
        }
        assert!(!state(&[(FORCED, &then.fingerprint())], &[]).is_forced());
    }

    /// An annotation that is not about dates.
    const HOSTNAMES_OF_OTHERS: &str = "example.com/hostnames";

    #[test]
    fn what_is_asked_and_stored_is_what_the_plan_sees() {
        let state = ClusterState {
            ca: Some(secret(&[(ROTATE, "1")], &[("tls.crt", "c"), ("tls.key", "k")])),
            serving: Some(secret(&[], &[("tls.crt", "s")])),
            bundle: Some(map("bundle", &[(BUNDLE_KEY, "b")])),
            root: Some(map("root", &[(ROOT_KEY, "r")])),
            infrastructure: Infrastructure {
                hosts: vec!["a.example.com".parse().unwrap()],
                ..Infrastructure::default()
            },
            hosts: vec!["b.example.com".parse().unwrap(), "a.example.com".parse().unwrap()],
            ..ClusterState::default()
        };
        let text = Assessment::Stale(b"new".to_vec());
        let assessments = [
            ("due", text.clone()),
            ("fine", Assessment::Current),
            ("foreign", Assessment::LeftAlone(LeftAlone::Foreign)),
            ("refused", text),
        ];
        let assessments =
            assessments.map(|(name, assessment)| (name.to_owned(), assessment)).into();
        let seen = state.certificates(&assessments, &["refused".to_owned()].into()).unwrap();
        let pair = |certificates: &str, key: &str| StoredPair {
            certificates: certificates.into(),
            key: key.into(),
            ..StoredPair::default()
        };
        assert_eq!(seen.ca, Some(pair("c", "k")));
        assert_eq!(seen.serving, Some(pair("s", "")));
        assert_eq!(seen.bundle.as_deref(), Some(&b"b"[..]));
        assert_eq!(seen.root_ca.as_deref(), Some(&b"r"[..]));
        assert_eq!(seen.requested, RotationRequest { ca: true, ..RotationRequest::default() });
        let hosts: Vec<_> = seen.hosts.iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["a.example.com", "b.example.com"], "the cluster's first, each once");
        let states: Vec<_> = seen.pointers.into_iter().map(|pointer| pointer.state).collect();
        let due =
            PointerState::Stale(RepairedPointer { text: b"new".to_vec(), holders: Vec::new() });
        assert_eq!(states, [due, PointerState::Kept, PointerState::Kept, PointerState::Refused]);
        let seen = ClusterState::default().certificates(&BTreeMap::new(), &BTreeSet::new());
        let seen = seen.unwrap();
        assert!(seen.ca.is_none() && seen.bundle.is_none() && seen.root_ca.is_none());
    }

    #[test]
    fn a_config_map_without_its_key_is_no_empty_one() {
        let none = (BTreeMap::new(), BTreeSet::new());
        for data in [&[][..], &[("other", "x")]] {
            let bundle =
                ClusterState { bundle: Some(map("bundle", data)), ..ClusterState::default() };
            let error = bundle.certificates(&none.0, &none.1).unwrap_err().to_string();
            assert_eq!(error, "ConfigMap ns/bundle: has no key ca-bundle.crt");
            assert!(bundle.trusted().is_err());
            let root = ClusterState { root: Some(map("root", data)), ..ClusterState::default() };
            let error = root.certificates(&none.0, &none.1).unwrap_err().to_string();
            assert_eq!(error, "ConfigMap ns/root: has no key ca.crt");
        }
    }

    #[test]
    fn previous_cas_are_read_from_either_key() {
        let previous = |data| stored_pair(&secret(&[], data)).previous;
        assert_eq!(previous(&[]), b"");
        assert_eq!(previous(&[("lineage.pem", "old")]), b"old");
        assert_eq!(previous(&[("previous-cas.pem", "new")]), b"new");
        assert_eq!(previous(&[("previous-cas.pem", "new"), ("lineage.pem", "old")]), b"new");
    }
}
