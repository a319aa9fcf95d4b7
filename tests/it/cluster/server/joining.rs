//! What a machine joins with: the token, the API server's authorities, and those of registries.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{ServedCluster, healthy, pointer};
use crate::support::clock::follow_clock;
use crate::support::cluster::{ACCOUNT, MANAGED, NAMESPACE};
use crate::support::contract::{SOON, served, served_soon};
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::rendered::POOLS;
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;
use crate::support::{wait_for, wait_until};

/// The kubeconfig that a machine of the pool gets.
fn kubeconfig(server: &Server) -> Value {
    let text = served(server, "worker", "/etc/kubernetes/kubeconfig").expect("the file");
    serde_saphyr::from_str(&text).expect("YAML")
}

#[test]
fn a_token_that_the_api_server_refuses_is_shown_with_the_machine_that_has_it_and_reported() {
    let site = ServedCluster::with_worker();
    let clock = site.directory.path().join("clock");
    fs::write(&clock, "+0").expect("a writable folder");
    let mut command = binary();
    command.args(["start", "--apiserver-url", "https://api-int.example.com:6443", "--kubeconfig"]);
    command.arg(site.cluster.account_kubeconfig(site.cluster.address()));
    command.arg("--bootstrap-token-dir").arg(site.token());
    command.arg("--cert").arg(&site.pair.certificate).arg("--key").arg(&site.pair.key);
    follow_clock(&mut command, &clock);
    let server = Server::prepared(command).until_ready();
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.plain().request("GET", "/config/worker", &agent).status, 200);
    let stands = |rank: &str, words: &str| {
        wait_for(words, || {
            let machine = server.machine(1);
            (machine["standing"] == rank && machine["why"].as_str()?.contains(words)).then_some(())
        });
    };
    stands("booting", "no Node has this address yet");

    // No machine starts kubelet within a minute.
    fs::write(&clock, "+90").expect("a writable folder");
    let refused = "the API server refuses the bootstrap token that machines get: Unauthorized";
    stands("stuck", refused);
    let machine = server.machine(1);
    assert_eq!(machine["recovery"], "restart");
    let fix = machine["fix"].as_str().expect("a next step");
    assert!(fix.starts_with("make Secret node-bootstrapper-token again"), "{fix}");
    wait_until("the report", || {
        let line = format!("bootstrap token at the API server: {refused}");
        server.degraded().contains(&line)
    });

    let token = site.cluster.token_of(ACCOUNT, NAMESPACE);
    site.write_token(&token);
    stands(
        "stuck",
        "the account of the bootstrap token that machines get is not allowed to create",
    );
    let user = format!("--serviceaccount={NAMESPACE}:{ACCOUNT}");
    let role = "--clusterrole=system:node-bootstrapper";
    site.cluster.kubectl(&["create", "clusterrolebinding", "joins", role, &user]);
    stands("booting", "no Node has this address yet");
    assert!(!server.degraded().contains("bootstrap token"), "{}", server.degraded());
    assert!(!server.log().contains(&token), "a token is a secret");
}

#[test]
fn machines_join_with_the_newest_token_and_cas() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    let found = kubeconfig(&server);
    assert_eq!(found["current-context"], "kubelet");
    assert_eq!(
        found["contexts"],
        json!([{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}])
    );
    assert_eq!(
        found["users"],
        json!([{"name": "kubelet", "user": {"token": "abcdef.0123456789abcdef"}}])
    );
    let cluster = |cas: &str| {
        json!([{"name": "local", "cluster": {
            "server": "https://api-int.example.com:6443",
            "certificate-authority-data": BASE64.encode(cas),
        }}])
    };
    assert_eq!(found["clusters"], cluster("CA of the token\n"));

    site.write_token("fedcba.fedcba9876543210\n");
    let token = || kubeconfig(&server)["users"][0]["user"]["token"].clone();
    let changed = Stopwatch::start();
    wait_until("the new token", || token() == "fedcba.fedcba9876543210");
    changed.within(SOON, "the new token");

    let data = json!({
        "metadata": {"name": "kubeconfig-data"},
        "binaryData": {"ca-bundle.crt": BASE64.encode("CA of the config map\n")},
    });
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    site.cluster.create(&maps, &data);
    let changed = Stopwatch::start();
    let clusters = || kubeconfig(&server)["clusters"].clone();
    wait_until("the config map's CA", || clusters() == cluster("CA of the config map\n"));
    changed.within(SOON, "the config map's CA");

    // A token that is gone leaves the last one, and is told.
    fs::remove_file(site.token().join("token")).expect("the token");
    let line = server.reported("bootstrap token: ");
    assert!(line.contains("token/token: No such file"), "{line}");
    assert_eq!(token(), "fedcba.fedcba9876543210");
    assert!(!server.log().contains("fedcba9876543210"), "the token is in the log");
}

/// The four registries of OpenShift's enhancement: the key in the config map, the file's folder.
const REGISTRIES: [(&str, &str); 4] = [
    ("registry.example.com", "registry.example.com"),
    ("registry-with-port.example.com..5000", "registry-with-port.example.com:5000"),
    (
        "image-registry.openshift-image-registry.svc..5000",
        "image-registry.openshift-image-registry.svc:5000",
    ),
    (
        "image-registry.openshift-image-registry.svc.cluster.local..5000",
        "image-registry.openshift-image-registry.svc.cluster.local:5000",
    ),
];
const REGISTRY_CAS: &str = "merged-trusted-image-registry-ca";

fn file(host: &str) -> String {
    format!("/etc/docker/certs.d/{host}/ca.crt")
}

/// Whether a machine with this pointer config gets the CA for each of the registries.
fn boots_with(pointer: &str, ca: &str) {
    let machine = Machine::new();
    machine.boot(pointer);
    for (_, host) in REGISTRIES {
        let on_disk = fs::read_to_string(machine.root().join(&file(host)[1..])).expect("a CA");
        assert_eq!(on_disk, ca);
    }
}

#[test]
fn registries_cas_are_on_a_machine_from_its_first_boot_on() {
    let site = ServedCluster::with_worker();
    site.pool("paused", "rendered-1");
    site.cluster.patch(&format!("{POOLS}/paused"), &json!({"spec": {"paused": true}}));
    let server = site.start(&[]).until_ready();
    assert_eq!(served(&server, "worker", &file(REGISTRIES[0].1)), Err(200));

    let [main, mirror, next] = ["main", "mirror", "mirror-next"].map(|name| {
        fs::read_to_string(in_repository(&format!("certs/registry-{name}.crt"))).expect("a CA")
    });
    let maps = format!("/api/v1/namespaces/{MANAGED}/configmaps");
    let map = format!("{maps}/{REGISTRY_CAS}");
    let data: serde_json::Map<String, Value> =
        REGISTRIES.iter().map(|(key, _)| ((*key).to_owned(), main.as_str().into())).collect();
    site.cluster.create(&maps, &json!({"metadata": {"name": REGISTRY_CAS}, "data": data}));
    for pool in ["worker", "paused"] {
        for (_, host) in REGISTRIES {
            served_soon(&server, pool, &file(host), Ok(&main));
        }
    }
    boots_with(&pointer(&server, &site.pair, "worker"), &main);

    // Replaced, in base64, and added, with one entry that is no good.
    let both = format!("# until the summer\n{mirror}{next}");
    let (key, host) = REGISTRIES[1];
    let added = BASE64.encode(&next);
    let data = json!({key: both, "added.example.com": added, "bad.example.com": "x"});
    site.cluster.patch(&map, &json!({"data": data}));
    for pool in ["worker", "paused"] {
        served_soon(&server, pool, &file(host), Ok(&both));
        served_soon(&server, pool, &file("added.example.com"), Ok(&next));
    }
    assert_eq!(served(&server, "worker", &file("bad.example.com")), Err(200));
    assert_eq!(
        server.reported("bad.example.com"),
        "ConfigMap openshift-config-managed/merged-trusted-image-registry-ca: \
         key \"bad.example.com\" has no certificate in PEM"
    );
    assert_eq!(server.readiness().0, 503);
    // What was good for a registry outlives a slip of a hand.
    site.cluster.patch(&map, &json!({"data": {key: "oops"}}));
    server.reported(key);
    assert_eq!(served(&server, "worker", &file(host)), Ok(both));
    site.cluster.patch(&map, &json!({"data": {key: null, "bad.example.com": null}}));
    served_soon(&server, "worker", &file(host), Err(200));
    healthy(&server);

    // A map that is gone says nothing; one that is empty says that there are no authorities.
    site.cluster.delete(&map);
    server.reported(&format!("{REGISTRY_CAS}: was removed"));
    assert_eq!(served(&server, "worker", &file("added.example.com")), Ok(next));
    site.cluster.create(&maps, &json!({"metadata": {"name": REGISTRY_CAS}}));
    for (_, host) in REGISTRIES {
        served_soon(&server, "worker", &file(host), Err(200));
    }
    healthy(&server);
}
