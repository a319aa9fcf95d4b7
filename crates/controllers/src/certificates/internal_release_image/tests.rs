use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::Change;
use pki::KeyAlgorithm;
use pki::issue::{Signer, Validity, cross_sign, issue_ca, issue_serving};
use pki::{MAX_CHAIN_BYTES, TrustHolder, VALIDITY, locked_out};
use rcgen::KeyPair;
use serde_json::json;
use time::Duration;

use super::*;
use crate::certificates::names::{BUNDLE_KEY, CERTIFICATE_KEY, PREVIOUS, PRIVATE_KEY};
use crate::certificates::secret::value;
use crate::certificates::settings::infrastructure::Infrastructure;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const NAMES: [&str; 5] = ["api-int.c.example.com", "localhost", "127.0.0.1", "::1", "192.0.2.5"];

/// A CA with its key.
struct Ca {
    certificate: Certificate,
    key: KeyPair,
}

impl Ca {
    fn new(age: Duration) -> Self {
        let key = key();
        let certificate = issue_ca(&key, VALIDITY, NOW - age).unwrap();
        Self { certificate, key }
    }

    fn signer(&self) -> Signer<'_> {
        Signer { certificate: &self.certificate, key: &self.key }
    }
}

fn key() -> KeyPair {
    KeyAlgorithm::P256.generate().unwrap()
}

fn secret(data: &[(&str, &str)]) -> Secret {
    let bytes =
        |(key, value): &(&str, &str)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()));
    Secret {
        metadata: ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(bytes).collect()),
        ..Secret::default()
    }
}

fn bundle(certificates: &[&Certificate]) -> ConfigMap {
    let pem = certificates.iter().map(|certificate| certificate.to_pem()).collect();
    ConfigMap { data: Some([(BUNDLE_KEY.to_owned(), pem)].into()), ..ConfigMap::default() }
}

fn infrastructure(addresses: &[&str]) -> Infrastructure {
    let object = json!({"status": {
        "apiServerInternalURI": "https://api-int.c.example.com:6443",
        "platformStatus": {
            "type": "BareMetal", "baremetal": {"apiServerInternalIPs": addresses},
        },
    }});
    Infrastructure::read(&object, None).unwrap()
}

/// A cluster with this CA, and a pair that it does not have yet.
fn state(ca: &Ca, previous: &str) -> ClusterState {
    let pem = ca.certificate.to_pem();
    let key = ca.key.serialize_pem();
    ClusterState {
        ca: Some(secret(&[(CERTIFICATE_KEY, &pem), (PRIVATE_KEY, &key), (PREVIOUS, previous)])),
        bundle: Some(bundle(&[&ca.certificate])),
        infrastructure: infrastructure(&["192.0.2.5"]),
        has_release_image: true,
        release_image_pair: Some(secret(&[])),
        ..ClusterState::default()
    }
}

fn pair(ca: &Ca, names: &[&str], validity: Duration, age: Duration) -> Secret {
    let own = key();
    let hosts: Vec<Host> = names.iter().map(|name| name.parse().unwrap()).collect();
    let validity = Validity { begin: NOW - age - Duration::HOUR, end: NOW - age + validity };
    let leaf = issue_serving(&own, &hosts, ca.signer(), validity).unwrap();
    secret(&[(CERTIFICATE_KEY, &leaf.to_pem()), (PRIVATE_KEY, &own.serialize_pem())])
}

fn signed(state: &ClusterState) -> Option<StoredPair> {
    issuance(state, NOW).unwrap().ok()?.sign(&Policy::default(), &key(), NOW).unwrap()
}

fn decided(state: &ClusterState) -> Decision {
    decide(state, &Policy::default(), NOW).unwrap()
}

#[test]
fn the_pair_is_signed_when_ca_names_or_validity_demand_it() {
    let day = Duration::DAY;
    let (ca, other) = (Ca::new(30 * day), Ca::new(400 * day));
    let with = |names: &[&str], validity, age| pair(&ca, names, validity, age);
    let short = |age| with(&NAMES, 10 * day, age);
    let mixed = {
        let mut mixed = with(&NAMES, VALIDITY, day);
        let keys = [(PRIVATE_KEY.to_owned(), ByteString(key().serialize_pem().into_bytes()))];
        mixed.data.as_mut().unwrap().extend(keys);
        mixed
    };
    let more = [&NAMES[..], &["extra.example.com"]].concat();
    let current = None;
    let cases = [
        ("as it should be", with(&NAMES, VALIDITY, day), current),
        (
            "names in another order",
            with(&["::1", "192.0.2.5", "localhost", NAMES[0], "127.0.0.1"], VALIDITY, day),
            current,
        ),
        ("nothing in it", secret(&[]), Some(Reason::Unreadable)),
        ("another one's key", mixed, Some(Reason::Unreadable)),
        ("an older CA's", pair(&other, &NAMES, VALIDITY, day), Some(Reason::Issuer)),
        ("a name too few", with(&NAMES[..4], VALIDITY, day), Some(Reason::Names)),
        ("a name too many", with(&more, VALIDITY, day), Some(Reason::Names)),
        ("it has expired", short(11 * day), Some(Reason::Expired)),
        ("it will be valid", with(&NAMES, VALIDITY, -2 * day), Some(Reason::Expired)),
        ("four fifths are over", short(9 * day), Some(Reason::Renewal)),
        ("they are not yet", short(7 * day), current),
    ];
    for (case, present, expected) in cases {
        let state = ClusterState { release_image_pair: Some(present), ..state(&ca, "") };
        match (decided(&state), expected) {
            (Decision::Current { until }, None) => assert!(until > NOW, "{case}"),
            (Decision::Sign(because), Some(expected)) => assert_eq!(because, expected, "{case}"),
            (decided, expected) => panic!("{case}: {decided:?}, not {expected:?}"),
        }
    }
}

#[test]
fn one_that_ends_with_its_issuer_is_not_signed_again_by_it() {
    let ca = Ca::new(VALIDITY - Duration::days(10));
    let present = pair(&ca, &NAMES, VALIDITY, Duration::days(2000));
    let state = ClusterState { release_image_pair: Some(present), ..state(&ca, "") };
    assert_eq!(decided(&state), Decision::Current { until: ca.certificate.not_after });
}

#[test]
fn what_is_needed_is_waited_for() {
    let (ca, other) = (Ca::new(Duration::DAY), Ca::new(Duration::DAY));
    let good = || state(&ca, "");
    let pem = ca.certificate.to_pem();
    let blocked = Decision::Blocked;
    let ended = Ca::new(VALIDITY + Duration::DAY);
    let cases = vec![
        ("no object", ClusterState { has_release_image: false, ..good() }, Decision::Absent),
        (
            "no secret",
            ClusterState { release_image_pair: None, ..good() },
            blocked(Blocker::Secret),
        ),
        (
            "no internal URL",
            ClusterState { infrastructure: Infrastructure::default(), ..good() },
            blocked(Blocker::Names),
        ),
        ("no CA", ClusterState { ca: None, ..good() }, blocked(Blocker::Ca)),
        ("no bundle", ClusterState { bundle: None, ..good() }, blocked(Blocker::Ca)),
        (
            "a CA that is not in the bundle yet",
            ClusterState { bundle: Some(bundle(&[&other.certificate])), ..good() },
            blocked(Blocker::Ca),
        ),
        ("a CA that has ended", state(&ended, ""), blocked(Blocker::Ca)),
        (
            "another one's key",
            ClusterState {
                ca: Some(secret(&[
                    (CERTIFICATE_KEY, &pem),
                    (PRIVATE_KEY, &other.key.serialize_pem()),
                ])),
                ..good()
            },
            blocked(Blocker::Ca),
        ),
    ];
    for (case, state, expected) in cases {
        assert_eq!(decided(&state), expected, "{case}");
        if !matches!(expected, Decision::Absent | Decision::Blocked(Blocker::Secret)) {
            assert_eq!(signed(&state), None, "{case}");
        }
    }
    let malformed = ClusterState { bundle: Some(ConfigMap::default()), ..good() };
    assert!(
        decide(&malformed, &Policy::default(), NOW).is_err(),
        "a map without its key says nothing"
    );
}

#[test]
fn what_is_signed_is_current_and_older_cas_vouch_for_it() {
    let (old, new) = (Ca::new(Duration::days(100)), Ca::new(Duration::DAY));
    let cross = cross_sign(&new.certificate, old.signer(), NOW - Duration::DAY).unwrap();
    // The Secret's contents: the cross-certificate, and the older CA with its key.
    let previous = cross.to_pem() + &old.certificate.to_pem() + &old.key.serialize_pem();
    for (previous, length) in [("", 1), (&previous[..], 2)] {
        let mut state = state(&new, previous);
        let signed = signed(&state).unwrap();
        let chain = Certificate::read_all(&signed.certificates);
        assert_eq!(chain.len(), length);
        let holder = |trusted: &Certificate| TrustHolder {
            name: "node".to_owned(),
            trusted: vec![trusted.clone()],
            hosts: NAMES.iter().map(|name| name.parse().unwrap()).collect(),
        };
        let mut holders = vec![holder(&new.certificate)];
        if !previous.is_empty() {
            holders.push(holder(&old.certificate));
        }
        assert_eq!(locked_out(&chain, &holders, NOW), []);
        assert_eq!(chain[0].common_name, NAMES[0]);

        let write = pair_write(&state, &signed).unwrap();
        assert_eq!(write.object.name, "internal-release-image-tls");
        let Change::Patch(patch) = &write.change else { panic!("it is not patched") };
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}), "and no more");
        let keys: Vec<_> = patch["data"].as_object().unwrap().keys().collect();
        assert_eq!(keys, [CERTIFICATE_KEY, PRIVATE_KEY]);

        let stored = [
            (CERTIFICATE_KEY, std::str::from_utf8(&signed.certificates).unwrap()),
            (PRIVATE_KEY, std::str::from_utf8(&signed.key).unwrap()),
        ];
        state.release_image_pair = Some(secret(&stored));
        assert!(matches!(decided(&state), Decision::Current { .. }), "once is enough");
        assert!(value(state.release_image_pair.as_ref().unwrap(), CERTIFICATE_KEY).is_some());
    }
}

#[test]
fn no_more_is_sent_than_clients_take() {
    let new = Ca::new(Duration::DAY);
    let older = |days: i64| {
        let old = Ca::new(Duration::days(100 + days));
        old.certificate.to_pem() + &old.key.serialize_pem()
    };
    let previous: String = (0..60).map(older).collect();
    let signed = signed(&state(&new, &previous)).unwrap();
    let chain = Certificate::read_all(&signed.certificates);
    let bytes: usize = chain.iter().map(|certificate| certificate.der().len()).sum();
    assert!(
        chain.len() > 20 && bytes <= MAX_CHAIN_BYTES,
        "{} certificates, {bytes} bytes",
        chain.len()
    );
}

#[test]
fn a_pair_that_was_read_without_its_version_is_not_written() {
    let ca = Ca::new(Duration::DAY);
    let good = state(&ca, "");
    let signed = signed(&good).unwrap();
    let without = |present| ClusterState { release_image_pair: present, ..state(&ca, "") };
    assert!(pair_write(&without(Some(Secret::default())), &signed).is_err());
    assert!(pair_write(&without(None), &signed).is_err());
}
