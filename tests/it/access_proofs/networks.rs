//! Networks: on both ports, by pool, of IPv4 on a socket of IPv6, and behind a balancer.

use std::io::{Read as _, Write as _};

use crate::support::access::{credential, get};
use crate::support::http::{Client, Response, connect_from, loopback};
use crate::support::server::Server;

fn serve(flags: &[&str]) -> Server {
    Server::sample_cluster(flags)
}

const FORWARDED: [(&str, &str); 4] = [
    ("X-Forwarded-For", "127.0.0.40"),
    ("Forwarded", "for=127.0.0.40"),
    ("X-Real-IP", "127.0.0.40"),
    ("X-Client-IP", "127.0.0.40"),
];

#[test]
fn networks_count_in_every_mode_on_both_ports_and_by_pool() {
    // In audit nobody is refused, and it is told who would be.
    for (mode, plain, elsewhere) in [("off", 200, 401), ("audit", 200, 200), ("enforce", 401, 401)]
    {
        let flags = ["127.0.0.40", "127.0.0.48/29", "master=127.0.0.64/28"];
        let flags: Vec<_> = flags.iter().flat_map(|flag| ["--allow-from", *flag]).collect();
        let server = serve(&[&["--access", mode][..], &flags].concat());
        let token = |pool: &str| (mode == "enforce").then(|| credential(&server, pool));
        for pool in ["worker", "master"] {
            let token = token(pool);
            for (last, is_of_all, is_of_master) in [
                (40, true, false),
                (41, false, false),
                (48, true, false),
                (55, true, false),
                (56, false, false),
                (63, false, false),
                (64, false, true),
                (79, false, true),
                (80, false, false),
            ] {
                let may = if pool == "master" { is_of_master } else { is_of_all };
                let status = |client: Client, more: &[(&str, &str)]| {
                    let token = token.as_deref().map(|token| ("Authorization", token));
                    let headers: Vec<_> = token.into_iter().chain(more.iter().copied()).collect();
                    let client = client.from(loopback(last));
                    client.request("GET", &format!("/config/{pool}"), &headers).status
                };
                for forwarded in [&[][..], &FORWARDED] {
                    let what = format!("{mode}: {pool} from 127.0.0.{last} {forwarded:?}");
                    let expected = if may { 200 } else { elsewhere };
                    assert_eq!(status(server.tls(), forwarded), expected, "{what}");
                    let expected = if may { plain } else { elsewhere };
                    assert_eq!(status(server.plain(), forwarded), expected, "{what}");
                }
            }
        }
        if mode == "audit" {
            let machine = server.metrics().get("/api/v1/machines/127.0.0.80").json();
            assert_eq!(machine["requests"]["would_be_refused"], "network");
        }
        // Health is everybody's.
        assert_eq!(server.plain().from(loopback(99)).get("/healthz").status, 200);
    }
}

/// A server that listens on IPv6 sees machines of IPv4 by addresses of IPv6.
#[test]
fn ipv4_counts_as_such_where_the_socket_is_one_of_ipv6() {
    for (network, status) in [("127.0.0.0/8", 200), ("::/0", 401), ("::ffff:127.0.0.0/104", 200)] {
        let server = Server::serve_on("::", &["--access", "off", "--allow-from", network]);
        for client in [server.tls(), server.plain()] {
            assert_eq!(get(&client, "worker", None).status, status, "{network}");
        }
    }
}

#[test]
fn behind_a_balancer_networks_are_those_of_its_clients() {
    let balancer = ["--proxy-from", "127.0.0.8", "--allow-from", "192.0.2.0/24"];
    let server = serve(&[&balancer[..], &["--access", "off"]].concat());
    let ask = |from: u8, header: &str| {
        let mut stream = connect_from(loopback(from), server.insecure()).expect("a connection");
        let request = format!(
            "{header}GET /config/worker HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a connection");
        let mut answer = Vec::new();
        // One that is closed at once has no answer.
        let _ = stream.read_to_end(&mut answer);
        Response::parse(&answer).map(|answer| answer.status).ok()
    };
    for (from, header, expected) in [
        (8, "PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n", Some(200)),
        (8, "PROXY TCP6 ::ffff:192.0.2.9 ::1 1 2\r\n", Some(200)),
        (8, "PROXY TCP4 192.0.3.9 127.0.0.1 1 2\r\n", Some(401)),
        (8, "PROXY TCP6 ::ffff:192.0.3.9 ::1 1 2\r\n", Some(401)),
        (8, "PROXY TCP6 2001:db8::1 ::1 1 2\r\n", Some(401)),
        // Nobody is named: it is the balancer's own address that counts.
        (8, "PROXY UNKNOWN\r\n", Some(401)),
        (8, "", None),
        (9, "", Some(401)),
    ] {
        assert_eq!(ask(from, header), expected, "{header:?} from 127.0.0.{from}");
    }
    // A client that is no balancer is not believed.
    assert_ne!(ask(9, "PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n"), Some(200));
}
