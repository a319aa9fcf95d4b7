//! Builds a rotation's writes on a cluster: Secrets and ConfigMaps. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::{Change, ConfigMapWrite, Malformed, ObjectName, ObjectWrite, SecretWrite};
use pki::plan::renewal;
use pki::{Certificate, Host, Policy, StoredPair};

use super::super::NAMESPACE;
use super::names::{
    BUNDLE_KEY, CA, CA_ISSUER, CERTIFICATE_KEY, FORCED, HOSTNAMES, ISSUED, ISSUER, MANAGED,
    NOT_AFTER, NOT_BEFORE, PREVIOUS, PREVIOUS_BEFORE, PRIVATE_KEY, REFRESH, ROTATE, ROTATED,
    SERVING, TLS_TYPE, USER_DATA,
};
use super::secret::{annotation, date, value};
use super::state::{ClusterState, is_requested_by_removal, requests_force};

type Annotations = BTreeMap<String, String>;
type SecretData = BTreeMap<&'static str, Option<ByteString>>;

/// The write of a CA that completes a request for one.
pub(super) fn ca_write(
    state: &ClusterState,
    pair: &StoredPair,
    policy: &Policy,
) -> Result<SecretWrite, Malformed> {
    let present = state.ca.as_ref();
    let mut answer = handled(present);
    if let Some(served) = state.serving_digest()
        && present.is_some_and(requests_force)
    {
        answer.insert(FORCED.to_owned(), served);
    }
    let issued_by = present.and_then(|secret| annotation(secret, CA_ISSUER));
    if let Some(requested) = &state.ca_request {
        answer.insert(CA_ISSUER.to_owned(), requested.issuer.to_string());
    } else if issued_by.is_some() {
        answer.insert(CA_ISSUER.to_owned(), String::new());
    }
    stored_ca_write(state, pair, policy, answer, true)
}

/// The write of a CA's store that leaves a request open.
pub(super) fn store_write(
    state: &ClusterState,
    pair: &StoredPair,
    policy: &Policy,
) -> Result<SecretWrite, Malformed> {
    stored_ca_write(state, pair, policy, Annotations::new(), false)
}

fn stored_ca_write(
    state: &ClusterState,
    pair: &StoredPair,
    policy: &Policy,
    mut annotations: Annotations,
    is_answer: bool,
) -> Result<SecretWrite, Malformed> {
    let present = state.ca.as_ref();
    let mut data = pair_data(pair);
    data.insert(PREVIOUS, Some(ByteString(pair.previous.clone())));
    if present.is_some_and(|secret| value(secret, PREVIOUS_BEFORE).is_some()) {
        data.insert(PREVIOUS_BEFORE, None);
    }
    let description = "CA used to sign the MachineConfigServer TLS certificate";
    annotations.extend(owner_annotations(description));
    if let Some(leaf) = pair.leaf() {
        annotations.extend(pair_annotations(CA, &leaf, policy)?);
    }
    // Removing the date asks for a rotation, which this is not yet.
    if !is_answer && present.is_some_and(is_requested_by_removal) {
        annotations.remove(NOT_AFTER);
    }
    let object = ObjectName::secret(NAMESPACE, CA);
    SecretWrite::put(object, present, TLS_TYPE, annotations, data)
}

/// The annotation that marks a requested rotation as done.
fn handled(present: Option<&Secret>) -> Annotations {
    let requested = present.and_then(|secret| annotation(secret, ROTATE));
    requested.map(|requested| (ROTATED.to_owned(), requested.to_owned())).into_iter().collect()
}

pub(super) fn serving_write(
    state: &ClusterState,
    pair: &StoredPair,
    policy: &Policy,
) -> Result<SecretWrite, Malformed> {
    let description = "Secret containing the MachineConfigServer TLS certificate and key";
    let present = state.serving.as_ref();
    let mut annotations = owner_annotations(description);
    annotations.extend(handled(present));
    if let Some(leaf) = pair.leaf() {
        annotations.insert(HOSTNAMES.to_owned(), hostnames(state, &leaf));
        annotations.insert(ISSUED.to_owned(), leaf.fingerprint());
        annotations.extend(pair_annotations(SERVING, &leaf, policy)?);
    }
    let object = ObjectName::secret(NAMESPACE, SERVING);
    SecretWrite::put(object, present, TLS_TYPE, annotations, pair_data(pair))
}

/// The names for the annotation of a new serving certificate: if this is not the reference's list, its controller
/// issues another certificate, with only those names.
fn hostnames(state: &ClusterState, leaf: &Certificate) -> String {
    if let Some(theirs) = state.serving.as_ref().and_then(hostnames_of_others) {
        return theirs.to_owned();
    }
    match &state.infrastructure.reference_names {
        Some(names) => names.serving().into_iter().collect::<Vec<_>>().join(","),
        None => leaf.hosts.iter().map(Host::bare).collect::<Vec<_>>().join(","),
    }
}

/// The annotated names of a serving certificate that another party issued: if that was the reference's controller, they
/// are its list, in any release.
fn hostnames_of_others(secret: &Secret) -> Option<&str> {
    let leaf = Certificate::read_all(value(secret, CERTIFICATE_KEY)?).into_iter().next()?;
    let is_ours = annotation(secret, ISSUED) == Some(&leaf.fingerprint());
    annotation(secret, HOSTNAMES).filter(|_| !is_ours)
}

pub(super) fn bundle_write(state: &ClusterState, pem: &str) -> Result<ConfigMapWrite, Malformed> {
    let object = ObjectName::config_map(NAMESPACE, CA);
    let description =
        "CA bundle that stores all valid CAs for the MachineConfigServer TLS certificate";
    let annotations = owner_annotations(description);
    if let Some(present) = &state.bundle {
        let data = [(BUNDLE_KEY, Some(pem.to_owned()))].into();
        return ObjectWrite::patch(object, &present.metadata, annotations, data);
    }
    let new = ConfigMap {
        metadata: ObjectMeta { annotations: Some(annotations), ..object.metadata() },
        data: Some([(BUNDLE_KEY.to_owned(), pem.to_owned())].into()),
        ..ConfigMap::default()
    };
    Ok(ObjectWrite { object, change: Change::Create(new) })
}

pub(crate) fn user_data_write(
    state: &ClusterState,
    name: &str,
    text: &[u8],
) -> Result<SecretWrite, Malformed> {
    let object = state.user_data_object(name);
    let text = text.to_vec();
    if let Some(present) = state.user_data.get(name) {
        let data = [(USER_DATA, Some(ByteString(text)))].into();
        return ObjectWrite::patch(object, &present.metadata, Annotations::new(), data);
    }
    let owner = state.owner(name);
    let metadata = ObjectMeta {
        labels: Some([(MANAGED.to_owned(), String::new())].into()),
        owner_references: owner
            .map(|pool| vec![ObjectName::pool(&pool.name).owner_reference(&pool.uid)]),
        ..object.metadata()
    };
    Ok(ObjectWrite { object, change: Change::Create(user_data_secret(metadata, text)) })
}

pub(crate) fn user_data_secret(metadata: ObjectMeta, text: Vec<u8>) -> Secret {
    let data = [
        ("disableTemplating".to_owned(), ByteString(b"true\n".to_vec())),
        (USER_DATA.to_owned(), ByteString(text)),
    ];
    Secret {
        metadata,
        type_: Some("Opaque".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    }
}

pub(super) fn pair_data(pair: &StoredPair) -> SecretData {
    let bytes = |bytes: &[u8]| Some(ByteString(bytes.to_vec()));
    [(CERTIFICATE_KEY, bytes(&pair.certificates)), (PRIVATE_KEY, bytes(&pair.key))].into()
}

/// Annotations of a pair for people and for the reference's controller, which derives the renewal from the beginning. A
/// pair with a backdated beginning has the one without backdating.
fn pair_annotations(
    name: &str,
    leaf: &Certificate,
    policy: &Policy,
) -> Result<Annotations, Malformed> {
    let object = ObjectName::secret(NAMESPACE, name);
    let date = |time| date(&object, time);
    Ok([
        (
            NOT_BEFORE.to_owned(),
            date(leaf.not_before.max(renewal(leaf, policy).saturating_sub(policy.renewal)))?,
        ),
        (NOT_AFTER.to_owned(), date(leaf.not_after)?),
        (ISSUER.to_owned(), leaf.issuer.clone()),
        // Format of Go durations.
        (REFRESH.to_owned(), format!("{}h0m0s", policy.renewal.whole_hours())),
    ]
    .into())
}

fn owner_annotations(description: &str) -> Annotations {
    [
        ("openshift.io/owning-component".to_owned(), "Machine Config Operator".to_owned()),
        ("openshift.io/description".to_owned(), description.to_owned()),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use pki::KeyAlgorithm;
    use pki::VALIDITY;
    use pki::issue::issue_ca;
    use serde_json::{Value, json};
    use time::OffsetDateTime;

    use super::super::state::Pool;
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

    fn certificate() -> Certificate {
        issue_ca(&KeyAlgorithm::P256.generate().unwrap(), VALIDITY, NOW).unwrap()
    }

    fn pair() -> StoredPair {
        StoredPair {
            certificates: certificate().to_pem().into(),
            key: b"key".to_vec(),
            previous: b"previous".to_vec(),
            unreadable: None,
        }
    }

    fn present(annotations: &[(&str, &str)], data: &[&str]) -> Secret {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Secret {
            metadata: ObjectMeta {
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                annotations: Some(annotations.iter().map(text).collect()),
                ..ObjectMeta::default()
            },
            data: Some(
                data.iter().map(|key| ((*key).to_owned(), ByteString(vec![b'x']))).collect(),
            ),
            ..Secret::default()
        }
    }

    fn patch<K, V: serde::Serialize>(write: &ObjectWrite<K, V>) -> Value {
        let Change::Patch(patch) = &write.change else { panic!("{} is not patched", write.object) };
        serde_json::to_value(patch).unwrap()
    }

    fn created<K: serde::Serialize, V>(write: &ObjectWrite<K, V>) -> Value {
        let Change::Create(object) = &write.change else {
            panic!("{} is not created", write.object)
        };
        serde_json::to_value(object).unwrap()
    }

    #[test]
    fn a_request_by_a_removed_date_outlives_a_write_of_the_store() {
        let policy = Policy::default();
        let requested = present(&[(NOT_BEFORE, "x"), (ISSUER, "x")], &[]);
        let state = ClusterState { ca: Some(requested), ..ClusterState::default() };
        let said = |write: &SecretWrite| {
            let annotations = patch(write)["metadata"]["annotations"].clone();
            (annotations[NOT_AFTER].is_string(), annotations[NOT_BEFORE].is_string())
        };
        assert_eq!(said(&store_write(&state, &pair(), &policy).unwrap()), (false, true));
        assert_eq!(said(&ca_write(&state, &pair(), &policy).unwrap()), (true, true));
    }

    #[test]
    fn what_is_there_is_patched_with_what_was_read_and_what_is_not_is_created() {
        let policy = Policy::default();
        let none = ClusterState::default();
        let bundle = ConfigMap { metadata: present(&[], &[]).metadata, ..ConfigMap::default() };
        let some = ClusterState {
            ca: Some(present(&[(ROTATE, "now")], &[])),
            serving: Some(present(&[], &[])),
            bundle: Some(bundle),
            user_data: [("a-user-data".to_owned(), present(&[], &[]))].into(),
            ..ClusterState::default()
        };
        let secrets = |state: &ClusterState| {
            [
                ca_write(state, &pair(), &policy).unwrap(),
                serving_write(state, &pair(), &policy).unwrap(),
                user_data_write(state, "a-user-data", b"text").unwrap(),
            ]
        };
        for write in secrets(&none) {
            let object = created(&write);
            assert_eq!(object["metadata"]["name"], write.object.name);
            assert!(object["metadata"]["resourceVersion"].is_null());
        }
        for write in secrets(&some) {
            let patch = patch(&write);
            assert_eq!(patch["metadata"]["uid"], "u", "{}", write.object);
            assert_eq!(patch["metadata"]["resourceVersion"], "7", "{}", write.object);
            assert!(patch["type"].is_null());
        }
        let ca = patch(&secrets(&some)[0]);
        assert_eq!(ca["metadata"]["annotations"][ROTATED], "now", "it is done");
        let store = patch(&store_write(&some, &pair(), &policy).unwrap());
        assert!(store["metadata"]["annotations"][ROTATED].is_null(), "it is not");
        assert_eq!(ca["metadata"]["annotations"][REFRESH], "70080h0m0s");
        let text = patch(&secrets(&some)[2]);
        assert_eq!(text["data"], json!({"userData": "dGV4dA=="}), "and nothing else of it");

        let map = bundle_write(&none, "pem").unwrap();
        assert_eq!(created(&map)["data"], json!({"ca-bundle.crt": "pem"}));
        let map = bundle_write(&some, "pem").unwrap();
        assert_eq!(patch(&map)["metadata"]["resourceVersion"], "7");
        assert_eq!(patch(&map)["data"], json!({"ca-bundle.crt": "pem"}));
    }

    #[test]
    fn an_object_without_a_version_is_not_written() {
        let unversioned = ClusterState {
            ca: Some(Secret::default()),
            bundle: Some(ConfigMap::default()),
            user_data: [("a".to_owned(), Secret::default())].into(),
            ..ClusterState::default()
        };
        assert!(ca_write(&unversioned, &pair(), &Policy::default()).is_err());
        assert!(bundle_write(&unversioned, "pem").is_err());
        assert!(user_data_write(&unversioned, "a", b"text").is_err());
    }

    #[test]
    fn previous_cas_move_to_their_new_key_with_the_next_ca() {
        let policy = Policy::default();
        let write = |keys: &[&str]| {
            let state = ClusterState { ca: Some(present(&[], keys)), ..ClusterState::default() };
            patch(&ca_write(&state, &pair(), &policy).unwrap())["data"].clone()
        };
        let before = write(&["tls.crt", "tls.key", "lineage.pem"]);
        assert_eq!(before["previous-cas.pem"], "cHJldmlvdXM=");
        assert_eq!(before.get("lineage.pem"), Some(&Value::Null), "it is removed");
        let after = write(&["tls.crt", "tls.key", "previous-cas.pem"]);
        assert_eq!(after.get("lineage.pem"), None);
        let state = ClusterState::default();
        let new = created(&ca_write(&state, &pair(), &policy).unwrap());
        assert_eq!(new["data"]["previous-cas.pem"], "cHJldmlvdXM=");
        assert_eq!(new["type"], TLS_TYPE);
    }

    #[test]
    fn a_date_that_cannot_be_written_is_an_error() {
        let mut leaf = certificate();
        assert!(pair_annotations("a", &leaf, &Policy::default()).is_ok());
        leaf.not_after = time::macros::datetime!(-0044-03-15 0:00 UTC);
        let error = pair_annotations("a", &leaf, &Policy::default()).unwrap_err();
        let reason = format!("Secret {NAMESPACE}/a: cannot write a date");
        assert!(error.to_string().starts_with(&reason), "{error}");
    }

    #[test]
    fn a_managed_secret_belongs_to_its_pool() {
        let pools = vec![Pool { name: "worker".to_owned(), uid: "p".to_owned(), access: None }];
        let state = ClusterState { pools, ..ClusterState::default() };
        let name = "worker-user-data-managed";
        let object = created(&user_data_write(&state, name, b"text").unwrap());
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "p");
        assert_eq!(object["metadata"]["labels"][MANAGED], "");
    }
}
