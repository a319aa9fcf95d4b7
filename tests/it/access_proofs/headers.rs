//! Headers of every kind, and what a refusal and a log tell of a token.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::access::{credential, enforcing, get, unknown};
use crate::support::http::{Client, Response, loopback};
use crate::support::in_repository;
use crate::support::server::{Server, binary, serving};
use crate::support::wait_until;

/// The answer to a head that is written as it is.
fn raw(client: &Client, headers: &[u8]) -> Option<Response> {
    let head = b"GET /config/worker HTTP/1.1\r\nHost: localhost\r\n";
    let request = [&head[..], headers, b"Connection: close\r\n\r\n"].concat();
    client.exchange(&request).ok()
}

#[test]
fn a_header_that_is_not_as_it_has_to_be_opens_nothing() {
    let server = enforcing(&[]);
    let good = credential(&server, "worker");
    let word = &good["Bearer ".len()..];
    let mut last = 20;
    let mut ask = |headers: &[u8]| {
        last += 1;
        raw(&server.tls().from(loopback(last)), headers)
    };
    for name in ["Authorization", "authorization", "AUTHORIZATION", "aUTHORIZATION"] {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let answer = ask(format!("{name}:{scheme} {word}\r\n").as_bytes());
            assert_eq!(answer.map(|answer| answer.status), Some(200), "{name} {scheme}");
        }
    }
    for headers in nearly(&good) {
        let shown = headers.replace(word, "TOKEN");
        let shown = &shown[..shown.floor_char_boundary(100)];
        let Some(answer) = ask(headers.as_bytes()) else { continue };
        // Two lines that end otherwise are two headers all the same, one of which is good.
        assert!(matches!(answer.status, 400 | 401 | 431 | 503), "{shown:?}: {answer:?}");
        assert!(answer.body.len() < 200, "{shown:?}: {answer:?}");
    }
    for value in [&b"Bearer \xff\xfe"[..], b"\xc3\x28", b"", b" ", b"Bearer"] {
        let header = [b"Authorization: ", value, b"\r\n"].concat();
        let answer = ask(&header);
        assert!(answer.is_none_or(|answer| matches!(answer.status, 400 | 401)), "{value:?}");
    }
    // The line to try says how a token is read, and none of one.
    let log = server.log().replace(r#"s/.*"\(Bearer [^"]*\)".*/Authorization: \1/p"#, "");
    assert!(!log.contains("mcs-") && !log.contains("Bearer"), "{log}");
}

/// Headers that nearly bring a token along.
fn nearly(good: &str) -> Vec<String> {
    let word = &good["Bearer ".len()..];
    let line = format!("Authorization: {good}\r\n");
    let oversized = format!("Authorization: Bearer {}\r\n", "x".repeat(16 << 10));
    let padded = format!("Authorization: Bearer {}{word}\r\n", " ".repeat(16 << 10));
    let wide = word.replace('m', "\u{ff4d}");
    vec![
        format!("{line}{line}"),
        format!("{line}authorization: Basic eA==\r\n"),
        format!("Authorization: Basic eA==\r\n{line}"),
        format!("{line}Authorization:\r\n"),
        format!("Authorization: {good}, {good}\r\n"),
        format!("Authorization: {good},\r\n"),
        format!("Authorization: Bearer \r\n {word}\r\n"),
        format!("Authorization: Bearer\r\n\t{word}\r\n"),
        format!("Authorization: Bearer\t{word}\r\n"),
        format!("Authorization: Bearer{word}\r\n"),
        format!("Authorization: {word}\r\n"),
        format!("Authorization: Bearer Bearer {word}\r\n"),
        format!("Authorization: Bearer \"{word}\"\r\n"),
        format!("Authorization: Bearer {word}=\r\n"),
        format!("Authorization: Bearer {word}\0\r\n"),
        format!("Authorization: Bearer \0{word}\r\n"),
        format!("Authorization: Bearer {wide}\r\n"),
        format!("Authorization: Bearer \u{a0}{word}\r\n"),
        format!("Authorization: Bearer {}\r\n", word.to_ascii_lowercase()),
        format!("Authorization: Bearer {}\r\n", word.to_ascii_uppercase()),
        format!("Authorization : {good}\r\n"),
        format!(" Authorization: {good}\r\n"),
        format!("Authorization: {good}\n\r\n"),
        format!("Proxy-Authorization: {good}\r\n"),
        format!("X-Authorization: {good}\r\n"),
        format!("Cookie: Authorization={word}\r\n"),
        format!("X: y\rAuthorization: {good}\r\n"),
        oversized,
        padded,
    ]
}

/// With all that there is to log, there is no token in it.
#[test]
fn no_token_is_in_the_log_nor_on_any_page() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut command = serving(&in_repository("ignition-fixtures"), state.path());
    command.args(["--v", "8", "--access", "enforce"]);
    let server = Server::prepared(command).until_ready();
    let path = state.path().join("user-data/worker.ign");
    let text = fs::read_to_string(&path).expect("a pointer config");
    let pointer: Value = serde_json::from_str(&text).expect("JSON");
    let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
    let good = header.as_str().expect("a token");
    let tls = Client::tls(server.secure(), &fs::read(state.path().join("ca.crt")).expect("the CA"));
    assert_eq!(get(&tls, "worker", Some(good)).status, 200);
    assert_eq!(get(&server.plain(), "worker", Some(good)).status, 401);
    assert_eq!(get(&tls, "master", Some(good)).status, 401);
    let word = &good["Bearer mcs-".len()..];
    for page in ["/", "/metrics", "/readyz", "/api/v1/overview", "/api/v1/machines"] {
        let text = String::from_utf8_lossy(&server.metrics().get(page).body).into_owned();
        assert!(!text.contains(word) && !text.contains("mcs-"), "{page}: {text}");
    }
    for flags in [&["--json"][..], &[]] {
        let output = binary().arg("inspect").arg("--pointer").arg(&path).args(flags).output();
        let output = output.expect("the built binary");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("worker"), "{text}");
        assert!(!text.contains(word), "{flags:?}: {text}");
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains(word) || line.contains("mcs-"));
    assert_eq!(line, None);
    let arguments = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("procfs");
    assert!(!String::from_utf8_lossy(&arguments).contains("mcs-"));
}

/// Six ways to fail, once a server knows of each.
fn ways_to_fail(server: &Server) -> [(&'static str, Option<String>); 6] {
    credential(server, "worker");
    let run = |arguments: &[&str]| {
        let mut command = binary();
        command.arg("tokens").args(arguments).arg("--state-dir").arg(server.state());
        let output = command.output().expect("the built binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let add = |name, pool, until| {
        let token = run(&["add", name, "--pool", pool, "--until", until]);
        Some(format!("Bearer {}", token.trim()))
    };
    let ways = [
        ("missing", None),
        ("malformed", Some("Bearer mcs-AAAA".to_owned())),
        ("unknown", Some(unknown())),
        ("ended", add("e", "worker", "2s")),
        ("other pool", add("o", "master", "1h")),
        ("revoked", add("r", "worker", "1h")),
    ];
    run(&["revoke", "r"]);
    for (name, credential) in &ways[3..] {
        wait_until(name, || {
            let client = server.tls().from(loopback(90));
            let answer = get(&client, "worker", credential.as_deref());
            answer.status == 401
        });
    }
    ways
}

/// One after the other on connections that stay, so that what the machine does besides slows all of
/// them alike.
#[test]
fn how_long_a_refusal_takes_does_not_tell_why() {
    /// The ways are compared after each of these, because a busy machine needs more than one.
    const ROUNDS: usize = 240;
    let server = enforcing(&[]);
    let ways = ways_to_fail(&server);
    let mut times = ways.each_ref().map(|_| Vec::new());
    let are_alike = (0..5).any(|attempt| {
        for round in attempt * ROUNDS..(attempt + 1) * ROUNDS {
            // Another source each few rounds: none fails so often that it has to wait.
            let address = Ipv4Addr::new(127, 1, 0, u8::try_from(1 + round / 12).expect("few"));
            let mut stream = server.tls().from(address.into()).connect().expect("a connection");
            for step in 0..=ways.len() {
                let index = (step + round) % ways.len();
                let header = ways[index].1.as_ref();
                let header =
                    header.map_or_else(String::new, |it| format!("Authorization: {it}\r\n"));
                let head =
                    format!("GET /config/worker HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
                let started = Instant::now();
                stream.write_all(head.as_bytes()).expect("a connection");
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).expect("an answer");
                let took = started.elapsed();
                let status = Response::parse(&buffer[..read]).expect("an answer").status;
                assert_eq!(status, if index == 2 { 503 } else { 401 }, "{}", ways[index].0);
                // The first one on a connection has work of its own.
                if step > 0 {
                    times[index].push(took);
                }
            }
        }
        alike(&mut times)
    });
    assert!(are_alike, "{:?}", ways.map(|(name, _)| name));
}

/// Returns `true` if no way takes longer than another one.
fn alike(times: &mut [Vec<Duration>]) -> bool {
    // What a way takes by itself shows in its quickest answers: the others waited for a processor.
    let quick = times.iter_mut().map(|times| {
        times.sort();
        times[2]
    });
    let quick: Vec<_> = quick.collect();
    println!("{quick:?}");
    let (least, most) = (quick.iter().min(), quick.iter().max());
    let (least, most) = (*least.expect("six"), *most.expect("six"));
    // Processors and schedulers make more of a difference than a hash.
    most < least * 3 / 2 + Duration::from_micros(50)
}
