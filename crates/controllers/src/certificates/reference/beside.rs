//! Tests this controller and the reference's on the same objects: neither may cause the other to issue.
//!
//! The reference's decisions are those of openshift/library-go, `pkg/operator/certrotation`:
//! `needNewSigningCertKeyPair` in `signer.go`, `manageCABundleConfigMap` in `cabundle.go`, and
//! `needNewTargetCertKeyPair` with `missingHostnames` in `target.go`.

use std::collections::{BTreeMap, BTreeSet};

use ignition::{POINTER_SPEC, pointer};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::{Change, ObjectWrite};
use pki::certificate::key_of;
use pki::issue::{Signer, Validity, issue_ca, issue_serving};
use pki::{
    Certificate, Host, KeyAlgorithm, MAX_STEPS, NextAction, Policy, RENEWAL, VALIDITY, Write, next,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::certificates::names::{
    BUNDLE_KEY, CERTIFICATE_KEY, HOSTNAMES, ISSUER, NOT_AFTER, NOT_BEFORE, PRIVATE_KEY, ROTATE,
    USER_DATA,
};
use crate::certificates::objects::{
    bundle_write, ca_write, serving_write, store_write, user_data_write,
};
use crate::certificates::secret::{annotation, value};
use crate::certificates::settings::infrastructure::Infrastructure;
use crate::certificates::state::ClusterState;

const START: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const API: &str = "api-int.c.example.com";

/// The objects of both controllers.
struct SharedCluster {
    state: ClusterState,
    now: OffsetDateTime,
    /// Names that the reference's controller wants.
    reference_names: BTreeSet<String>,
    /// Number of serving pairs that each controller has issued.
    issued_here: usize,
    issued_there: usize,
}

impl SharedCluster {
    fn new(infrastructure: &Value, hosts: &[&str]) -> Self {
        let mut cluster = Self {
            state: ClusterState {
                user_data_namespace: "openshift-machine-api".to_owned(),
                hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
                ..ClusterState::default()
            },
            now: START,
            reference_names: BTreeSet::new(),
            issued_here: 0,
            issued_there: 0,
        };
        cluster.set_infrastructure(infrastructure);
        cluster
    }

    fn set_infrastructure(&mut self, object: &Value) {
        self.state.infrastructure = Infrastructure::read(object, None).unwrap();
        let names = self.state.infrastructure.reference_names.as_ref().unwrap().serving();
        self.reference_names = names.into_iter().map(str::to_owned).collect();
    }

    /// A pointer config that trusts the bundle and fetches from `host`.
    fn add_pointer(&mut self, host: &str) {
        let url = format!("https://{host}:22623/config/worker");
        let trusted = self.state.trusted().unwrap();
        let pem: String = trusted.iter().map(Certificate::to_pem).collect();
        let text = pointer(&url, pem.as_bytes(), POINTER_SPEC).to_string();
        let secret = Secret {
            metadata: versioned(),
            data: Some([(USER_DATA.to_owned(), ByteString(text.into_bytes()))].into()),
            ..Secret::default()
        };
        self.state.user_data.insert("worker-user-data".to_owned(), secret);
    }

    fn ask_for_a_ca(&mut self, value: &str) {
        let metadata = &mut self.state.ca.as_mut().unwrap().metadata;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(ROTATE.to_owned(), value.to_owned());
    }

    /// Applies all due steps of this controller, and calls `seen` after every write. Returns the time of the next one.
    fn reconcile(&mut self, mut seen: impl FnMut(&Self)) -> OffsetDateTime {
        let policy = Policy::default();
        for _ in 0..MAX_STEPS {
            let assessments = self.state.assess_user_data().unwrap();
            let certificates = self.state.certificates(&assessments, &BTreeSet::new()).unwrap();
            let mut generate = |_| KeyAlgorithm::P256.generate();
            match next(&certificates, &policy, self.now, &mut generate).unwrap() {
                NextAction::Settled { until, .. } => return until,
                NextAction::Step { writes, .. } => {
                    for write in &writes {
                        self.store(write, &policy);
                        seen(self);
                    }
                }
            }
        }
        panic!("no end");
    }

    fn store(&mut self, write: &Write, policy: &Policy) {
        let state = &mut self.state;
        match write {
            Write::Ca(pair) => {
                let write = ca_write(state, pair, policy).unwrap();
                state.ca = Some(stored(state.ca.as_ref(), write));
            }
            Write::Store(pair) => {
                let write = store_write(state, pair, policy).unwrap();
                state.ca = Some(stored(state.ca.as_ref(), write));
            }
            Write::Bundle(pem) => {
                let write = bundle_write(state, pem).unwrap();
                state.bundle = Some(stored(state.bundle.as_ref(), write));
            }
            Write::Pointer { name, text } => {
                let write = user_data_write(state, name, text).unwrap();
                let secret = stored(state.user_data.get(name), write);
                state.user_data.insert(name.clone(), secret);
            }
            Write::Serving(pair) => {
                self.issued_here += 1;
                let write = serving_write(state, pair, policy).unwrap();
                state.serving = Some(stored(state.serving.as_ref(), write));
            }
        }
    }

    /// Reason for the reference's controller to make a new CA at `now`.
    fn signer_reason(&self, now: OffsetDateTime) -> Option<&'static str> {
        let Some(secret) = &self.state.ca else { return Some("missing") };
        let (begin, end) = match dates(secret) {
            Ok(dates) => dates,
            Err(reason) => return Some(reason),
        };
        if is_past(begin, end, now) {
            return Some("80 % of validity");
        }
        (now > begin + RENEWAL).then_some("refresh")
    }

    /// Reason for the reference's controller to make a new serving pair.
    fn target_reason(&self, now: OffsetDateTime) -> Option<String> {
        let reported = |reason: &str| Some(reason.to_owned());
        let Some(secret) = &self.state.serving else { return reported("missing") };
        let (begin, end) = match dates(secret) {
            Ok(dates) => dates,
            Err(reason) => return reported(reason),
        };
        if is_past(begin, end, now) {
            return reported("80 % of validity");
        }
        let signer = leaf(self.state.ca.as_ref().unwrap());
        if now > begin + RENEWAL && now > signer.not_before + RENEWAL / 10 {
            return reported("refresh");
        }
        let issuer = annotation(secret, ISSUER).unwrap_or_default();
        let trusted = self.state.trusted().unwrap();
        if issuer.is_empty() || !trusted.iter().any(|ca| ca.common_name == issuer) {
            return Some(format!("issuer {issuer:?}"));
        }
        let said: BTreeSet<_> =
            annotation(secret, HOSTNAMES).unwrap_or_default().split(',').collect();
        let wanted: BTreeSet<_> = self.reference_names.iter().map(String::as_str).collect();
        (said != wanted).then(|| format!("names {said:?}, not {wanted:?}"))
    }

    /// Applies one reconciliation of the reference's controller.
    fn reference_looks(&mut self) {
        if self.signer_reason(self.now).is_some() {
            let key = KeyAlgorithm::P256.generate().unwrap();
            let certificate = issue_ca(&key, VALIDITY, self.now).unwrap();
            let key = key.serialize_pem();
            let secret = self.state.ca.get_or_insert_with(new_secret);
            put_pair(secret, &certificate, &certificate.to_pem(), &key);
        }
        let secret = self.state.ca.as_ref().unwrap();
        let signer = leaf(secret);
        let mut trusted = self.state.trusted().unwrap();
        trusted.push(signer.clone());
        trusted.retain(|certificate| certificate.not_after >= self.now);
        trusted.sort_by(|a, b| a.der().cmp(b.der()));
        trusted.dedup();
        let pem = trusted.iter().map(Certificate::to_pem).collect();
        let new = || ConfigMap { metadata: versioned(), ..ConfigMap::default() };
        let data = [(BUNDLE_KEY.to_owned(), pem)].into();
        let key = key_of(value(secret, PRIVATE_KEY).unwrap()).unwrap();
        self.state.bundle.get_or_insert_with(new).data = Some(data);

        if self.target_reason(self.now).is_some() {
            self.issued_there += 1;
            let own = KeyAlgorithm::P256.generate().unwrap();
            let names = self.reference_names.iter();
            let hosts: Vec<Host> = names.map(|name| name.parse().unwrap()).collect();
            let signer = Signer { certificate: &signer, key: &key };
            let validity = Validity { begin: self.now - Duration::HOUR, end: self.now + VALIDITY };
            let leaf = issue_serving(&own, &hosts, signer, validity).unwrap();
            let chain = leaf.to_pem() + &signer.certificate.to_pem();
            let secret = self.state.serving.get_or_insert_with(new_secret);
            put_pair(secret, &leaf, &chain, &own.serialize_pem());
            let names: Vec<_> = self.reference_names.iter().cloned().collect();
            let annotations = secret.metadata.annotations.as_mut().unwrap();
            annotations.insert(HOSTNAMES.to_owned(), names.join(","));
        }
    }

    /// Runs both in turns until neither changes anything. The order of the bundle is the reference's then: it sorts the
    /// certificates by their bytes.
    fn rest(&mut self, reference_first: bool) {
        for _ in 0..4 {
            let seen = |cluster: &Self| {
                let ClusterState { ca, serving, bundle, .. } = &cluster.state;
                let data = [ca, serving].map(|secret| secret.as_ref()?.data.clone());
                (data, bundle.clone())
            };
            let before = seen(self);
            if reference_first {
                self.reference_looks();
            }
            self.reconcile(|_| ());
            self.reference_looks();
            self.now += Duration::MINUTE;
            if seen(self) == before {
                return;
            }
        }
        panic!("they write in turns");
    }
}

fn versioned() -> ObjectMeta {
    ObjectMeta {
        uid: Some("u".to_owned()),
        resource_version: Some("1".to_owned()),
        ..ObjectMeta::default()
    }
}

fn new_secret() -> Secret {
    Secret { metadata: versioned(), ..Secret::default() }
}

fn leaf(secret: &Secret) -> Certificate {
    Certificate::read_all(value(secret, CERTIFICATE_KEY).unwrap()).remove(0)
}

/// Dates in a Secret's annotations.
fn dates(secret: &Secret) -> Result<(OffsetDateTime, OffsetDateTime), &'static str> {
    let date = |key, missing| {
        let text = annotation(secret, key).filter(|text| !text.is_empty()).ok_or(missing)?;
        OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "bad date")
    };
    Ok((date(NOT_BEFORE, "missing notBefore")?, date(NOT_AFTER, "missing notAfter")?))
}

/// Returns `true` if a pair has expired, or four fifths of its validity are over.
fn is_past(begin: OffsetDateTime, end: OffsetDateTime, now: OffsetDateTime) -> bool {
    now > end || now > end - (end - begin) / 5
}

/// Writes a pair into a Secret, with the annotations of the reference's controller.
fn put_pair(secret: &mut Secret, certificate: &Certificate, chain: &str, key: &str) {
    let data = secret.data.get_or_insert_default();
    for (name, pem) in [(CERTIFICATE_KEY, chain), (PRIVATE_KEY, key)] {
        data.insert(name.to_owned(), ByteString(pem.as_bytes().to_vec()));
    }
    let text = |time: OffsetDateTime| time.format(&Rfc3339).unwrap();
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.extend(BTreeMap::from([
        (NOT_BEFORE.to_owned(), text(certificate.not_before)),
        (NOT_AFTER.to_owned(), text(certificate.not_after)),
        (ISSUER.to_owned(), certificate.issuer.clone()),
    ]));
}

/// The object that the API server would store.
fn stored<K: Serialize + DeserializeOwned, V: Serialize>(
    present: Option<&K>,
    write: ObjectWrite<K, V>,
) -> K {
    let mut object = match write.change {
        Change::Create(new) => serde_json::to_value(new).unwrap(),
        Change::Patch(patch) => {
            let mut object = serde_json::to_value(present.unwrap()).unwrap();
            merge(&mut object, &serde_json::to_value(patch).unwrap());
            object
        }
        Change::Replace(_) | Change::Delete(_) => {
            panic!("{} is neither made nor patched", write.object)
        }
    };
    merge(&mut object, &json!({"metadata": {"uid": "u", "resourceVersion": "1"}}));
    serde_json::from_value(object).unwrap()
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

fn infrastructure(platform: &Value) -> Value {
    json!({"status": {
        "apiServerInternalURI": format!("https://{API}:6443"),
        "platformStatus": platform,
    }})
}

/// Infrastructures with names in the reference's list, and with others.
fn infrastructures() -> Vec<Value> {
    let addresses = json!({"apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"]});
    let balancer = json!({"cloudLoadBalancerConfig": {"clusterHosted": {
        "apiIntLoadBalancerIPs": ["192.0.2.7"]}}});
    let platforms = [
        json!({"type": "None"}),
        json!({"type": "BareMetal", "baremetal": addresses}),
        json!({"type": "VSphere", "vsphere": addresses}),
        json!({"type": "AWS", "aws": balancer}),
    ];
    platforms.iter().map(infrastructure).collect()
}

#[test]
fn the_reference_issues_nothing_after_any_write_that_is_made_here() {
    for object in infrastructures() {
        for hosts in [&[][..], &["mcs.example.com", "198.51.100.1"]] {
            let mut cluster = SharedCluster::new(&object, hosts);
            let content = |cluster: &SharedCluster, at: OffsetDateTime| {
                if cluster.state.serving.is_some() {
                    assert_eq!(cluster.signer_reason(at), None, "{hosts:?} at {at}: {object}");
                    assert_eq!(cluster.target_reason(at), None, "{hosts:?} at {at}: {object}");
                }
            };
            let after_each = |cluster: &SharedCluster| content(cluster, cluster.now);
            cluster.reconcile(after_each);
            cluster.add_pointer("pointer.example.com");
            cluster.reconcile(after_each);
            assert_eq!(cluster.issued_here, 2, "once more for the pointer's name");
            // While this controller has nothing to do, neither has the other.
            for year in 0..40 {
                if year % 5 == 3 {
                    cluster.ask_for_a_ca(&year.to_string());
                }
                let until = cluster.reconcile(after_each);
                content(&cluster, until);
                cluster.now = until;
            }
            assert!(cluster.now > START + 3 * RENEWAL, "decades have passed: {}", cluster.now);
        }
    }
}

#[test]
fn neither_issues_in_turns_with_the_other() {
    for object in infrastructures() {
        for hosts in [&[][..], &["mcs.example.com"]] {
            for reference_first in [false, true] {
                let mut cluster = SharedCluster::new(&object, hosts);
                cluster.rest(reference_first);
                // The reference's certificates lack the names that only this controller has.
                assert!(
                    cluster.issued_there <= usize::from(reference_first),
                    "{hosts:?}: {object}"
                );
                assert!(cluster.issued_here <= 1, "{hosts:?}: {object}");
                let wanted = leaf(cluster.state.serving.as_ref().unwrap()).hosts;
                for host in cluster.state.hosts.iter().chain(&cluster.state.infrastructure.hosts) {
                    assert!(wanted.contains(host), "{host}: {object}");
                }
                cluster.add_pointer("pointer.example.com");
                cluster.rest(reference_first);
                for round in 0..60 {
                    cluster.now += Duration::days(180);
                    if round % 7 == 3 {
                        cluster.ask_for_a_ca(&round.to_string());
                    }
                    let (here, there) = (cluster.issued_here, cluster.issued_there);
                    cluster.rest(reference_first);
                    // Each of the reference's is followed by at most one of this controller, and another one may be
                    // due.
                    let (here, there) = (cluster.issued_here - here, cluster.issued_there - there);
                    assert!(there <= 1 && here <= 2, "{here}, {there} in round {round}: {object}");
                }
            }
        }
    }
}

#[test]
fn names_that_come_and_go_are_followed_by_both_once() {
    let with = |addresses: &[&str]| {
        let details = json!({"apiServerInternalIPs": addresses});
        infrastructure(&json!({"type": "BareMetal", "baremetal": details}))
    };
    for reference_first in [false, true] {
        let mut cluster = SharedCluster::new(&with(&["192.0.2.5"]), &["mcs.example.com"]);
        cluster.rest(reference_first);
        for addresses in [&["192.0.2.5", "2001:db8::5"][..], &["192.0.2.6"], &[], &["192.0.2.5"]] {
            cluster.set_infrastructure(&with(addresses));
            let (here, there) = (cluster.issued_here, cluster.issued_there);
            cluster.rest(reference_first);
            let (here, there) = (cluster.issued_here - here, cluster.issued_there - there);
            assert!(here <= 2 && there <= 1, "{here}, {there}: {addresses:?}");
        }
    }
}

/// The reference's list depends on its release, which can be an unknown one.
#[test]
fn a_reference_with_a_list_of_its_own_is_left_in_peace() {
    let addresses = json!({"apiServerInternalIPs": ["192.0.2.5"]});
    let object = infrastructure(&json!({"type": "BareMetal", "baremetal": addresses}));
    for names in [&[API][..], &[API, "192.0.2.5", "192.0.2.99"]] {
        for reference_first in [false, true] {
            let mut cluster = SharedCluster::new(&object, &["mcs.example.com"]);
            cluster.reference_names = names.iter().map(|name| (*name).to_owned()).collect();
            cluster.rest(reference_first);
            assert!(cluster.issued_there <= 1 && cluster.issued_here <= 2, "{names:?}");
        }
    }
}
