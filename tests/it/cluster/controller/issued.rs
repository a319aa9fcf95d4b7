//! A CA that the real cert-manager issues: taken over from one that issued itself, renewed, and issued by a second
//! root, while machines with every pointer config that there was boot all the time.

use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use pki::Certificate;
use serde_json::{Value, json};

use super::{
    ControlledCluster, ROTATE, ca, mount, pointer, secrets, server, serving, trusted, value,
};
use crate::support::book::example;
use crate::support::cert_manager::{
    Approver, CLUSTER_RESOURCES, CertManager, collection, make, until,
};
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::http::Client;
use crate::support::machine::Machine;
use crate::support::meanwhile::meanwhile;
use crate::support::server::{Server, binary};
use crate::support::{wait_for, wait_until};

const ISSUER: [&str; 2] = ["--ca-from-issuer", "ClusterIssuer/corporate"];
const ISSUED_BY: &str = "machineconfiguration.openshift.io/ca-issuer";

/// Applies the controller's manifests with a component.
fn apply_with(cluster: &Cluster, component: &str) {
    cluster.apply_overlay("deploy/controller", &[&format!("deploy/components/{component}")]);
}

impl ControlledCluster {
    /// One whose controller may ask cert-manager's issuers.
    pub(super) fn with_issuers() -> Self {
        Self::of(Cluster::prepared("openshift-with-issuers", |cluster| {
            cluster.become_openshift();
            apply_with(cluster, "ca-from-issuer");
            CertManager::define(cluster);
            make(cluster, "", "ClusterIssuer", "self", &json!({"selfSigned": {}}));
        }))
    }

    /// Gives the controller's account what a component does.
    pub(super) fn applies(&self, component: &str) {
        apply_with(&self.cluster, component);
    }

    /// An organisation's root.
    pub(super) fn root(&self, name: &str) -> String {
        let spec = json!({
            "isCA": true, "commonName": name, "secretName": name, "duration": "175200h",
            "privateKey": {"algorithm": "ECDSA", "size": 256},
            "issuerRef": {"name": "self", "kind": "ClusterIssuer", "group": "cert-manager.io"},
        });
        make(&self.cluster, CLUSTER_RESOURCES, "Certificate", name, &spec);
        let path = format!("{}/{name}", collection(CLUSTER_RESOURCES, "certificates"));
        until(&self.cluster, &path, "Ready", "True", "Ready");
        let secret = self.object(&format!("{}/{name}", secrets(CLUSTER_RESOURCES)));
        String::from_utf8(value(&secret, "tls.crt")).expect("text")
    }

    /// The secret of the CA, once it is another one than this, and all is in order.
    fn another_ca(&self, before: &[u8]) -> Value {
        let ca = wait_for("another CA", || {
            let ca = self.cluster.get(&ca())?;
            (value(&ca, "tls.crt") != before).then_some(ca)
        });
        self.settled();
        let request = format!("{}/machine-config-server-ca-request", secrets(NAMESPACE));
        wait_until("the request to be discarded", || self.cluster.get(&request).is_none());
        ca
    }

    fn ask_for_a_ca(&self, value: &str) {
        // One that is asked for within an hour of another is the same, unless it is forced.
        let value = format!("{value} --force");
        self.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: value}}}));
    }

    fn requests(&self) -> Vec<Value> {
        let list = self.object(&collection(NAMESPACE, "certificaterequests"));
        list["items"].as_array().cloned().unwrap_or_default()
    }
}

/// The CAs that a machine trusts, PEM.
type Bundle = String;

/// The bundles that machines of a storm boot with.
pub(super) struct Machines<'a> {
    server: &'a Server,
    bundles: Mutex<Vec<Bundle>>,
}

impl Machines<'_> {
    /// Has machines boot with this bundle too, from the moment on that one does.
    ///
    /// For what vouches for the pair of now and not for the one before: the server is a moment behind the secret.
    pub(super) fn join(&self, bundle: Bundle) {
        let client = Client::tls(self.server.secure(), bundle.as_bytes());
        wait_for("a machine with this bundle to boot", || {
            client.try_request("GET", "/config/worker", &[]).ok()
        });
        self.bundles.lock().expect("no panic").push(bundle);
    }
}

/// Boots machines with a bundle of before and those that join, for as long as `run` takes, and keeps the pair mounted.
pub(super) fn storm(site: &ControlledCluster, before: Bundle, run: impl FnOnce(&Machines<'_>)) {
    let (server, pair) = server(site);
    let machines = Machines { server: &server, bundles: Mutex::new(vec![before]) };
    let mounted = Mutex::new(Value::Null);
    let keep_mounted = |_| {
        let secret = site.object(&serving());
        let mut mounted = mounted.lock().expect("no panic");
        if secret["data"] != *mounted {
            mount(site, &pair);
            *mounted = secret["data"].clone();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let boot = |_| {
        let known = machines.bundles.lock().expect("no panic").clone();
        for bundle in known {
            let client = Client::tls(server.secure(), bundle.as_bytes());
            assert_eq!(client.get("/config/worker").status, 200, "{bundle}");
        }
    };
    meanwhile(1, keep_mounted, |_| {
        meanwhile(1, boot, |boots| {
            run(&machines);
            boots.continues(20);
        });
    });
}

#[test]
fn a_ca_is_issued_renewed_and_issued_by_a_second_root_while_machines_boot() {
    let site = ControlledCluster::with_issuers();
    let _cert_manager = CertManager::start(&site.cluster, Approver::On);
    let mut controller = site.start(&[]);
    site.settled();
    let own = value(&site.object(&ca()), "tls.crt");
    let before = site.bundle();
    controller.terminate();
    let first = site.root("root-1");
    make(&site.cluster, "", "ClusterIssuer", "corporate", &json!({"ca": {"secretName": "root-1"}}));

    storm(&site, before, |machines| {
        let _controller = site.start(&ISSUER);
        let ca = site.another_ca(&own);
        assert_eq!(
            ca["metadata"]["annotations"][ISSUED_BY],
            "cert-manager.io/ClusterIssuer/corporate"
        );
        wait_until("the root to be trusted", || site.bundle().contains(&first));
        let issued = value(&ca, "tls.crt");
        let bundle = site.bundle();
        assert!(!bundle.contains(str::from_utf8(&issued).expect("text")), "{bundle}");
        assert!(bundle.contains(str::from_utf8(&own).expect("text")), "{bundle}");
        machines.join(bundle);
        // Who trusts the root alone boots too.
        machines.join(first.clone());

        site.ask_for_a_ca("renew");
        let ca = site.another_ca(&issued);
        assert!(site.bundle().contains(&first), "{}", site.bundle());
        let issued = value(&ca, "tls.crt");

        let second = site.root("root-2");
        let moved = json!({"spec": {"ca": {"secretName": "root-2"}}});
        site.cluster.patch(&format!("{}/corporate", collection("", "clusterissuers")), &moved);
        site.ask_for_a_ca("move");
        site.another_ca(&issued);
        wait_until("the second root to be trusted", || site.bundle().contains(&second));
        machines.join(site.bundle());
        machines.join(second);
        // Each was asked for once.
        assert_eq!(site.requests().len(), 3, "{:#?}", site.requests());
    });
}

#[test]
fn from_nothing_a_machine_boots_that_trusts_the_organisations_root_alone() {
    let site = ControlledCluster::with_issuers();
    let _cert_manager = CertManager::start(&site.cluster, Approver::On);
    let directory = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| directory.path().join(name);
    let path = |name: &str| at(name).to_str().expect("text").to_owned();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7300"])
        .args(["-subj", "/CN=Example root", "-keyout", "root.key", "-out", "root.crt"])
        .current_dir(&directory)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (certificate, key) =
        (format!("--cert={}", path("root.crt")), format!("--key={}", path("root.key")));
    let secret = ["create", "secret", "tls", "corporate-root", &certificate, &key];
    site.cluster.kubectl(&[&["-n", CLUSTER_RESOURCES][..], &secret].concat());
    fs::write(at("issuer.yaml"), example("how-to/cert-manager.md", "secretName: corporate-root"))
        .expect("a write");
    site.cluster.apply(&["-f", &path("issuer.yaml")]);

    let _controller = site.start(&ISSUER);
    site.settled();
    let (server, _pair) = server(&site);
    let pointer = pointer(&site, &server);
    Machine::new().boot(&pointer);
    let root = fs::read(at("root.crt")).expect("a root");
    let trusted = trusted(pointer.as_bytes());
    assert_eq!(Certificate::read_all(&trusted), Certificate::read_all(&root), "the root alone");
    fs::write(at("worker.ign"), &pointer).expect("a write");
    let address = server.secure().to_string();
    let checked = binary()
        .args(["certs", "check", "--pointer", &path("worker.ign"), "--connect", &address])
        .output()
        .expect("the built binary");
    let reported = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && reported.contains("boots from "), "{checked:?}");
}

#[test]
fn a_request_that_waits_or_is_denied_leaves_the_ca_that_is_there() {
    let site = ControlledCluster::with_issuers();
    let _cert_manager = CertManager::start(&site.cluster, Approver::Off);
    make(&site.cluster, "", "ClusterIssuer", "corporate", &json!({"selfSigned": {}}));
    let mut before = site.start(&[]);
    site.settled();
    before.terminate();
    let own = site.serial(&ca());
    let controller = site.start(&ISSUER);
    let request = wait_for("the request", || site.requests().into_iter().next());
    let name = request["metadata"]["name"].as_str().expect("a name").to_owned();
    assert_eq!(request["spec"]["isCA"], true);
    assert_eq!(request["spec"]["duration"], "87600h0m0s");
    assert_eq!(request["status"]["certificate"], Value::Null);

    let denied = json!({"status": {"conditions": [{
        "type": "Denied", "status": "True", "reason": "Test", "message": "no CAs for machines",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let path = format!("{}/{name}/status", collection(NAMESPACE, "certificaterequests"));
    site.cluster.patch(&path, &denied);
    let reported = "the issuer does not issue the signing CA";
    wait_until("the refusal to be told", || controller.readiness().1.contains(reported));
    let reason = "the request was denied: no CAs for machines";
    wait_until("the reason", || controller.log().contains(reason));
    assert_eq!(site.serial(&ca()), own);
    assert_eq!(site.requests().len(), 1);

    // An hour later another one takes its place.
    let at = "machineconfiguration.openshift.io/requested-at";
    let past = json!({"metadata": {"annotations": {at: "2026-01-01T00:00:00Z"}}});
    let secret = format!("{}/machine-config-server-ca-request", secrets(NAMESPACE));
    site.cluster.patch(&secret, &past);
    let names = || -> Vec<Value> {
        site.requests().into_iter().map(|it| it["metadata"]["name"].clone()).collect()
    };
    let second = wait_for("another request in its place", || {
        Some(names()).filter(|names| names.len() == 1 && names[0] != name)
    });
    // At once where an administrator deletes the secret. Its request goes with it where garbage is collected.
    site.cluster.delete(&secret);
    wait_until("another request at once", || names().iter().any(|it| !second.contains(it)));
    assert_eq!(site.serial(&ca()), own);
}

#[test]
fn without_cert_manager_its_absence_is_reported() {
    let site = ControlledCluster::new();
    site.applies("ca-from-issuer");
    let mut before = site.start(&[]);
    site.settled();
    before.terminate();
    let controller = site.start(&ISSUER);
    let reported = "the issuer does not issue the signing CA";
    wait_until("it to be told", || controller.readiness().1.contains(reported));
    let reason = "cert-manager is not installed";
    wait_until("the reason", || controller.log().contains(reason));
    // The rest is kept: a new pool gets its user data.
    site.pool("edge");
    assert!(!site.user_data("edge-user-data-managed").is_empty());
}
