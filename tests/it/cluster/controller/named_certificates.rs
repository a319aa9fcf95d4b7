//! What the controller does beside the reference's: other objects that name its certificates, and
//! what it leaves alone.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::{Certificate, Host};
use serde_json::{Value, json};

use super::{
    ControlledCluster, Controller, ROTATE, USER_DATA_NAMESPACE, ca, pointer, read, rsa_pair,
    secrets, server, serving, tls_secret, user_data, user_data_config,
};
use crate::support::cluster::NAMESPACE;
use crate::support::machine::Machine;
use crate::support::openssl::openssl;
use crate::support::pair::Pair;
use crate::support::server::binary;
use crate::support::{wait_for, wait_until};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RELEASE_IMAGES: &str = "/apis/machineconfiguration.openshift.io/v1/internalreleaseimages";
const PKIS: &str = "/apis/config.openshift.io/v1alpha1/pkis";
const INFRASTRUCTURES: &str = "/apis/config.openshift.io/v1/infrastructures";
const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";

fn release_image_pair() -> String {
    format!("{}/internal-release-image-tls", secrets(NAMESPACE))
}

impl ControlledCluster {
    /// Defines a kind with any fields, where the cluster has no definition of it.
    pub(super) fn define(&self, group: &str, version: &str, kind: &str, plural: &str) {
        let name = format!("{plural}.{group}");
        if self.cluster.get(&format!("{DEFINITIONS}/{name}")).is_none() {
            let definition = json!({
                "metadata": {"name": name},
                "spec": {
                    "group": group, "scope": "Cluster",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                    "versions": [{
                        "name": version, "served": true, "storage": true,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                    }],
                },
            });
            self.cluster.create(DEFINITIONS, &definition);
        }
        let path = format!("/apis/{group}/{version}/{plural}");
        wait_for("the kind", || self.cluster.get(&path));
    }

    /// An installation on bare metal with these internal addresses.
    pub(super) fn set_addresses(&self, addresses: &[&str]) {
        let path = format!("{INFRASTRUCTURES}/cluster");
        if self.cluster.get(&path).is_none() {
            self.define("config.openshift.io", "v1", "Infrastructure", "infrastructures");
            let object = json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
                "metadata": {"name": "cluster"}, "spec": {},
            });
            self.cluster.create(INFRASTRUCTURES, &object);
        }
        let status = json!({"status": {
            "apiServerInternalURI": "https://api-int.example.com:6443",
            "platformStatus": {
                "type": "BareMetal", "baremetal": {"apiServerInternalIPs": addresses},
            },
        }});
        self.cluster.patch(&format!("{path}/status"), &status);
    }

    /// The certificates of a pair, the leaf first.
    pub(super) fn chain(&self, path: &str) -> Vec<Certificate> {
        Certificate::read_all(&self.serial(path))
    }

    /// Waits until a pair's certificate has these names and no others.
    fn named(&self, path: &str, names: &[&str]) -> Certificate {
        let names = names.iter().map(|name| name.parse::<Host>().expect("a host")).collect();
        wait_for("the names", || {
            self.chain(path).into_iter().next().filter(|leaf| leaf.hosts == names)
        })
    }

    fn version(&self, path: &str) -> Value {
        self.object(path)["metadata"]["resourceVersion"].clone()
    }

    /// Makes the pair of the internal release image as the installer does, with others' annotations.
    fn installs_release_image_pair(&self, annotations: &Value) {
        let directory = self.directory.path();
        rsa_pair(directory, "installer");
        let (certificate, key) =
            (read(&directory.join("tls.crt")), read(&directory.join("tls.key")));
        let (name, kind) = ("internal-release-image-tls", "kubernetes.io/tls");
        let secret = tls_secret(name, kind, &certificate, &key, annotations);
        self.cluster.create(&secrets(NAMESPACE), &secret);
    }
}

#[test]
fn the_pair_of_the_internal_release_image_follows_ca_and_names() {
    let site = ControlledCluster::new();
    let group = "machineconfiguration.openshift.io";
    site.define(group, "v1", "InternalReleaseImage", "internalreleaseimages");
    site.set_addresses(&["192.0.2.5"]);
    let directory = site.directory.path();
    let others = json!({"example.com/of-others": "stays"});
    site.installs_release_image_pair(&others);
    let before = site.version(&release_image_pair());

    let controller = site.start_settled(&[]);
    assert_eq!(site.version(&release_image_pair()), before, "there is no internal release image");
    // The list of the reference's controller, though the certificate has another name besides.
    let names = site.object(&serving())["metadata"]["annotations"][HOSTNAMES].clone();
    assert_eq!(names, "192.0.2.5,api-int.example.com");
    site.named(&serving(), &["192.0.2.5", "api-int.example.com", "localhost"]);

    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "InternalReleaseImage",
        "metadata": {"name": "cluster"},
        "spec": {"releases": [{"name": "ocp-release-bundle-5.0.0-x86_64"}]},
    });
    site.cluster.create(RELEASE_IMAGES, &object);
    let own = ["api-int.example.com", "localhost", "127.0.0.1", "::1"];
    let names = [&own[..], &["192.0.2.5"]].concat();
    let first = site.named(&release_image_pair(), &names);
    let signed = site.object(&release_image_pair());
    assert_eq!(signed["type"], "kubernetes.io/tls");
    assert_eq!(signed["metadata"]["annotations"], others, "nothing else is written");
    let oldest = site.newest();
    let verifies = |trusted: &str| {
        fs::write(directory.join("trusted"), trusted).expect("a write");
        fs::write(directory.join("chain"), site.serial(&release_image_pair())).expect("a write");
        openssl(directory, &["verify", "-CAfile", "trusted", "-untrusted", "chain", "chain"]);
    };
    verifies(&oldest);

    // A new CA signs it, and who knows only the older one follows.
    site.rotate("now");
    let second = wait_for("the new CA's", || {
        let leaf = site.chain(&release_image_pair()).remove(0);
        (leaf.issuer != first.issuer).then_some(leaf)
    });
    assert_eq!(second.hosts, first.hosts);
    verifies(&oldest);
    verifies(&site.newest());

    site.set_addresses(&["192.0.2.5", "2001:db8::5"]);
    site.named(&release_image_pair(), &[&own[..], &["192.0.2.5", "2001:db8::5"]].concat());
    for reason in ["issuer", "names"] {
        let metric =
            format!("mcs_rotations_total{{what=\"internal-release-image\",reason=\"{reason}\"}} ");
        // It counts what it has written after that is to be seen.
        wait_until(&metric, || controller.metrics().contains(&metric));
    }

    nobody_else_makes_the_release_image_pair(&site, &controller);
}

/// The installer makes the secret.
fn nobody_else_makes_the_release_image_pair(site: &ControlledCluster, controller: &Controller) {
    site.cluster.delete(&release_image_pair());
    wait_until("the log to tell", || {
        controller.log().contains("the Secret that the installer makes is missing")
    });
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    assert!(site.cluster.get(&release_image_pair()).is_none());
}

#[test]
fn keys_are_of_the_kinds_that_the_cluster_asks_for() {
    let site = ControlledCluster::new();
    site.define("config.openshift.io", "v1alpha1", "PKI", "pkis");
    let rsa = |bits: u32| json!({"key": {"algorithm": "RSA", "rsa": {"keySize": bits}}});
    let ecdsa = |curve: &str| json!({"key": {"algorithm": "ECDSA", "ecdsa": {"curve": curve}}});
    let management = |custom: Value| json!({"spec": {"certificateManagement": {"mode": "Custom", "custom": custom}}});
    let mut object = management(json!({"defaults": rsa(8192)}));
    object["apiVersion"] = "config.openshift.io/v1alpha1".into();
    object["kind"] = "PKI".into();
    object["metadata"]["name"] = "cluster".into();
    site.cluster.create(PKIS, &object);
    let controller = site.start(&[]);
    let reported = "PKI cluster: spec.certificateManagement.custom.defaults.key: \
                cannot make RSA keys of 8192 bits\n";
    let readiness = format!("certificates: {reported}kinds of keys: {reported}");
    wait_until("readiness to tell", || controller.readiness() == (503, readiness.clone()));
    assert!(site.cluster.get(&ca()).is_none(), "no other kind stands in");

    let path = format!("{PKIS}/cluster");
    let change = json!({"defaults": rsa(2048), "signerCertificates": ecdsa("P384"),
                        "servingCertificates": ecdsa("P521")});
    site.cluster.patch(&path, &management(change));
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    wait_until("it to be ready", || controller.readiness().0 == 200);
    let kind = |path: &str| site.chain(path).remove(0).key_kind;
    assert_eq!(kind(&ca()), "ECDSA P-384");
    assert_eq!(kind(&serving()), "ECDSA P-521");
    let (server, _) = server(&site);
    Machine::new().boot(&pointer(&site, &server));

    // What there is stays; the next one is of the new kind.
    let before = [ca(), serving()].map(|path| site.version(&path));
    let mut rsa = rsa(3072);
    rsa["key"]["ecdsa"] = Value::Null;
    site.cluster.patch(&path, &management(json!({"servingCertificates": rsa})));
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    site.settled();
    assert_eq!([ca(), serving()].map(|path| site.version(&path)), before);
    site.cluster.patch(&serving(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_until("a new pair", || kind(&serving()) == "RSA 3072");
    assert_eq!(kind(&ca()), "ECDSA P-384");
}

#[test]
fn a_ca_that_has_only_the_name_of_ours_is_reported_and_left_alone() {
    let site = ControlledCluster::new();
    let controller = site.start_settled(&[]);
    let directory = site.directory.path();
    rsa_pair(directory, "root-ca");
    let corporate = read(&directory.join("ca.crt"));
    let source = |pem: &str| json!({"source": format!("data:;base64,{}", BASE64.encode(pem))});
    // It fetches from somewhere else, so that nobody is locked out.
    let alone = user_data_config("3.1.0", &source(&corporate)).to_string();
    let alone = alone.replace("localhost:22623/config/worker", "ignition.example.com/worker");
    site.make_user_data("alone-user-data", alone.as_bytes());
    let own = site.newest();
    let mut beside = user_data_config("3.1.0", &source(&corporate));
    let cas = &mut beside["ignition"]["security"]["tls"]["certificateAuthorities"];
    cas.as_array_mut().expect("a list").push(source(&own));
    // No number of JavaScript's holds it.
    let beside = beside.to_string().replacen('{', "{ \"x-many\": 12345678901234567890123, ", 1);
    site.make_user_data("beside-user-data", beside.as_bytes());

    let reason =
        "trusts a CA with the name of this server's, but with an unknown certificate and key";
    wait_until("the log to tell", || controller.log().contains(reason));
    let metric = "mcs_user_data_left_alone{reason=\"name-only\"} 1";
    wait_until("the metric", || controller.metrics().contains(metric));
    wait_until("an event", || site.cluster.events().contains(reason));
    let line = format!("Secret {USER_DATA_NAMESPACE}/alone-user-data: not updated: {reason}");
    for command in ["show", "check"] {
        let text = site.certs(&[command]).done().output;
        assert!(text.contains(&line), "{command}: {text}");
    }

    site.rotate("now");
    assert_eq!(site.user_data("alone-user-data"), alone.as_bytes());
    let after = String::from_utf8(site.user_data("beside-user-data")).expect("text");
    let bundle = BASE64.encode(site.bundle());
    let written = format!("data:text/plain;charset=utf-8;base64,{bundle}");
    let expected = beside.replace(&format!("data:;base64,{}", BASE64.encode(&own)), &written);
    assert_eq!(after, expected, "every other byte stays");
}

#[test]
fn the_controllers_page_shows_the_pointer_configs_that_trust_the_certificates() {
    let site = ControlledCluster::new();
    let controller = site.start(&[]);
    site.settled();
    let client = controller.administrators();
    // One of an older installation, which trusts a CA that is no more.
    let unrelated = Pair::make(site.directory.path(), "localhost");
    let ca = BASE64.encode(fs::read(&unrelated.certificate).expect("a certificate"));
    let source = json!({"source": format!("data:;base64,{ca}")});
    let text = user_data_config("3.1.0", &source).to_string();
    let text = text.replace("api-int.example.com", "localhost");
    site.make_user_data("old-user-data", text.as_bytes());
    let overview = wait_for("both to be told", || {
        let overview = client.get("/api/v1/overview").json();
        (overview["pointers"].as_array()?.len() == 2).then_some(overview)
    });
    let problem = |part: &str| {
        let pointers = overview["pointers"].as_array().expect("a list");
        let found =
            pointers.iter().find(|it| it["name"].as_str().is_some_and(|it| it.contains(part)));
        found.expect("a pointer")["problem"].clone()
    };
    assert_eq!(problem("worker-user-data-managed"), Value::Null);
    assert!(problem("old-user-data").is_string(), "{overview}");
    assert_eq!(overview["certificates"][0]["subject"], "localhost");
    let page = String::from_utf8(client.get("/").body).expect("text");
    for part in ["locked out", "old-user-data", "<svg class=\"time-line\"", "controller"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("PRIVATE KEY"));
    assert_eq!(client.get("/style.css").status, 200);
}

#[test]
fn a_pointer_config_is_rendered_from_a_cluster() {
    let site = ControlledCluster::new();
    let _controller = site.start(&["--access", "audit"]);
    site.settled();
    let made = wait_for("a token in it", || {
        let text = site.user_data("worker-user-data-managed");
        String::from_utf8_lossy(&text).contains("httpHeaders").then_some(text)
    });
    let render = |flags: &[&str]| {
        let mut command = binary();
        command.args(["render", "worker", "--pointer", "--kubeconfig"]).arg(site.cluster.admin());
        command.args(flags).output().expect("the built binary")
    };
    let rendered = render(&[]);
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
    assert_eq!(json(&rendered.stdout), json(&made));
    let old = render(&["--spec", "2.2"]);
    assert!(json(&old.stdout)["ignition"]["config"]["append"][0]["source"].is_string());
    let warning = String::from_utf8_lossy(&old.stderr);
    assert!(warning.contains("have a token, and this one does not"), "{warning}");
    // From one that no machine is made from, no machine gets its token.
    let unused =
        json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/access": "off"}}});
    site.cluster.patch(&user_data("worker-user-data-managed"), &unused);
    let rendered = render(&[]);
    assert!(!String::from_utf8_lossy(&rendered.stdout).contains("httpHeaders"), "{rendered:?}");
}
