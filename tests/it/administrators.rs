//! The administrators' listener: who may ask it, and what it holds for those who do not read.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::http::{Client, Response, connect_from, loopback};
use crate::support::logged::Logged;
use crate::support::server::{Server, binary, free_ports};
use crate::support::{contract, in_repository, wait_for, wait_until};

const PATHS: [&str; 9] = [
    "/",
    "/style.css",
    "/script.js",
    "/metrics",
    "/readyz",
    "/api/v1/overview",
    "/api/v1/machines",
    "/api/v1/ledger",
    "/api/v1/openapi.json",
];

/// What is answered to a request for this host.
fn asked(client: &Client, path: &str, host: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    client.exchange(request.as_bytes()).expect("an answer")
}

/// What a page finds at a path of where it comes from.
fn seen(browser: &mut Browser, path: &str) -> Value {
    browser.evaluate(&format!(
        "(() => {{ const r = new XMLHttpRequest(); r.open('GET', '{path}', false); r.send(); \
         return [r.status, r.responseText]; }})()"
    ))
}

#[test]
fn a_page_whose_name_leads_here_reads_nothing() {
    let server = Server::sample_cluster(&[]);
    let port = server.metrics().address().port();
    let mut browser = Browser::start_with(&["--host-resolver-rules=MAP rebound.example 127.0.0.1"]);
    // The page for an unauthenticated client comes with no policy.
    browser.pass_over_policies();
    browser.open(&format!("http://127.0.0.1:{port}/"));
    for path in PATHS {
        assert_eq!(seen(&mut browser, path)[0], 200, "{path}");
    }
    browser.open(&format!("http://rebound.example:{port}/"));
    assert_eq!(browser.evaluate("location.host"), format!("rebound.example:{port}"));
    for path in PATHS {
        let seen = seen(&mut browser, path);
        assert_eq!(seen[0], 421, "{path}");
        let text = seen[1].as_str().expect("text");
        assert!(text.lines().count() == 1 && text.contains("\"rebound.example\""), "{text}");
    }
    wait_until("the log", || server.log().contains("--metrics-name"));
}

#[test]
fn curl_is_answered_by_the_names_of_the_listener_alone() {
    let server = Server::sample_cluster(&["--metrics-name", "proxy.example,Other.example"]);
    let port = server.metrics().address().port();
    let status = |name: &str| {
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*"])
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .arg(format!("http://{name}:{port}/api/v1/overview"))
            .output()
            .expect("curl");
        String::from_utf8(output.stdout).expect("a status")
    };
    let names = ["127.0.0.1", "localhost", "proxy.example", "OTHER.example", "metrics.ns.svc"];
    for name in names {
        assert_eq!(status(name), "200", "{name}");
    }
    for name in ["rebound.example", "xproxy.example", "proxy.example.rebound.example"] {
        assert_eq!(status(name), "421", "{name}");
    }
}

#[test]
fn machines_may_call_their_ports_anything() {
    let server = Server::sample_cluster(&[]);
    for host in ["api-int.example.com:22623", "rebound.example", "", "a b", "x@y"] {
        for client in [server.plain(), server.tls()] {
            assert_eq!(asked(&client, "/config/master", host).status, 200, "{host:?}");
        }
        assert_eq!(asked(&server.metrics(), "/livez", host).status, 421, "{host:?}");
    }
    // What probes of balancers send, and no browser.
    for (client, path) in [(server.plain(), "/config/master"), (server.metrics(), "/livez")] {
        let mut stream = client.connect().expect("a connection");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(&head, b"HTTP/1.0 200", "{path}");
    }
}

#[test]
fn every_answer_tells_browsers_to_keep_it_to_itself() {
    let server = Server::sample_cluster(&[]);
    let client = server.metrics();
    let mut answers: Vec<_> = PATHS.iter().map(|path| client.get(path)).collect();
    answers.push(client.get("/nowhere"));
    answers.push(client.request("POST", "/metrics", &[]));
    answers.push(asked(&client, "/", "rebound.example"));
    answers.push(asked(&client, "/events", "rebound.example"));
    for answer in &answers {
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{answer:?}");
        }
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    }
}

#[test]
fn the_listeners_of_all_commands_know_their_names() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let kubeconfig = directory.path().join("kubeconfig");
    let [nobody] = free_ports();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{nobody}")}}],
        "users": [{"name": "a", "user": {}}],
    });
    fs::write(&kubeconfig, config.to_string()).expect("a writable folder");
    for command in ["controller", "issuer", "node-ca"] {
        let mut program = binary();
        program.arg(command).arg("--kubeconfig").arg(&kubeconfig);
        program.args(["--metrics-name", "proxy.example"]);
        if command == "node-ca" {
            program.arg("--dir").arg(directory.path());
        }
        let program = Logged::observed(command, &mut program);
        let client = program.administrators();
        wait_for(command, || client.try_request("GET", "/livez", &[]).ok());
        for path in ["/metrics", "/livez", "/", "/api/v1/overview"] {
            assert_eq!(asked(&client, path, "rebound.example").status, 421, "{command} {path}");
        }
        let answer = asked(&client, "/metrics", "proxy.example");
        assert_eq!(answer.status, 200, "{command}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{command}");
    }
}

/// Bytes that a process has had in memory at most.
fn most_resident_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib = line.trim().strip_suffix(" kB").expect("its unit").parse::<u64>();
    kib.expect("a number") << 10
}

/// The memory that the pods of a manifest may have.
fn limit_of(manifest: &str) -> u64 {
    let text = fs::read_to_string(in_repository("deploy").join(manifest)).expect("a manifest");
    let (_, limits) = text.split_once("limits:\n").expect("limits");
    let line = limits.lines().next().expect("a line").trim();
    let mebibytes = line.strip_prefix("memory: ").and_then(|it| it.strip_suffix("Mi"));
    let mebibytes: u64 = mebibytes.expect("MiB of memory").parse().expect("a number");
    mebibytes << 20
}

#[test]
fn answers_that_nobody_reads_are_in_memory_once() {
    const LARGE: [&str; 4] = ["/api/v1/overview", "/api/v1/machines", "/api/v1/ledger", "/"];
    let at = "2026-11-21T12:00:00Z";
    let machine = |number: u32| {
        json!({
            "address": Ipv4Addr::from_bits(0x0a00_0000 + number), "first": at, "last": at,
            "requests": {
                "pool": "worker", "user_agent": "x".repeat(250), "spec": "3.4.0", "times": 7,
                "refused": {"status": 503, "reason": "x".repeat(400)}, "since": at, "last": at,
            },
        })
    };
    let machines: Vec<Value> = (0..10_000).map(machine).collect();
    let state = tempfile::tempdir().expect("a temporary folder");
    fs::write(state.path().join("ledger.json"), json!(machines).to_string()).expect("a write");
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), state.path());
    let metrics = server.metrics();
    let length = metrics.get("/api/v1/machines").body.len();
    assert!(length > 8 << 20, "{length}");

    // As many as one source may have, of three of them.
    let mut held: Vec<TcpStream> = Vec::new();
    for last in 2..5 {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        for number in 0..64 {
            let mut stream = connect_from(from, metrics.address()).expect("a connection");
            let path = LARGE[number % LARGE.len()];
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
            held.push(stream);
        }
    }
    // Each has the beginning of its answer, or the end of one that had to make room.
    let mut begun = 0;
    for stream in &mut held {
        let mut start = [0; 12];
        begun +=
            usize::from(stream.read_exact(&mut start).is_ok_and(|()| &start == b"HTTP/1.1 200"));
    }
    assert!(begun > 40, "{begun} answers");
    // One who reads gets all of it.
    let asks = server.plain().from(loopback(9));
    assert_eq!(contract::config(&asks, "master", "3.4.0").status, 200);
    let all = metrics.get("/api/v1/machines").json();
    assert_eq!(all.as_array().map(Vec::len), Some(10_000));
    // It is one of ten thousand, and another has gone for it.
    wait_until("it to be counted", || server.metric("mcs_machines_forgotten_total") >= 1.0);
    let peak = most_resident_bytes(&server);
    println!("{} MiB at most", peak >> 20);
    // A rendering for each would be more than half a gigabyte.
    assert!(peak < 384 << 20, "{peak} bytes");
    for manifest in ["kubernetes/deployment.yaml", "openshift/daemonset.yaml"] {
        assert!(peak < limit_of(manifest) / 2, "{manifest}");
    }
    drop(held);
}

#[test]
fn every_container_has_a_limit_of_memory_and_none_of_processor_time() {
    for manifest in [
        "kubernetes/deployment.yaml",
        "openshift/daemonset.yaml",
        "controller/deployment.yaml",
        "components/issuer/deployment.yaml",
        "node-ca/daemonset.yaml",
    ] {
        let text = fs::read_to_string(in_repository("deploy").join(manifest)).expect("a manifest");
        let [images, limits] = ["image:", "limits:"].map(|field| text.matches(field).count());
        assert_eq!((images, limits), (1, 1), "{manifest}");
        assert!(limit_of(manifest) >= 128 << 20, "{manifest}");
        let (_, limits) = text.split_once("limits:\n").expect("limits");
        assert!(!limits.lines().take(2).any(|line| line.contains("cpu:")), "{manifest}");
    }
}
