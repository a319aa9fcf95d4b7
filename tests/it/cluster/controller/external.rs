//! A serving pair that the real cert-manager makes, served in place of the controller's own while machines with every
//! pointer config that there was boot all the time.

use serde_json::json;

use super::issued::storm;
use super::{ControlledCluster, secrets, serving, value};
use crate::support::book::{example, with};
use crate::support::cert_manager::{Approver, CertManager, collection, condition, make, until};
use crate::support::cluster::NAMESPACE;
use crate::support::{wait_for, wait_until};

const EXTERNAL: [&str; 4] = [
    "--serving-pair",
    "external",
    "--trust-bundle",
    "openshift-machine-config-operator/machine-config-server-trust",
];

fn certificate() -> String {
    format!("{}/machine-config-server", collection(NAMESPACE, "certificates"))
}

impl ControlledCluster {
    /// Has cert-manager make a pair as the book shows, for this name.
    fn certificate(&self, host: &str) {
        let text = example("how-to/external-certificate.md", "kind: Certificate\n");
        self.cluster.apply_text(&with(&text, "api-int.example.com", host));
        until(&self.cluster, &certificate(), "Ready", "True", "Ready");
    }

    /// Waits until cert-manager has nothing more to do for this issuance of the pair.
    ///
    /// It writes the secret first: one that is deleted before this is written again as it was.
    fn issued(&self, revision: u64) {
        let what = format!("revision {revision} of the external pair");
        wait_for(&what, || {
            let certificate = self.cluster.get(&certificate())?;
            let issued = certificate["status"]["revision"] == revision
                && condition(&certificate, "Issuing")
                    .is_none_or(|issuing| issuing["status"] == "False");
            issued.then_some(())
        });
    }

    /// What trust-manager makes of a Bundle.
    fn trusts(&self, roots: &str) {
        let map = json!({
            "metadata": {"name": "machine-config-server-trust"}, "data": {"ca-bundle.crt": roots},
        });
        self.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    }

    /// Waits until what is served is what is in the external secret.
    fn serves_theirs(&self) {
        let secret = format!("{}/machine-config-server-external-tls", secrets(NAMESPACE));
        wait_for("the external pair to be served", || {
            let [theirs, served] = [&secret, &serving()].map(|path| self.cluster.get(path));
            let [theirs, served] = [theirs?, served?].map(|secret| value(&secret, "tls.key"));
            (theirs == served).then_some(())
        });
    }
}

#[test]
fn a_pair_of_cert_managers_is_served_once_pointers_trust_it_and_renewed_while_machines_boot() {
    let site = ControlledCluster::with_issuers();
    site.applies("external-pair");
    let _cert_manager = CertManager::start(&site.cluster, Approver::On);
    let mut controller = site.start(&[]);
    site.settled();
    let before = site.bundle();
    controller.terminate();
    let root = site.root("root-1");
    make(&site.cluster, "", "ClusterIssuer", "corporate", &json!({"ca": {"secretName": "root-1"}}));
    let own = value(&site.object(&serving()), "tls.key");

    storm(&site, before, |machines| {
        let controller = site.start(&EXTERNAL);
        let reported = || controller.readiness().1;
        wait_until("what is missing to be told", || reported().contains("serving certificate"));
        site.certificate("other.example.com");
        site.trusts(&root);
        let because = "machine-config-server-external-tls has another certificate";
        wait_until("the reason", || controller.log().contains(because));
        assert_eq!(value(&site.object(&serving()), "tls.key"), own);
        wait_until("the root to be trusted", || site.bundle().contains(&root));
        machines.join(site.bundle());
        site.issued(1);

        let named = json!({"spec": {"dnsNames": ["localhost"]}});
        site.cluster.patch(&certificate(), &named);
        wait_until("the external pair to be served", || {
            value(&site.object(&serving()), "tls.key") != own
        });
        site.serves_theirs();
        // The command learns from the secret whose pair it is.
        site.settled();
        machines.join(root.clone());
        site.issued(2);

        let before = value(&site.object(&serving()), "tls.key");
        site.cluster.delete(&format!("{}/machine-config-server-external-tls", secrets(NAMESPACE)));
        wait_until("the next pair to be served", || {
            value(&site.object(&serving()), "tls.key") != before
        });
        site.serves_theirs();
    });
}
