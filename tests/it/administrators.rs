//! The administrators' listener: who may ask it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::http::{Client, Response};
use crate::support::server::{Server, free_ports};
use crate::support::{contract, in_repository, wait_for};

const PATHS: [&str; 8] = [
    "/",
    "/style.css",
    "/metrics",
    "/readyz",
    "/api/v1/overview",
    "/api/v1/machines",
    "/api/v1/ledger",
    "/api/v1/openapi.json",
];

fn sample_cluster(flags: &[&str]) -> Server {
    Server::serve(&in_repository("ignition-fixtures"), flags)
}

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
    let server = sample_cluster(&[]);
    let port = server.metrics().address().port();
    let mut browser = Browser::start_with(&["--host-resolver-rules=MAP rebound.example 127.0.0.1"]);
    // The page of a stranger comes with no policy.
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
    wait_for("the log", || server.log().contains("--metrics-name").then_some(()));
}

#[test]
fn curl_is_answered_by_the_names_of_the_listener_alone() {
    let server = sample_cluster(&["--metrics-name", "proxy.example,Other.example"]);
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
    let server = sample_cluster(&[]);
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
    let server = sample_cluster(&[]);
    let client = server.metrics();
    let mut answers: Vec<_> = PATHS.iter().map(|path| client.get(path)).collect();
    answers.push(client.get("/nowhere"));
    answers.push(client.request("POST", "/metrics", &[]));
    answers.push(asked(&client, "/", "rebound.example"));
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

/// A command that serves no machines. It ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_listeners_of_all_commands_know_their_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let [nobody] = free_ports();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{nobody}")}}],
        "users": [{"name": "a", "user": {}}],
    });
    fs::write(&kubeconfig, config.to_string()).expect("a writable folder");
    for command in ["controller", "issuer", "node-ca"] {
        let [address] = free_ports();
        let mut program = Command::new(env!("CARGO_BIN_EXE_machine-config-server"));
        program.arg(command).arg("--kubeconfig").arg(&kubeconfig);
        program.args([
            "--metrics-address",
            &address.to_string(),
            "--metrics-name",
            "proxy.example",
        ]);
        if command == "node-ca" {
            program.arg("--dir").arg(folder.path());
        }
        let quiet = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _process = Process(quiet.spawn().expect("the built binary"));
        let client = Client::plain(address);
        wait_for(command, || client.try_request("GET", "/livez", &[]).ok());
        for path in ["/metrics", "/livez", "/", "/api/v1/overview"] {
            assert_eq!(asked(&client, path, "rebound.example").status, 421, "{command} {path}");
        }
        let answer = asked(&client, "/metrics", "proxy.example");
        assert_eq!(answer.status, 200, "{command}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{command}");
    }
}
