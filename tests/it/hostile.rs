//! Clients that take more than their share, and what unauthenticated clients can read and have logged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::faults::{cluster_with_a_file_of, cluster_with_a_large_config};
use crate::support::http::{Client, Response, Stream, connect_from};
use crate::support::manifests::copy_fixtures;
use crate::support::server::Server;
use crate::support::stopwatch::{Stopwatch, once_within};
use crate::support::{contract, wait_for, wait_until};

const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const HEALTH: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Connections that have asked for something once and stay.
fn idle(to: SocketAddr, many: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = connect_from(GREEDY, to).expect("a connection");
        // Where the source has all it may, and none of them is idle yet, it is closed at once.
        let _ = stream.write_all(HEALTH);
        stream
    };
    (0..many).map(connect).collect()
}

#[test]
fn a_source_with_all_the_connections_it_may_have_keeps_no_other_out() {
    let limits = ["--max-connections", "60", "--max-connections-per-source", "40"];
    let server = Server::sample_cluster(&[&limits[..], &["--idle-timeout", "600s"]].concat());
    let held = idle(server.insecure(), 200);
    wait_until("the last to have a place", || {
        let shed = ["idle", "silent", "source_full"]
            .map(|it| server.counted("mcs_connections_shed_total", it));
        shed.iter().sum::<u64>() >= 160
    });
    for client in [server.tls(), server.plain()] {
        for _ in 0..30 {
            assert_eq!(contract::config(&client, "master", "3.4.0").status, 200);
        }
        // Also one of its own: the longest idle one goes.
        let own = client.from(GREEDY);
        assert_eq!(contract::config(&own, "master", "3.4.0").status, 200);
    }
    wait_until("the others to be gone", || server.metric("mcs_connections") <= 41.0);
    drop(held);
}

#[test]
fn a_flood_of_the_administrators_listener_stays_its_own() {
    let server = Server::sample_cluster(&["--idle-timeout", "600s"]);
    let address = server.metrics().address();
    let held = idle(address, 1_300);
    // One that had to go is counted until its task has ended.
    wait_until("the others to be gone", || server.metric("mcs_administrators_connections") <= 65.0);
    assert_eq!(contract::config(&server.tls(), "master", "3.4.0").status, 200);
    drop(held);
}

/// Asks again and again on one connection, and tells how many answers came and whether the last
/// announced the end.
fn asked(server: &Server, most: usize, mut before_each: impl FnMut()) -> (usize, bool) {
    let mut stream = TcpStream::connect(server.insecure()).expect("a connection");
    for number in 1..=most {
        before_each();
        stream.write_all(HEALTH).expect("a request");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        let answer = Response::parse(&head).expect("an answer");
        assert_eq!(answer.status, 200);
        if answer.header("connection") == Some("close") {
            assert_eq!(stream.read(&mut byte).expect("the end"), 0);
            return (number, true);
        }
    }
    (most, false)
}

#[test]
fn a_connection_ends_after_its_number_of_requests_or_at_its_age() {
    let server = Server::sample_cluster(&["--max-requests-per-connection", "3"]);
    assert_eq!(asked(&server, 5, || {}), (3, true));
    let server = Server::sample_cluster(&["--max-connection-age", "2s"]);
    let started = Instant::now();
    let (_, is_announced) = asked(&server, usize::MAX, || {
        assert!(started.elapsed().as_secs() < 60, "it goes on for ever");
    });
    assert!(is_announced);
}

#[test]
fn what_a_client_does_not_read_takes_little_memory() {
    let server = Server::sample_cluster(&["--stall-timeout", "600s"]);
    assert_eq!(contract::config(&server.plain(), "master", "3.4.0").status, 200);
    let length = server.plain().get("/config/master").body.len();
    assert!(length > 10_000, "{length}");
    let before = server.resident_bytes();
    let ask = b"GET /config/master HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = connect_from(GREEDY, server.insecure()).expect("a connection");
        stream.set_nonblocking(true).expect("a socket option");
        // As many as fit: the server stops reading them.
        let _ = stream.write(&ask);
        held.push(stream);
    }
    let unsent = || unsent(server.insecure().port());
    wait_until("all answers to be held up", || unsent().len() >= 100);
    let most = unsent().into_values().max().expect("a connection");
    assert!(most <= 128 << 10, "{most} bytes are held for one client");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 100 * (128 << 10), "{grown} bytes for 100 clients");
    assert_eq!(contract::config(&server.tls(), "master", "3.4.0").status, 200);
}

/// A ClientHello as a client sends it, and could have kept.
fn client_hello(server: &Server) -> Vec<u8> {
    let mut hello = vec![0; 4_096];
    let mut kept = Vec::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let ca = server.ca();
    std::thread::scope(|scope| {
        scope.spawn(|| Client::tls(address, &ca).connect().map(drop));
        let (mut stream, _) = listener.accept().expect("a client");
        let length = stream.read(&mut hello).expect("a ClientHello");
        kept.extend_from_slice(&hello[..length]);
    });
    kept
}

#[test]
fn client_hellos_from_a_file_keep_no_machine_waiting() {
    const THREADS: usize = 9;
    const EACH: usize = 100;
    for key in ["p256", "rsa4096"] {
        let server = Server::sample_cluster(&["--key-algorithm", key]);
        let hello = client_hello(&server);
        let is_over = AtomicBool::new(false);
        let attack = || {
            while !is_over.load(Ordering::Relaxed) {
                let connect = |_| {
                    let mut stream = connect_from(GREEDY, server.secure()).ok()?;
                    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
                    stream.write_all(&hello).ok().map(|()| stream)
                };
                let streams: Vec<_> = (0..EACH).map(connect).collect();
                // Until the server has done its part.
                for mut stream in streams.into_iter().flatten() {
                    let _ = stream.read(&mut [0; 1]);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(attack)));
            let machine = server.tls();
            let boots = |_| {
                let boot = |_| {
                    let started = Stopwatch::start();
                    assert_eq!(contract::config(&machine, "master", "3.4.0").status, 200);
                    started.took()
                };
                (0..10).map(boot).max().expect("a boot")
            };
            let within = std::panic::catch_unwind(AssertUnwindSafe(|| {
                once_within(Duration::from_millis(400), &format!("the slowest boot, {key}"), boots);
            }));
            is_over.store(true, Ordering::Relaxed);
            within.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        // Each takes memory that is counted for nobody, and those without work stay for seconds.
        let processors = std::thread::available_parallelism().expect("a number").get();
        let threads = server.threads();
        assert!(threads <= 3 * processors + 16, "{threads} threads, {key}");
    }
}

/// One of a dozen addresses that are no machine's.
fn one_of_a_dozen(number: usize) -> IpAddr {
    let last = u8::try_from(number % 12).expect("less than a dozen");
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1 + last))
}

/// Connections with TLS from a dozen addresses, as many as are let in, on which a config was asked for
/// that nobody reads.
fn unread(server: &Server, path: &str, many: usize) -> Vec<Box<dyn Stream>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let ask = |number| {
        let mut stream = server.tls().from(one_of_a_dozen(number)).connect().ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        Some(stream)
    };
    (0..many).filter_map(ask).collect()
}

#[test]
fn a_dozen_addresses_that_do_not_read_leave_places_to_machines() {
    let directory = cluster_with_a_large_config();
    let flags = ["--max-connections", "104", "--stall-timeout", "600s"];
    let server = Server::serve(directory.path(), &flags);
    let held = unread(&server, "/config/large", 240);
    // Those of an address that have taken nothing for seconds make room for its next ones.
    let open = || server.metric("mcs_connections");
    wait_until("the others to be closed", || open() <= 100.0);
    assert!(open() >= 60.0, "{}", open());
    // From another address, at the first attempt.
    for _ in 0..20 {
        assert_eq!(server.tls().get("/config/large").status, 200);
    }
    drop(held);
}

#[test]
fn a_dozen_addresses_that_do_not_read_take_no_more_memory_than_is_allowed() {
    let directory = cluster_with_a_large_config();
    let flags = ["--max-connection-memory", "8", "--stall-timeout", "600s"];
    let server = Server::serve(directory.path(), &flags);
    assert_eq!(server.tls().get("/config/large").status, 200);
    let before = server.resident_bytes();
    let held = unread(&server, "/config/large", 300);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for {} clients", held.len());
    let kernel: u64 = unsent(server.secure().port()).into_values().sum();
    assert!(kernel < 8 << 20, "{kernel} bytes in the kernel for {} clients", held.len());
    for _ in 0..5 {
        // A connection that comes while memory is taken from others can be reset: Ignition asks again.
        wait_for("memory for another address", || {
            let answer = server.tls().try_request("GET", "/config/large", &[]);
            (answer.ok()?.status == 200).then_some(())
        });
    }
    // Clients that took nothing for seconds lose it.
    wait_for("memory for the same address", || {
        let answer = server.tls().from(one_of_a_dozen(0)).try_request("GET", "/config/large", &[]);
        (answer.ok()?.status == 200).then_some(())
    });
    drop(held);
}

#[test]
fn what_is_kept_of_large_handshakes_and_heads_takes_no_more_memory_than_is_allowed() {
    // With 64 KiB for what is kept of each, in bytes and connections.
    const ALLOWED: (u64, f64) = (8 << 20, 128.0);
    // The beginning of a ClientHello of 65,280 bytes, in records.
    let message = [&[1, 0, 0xff, 0][..], &vec![0; 60_000]].concat();
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).expect("a record").to_be_bytes();
        [&[22, 3, 1][..], &length, part].concat()
    };
    let hello: Vec<u8> = message.chunks(16_000).flat_map(record).collect();
    let request = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(16_000));
    let timeouts = ["--handshake-timeout", "600s", "--head-timeout", "600s"];
    for (what, begun) in [("handshake", &hello[..]), ("head", request.as_bytes())] {
        let server =
            Server::sample_cluster(&[&["--max-connection-memory", "8"], &timeouts[..]].concat());
        let before = server.resident_bytes();
        let address = if what == "head" { server.insecure() } else { server.secure() };
        let begin = |number| {
            let mut stream = connect_from(one_of_a_dozen(number), address).ok()?;
            stream.write_all(begun).ok().map(|()| stream)
        };
        let held: Vec<_> = (0..500).filter_map(begin).collect();
        wait_until("those to be gone that there is no memory for", || {
            server.metric("mcs_connections") <= ALLOWED.1
        });
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 2 * ALLOWED.0, "{grown} bytes for {} clients, {what}", held.len());
        assert_eq!(contract::config(&server.tls(), "master", "3.4.0").status, 200);
    }
}

#[test]
fn what_a_client_does_not_take_is_gone_with_its_connection() {
    // More than the kernel takes, and so little that it takes all.
    for bytes in [3 << 20, 300 << 10] {
        what_is_not_taken_is_gone(bytes);
    }
}

fn what_is_not_taken_is_gone(bytes: usize) {
    let directory = cluster_with_a_file_of(bytes);
    let server =
        // Long enough that a busy test sees them under way.
        Server::serve(directory.path(), &["--idle-timeout", "1s", "--stall-timeout", "5s"]);
    let request = b"GET /config/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (mut held, mut seen) = (Vec::new(), BTreeSet::new());
    let local = server.insecure().port();
    // One more at each look: on a busy machine, the first ones can be cut off before the last ones ask.
    wait_until("answers to be under way", || {
        let stream = connect_from(one_of_a_dozen(held.len()), server.insecure());
        let mut stream = stream.expect("a connection");
        stream.write_all(request).expect("a request");
        held.push(stream);
        seen.extend(unsent(local).into_keys());
        seen.len() >= 5
    });
    wait_until("the kernel to hold nothing", || {
        server.metric("mcs_connections") <= 0.0 && unsent(local).is_empty()
    });
    drop(held);
}

/// Bytes that the kernel holds for each client of a port, by the client's address in the table of its connections; those with
/// none are left out.
fn unsent(port: u16) -> BTreeMap<String, u64> {
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let local = format!("0100007F:{port:04X}");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row.get(1) == Some(&&*local) && row.get(3) != Some(&"0A"));
    let bytes = own
        .map(|row| (row[2].to_owned(), u64::from_str_radix(&row[4][..8], 16).expect("a number")));
    bytes.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn what_a_client_sends_is_cut_and_escaped_in_log_and_answers() {
    let server = Server::sample_cluster(&[]);
    let pool = "x".repeat(9_000);
    let agent = "Ignition/2.14.0\u{1b}[31m".to_owned() + &"y".repeat(4_000);
    let agent = agent.replace('\u{1b}', "\t");
    for name in [format!("%0aforged%1b{pool}"), format!("%c3%bc{pool}")] {
        let target = format!("/config/{name}");
        let answer = server.plain().request("GET", &target, &[("User-Agent", &agent)]);
        assert_eq!(answer.status, 503);
        assert!(answer.body.len() < 400, "{answer:?}");
        let text = String::from_utf8(answer.body).expect("text");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let line = wait_for("the log", || {
        let log = server.log();
        log.lines().find(|line| line.contains("forged")).map(str::to_owned)
    });
    assert!(line.len() < 1_100 && line.contains("Pool \\nforged\\u{1b}xxx"), "{line}");
}

/// What an unauthenticated client that asks as fast as it can, with what is longest once it is escaped, has logged.
#[test]
fn a_source_fills_no_log_whatever_it_sends() {
    const CONNECTIONS: usize = 5;
    let server = Server::sample_cluster(&[]);
    let worst = "\u{10ffff}".repeat(300);
    // U+10FFFF in UTF-8.
    let pool = "%f4%8f%bf%bf".repeat(300);
    let ask = format!(
        "GET /config/{pool} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {worst}\r\nAccept: {worst}\r\n\r\n"
    );
    let flood = |_| {
        let (server, ask) = (&server, &ask);
        move || {
            let mut stream = connect_from(GREEDY, server.insecure()).expect("a connection");
            let mut answer = [0; 4_096];
            for _ in 0..600 {
                stream.write_all(ask.as_bytes()).expect("a request");
                assert!(stream.read(&mut answer).expect("an answer") > 0);
            }
        }
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        (0..CONNECTIONS).map(flood).for_each(|flood| drop(scope.spawn(flood)));
    });
    // A window is 10 s, and the first may have begun before.
    let windows = usize::try_from(started.elapsed().as_secs()).expect("seconds") / 10 + 2;
    // Another one is logged nevertheless.
    assert_eq!(contract::config(&server.plain(), "master", "3.4.0").status, 200);
    let line = "Pool master requested by address:\"127.0.0.1:";
    let log = wait_for("the log", || Some(server.log()).filter(|log| log.contains(line)));
    let longest = log.lines().map(str::len).max().expect("lines");
    assert!(longest < 1_100, "{longest} bytes in a line");
    let lines = log.lines().filter(|line| line.contains("10ffff")).count();
    assert!((1_000..=1_000 * windows).contains(&lines), "{lines} of 3000, {windows} windows");
}

/// What assisted-installer looks for, with the addresses of the machine in question.
#[test]
fn installers_find_a_machine_in_the_log() {
    let server = Server::sample_cluster(&[]);
    let agent = [("User-Agent", "Ignition/2.14.0")];
    assert_eq!(server.tls().request("GET", "/config/master", &agent).status, 200);
    let line = wait_for("the log", || {
        let log = server.log();
        log.lines().find(|line| line.contains("Ignition/")).map(str::to_owned)
    });
    let after = line.split_once("Pool master requested by address:\"127.0.0.1:").expect("it").1;
    let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
    assert!(after.starts_with("\" User-Agent:\"Ignition/2.14.0\" Accept-Header: \"\""), "{line}");
    assert!(line.contains("status=200") && line.contains("spec=\"2.2.0\""), "{line}");
}

#[test]
fn unauthenticated_clients_read_what_is_degraded_and_administrators_why() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    copy_fixtures(directory.path());
    let broken = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
                  metadata: {name: broken}\nspec: {configuration: 17-is-secret}\n";
    let server = Server::serve(directory.path(), &[]);
    fs::write(directory.path().join("broken.yaml"), broken).expect("a writable folder");
    let read = |client: Client| {
        let answer = client.get("/readyz");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    };
    let path = directory.path().to_str().expect("text");
    let (_, why) = wait_for("administrators to be told", || {
        Some(read(server.metrics())).filter(|(_, text)| text.contains("17-is-secret"))
    });
    assert!(why.contains(path), "{why}");
    for client in [server.plain(), server.tls()] {
        let (status, what) = read(client);
        assert_eq!(status, 503);
        let field = "broken.yaml: document 1: spec.configuration: expected a mapping\n";
        assert!(what.contains(field), "{what}");
        assert!(!what.contains(path) && !what.contains("17-is-secret"), "{what}");
    }
}

#[test]
fn other_processes_of_its_user_cannot_read_its_memory() {
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (sample, binary) = (directory.path().join("sample"), directory.path().join("server"));
    fs::copy(env!("CARGO_BIN_EXE_machine-config-server"), &binary).expect("a copy");
    copy_fixtures(&sample);
    let state = directory.path().join("state");
    fs::create_dir(&state).expect("a folder");
    let owned =
        Command::new("chown").arg("-R").arg(NOBODY.to_string()).arg(directory.path()).status();
    assert!(owned.expect("chown").success());

    let mut command = Command::new(&binary);
    command.uid(NOBODY).gid(NOBODY).arg("serve").arg(&sample).arg("--state-dir").arg(&state);
    let server = Server::prepared(command);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    assert!(status.contains(&format!("\nUid:\t{NOBODY}\t")), "{status}");
    // The kernel gives what is another's to root where no core may be dumped.
    let environment = format!("/proc/{}/environ", server.pid());
    assert_eq!(fs::metadata(environment).expect("it runs").uid(), 0);
}
