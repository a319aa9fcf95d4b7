//! Balancers that say which client they connect, by the PROXY protocol, and others who say it too.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::support::http::{Client, Response, Stream, connect_from, loopback};
use crate::support::logged::Logged;
use crate::support::server::{Server, free_ports};
use crate::support::{DEADLINE, contract, wait_for, wait_until};

const BALANCER: IpAddr = loopback(8);
const UNTRUSTED_PROXY: IpAddr = loopback(7);
const GET: &[u8] =
    b"GET /config/master HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Ignition/2.14.0\r\nConnection: close\r\n\r\n";

/// A server behind a balancer at 127.0.0.8.
fn behind_a_balancer(flags: &[&str]) -> Server {
    let flags = [&["--proxy-from", "127.0.0.8"], flags].concat();
    Server::sample_cluster(&flags)
}

/// The header of version 2 for this command, family and what follows.
fn version_2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).expect("a short block").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, block].concat()
}

/// A header of version 2 that names a client of IPv4.
fn version_2_of(client: [u8; 4], values: &[u8]) -> Vec<u8> {
    let ports = [0x1f, 0x90, 0x58, 0x5f];
    version_2(0x21, 0x11, &[&client, &[127, 0, 0, 1], &ports, values].concat())
}

fn version_1_of(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 127.0.0.1 8080 22623\r\n").into_bytes()
}

fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let stream = connect_from(from, to).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket option");
    stream.set_nodelay(true).expect("a socket option");
    stream
}

/// What a connection of the plain port is answered, if anything, sent so many bytes at a time.
fn plain(server: &Server, from: IpAddr, bytes: &[u8], step: usize) -> Option<Response> {
    let mut stream = connect(from, server.insecure());
    for piece in bytes.chunks(step) {
        // The server may have closed it already.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    (!answer.is_empty()).then(|| Response::parse(&answer).expect("an answer"))
}

/// A TCP connection whose first write is a header and what comes after it together.
struct Prefixed {
    socket: TcpStream,
    header: Vec<u8>,
    step: usize,
}

impl io::Read for Prefixed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl io::Write for Prefixed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let all = [&std::mem::take(&mut self.header)[..], bytes].concat();
        for piece in all.chunks(self.step) {
            self.socket.write_all(piece)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// What the TLS port answers to a request after this header.
fn tls(server: &Server, from: IpAddr, header: &[u8], step: usize) -> io::Result<Response> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&server.ca()) {
        roots.add(certificate.expect("a CA in PEM")).expect("a CA");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the library's own protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a host name");
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let socket = connect(from, server.secure());
    let mut stream =
        StreamOwned::new(connection, Prefixed { socket, header: header.to_vec(), step });
    stream.write_all(GET)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Response::parse(&answer)
}

/// Whether the boot ledger knows a machine at this address.
fn is_known(server: &Server, address: &str) -> bool {
    server.metrics().get(&format!("/api/v1/machines/{address}")).status == 200
}

fn failures(server: &Server, reason: &str) -> u64 {
    server.counted("mcs_proxy_header_failures_total", reason)
}

#[test]
fn the_client_address_from_a_balancer_counts_on_both_ports() {
    let server = behind_a_balancer(&[]);
    let unix = [0; 216];
    let values = [4, 0x0f, 0x00].iter().copied().chain([0; 0xf00]).collect::<Vec<u8>>();
    let ipv6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[9], &[0; 15], &[1], &[0, 1, 0, 2]].concat();
    for (header, client) in [
        (version_1_of("192.0.2.11"), "192.0.2.11"),
        (version_2_of([192, 0, 2, 12], &[]), "192.0.2.12"),
        (version_2_of([192, 0, 2, 13], &values), "192.0.2.13"),
        (b"PROXY TCP6 2001:db8::8 ::1 8080 22623\r\n".to_vec(), "2001:db8::8"),
        (version_2(0x21, 0x21, &ipv6), "2001:db8::9"),
        // Nobody is named: the balancer itself.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.8"),
        (version_2(0x20, 0x00, &[]), "127.0.0.8"),
        (version_2(0x20, 0x11, &[]), "127.0.0.8"),
        (version_2(0x21, 0x31, &unix), "127.0.0.8"),
    ] {
        let times = || {
            let path = format!("/api/v1/machines/{client}");
            let machine = server.metrics().get(&path);
            if machine.status == 200 { machine.json()["requests"]["times"].as_u64() } else { None }
        };
        let before = times().unwrap_or(0);
        for step in [1, 7, usize::MAX] {
            let whole = [&header[..], GET].concat();
            let answer = plain(&server, BALANCER, &whole, step).expect("an answer");
            assert_eq!(answer.status, 200, "{client}, {step} at a time");
            let answer = tls(&server, BALANCER, &header, step).expect("an answer");
            assert_eq!(answer.status, 200, "{client}, {step} at a time");
        }
        assert_eq!(times(), Some(before + 6), "{client}");
    }
    let logged = "Pool master requested by address:\"192.0.2.11:8080\"";
    wait_until("the log", || server.log().contains(logged));
    // IPv4 in the form of IPv6, as a balancer that listens on both writes it.
    let mapped = [&[0; 10][..], &[0xff, 0xff, 192, 0, 2, 14], &ipv6[16..]].concat();
    let whole = [&version_2(0x21, 0x21, &mapped)[..], GET].concat();
    assert_eq!(plain(&server, BALANCER, &whole, usize::MAX).expect("an answer").status, 200);
    assert!(is_known(&server, "192.0.2.14"));
    let logged = "Pool master requested by address:\"192.0.2.14:1\"";
    wait_until("the log", || server.log().contains(logged));
    // Who is none has no header to send, and is who it is.
    let direct = contract::config(&server.tls().from(UNTRUSTED_PROXY), "master", "3.4.0");
    assert_eq!(direct.status, 200);
    assert!(is_known(&server, "127.0.0.7"));
    // What administrators ask has no header, wherever it comes from.
    assert_eq!(server.metrics().from(BALANCER).get("/livez").status, 200);
}

#[test]
fn a_handshake_that_fails_behind_a_balancer_is_the_clients() {
    let server = behind_a_balancer(&[]);
    let mut stream = connect(BALANCER, server.secure());
    let garbage = [&version_1_of("192.0.2.20")[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
    stream.write_all(&garbage).expect("a connection");
    wait_until("the ledger", || is_known(&server, "192.0.2.20"));
    assert!(!is_known(&server, "127.0.0.8"));
}

#[test]
fn a_balancer_that_only_looks_is_no_machine_whose_handshake_fails() {
    let server = behind_a_balancer(&[]);
    for header in [version_2(0x20, 0x00, &[]), b"PROXY UNKNOWN\r\n".to_vec()] {
        let mut stream = connect(BALANCER, server.secure());
        stream.write_all(&header).expect("a connection");
        stream.shutdown(Shutdown::Write).expect("a connection");
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).expect("its end"), 0);
    }
    wait_until("it to be over", || server.metric("mcs_connections") < 1.0);
    assert!(!is_known(&server, "127.0.0.8"));
    assert!(!server.log().contains("TLS handshake failed"), "{}", server.log());
}

#[test]
fn nobody_else_is_believed() {
    let server = behind_a_balancer(&[]);
    for header in [version_1_of("192.0.2.30"), version_2_of([192, 0, 2, 30], &[])] {
        let answer = plain(&server, UNTRUSTED_PROXY, &[&header[..], GET].concat(), usize::MAX);
        assert!(answer.as_ref().is_none_or(|answer| answer.status == 400), "{answer:?}");
        assert!(tls(&server, UNTRUSTED_PROXY, &header, usize::MAX).is_err());
    }
    // One header is a balancer's, and a second one its client's.
    let twice = [&version_1_of("192.0.2.31")[..], &version_1_of("192.0.2.30"), GET].concat();
    let answer = plain(&server, BALANCER, &twice, usize::MAX);
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 400), "{answer:?}");
    let forwarded = [
        ("X-Forwarded-For", "192.0.2.30"),
        ("Forwarded", "for=192.0.2.30"),
        ("X-Real-IP", "192.0.2.30"),
        ("User-Agent", "Ignition/2.14.0"),
    ];
    let client = server.plain().from(UNTRUSTED_PROXY);
    assert_eq!(client.request("GET", "/config/master", &forwarded).status, 200);
    let mut behind = version_1_of("192.0.2.32");
    behind.extend(
        String::from_utf8_lossy(GET)
            .replace("\r\n\r\n", "\r\nX-Forwarded-For: 192.0.2.30\r\n\r\n")
            .bytes(),
    );
    assert_eq!(plain(&server, BALANCER, &behind, usize::MAX).expect("an answer").status, 200);
    assert!(is_known(&server, "127.0.0.7") && is_known(&server, "192.0.2.32"));
    assert!(!is_known(&server, "192.0.2.30"));
}

#[test]
fn a_balancer_that_sends_no_client_address_is_closed_and_counted() {
    let server = behind_a_balancer(&[]);
    let too_long = [&b"PROXY UNKNOWN "[..], &[b'x'; 200]].concat();
    for (bytes, reason) in [
        (GET.to_vec(), "absent"),
        (b"PROXY TCP4 somebody somewhere 1 2\r\n".to_vec(), "malformed"),
        (version_2(0x11, 0x11, &[0; 12]), "malformed"),
        (version_2(0x21, 0x11, &[0; 11]), "malformed"),
        (version_2(0x21, 0x00, &[0; 4097]), "too_long"),
        (too_long, "too_long"),
    ] {
        let before = failures(&server, reason);
        assert_eq!(plain(&server, BALANCER, &bytes, usize::MAX), None, "{reason}");
        wait_until("it to be counted", || failures(&server, reason) > before);
    }
    // Ended by the client half way, on the port with TLS.
    let mut stream = connect(BALANCER, server.secure());
    stream.write_all(&version_2_of([192, 0, 2, 40], &[])[..20]).expect("a connection");
    drop(stream);
    wait_until("it to be counted", || failures(&server, "connection") > 0);
    is_no_machine_and_told_of(&server);
    assert_eq!(
        tls(&server, BALANCER, &version_1_of("192.0.2.41"), 9).expect("an answer").status,
        200
    );
}

#[test]
fn a_balancer_that_sends_nothing_or_half_a_header_is_closed_and_counted_after_a_handshakes_time() {
    let server = behind_a_balancer(&["--handshake-timeout", "3s"]);
    for (port, bytes) in [(server.secure(), &b""[..]), (server.insecure(), b"PROXY TCP4 192.0.2.4")]
    {
        let before = failures(&server, "timeout");
        let mut stream = connect(BALANCER, port);
        stream.write_all(bytes).expect("a connection");
        let mut rest = Vec::new();
        assert!(matches!(stream.read_to_end(&mut rest), Ok(0) | Err(_)));
        wait_until("it to be counted", || failures(&server, "timeout") > before);
    }
    is_no_machine_and_told_of(&server);
}

fn is_no_machine_and_told_of(server: &Server) {
    assert!(!is_known(server, "127.0.0.8"), "a balancer is no machine");
    wait_until("the log", || {
        server.log().contains("a load balancer sent no client address balancer=127.0.0.8:")
    });
}

/// A connection of the plain port that has asked once, behind the balancer, and stays.
fn idle(server: &Server, client: &str) -> TcpStream {
    let mut stream = connect(BALANCER, server.insecure());
    let ask = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(&[&version_1_of(client)[..], ask].concat()).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket option");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let mut buffer = [0; 4096];
    loop {
        match (&mut &*stream).read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn places_are_counted_for_the_clients_behind_a_balancer() {
    let server =
        behind_a_balancer(&["--max-connections-per-source", "3", "--idle-timeout", "600s"]);
    let others: Vec<_> = (0..20).map(|last| idle(&server, &format!("192.0.2.{last}"))).collect();
    assert_eq!(server.counted("mcs_connections_shed_total", "idle"), 0);
    let greedy: Vec<_> = (0..8).map(|_| idle(&server, "192.0.2.99")).collect();
    assert_eq!(server.counted("mcs_connections_shed_total", "idle"), 5);
    wait_until("those of the greedy one to end", || {
        greedy.iter().filter(|stream| is_open(stream)).count() == 3
    });
    assert!(others.iter().all(is_open));
}

/// The real HAProxy, between clients and a server. It ends with this value.
struct Haproxy {
    _program: Logged,
    /// The port with TLS, by the first version of the header and the second; the port without.
    ports: [SocketAddr; 3],
    _directory: TempDir,
}

impl Haproxy {
    fn before(server: &Server) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let ports = free_ports();
        let [first, second, without] = ports;
        let (secure, insecure) = (server.secure(), server.insecure());
        let config = format!(
            "defaults\n mode tcp\n timeout connect 60s\n timeout client 600s\n timeout server 600s\n timeout check 60s\n\
             listen first\n bind {first}\n server it {secure} source 127.0.0.8 send-proxy\n\
             listen second\n bind {second}\n server it {secure} source 127.0.0.8 send-proxy-v2 check inter 100ms\n\
             listen without\n bind {without}\n server it {insecure} source 127.0.0.8 send-proxy-v2\n"
        );
        let file = directory.path().join("haproxy.cfg");
        fs::write(&file, config).expect("a writable folder");
        let mut command = Command::new("/usr/sbin/haproxy");
        let program = Logged::start("haproxy", command.args(["-db", "-f"]).arg(&file));
        let haproxy = Self { _program: program, ports, _directory: directory };
        for port in ports {
            wait_for("haproxy", || TcpStream::connect(port).ok());
        }
        haproxy
    }
}

#[test]
fn haproxy_passes_the_client_address_on() {
    let server = behind_a_balancer(&[]);
    let haproxy = Haproxy::before(&server);
    let [first, second, without] = haproxy.ports;
    let ca = server.ca();
    for (client, last) in
        [(Client::tls(first, &ca), 9), (Client::tls(second, &ca), 10), (Client::plain(without), 11)]
    {
        let client = client.from(loopback(last));
        assert_eq!(contract::config(&client, "worker", "3.4.0").status, 200);
        assert!(is_known(&server, &format!("127.0.0.{last}")), "127.0.0.{last}");
    }
    assert!(!is_known(&server, "127.0.0.8"), "its own checks are no machine's");
}

/// The status of an answer that is read to its end on a connection that stays.
fn answer(stream: &mut Box<dyn Stream>) -> u16 {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = Response::parse(&head).expect("an answer");
    let length = head.header("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    stream.read_exact(&mut body).expect("a body");
    head.status
}

#[test]
fn many_machines_boot_through_one_balancer() {
    const MACHINES: u8 = 40;
    let server =
        behind_a_balancer(&["--max-connections-per-source", "4", "--idle-timeout", "600s"]);
    let haproxy = Haproxy::before(&server);
    let [first, second, without] = haproxy.ports;
    let ca = server.ca();
    let ask =
        b"GET /config/worker HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Ignition/2.14.0\r\n\r\n";
    // Four connections of each machine, all open at a time: many times what one source may have.
    let mut held: Vec<Box<dyn Stream>> = Vec::new();
    for last in 0..MACHINES {
        let ways = [Client::tls(first, &ca), Client::tls(second, &ca), Client::plain(without)];
        for client in ways.into_iter().cycle().take(4) {
            let mut stream = client.from(loopback(100 + last)).connect().expect("a connection");
            stream.write_all(ask).expect("a request");
            held.push(stream);
        }
    }
    for stream in &mut held {
        assert_eq!(answer(stream), 200);
        stream.write_all(ask).expect("a request");
    }
    // All the same connections: none was given to another one meanwhile.
    for stream in &mut held {
        assert_eq!(answer(stream), 200);
    }
    for last in 0..MACHINES {
        assert!(is_known(&server, &format!("127.0.0.{}", 100 + last)));
    }
    for reason in ["idle", "silent", "unread", "source_full", "full"] {
        assert_eq!(server.counted("mcs_connections_shed_total", reason), 0, "{reason}");
    }
}
