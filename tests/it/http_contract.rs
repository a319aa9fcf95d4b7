//! What both ports answer to any method, path and Accept header, on the sample cluster.

use std::fs;

use rustls::NamedGroup;
use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use serde_json::{Value, json};

use crate::support::access::{assert_refused, enforcing, get, unknown};
use crate::support::contract::{self, VERSIONS, broken_rules};
use crate::support::http::{Client, Response};
use crate::support::in_repository;
use crate::support::manifests::{machine_config, pool, with_files, write};
use crate::support::server::Server;

const POOLS: [&str; 3] = ["edge", "master", "worker"];

/// TLS first.
fn ports(server: &Server) -> [Client; 2] {
    [server.tls(), server.plain()]
}

#[test]
fn both_ports_keep_the_contract_for_every_method_and_path() {
    let server = Server::sample_cluster(&[]);
    let long_name = format!("/config/{}", "a".repeat(300));
    let targets = [
        "/",
        "/config",
        "/config/",
        "/config//",
        "/config/master",
        "/config/master/",
        "/config/master//",
        "/config/master?x=1",
        "/config/master/?x=1",
        "/config/worker",
        "/config/edge",
        "/config/%65dge",
        "/config/%6D%61%73%74%65%72",
        "/config/nope",
        "/config/Master",
        "/config/master%00",
        "/config/master%20",
        "/config/%",
        "/config/%zz",
        "/config/%ff",
        "/config/a/master",
        "/config/master/a",
        "/config/..%2fmaster",
        "/config/%2Fmaster",
        "/config/master%2f",
        "/config//master",
        "//config/master",
        "/config/../config/master",
        "/config/./master",
        "/CONFIG/master",
        "/healthz",
        "/healthz/",
        "/livez",
        "/readyz",
        "/metrics",
        "/debug/pprof/",
        &long_name,
    ];
    let mut broken = Vec::new();
    for client in ports(&server) {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"]
        {
            for target in targets {
                broken.extend(broken_rules(&client, method, target, &POOLS));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_pool_is_served_in_every_spec_on_both_ports_alike() {
    let server = Server::sample_cluster(&[]);
    let [tls, plain] = ports(&server);
    for pool in POOLS {
        for version in VERSIONS {
            let answer = contract::config(&tls, pool, version);
            assert_eq!(answer.status, 200, "{pool} in {version}: {answer:?}");
            assert_eq!(answer.json()["ignition"]["version"], version, "{pool}");
            let other = contract::config(&plain, pool, version);
            assert_eq!(answer.comparable_headers(), other.comparable_headers());
            assert_eq!(answer.body, other.body, "{pool} in {version}");
        }
    }
}

#[test]
fn the_first_servable_version_of_an_accept_header_is_served() {
    let server = Server::sample_cluster(&[]);
    let json = "application/vnd.coreos.ignition+json";
    for (accept, served) in [
        ("*/*".to_owned(), Some("2.2.0")),
        (String::new(), Some("2.2.0")),
        (",,,".to_owned(), Some("2.2.0")),
        (json.to_owned(), Some("2.2.0")),
        (format!("{json};version=3.4"), Some("2.2.0")),
        (format!("{json};version=v3.4.0"), Some("2.2.0")),
        ("application/vnd.coreos.ignition+yaml;version=3.3.0".to_owned(), Some("2.2.0")),
        (format!("{json};version=2.4.0"), Some("2.2.0")),
        (format!("{json};version=3.0.0"), Some("3.0.0")),
        (format!("{json};version=3.4.9"), Some("3.4.0")),
        (format!("{json};version=3.4.0-experimental, */*;q=0.1"), Some("3.4.0")),
        (format!("{json};version=3.6.0"), Some("3.6.0")),
        (format!("{json};version=3.41.0"), Some("3.6.0")),
        (format!("{json};version=3.1.0;q=0.3, {json};version=3.2.0;q=0.9"), Some("3.2.0")),
        (format!("{json};version=3.1.0;q=0.5, {json};version=3.2.0;q=0.5"), Some("3.1.0")),
        (format!("{json};version=9.0.0, {json};version=3.1.0;q=0.5"), Some("3.1.0")),
        (format!("{json};version=9.0.0, {json};version=1.0.0"), None),
        (format!("{json};version=2.1.0, */*;q=0.1"), None),
        (format!("{json};version=4.0.0"), None),
    ] {
        for client in ports(&server) {
            let answer = client.request("GET", "/config/master", &[("Accept", &accept)]);
            let Some(version) = served else {
                assert_eq!(answer.status, 400, "{accept}: {answer:?}");
                let line = String::from_utf8_lossy(&answer.body);
                assert_eq!(line.trim_end().lines().count(), 1, "{accept}: {line}");
                assert!(line.contains("2.2.0") && line.contains("3.0.0"), "{accept}: {line}");
                continue;
            };
            assert_eq!(answer.status, 200, "{accept}: {answer:?}");
            assert_eq!(answer.json()["ignition"]["version"], version, "{accept}");
        }
    }
}

#[test]
fn a_machine_config_of_the_newest_spec_is_served_in_every_spec() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut config = with_files(&[("/etc/new", "new")]);
    config["ignition"]["version"] = json!("3.6.0");
    let controller = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"}, "spec": {},
    });
    write(directory.path(), "pool.json", pool("new", "rendered-new"));
    write(directory.path(), "config.json", machine_config("rendered-new", &config));
    write(directory.path(), "controller.json", controller);
    fs::copy(in_repository("ignition-fixtures/kubeconfig.yaml"), directory.path().join("k.yaml"))
        .expect("the sample kubeconfig");
    let server = Server::serve(directory.path(), &[]);
    for version in VERSIONS {
        let answer = contract::config(&server.tls(), "new", version);
        assert_eq!(answer.status, 200, "{version}: {answer:?}");
        let config = answer.json();
        assert_eq!(config["ignition"]["version"], version);
        let files = config["storage"]["files"].as_array().expect("files");
        let has = |file: &Value| file["path"] == "/etc/new";
        assert!(files.iter().any(has), "{version}: {config}");
    }
}

#[test]
fn keys_are_exchanged_as_asked_for_and_as_the_client_can() {
    let default: &[&str] = &[];
    for (flags, hybrid_first) in [(default, true), (&["--tls-post-quantum", "off"], false)] {
        let server = Server::sample_cluster(flags);
        let exchanged = |groups: &[&'static dyn SupportedKxGroup]| {
            let provider =
                CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() };
            let client = Client::tls_by(server.secure(), &server.ca(), provider);
            assert_eq!(client.get("/config/master").status, 200);
            client.key_exchange().expect("a handshake")
        };
        let of_today = exchanged(&[X25519MLKEM768, X25519, SECP256R1]);
        let hybrid = NamedGroup::X25519MLKEM768;
        assert_eq!(of_today, if hybrid_first { hybrid } else { NamedGroup::X25519 });
        // Go before 1.24, of which Ignitions are made.
        assert_eq!(exchanged(&[X25519, SECP256R1]), NamedGroup::X25519);
        assert_eq!(exchanged(&[SECP256R1]), NamedGroup::secp256r1);
    }
}

#[test]
fn an_answer_without_a_config_has_the_code_of_its_cause() {
    let code =
        |response: &Response| response.header("machine-config-server-refusal").map(str::to_owned);
    let of = |client: &Client, method: &str, target: &str, accept: &str| {
        let response = client.request(method, target, &[("Accept", accept)]);
        (response.status, code(&response))
    };
    let server = Server::sample_cluster(&[]);
    let nothing = |status| (status, None);
    let is = |status, code: &str| (status, Some(code.to_owned()));
    for client in ports(&server) {
        for method in ["GET", "HEAD"] {
            let asked = |target: &str, accept: &str| of(&client, method, target, accept);
            assert_eq!(asked("/config/master", "*/*"), nothing(200));
            assert_eq!(asked("/config/nope", "*/*"), is(503, "pool-unknown"));
            let accept = contract::accept("4.0.0");
            assert_eq!(asked("/config/master", &accept), is(400, "version-not-served"));
            assert_eq!(asked("/config/a/master", "*/*"), nothing(404));
            assert_eq!(asked("/healthz", "*/*"), nothing(200));
        }
        assert_eq!(of(&client, "POST", "/config/master", "*/*"), nothing(405));
    }

    // Whatever is wrong with a request, unauthenticated clients get the same answer.
    let server = enforcing(&["--allow-from", "edge=192.0.2.0/24"]);
    let tls = server.tls();
    let asked = |pool: &str, credential: Option<&str>| get(&tls, pool, credential);
    let refused = [
        asked("master", None),
        asked("master", Some("Bearer no-token")),
        asked("master", Some("Basic bm8=")),
        asked("edge", None),
        asked("edge", Some(&unknown())),
        get(&server.plain(), "master", None),
    ];
    for response in &refused {
        assert_refused(response);
        assert_eq!(code(response).as_deref(), Some("access-refused"));
        assert_eq!(response.comparable_headers(), refused[0].comparable_headers());
    }
    let unknown = asked("master", Some(&unknown()));
    assert_eq!((unknown.status, code(&unknown)), is(503, "token-unknown"));
}
