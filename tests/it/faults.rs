//! Clients that misbehave, and changes at the worst moment: machines boot all the same.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use tempfile::TempDir;

use crate::support::http::{Client, Response};
use crate::support::meanwhile::meanwhile;
use crate::support::pair::Pair;
use crate::support::server::{Server, serving};
use crate::support::{DEADLINE, contract, in_repository, manifests, wait_for, wait_until};

/// The start of a TLS record that holds a ClientHello, and no more.
const HALF_A_HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
const HALF_A_HEAD: &[u8] = b"GET /config/master HTTP/1.1\r\nHost: local";

#[test]
fn machines_boot_while_a_thousand_handshakes_and_a_thousand_heads_stay_half_open() {
    raise_file_limit();
    let times = ["--handshake-timeout", "600s", "--head-timeout", "600s"];
    let places = ["--max-connections-per-source", "0"];
    let server = Server::sample_cluster(&[&times[..], &places].concat());
    let slow = half_open(&server, 1000);
    wait_until("the slow clients to be connected", || open(&server) >= 2000);
    for client in [server.tls(), server.plain()] {
        for _ in 0..50 {
            assert_eq!(contract::config(&client, "master", "3.4.0").status, 200);
        }
    }
    assert!(open(&server) >= 2000, "the slow clients were there all along");
    drop(slow);
}

#[test]
fn half_open_handshakes_and_heads_are_cut_off_at_their_limits() {
    raise_file_limit();
    let times = ["--handshake-timeout", "500ms", "--head-timeout", "500ms"];
    let places = ["--max-connections-per-source", "0"];
    let server = Server::sample_cluster(&[&times[..], &places].concat());
    for mut client in half_open(&server, 1000) {
        let mut rest = Vec::new();
        // However it ends, it ends: with what the server says last, or with a reset.
        if let Err(error) = client.read_to_end(&mut rest) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "half a head was answered");
    }
    wait_until("their places to be free", || open(&server) == 0);
    // One that takes too long is cut off as well.
    let request = || server.tls().try_request("GET", "/config/master", &[]).ok();
    assert_eq!(wait_for("an answer", request).status, 200);
}

#[test]
fn a_head_sent_a_byte_at_a_time_is_cut_off_at_the_limit() {
    let server = Server::sample_cluster(&["--head-timeout", "500ms"]);
    let mut client = connect(server.insecure());
    client.set_nodelay(true).expect("a socket option");
    client.write_all(b"GET /config/master HTTP/1.1\r\nX: ").expect("a connection");
    wait_until("the connection to be cut off", || {
        let sent = client.write_all(b"x");
        sent.is_err()
    });
}

#[test]
fn past_the_limit_of_connections_the_longest_idle_one_is_closed() {
    let limits =
        ["--max-connections", "50", "--handshake-timeout", "600s", "--head-timeout", "600s"];
    let server =
        Server::sample_cluster(&[&limits[..], &["--max-connections-per-source", "0"]].concat());
    let slow = half_open(&server, 25);
    // For 3 s they may be machines as well.
    for client in [server.tls(), server.plain()] {
        let held: Vec<_> = (0..10)
            .map(|_| {
                wait_for("a place", || {
                    let answer = client.try_request("GET", "/config/master", &[]).ok()?;
                    assert_eq!(answer.status, 200);
                    client.connect().ok()
                })
            })
            .collect();
        assert!(open(&server) <= 50, "more connections than allowed");
        drop(held);
    }
    assert!(server.metric("mcs_connections_shed_total{reason=\"silent\"}") >= 5.0);
    drop(slow);
}

#[test]
fn a_low_limit_of_open_files_keeps_no_machine_out() {
    raise_file_limit();
    let directory = tempfile::tempdir().expect("a temporary folder");
    let serve = serving(&in_repository("ignition-fixtures"), &directory.path().join("state"));
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=400").arg(serve.get_program()).args(serve.get_args());
    limited.args(["--max-connections-per-source", "0", "--head-timeout", "600s"]);
    let server = Server::prepared(limited).until_ready();
    let line = "allows fewer connections than --max-connections";
    wait_until("the log", || server.log().contains(line));
    // For 3 s they may be machines as well.
    let silent: Vec<_> = (0..500).map(|_| connect(server.insecure())).collect();
    let request = || server.plain().try_request("GET", "/config/master", &[]).ok();
    assert_eq!(wait_for("a place", request).status, 200);
    drop(silent);
}

#[test]
fn a_client_that_stops_reading_is_cut_off_and_the_others_are_served() {
    cuts_off_clients_that_do_not_read(&["--stall-timeout", "1s"]);
}

#[test]
fn an_answer_under_way_has_as_long_again_as_a_connection_and_no_longer() {
    cuts_off_clients_that_do_not_read(&["--max-connection-age", "1s", "--stall-timeout", "600s"]);
}

fn cuts_off_clients_that_do_not_read(flags: &[&str]) {
    let directory = cluster_with_a_large_config();
    let server = Server::serve(directory.path(), flags);
    // On a busy machine, the connection can be too old before it has asked.
    let mut client = wait_for("the beginning of an answer", || {
        let client = asks_and_does_not_read(server.insecure());
        (client.peek(&mut [0]).ok()? > 0).then_some(client)
    });
    wait_until("the client to be cut off", || open(&server) == 0);
    // It was not that all had been sent: what is left to read falls short.
    let mut begun = Vec::new();
    let _ = client.read_to_end(&mut begun);
    let begun = Response::parse(&begun).expect("the beginning of an answer");
    let promised: usize = begun.header("content-length").expect("a length").parse().expect("one");
    assert!(begun.body.len() < promised, "the whole answer fitted into the kernel's buffers");

    // One that takes too long is cut off as well.
    let request = || server.tls().try_request("GET", "/config/large", &[]).ok();
    let answer = wait_for("a whole answer", request);
    assert_eq!((answer.status, answer.body.len()), (200, promised));
}

#[test]
fn clients_that_take_every_place_and_do_not_read_lose_them_to_those_that_come() {
    let directory = cluster_with_a_large_config();
    let places = ["--max-connections", "40", "--max-connections-per-source", "0"];
    let server =
        Server::serve(directory.path(), &[&places[..], &["--stall-timeout", "600s"]].concat());
    // A quarter is kept for the port with TLS.
    let held: Vec<TcpStream> = (0..30).map(|_| asks_and_does_not_read(server.insecure())).collect();
    wait_until("all to be connected", || open(&server) == 30);
    for _ in 0..3 {
        wait_for("a place", || {
            let answer = server.plain().try_request("GET", "/config/large", &[]).ok()?;
            (answer.status == 200).then_some(())
        });
    }
    assert!(server.metric("mcs_connections_shed_total{reason=\"unread\"}") >= 1.0);
    drop(held);
}

/// A connection on which the large config was asked for.
fn asks_and_does_not_read(to: SocketAddr) -> TcpStream {
    let mut client = connect(to);
    client.write_all(b"GET /config/large HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
    client
}

#[test]
fn ten_thousand_connections_are_open_at_once_and_all_are_served() {
    const CONNECTIONS: usize = 10_000;
    raise_file_limit();
    // A quarter is kept for the port with TLS.
    let limits = ["--max-connections", "13333", "--max-connections-per-source", "0"];
    let times =
        ["--idle-timeout", "3600s", "--head-timeout", "3600s", "--max-connection-age", "3600s"];
    let memory = ["--max-connection-memory", "512"];
    let server = Server::sample_cluster(&[&limits[..], &times, &memory].concat());
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = connect(server.insecure());
        answered(&mut client);
        clients.push(client);
    }
    assert_eq!(open(&server), CONNECTIONS);
    for client in clients.iter_mut().step_by(100) {
        answered(client);
    }

    // One more gets the place of one of those that have been idle longest: a busy server notes within moments, in no order, when
    // they began to be.
    let mut late = connect(server.insecure());
    answered(&mut late);
    let is_closed = |client: &TcpStream| {
        client.set_nonblocking(true).expect("a socket option");
        matches!(client.peek(&mut [0]), Ok(0))
    };
    let closed = wait_for("a place", || clients.iter().position(is_closed));
    assert!((1..100).contains(&closed), "{closed}");
    clients[0].set_nonblocking(false).expect("a socket option");
    let shed = server.metric("mcs_connections_shed_total{reason=\"idle\"}");
    assert!((0.5..1.5).contains(&shed), "{shed}");
    answered(&mut clients[0]);
}

#[test]
fn malformed_requests_are_refused_and_harm_nobody() {
    let mut server = Server::sample_cluster(&[]);
    let long_head = format!("GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n", "a".repeat(17 << 10));
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(17 << 10));
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000));
    let requests: [(&[u8], &[u16]); 16] = [
        (b"\r\n\r\n\r\nnonsense\r\n\r\n", &[400]),
        (b"\x00\x01\x02\x03\xff\xfe\r\n\r\n", &[400]),
        (b"GET\r\n\r\n", &[400]),
        (b"GET /config/master\r\n\r\n", &[400]),
        (b"GET /config/master HTTP/9.9\r\n\r\n", &[400]),
        (b"GET  /config/master  HTTP/1.1\r\n\r\n", &[400]),
        (b"GET /config/\x00 HTTP/1.1\r\n\r\n", &[400]),
        (b"GET /config/master HTTP/1.1\r\nno colon\r\n\r\n", &[400]),
        (b"GET /config/master HTTP/1.1\r\nA: \x00\r\n\r\n", &[400]),
        (b"POST /config/master HTTP/1.1\r\nContent-Length: x\r\n\r\n", &[400]),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", &[400]),
        (b"G\x00T / HTTP/1.1\r\n\r\n", &[400]),
        (b"BREW /config/master HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &[405]),
        (long_head.as_bytes(), &[431]),
        (long_target.as_bytes(), &[414, 431]),
        (many_headers.as_bytes(), &[431]),
    ];
    for client in [server.tls(), server.plain()] {
        for (request, statuses) in requests {
            let shown = request[..request.len().min(60)].escape_ascii();
            let answer =
                client.exchange(request).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert!(statuses.contains(&answer.status), "{shown}: {answer:?}");
        }
    }
    // HTTP/2 is not spoken, the connection of a client that begins with it is closed.
    let begun = server.plain().exchange(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(begun.is_err() || begun.is_ok_and(|answer| answer.status == 400));
    // Each port, spoken to in the other's language.
    let mut client = connect(server.secure());
    client.write_all(b"GET /config/master HTTP/1.1\r\n\r\n").expect("a connection");
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "plain HTTP was answered on the port for TLS");
    Client::tls(server.insecure(), &server.ca())
        .shown_certificate()
        .expect_err("a handshake on the port without TLS");

    assert!(server.is_running());
    assert!(!server.log().contains("panicked"), "a panic");
    assert_eq!(contract::config(&server.tls(), "master", "3.4.0").status, 200);
}

#[test]
fn sigterm_under_load_finishes_what_is_under_way_and_exits_with_0() {
    let directory = cluster_with_a_large_config();
    let mut server = Server::serve(directory.path(), &[]);
    let (tls, plain) = (server.tls(), server.plain());
    let length = plain.get("/config/large").body.len();
    let asked = AtomicUsize::new(0);

    // One answer is under way in any case: more than the kernel buffers, and hardly read yet.
    let mut under_way = tls.connect().expect("a connection");
    under_way
        .write_all(b"GET /config/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = vec![0; 100];
    under_way.read_exact(&mut answer).expect("the beginning of an answer");

    std::thread::scope(|scope| {
        for client in [&tls, &tls, &plain, &plain] {
            let asked = &asked;
            scope.spawn(move || {
                // An answer that has begun is whole; a connection that is not taken any more is no
                // answer, and a machine tries again.
                while let Ok(answer) = client.try_request("GET", "/config/large", &[]) {
                    assert_eq!((answer.status, answer.body.len()), (200, length));
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("load", || asked.load(Ordering::Relaxed) >= 8);
        server.terminate();
        wait_until("the port to be closed", || TcpStream::connect(server.secure()).is_err());
        assert!(server.is_running(), "it ended with an answer under way");
        under_way.read_to_end(&mut answer).expect("the rest of the answer");
    });
    let answer = Response::parse(&answer).expect("an answer");
    assert_eq!((answer.status, answer.body.len()), (200, length));
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
}

#[test]
fn a_server_that_shuts_down_serves_while_machines_may_still_be_sent_to_it() {
    let mut server = Server::sample_cluster(&["--shutdown-delay", "1h"]);
    let in_service = |server: &Server| server.plain().get("/readyz/serving");
    assert_eq!(in_service(&server).status, 200);
    server.terminate();
    wait_until("nobody to be sent here", || in_service(&server).status == 503);
    assert_eq!(in_service(&server).body, b"server: failed\n");
    let reported = server.metrics().get("/readyz");
    assert_eq!(reported.status, 503);
    assert!(reported.body.starts_with(b"server: shutting down\n"));
    for client in [server.tls(), server.plain()] {
        assert_eq!(contract::config(&client, "master", "3.4.0").status, 200);
        assert_eq!(client.get("/healthz").status, 200);
    }
    // Who asks again does not want to wait.
    server.terminate();
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());

    let mut server = Server::sample_cluster(&["--shutdown-delay", "50ms"]);
    server.terminate();
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert!(server.log().contains("shutting down, serving until"), "{}", server.log());
}

#[test]
fn sigterm_does_not_wait_for_clients_that_have_asked_for_nothing() {
    let flags = ["--handshake-timeout", "600s", "--head-timeout", "600s", "--drain-timeout", "2s"];
    let mut server = Server::sample_cluster(&flags);
    let mut idle = connect(server.insecure());
    answered(&mut idle);
    let slow = half_open(&server, 10);
    wait_until("the clients to be connected", || open(&server) == 21);
    server.terminate();
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    drop(slow);
}

#[test]
fn a_certificate_swapped_under_load_fails_no_handshake() {
    const SWAPS: usize = 10;
    let base = bootstrap_directory();
    let pairs = tempfile::tempdir().expect("a temporary folder");
    let first = Pair::make(pairs.path(), "pair 0");
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let kubeconfig = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let server = Server::bootstrap(base.path(), &first.certificate, &first.key, &kubeconfig);
    let server = server.until_ready();

    // The pairs to come are made beforehand, so that the clients can trust all of them.
    let made: Vec<TempDir> =
        (0..SWAPS).map(|_| tempfile::tempdir().expect("a temporary folder")).collect();
    let next: Vec<Pair> = made
        .iter()
        .enumerate()
        .map(|(number, directory)| Pair::make(directory.path(), &format!("pair {}", number + 1)))
        .collect();
    let trusted: String =
        next.iter().chain([&first]).map(|pair| pair.pem.as_str()).collect::<Vec<_>>().concat();
    let client = Client::tls(server.secure(), trusted.as_bytes());
    // Any failure to connect or to be answered fails the test here.
    let boot = |_| assert_eq!(contract::config(&client, "master", "3.4.0").status, 200);
    meanwhile(4, boot, |boots| {
        for pair in &next {
            // Between the two renames key and certificate do not belong together.
            fs::rename(&pair.key, &first.key).expect("a rename");
            fs::rename(&pair.certificate, &first.certificate).expect("a rename");
            let certificate = CertificateDer::from_pem_slice(pair.pem.as_bytes());
            let certificate = certificate.expect("a certificate").to_vec();
            wait_until("the new certificate to be shown", || {
                let shown = client.shown_certificate().expect("a handshake");
                shown == certificate
            });
            boots.continues(1);
        }
    });
}

/// Connections that are open on both ports.
fn open(server: &Server) -> usize {
    let open = server.metric("mcs_connections");
    assert!(open >= 0.0 && open.fract() == 0.0, "{open} connections");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let open = open as usize;
    open
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket option");
    stream
}

/// So many clients that have begun a handshake, and as many that have begun a request.
fn half_open(server: &Server, each: usize) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for (address, beginning) in
        [(server.secure(), HALF_A_HANDSHAKE), (server.insecure(), HALF_A_HEAD)]
    {
        for _ in 0..each {
            let mut client = connect(address);
            client.write_all(beginning).expect("a connection");
            clients.push(client);
        }
    }
    clients
}

/// A request on a connection that stays open, and its answer.
fn answered(client: &mut TcpStream) {
    client.write_all(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
    assert_head_of_success(client);
}

fn assert_head_of_success(client: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert_eq!(Response::parse(&head).expect("an answer").status, 200);
}

/// The server has thousands of files open, and so has this process.
fn raise_file_limit() {
    const NEEDED: u64 = 10_500;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    assert!(most >= NEEDED, "{NEEDED} open files are needed and {most} allowed: ulimit -Hn");
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a higher limit within the hard one");
}

/// A pool whose answer is larger than what the kernel takes off the server's hands at once.
pub(crate) fn cluster_with_a_large_config() -> TempDir {
    cluster_with_a_file_of(3 << 20)
}

/// A cluster whose pool `large` has a file of so many bytes.
pub(crate) fn cluster_with_a_file_of(bytes: usize) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let contents = base64::engine::general_purpose::STANDARD.encode(vec![0_u8; bytes]);
    let file =
        json!({"path": "/large", "contents": {"source": format!("data:;base64,{contents}")}});
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
    let configuration = json!({"configuration": {"name": "rendered-large"}});
    for (name, kind, rest) in [
        ("large", "MachineConfigPool", json!({"spec": configuration, "status": configuration})),
        ("rendered-large", "MachineConfig", json!({"spec": {"config": config}})),
        ("machine-config-controller", "ControllerConfig", json!({"spec": {}})),
    ] {
        let mut manifest = rest;
        manifest["apiVersion"] = json!("machineconfiguration.openshift.io/v1");
        manifest["kind"] = json!(kind);
        manifest["metadata"] = json!({"name": name});
        manifests::write(directory.path(), &format!("{name}.json"), manifest);
    }
    fs::copy(in_repository("ignition-fixtures/kubeconfig.yaml"), directory.path().join("k.yaml"))
        .expect("the sample kubeconfig");
    directory
}

/// The sample cluster's manifests in the folders that `bootstrap` looks into.
pub(crate) fn bootstrap_directory() -> TempDir {
    let base = tempfile::tempdir().expect("a temporary folder");
    for manifest in manifests::fixtures() {
        let directory = match manifest.kind() {
            "MachineConfigPool" => "machine-pools",
            "MachineConfig" => "machine-configs",
            "ControllerConfig" => "controller-config",
            _ => continue,
        };
        let file = format!("{directory}/{}.yaml", manifest.name());
        manifests::write(base.path(), &file, &manifest.document);
    }
    base
}
