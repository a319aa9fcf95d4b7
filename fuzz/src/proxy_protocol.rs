//! What a balancer says of the client behind it. A header is the same however it comes, none of the
//! bytes after it is asked for, and what a library reads is read alike here.

use std::net::SocketAddr;

use machine_config_server::server::connections::proxy_protocol::{Progress, parse};
use ppp::{HeaderResult, PartialResult as _, v1, v2};

/// Takes as many bytes as are asked for, at most so many at a time.
fn taken(data: &[u8], step: usize) -> Option<(usize, Option<SocketAddr>)> {
    let mut have = 0;
    loop {
        match parse(&data[..have]).ok()? {
            Progress::Whole { length, client } => {
                assert_eq!(length, have, "more was asked for than the header has");
                return Some((length, client));
            }
            Progress::Missing(missing) => {
                assert!(missing > 0 && have + missing <= 16 + 4096);
                let next = (have + missing.min(step)).min(data.len());
                if next == have {
                    return None;
                }
                have = next;
            }
        }
    }
}

/// What the library says of a client by TCP. An IPv4 address written as one of IPv6 is itself here.
fn known(data: &[u8]) -> Option<(usize, SocketAddr)> {
    let result = HeaderResult::parse(data);
    if result.is_incomplete() {
        return None;
    }
    match result {
        HeaderResult::V1(Ok(header)) => {
            let client = match header.addresses {
                v1::Addresses::Tcp4(it) => (it.source_address, it.source_port).into(),
                v1::Addresses::Tcp6(it) => (it.source_address, it.source_port).into(),
                v1::Addresses::Unknown => return None,
            };
            // It takes a sign before a port, and a line that ends with a space before its end.
            let is_strict = !header.header.contains('+') && header.header.ends_with("\r\n");
            is_strict.then_some((header.header.len(), client))
        }
        HeaderResult::V2(Ok(header)) => {
            let client = match header.addresses {
                v2::Addresses::IPv4(it) => (it.source_address, it.source_port).into(),
                v2::Addresses::IPv6(it) => (it.source_address, it.source_port).into(),
                _ => return None,
            };
            let is_tcp =
                header.command == v2::Command::Proxy && header.protocol == v2::Protocol::Stream;
            (is_tcp && header.length() <= 4096).then_some((header.len(), client))
        }
        _ => None,
    }
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let own = taken(data, usize::MAX);
    assert_eq!(taken(data, 1), own);
    assert_eq!(taken(data, 7), own);
    if let Some((length, client)) = known(data) {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        assert_eq!(own, Some((length, Some(client))));
    }
}
