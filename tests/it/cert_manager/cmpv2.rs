//! Certificates that a CA beyond the cluster signs, which is asked by CMPv2.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Certificate;
use serde_json::{Map, Value, json};

use super::issuer::{certificates, message};
use super::signing_requests;
use super::site::{GROUP, IssuingCluster, of_cluster};
use crate::support::book::{example, with};
use crate::support::cert_manager::{Approver, collection, until, value};
use crate::support::cluster::NAMESPACE;
use crate::support::cmp_ca::{CmpCa, NAME, Quirk, REFERENCE, SECRET, Seen};
use crate::support::server::binary;
use crate::support::{wait_for, wait_until};

const P10CR: u8 = 4;
const CORPORATE: &str =
    "/apis/pki.machine-config-server.io/v1alpha1/namespaces/default/cmpv2issuers/corporate";

fn url(ca: &CmpCa) -> String {
    format!("http://{}/pkix/", ca.address())
}

/// An issuer's fields, by a password.
fn by_password(ca: &CmpCa) -> Value {
    json!({
        "url": url(ca), "caName": "servers", "allowHTTP": true, "senderKID": REFERENCE,
        "secretRef": {"name": "corporate-ca"}, "certSecretRef": {"name": "corporate-ca"},
    })
}

fn reference() -> Value {
    json!({"group": GROUP, "kind": "CMPv2Issuer", "name": "corporate"})
}

impl IssuingCluster {
    /// Makes a secret, or fills it anew.
    fn secret(&self, namespace: &str, name: &str, values: &[(&str, &str)]) {
        let data: Map<String, Value> = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(BASE64.encode(value))))
            .collect();
        let collection = format!("/api/v1/namespaces/{namespace}/secrets");
        let path = format!("{collection}/{name}");
        if self.cluster.get(&path).is_some() {
            self.cluster.patch(&path, &json!({"data": data}));
        } else {
            let object = json!({"metadata": {"name": name}, "data": data});
            self.cluster.create(&collection, &object);
        }
    }

    /// An issuer of namespace default with a password, for names below apps.example.com.
    fn corporate(&self, ca: &CmpCa) {
        self.corporate_by(ca, &[("password", SECRET), ("ca.crt", &ca.root())]);
    }

    /// The same, by a secret with these values.
    fn corporate_by(&self, ca: &CmpCa, values: &[(&str, &str)]) {
        self.allow_secrets("default");
        self.secret("default", "corporate-ca", values);
        let mut spec = by_password(ca);
        spec["policy"] = json!({"dnsNames": ["*.apps.example.com"]});
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "CMPv2Issuer",
            "metadata": {"name": "corporate"}, "spec": spec,
        });
        let (collection, _) = CORPORATE.rsplit_once('/').expect("a path");
        self.cluster.create(collection, &object);
        until(&self.cluster, CORPORATE, "Ready", "True", "CanSign");
    }

    /// Makes a request that an administrator approves.
    fn approved(&self, name: &str, dns_names: &[&str]) -> String {
        let path = self.request(name, &reference(), dns_names);
        self.judge(&path, "Approved");
        path
    }

    fn issued(&self, path: &str) -> Vec<Certificate> {
        let request = until(&self.cluster, path, "Ready", "True", "Issued");
        certificates(&request, "certificate")
    }

    /// Waits until a request waits, and says this of it.
    fn waits_for(&self, path: &str, reason: &str) {
        wait_for(&format!("{path} to wait: {reason}"), || {
            let object = self.cluster.get(path)?;
            let ready = crate::support::cert_manager::condition(&object, "Ready")?;
            let waits = ready["reason"] == "Pending"
                && ready["message"].as_str().is_some_and(|it| it.contains(reason));
            waits.then_some(())
        });
    }
}

fn requests(ca: &CmpCa) -> usize {
    ca.seen().iter().filter(|seen| matches!(seen, Seen::Request { .. })).count()
}

fn common_names(certificates: &[Certificate]) -> Vec<&str> {
    certificates.iter().map(|it| it.common_name.as_str()).collect()
}

#[test]
fn a_certificate_becomes_a_secret_by_an_issuer_as_the_book_shows_it() {
    let (site, ca) = (IssuingCluster::new(Approver::On), CmpCa::start_tls());
    site.allow_secrets("default");
    let password = format!("{SECRET}\n");
    site.secret("default", "corporate-ca", &[("password", &password), ("ca.crt", &ca.root())]);
    let text = example("how-to/cmpv2-issuer.md", "kind: CMPv2Issuer\nmetadata:");
    let url = format!("https://localhost:{}/pkix", ca.address().port());
    site.cluster.apply_text(&with(&text, "https://ca.example.com/pkix", &url));
    let path = format!("{}/shop", collection("default", "certificates"));
    until(&site.cluster, &path, "Ready", "True", "Ready");

    let secret = site.object("/api/v1/namespaces/default/secrets/shop-tls");
    let chain = Certificate::read_all(value(&secret, "tls.crt").as_bytes());
    let trusted = Certificate::read_all(value(&secret, "ca.crt").as_bytes());
    assert_eq!(common_names(&chain), ["", "issuing"]);
    assert_eq!(chain[0].hosts, ["shop.apps.example.com".parse().expect("a host")].into());
    assert_eq!(trusted, Certificate::read_all(ca.root().as_bytes()), "the root, once");
    let asked = Seen::Request { kind: P10CR, by_password: true };
    assert_eq!(ca.seen(), [asked, Seen::Confirmed]);
}

#[test]
fn the_ca_is_asked_for_what_is_approved_and_covered_and_for_nothing_else() {
    let (mut site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::None));
    site.corporate(&ca);
    let unapproved = site.request("a-unapproved", &reference(), &["a.apps.example.com"]);
    let denied = site.request("b-denied", &reference(), &["a.apps.example.com"]);
    site.judge(&denied, "Denied");
    let refused = site.approved("c-refused", &["a.example.com"]);
    let reported = until(&site.cluster, &refused, "Ready", "False", "Failed");
    assert_eq!(message(&reported, "Ready"), "the issuer's dnsNames do not cover a.example.com");
    until(&site.cluster, &denied, "Ready", "False", "Denied");
    assert_eq!(ca.seen(), [], "nothing was asked for");

    // Twenty at a time, each for its own key.
    let paths: Vec<_> = (0..20)
        .map(|number| {
            site.approved(&format!("d-{number}"), &[&format!("d-{number}.apps.example.com")])
        })
        .collect();
    for (number, path) in paths.iter().enumerate() {
        let name = format!("d-{number}.apps.example.com");
        let chain = site.issued(path);
        assert_eq!(chain[0].hosts, [name.parse().expect("a host")].into());
        assert_eq!(common_names(&chain[1..]), ["issuing"]);
    }
    assert_eq!(ca.seen().len(), 40, "a request and a confirmation each: {:?}", ca.seen());
    let left = site.object(&unapproved);
    assert!(left.get("status").is_none(), "{left}");
    site.cert_manager.expect_running();
}

#[test]
fn a_request_that_fails_temporarily_is_retried_until_it_succeeds() {
    let (site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::Waits(2)));
    site.corporate(&ca);
    let approval = site.approved("approval", &["a.apps.example.com"]);
    site.waits_for(&approval, "the CA has not decided yet");
    site.issued(&approval);

    // An administrator is about to approve it while the server is away: it is not asked for again.
    ca.behave(Quirk::Waits(usize::MAX));
    let slow = site.approved("slow", &["a.apps.example.com"]);
    site.waits_for(&slow, "the CA has not decided yet");
    let asked = requests(&ca);
    ca.behave(Quirk::Unavailable);
    site.waits_for(&slow, "answers 503 Service Unavailable");
    ca.behave(Quirk::Waits(0));
    site.issued(&slow);
    assert_eq!(requests(&ca), asked, "{:?}", ca.seen());

    // One that has lost it meanwhile is asked again.
    ca.behave(Quirk::Waits(usize::MAX));
    let lost = site.approved("forgotten", &["a.apps.example.com"]);
    site.waits_for(&lost, "the CA has not decided yet");
    ca.behave(Quirk::Unavailable);
    site.waits_for(&lost, "answers 503 Service Unavailable");
    let asked = requests(&ca);
    ca.behave(Quirk::Loses);
    site.issued(&lost);
    assert_eq!(requests(&ca), asked + 1, "{:?}", ca.seen());

    // The server is there again, as it was.
    ca.behave(Quirk::NotFound);
    let absent = site.approved("absent", &["b.apps.example.com"]);
    site.waits_for(&absent, "answers 404 Not Found");
    let reported = "CMPv2Issuer default/corporate: http://";
    wait_until("it to be logged", || site.issuer.log().contains(reported));
    ca.behave(Quirk::WrongNonce);
    site.waits_for(&absent, "it does not repeat the nonce");
    ca.behave(Quirk::None);
    site.issued(&absent);

    // An administrator gave the wrong password.
    site.secret("default", "corporate-ca", &[("password", "another one")]);
    let touched = json!({"metadata": {"annotations": {"touched": "once"}}});
    site.cluster.patch(CORPORATE, &touched);
    let unknown = site.approved("unknown", &["c.apps.example.com"]);
    site.waits_for(&unknown, "badMessageCheck");
    site.secret("default", "corporate-ca", &[("password", SECRET)]);
    site.issued(&unknown);

    // The issuer leads nowhere, and then back.
    site.cluster.patch(CORPORATE, &json!({"spec": {"url": "http://127.0.0.1:1/pkix"}}));
    let nowhere = site.approved("nowhere", &["d.apps.example.com"]);
    site.waits_for(&nowhere, "http://127.0.0.1:1/pkix/servers: ");
    site.cluster.patch(CORPORATE, &json!({"spec": {"url": url(&ca)}}));
    site.issued(&nowhere);
}

#[test]
fn a_refusal_and_what_was_not_asked_for_fail_in_words() {
    let (site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::None));
    site.corporate(&ca);
    for (name, quirk, expected) in [
        ("refuses", Quirk::Refuses, "the server refuses: rejection"),
        ("error", Quirk::Error, "the server refuses: rejection"),
        ("wrong-key", Quirk::WrongKey, "the issued certificate is for another key"),
        ("stranger", Quirk::IssuedByUnknownCa, "the issued certificate is not trusted"),
        ("is-ca", Quirk::MakesCa, "more than was requested: it is a CA certificate"),
        ("names", Quirk::NamesMore, "more than was requested: it is for other.example.com too"),
    ] {
        ca.behave(quirk);
        let path = site.approved(name, &["a.apps.example.com"]);
        let reported = until(&site.cluster, &path, "Ready", "False", "Failed");
        let told_so = message(&reported, "Ready");
        assert!(told_so.contains(expected), "{name}: {told_so}");
        assert!(reported["status"]["certificate"].is_null(), "{reported}");
        assert!(reported["status"]["failureTime"].is_string(), "{reported}");
    }
    ca.behave(Quirk::Mods);
    let changed = site.approved("changed", &["a.apps.example.com"]);
    let reported = until(&site.cluster, &changed, "Ready", "True", "Issued");
    let expected = "signed, with differences from the request: granted with changes";
    assert!(message(&reported, "Ready").starts_with(expected), "{reported}");
}

#[test]
fn a_certificate_without_a_known_root_has_none_in_its_status() {
    let (site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::NoRoot));
    site.corporate_by(&ca, &[("password", SECRET)]);
    let path = site.approved("rootless", &["a.apps.example.com"]);
    assert_eq!(common_names(&site.issued(&path)), ["", "issuing"]);
    assert!(site.object(&path)["status"].get("ca").is_none(), "{}", site.object(&path));
}

#[test]
fn a_request_that_goes_away_is_not_asked_for_any_more() {
    let (site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::Waits(usize::MAX)));
    site.corporate(&ca);
    let path = site.approved("gone", &["a.apps.example.com"]);
    wait_until("two polls", || ca.seen().len() > 2);
    site.cluster.delete(&path);
    // One more poll may be under way; after a second request of another answer there are no polls of the first.
    ca.behave(Quirk::None);
    let next = site.approved("next", &["b.apps.example.com"]);
    site.issued(&next);
    let confirmed = ca.seen().iter().filter(|seen| **seen == Seen::Confirmed).count();
    assert_eq!(confirmed, 1, "{:?}", ca.seen());
}

#[test]
fn a_cluster_issuer_asks_by_a_pair_that_signs_and_serves_kubernetes_own_requests() {
    let (site, ca) = (IssuingCluster::new(Approver::Off), CmpCa::start(Quirk::None));
    let directory = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| fs::read_to_string(directory.path().join(name)).expect("a file");
    enrol(&ca, directory.path());
    let spec = json!({
        "signer": {"cmpv2": {
            "url": url(&ca), "caName": "servers", "allowHTTP": true, "recipient": NAME,
            "certSecretRef": {"name": "ra", "certRef": "ra.pem", "keyRef": "ra-key.pem", "cacertRef": "cas.pem"},
        }},
        "policy": {"dnsNames": ["*.apps.example.com"]},
    });
    let issuer = site.issuer("", "corporate", &spec);
    let says = |reason: &str| {
        wait_for(reason, || {
            let object = site.cluster.get(&issuer)?;
            let ready = crate::support::cert_manager::condition(&object, "Ready")?;
            (ready["reason"] == "CannotSign").then_some(())?;
            ready["message"].as_str()?.contains(reason).then_some(())
        });
    };
    says("cannot read Secret ");
    site.allow_secrets(NAMESPACE);
    says(&format!("Secret {NAMESPACE}/ra not found"));
    let (pair, key) = (file("tls.crt"), file("tls.key"));
    site.secret(NAMESPACE, "ra", &[("ra.pem", &pair), ("ra-key.pem", &key)]);
    says("cas.pem of Secret ra not found");
    let strange = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    site.secret(NAMESPACE, "ra", &[("cas.pem", &ca.root()), ("ra-key.pem", &strange)]);
    says("ra-key.pem of Secret ra: not the key of the first certificate");
    site.secret(NAMESPACE, "ra", &[("ra-key.pem", &key)]);
    until(&site.cluster, &issuer, "Ready", "True", "CanSign");

    let path = site.request("web", &of_cluster("corporate"), &["web.apps.example.com"]);
    site.judge(&path, "Approved");
    assert_eq!(common_names(&site.issued(&path)[1..]), ["issuing"]);
    let signer = "clusterissuers.pki.machine-config-server.io/corporate";
    let chain = signing_requests::signed(&site, "own", signer, "own.apps.example.com");
    assert_eq!(chain[0].hosts, ["own.apps.example.com".parse().expect("a host")].into());
    let by_pair = Seen::Request { kind: P10CR, by_password: false };
    assert_eq!(ca.seen().iter().filter(|seen| **seen == by_pair).count(), 2, "{:?}", ca.seen());
}

/// A pair of the CA's to sign requests with: `tls.crt` and `tls.key`.
fn enrol(ca: &CmpCa, directory: &Path) {
    fs::write(directory.join("password"), SECRET).expect("a write");
    let output = binary()
        .current_dir(directory)
        .args(["cmp", "enroll", "--url", &url(ca), "--ca-name", "servers", "--allow-http"])
        .args(["--secret-file", "password", "--sender-kid", REFERENCE, "--subject", "CN=ra"])
        .args(["--key-out", "tls.key", "--out", "tls.crt"])
        .output()
        .expect("the built binary");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
