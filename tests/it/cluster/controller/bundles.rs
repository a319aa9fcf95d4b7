//! Bundles of the real trust-manager's: one takes our CAs into all namespaces, another brings an organisation's, which
//! the controller trusts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Certificate;
use serde_json::json;

use super::issued::storm;
use super::{ControlledCluster, secrets, serving, value};
use crate::support::book::{example, with};
use crate::support::cert_manager::{Approver, CertManager, collection, make, open_store, until};
use crate::support::cluster::NAMESPACE;
use crate::support::trust_manager::TrustManager;
use crate::support::{wait_for, wait_until};

const EXTERNAL: [&str; 4] = [
    "--serving-pair",
    "external",
    "--trust-bundle",
    "openshift-machine-config-operator/machine-config-server-trust:ca-bundle.crt",
];

/// Certificates in an order of their own: a bundle has them in none.
fn sorted(mut certificates: Vec<Certificate>) -> Vec<Certificate> {
    certificates.sort_by_key(Certificate::fingerprint);
    certificates
}

fn certificates(text: &str) -> Vec<Certificate> {
    sorted(Certificate::read_all(text.as_bytes()))
}

fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

impl ControlledCluster {
    /// Applies what the book shows.
    fn follow(&self, text: &str) {
        self.cluster.apply_text(text);
    }

    /// Waits until the Bundle's config map in a namespace holds these, as PEM and for Java.
    fn has_everywhere(&self, namespaces: &[&str], roots: &[Certificate]) {
        for namespace in namespaces {
            let path = format!("{}/machine-config-server", config_maps(namespace));
            let map = wait_for(&format!("{} CAs in {path}", roots.len()), || {
                let map = self.cluster.get(&path)?;
                (certificates(map["data"]["ca.crt"].as_str()?) == roots).then_some(map)
            });
            let store = map["binaryData"]["truststore.p12"].as_str().expect("a truststore");
            let store = BASE64.decode(store).expect("base64");
            let read = open_store("truststore.p12", "changeit", &store);
            assert!(read.chain.is_empty());
            assert_eq!(sorted(read.trusted), roots, "{namespace}");
        }
    }
}

#[test]
fn our_cas_are_in_every_namespace_and_so_is_a_new_one() {
    let site = ControlledCluster::new();
    let _controller = site.start(&[]);
    site.settled();
    let mut trust_manager = TrustManager::new(&site.cluster, NAMESPACE);
    site.follow(&example("how-to/bundles.md", "kind: Bundle\n"));
    let first = certificates(&site.bundle());
    assert_eq!(first.len(), 1);
    let namespaces = ["default", "openshift-config", NAMESPACE];
    site.has_everywhere(&namespaces, &first);
    trust_manager.expect_running();

    site.rotate("again");
    let both = certificates(&site.bundle());
    assert_eq!(both.len(), 2);
    site.has_everywhere(&namespaces, &both);
    site.cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "made-later"}}));
    site.has_everywhere(&["made-later"], &both);
}

#[test]
fn an_organisations_roots_are_taken_from_a_bundle_and_the_next_before_a_pair_by_it_is_served() {
    let site = ControlledCluster::with_issuers();
    site.applies("external-pair");
    let _cert_manager = CertManager::start(&site.cluster, Approver::On);
    let _trust_manager = TrustManager::new(&site.cluster, NAMESPACE);
    let mut controller = site.start(&[]);
    site.settled();
    let before = site.bundle();
    controller.terminate();
    let first = site.root("root-1");
    make(&site.cluster, "", "ClusterIssuer", "corporate", &json!({"ca": {"secretName": "root-1"}}));
    let text = example("how-to/external-certificate.md", "kind: Certificate\n");
    site.follow(&with(&text, "api-int.example.com", "localhost"));
    let certificate = format!("{}/machine-config-server", collection(NAMESPACE, "certificates"));
    until(&site.cluster, &certificate, "Ready", "True", "Ready");
    let external = format!("{}/machine-config-server-external-tls", secrets(NAMESPACE));
    // Beside the pair itself, what is served has what leads to CAs of before: the key tells whose it is.
    let serves_one_by = |root: &str| {
        let root = &certificates(root)[0];
        wait_for("a pair of the root's to be served", || {
            let [theirs, served] = [&external, &serving()].map(|path| site.cluster.get(path));
            let (theirs, served) = (theirs?, served?);
            let leaf = Certificate::read_all(&value(&theirs, "tls.crt")).into_iter().next()?;
            let same = value(&theirs, "tls.key") == value(&served, "tls.key");
            (same && leaf.is_issued_by(root)).then_some(())
        });
    };

    storm(&site, before, |machines| {
        let _controller = site.start(&EXTERNAL);
        let map = json!({"metadata": {"name": "corporate-roots"}, "data": {"ca.crt": first}});
        site.cluster.create(&config_maps(NAMESPACE), &map);
        site.follow(&example("how-to/external-certificate.md", "kind: Bundle\n"));
        serves_one_by(&first);
        let bundle = site.bundle();
        assert!(bundle.contains(&first), "{bundle}");
        machines.join(bundle);

        let second = site.root("root-2");
        let both = json!({"data": {"ca.crt": format!("{first}{second}")}});
        site.cluster.patch(&format!("{}/corporate-roots", config_maps(NAMESPACE)), &both);
        wait_until("the next root to be trusted", || site.bundle().contains(&second));
        machines.join(site.bundle());
        let moved = json!({"spec": {"ca": {"secretName": "root-2"}}});
        site.cluster.patch(&format!("{}/corporate", collection("", "clusterissuers")), &moved);
        let another = json!({"spec": {"dnsNames": ["localhost", "mcs.example.com"]}});
        site.cluster.patch(&certificate, &another);
        serves_one_by(&second);
        machines.join(second);
    });
}
