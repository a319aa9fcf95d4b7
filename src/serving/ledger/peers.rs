//! Fetches the boot ledgers of other servers: a machine can ask any of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::body::Body;
use bytes::Bytes;
use common::http_client::{HttpConnection, read};
use http::header::HOST;
use http::{Request, StatusCode};
use model::access::approval::WaitingMachine;
use model::ledger::Machine;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

use crate::source::manifest::check_json;

/// Path of a server's own part of the ledger.
pub(crate) const PATH: &str = "/api/v1/ledger";
/// Maximum time for an answer, because a person waits for the page.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of an answer. 10,000 machines take some 5 MB, and less than 24 MB whatever they send.
const MAX_BYTES: usize = 32 << 20;

/// One server's part of the ledger.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LedgerPart {
    /// ID of the server, by which one recognises its own part.
    pub(crate) server: String,
    pub(crate) machines: Vec<Machine>,
    /// Machines that wait for approval; none of an older server.
    #[serde(default)]
    pub(crate) waiting: Vec<WaitingMachine>,
}

/// Parts of other servers, and errors of those without one.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) parts: Vec<LedgerPart>,
    pub(crate) silent: Vec<String>,
}

/// Asks all servers behind a name, `HOST:PORT`, concurrently.
pub(crate) async fn ask(name: &str) -> Answers {
    let mut answers = Answers::default();
    let resolved = match tokio::time::timeout(TIMEOUT, lookup_host(name)).await {
        Ok(resolved) => resolved.map_err(|error| error.to_string()),
        Err(_) => Err("name not resolved in time".to_owned()),
    };
    let addresses: BTreeSet<SocketAddr> = match resolved {
        Ok(addresses) => addresses.collect(),
        Err(reason) => {
            answers.silent.push(format!("{name}: {reason}"));
            return answers;
        }
    };
    let mut requests = JoinSet::new();
    for address in addresses {
        requests.spawn(async move { (address, get(address, PATH).await) });
    }
    while let Some(answer) = requests.join_next().await {
        match answer {
            Ok((_, Ok(part))) => answers.parts.push(part),
            Ok((address, Err(error))) => answers.silent.push(format!("{address}: {error:#}")),
            Err(error) => answers.silent.push(error.to_string()),
        }
    }
    answers.silent.sort();
    answers
}

/// An answer with another status than 200.
#[derive(Debug, thiserror::Error)]
#[error("it answers with status {0}")]
pub(crate) struct UnexpectedStatus(pub(crate) StatusCode);

/// Fetches JSON from a server's listener for administrators.
pub(crate) async fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> anyhow::Result<T> {
    let (status, bytes) = get_bytes(address, path).await?;
    if status != StatusCode::OK {
        return Err(UnexpectedStatus(status).into());
    }
    let text = str::from_utf8(&bytes).context("its answer is not text")?;
    check_json(text)?;
    Ok(serde_json::from_str(text)?)
}

/// Fetches an answer of any status from a server's listener for administrators.
pub(crate) async fn get_bytes(
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let answer = tokio::time::timeout(TIMEOUT, exchange(address, path)).await;
    answer.map_err(|_| anyhow!("no answer in time"))?
}

async fn exchange(address: SocketAddr, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let mut connection = HttpConnection::new(TcpStream::connect(address).await?).await?;
    let request = Request::get(path).header(HOST, address.to_string()).body(Body::empty())?;
    let answer = connection.send(request).await?;
    let status = answer.status();
    let bytes = read(answer, MAX_BYTES).await.context("its answer is too large, or cut short")?;
    Ok((status, bytes))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::num::NonZeroUsize;

    use ignition::SpecVersion;
    use model::ledger::{Failed, Ledger, MAX_MACHINES, Request as Asked};
    use status::overview::MachineLine;
    use time::macros::datetime;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Sizes in bytes of JSON for a full ledger, as sent and as stored, if each machine sent and got `asked`.
    fn sizes(asked: &Asked<'_>, most: usize) -> [usize; 2] {
        let ledger = Ledger::of(NonZeroUsize::new(most).unwrap());
        let now = datetime!(2026-11-21 12:00 UTC);
        for number in 0..u128::try_from(most).unwrap() {
            // Each in a separate network, with an address of maximum length.
            let address = Ipv6Addr::from_bits(u128::MAX - (number << 64)).into();
            ledger.asked(&Asked { address, ..*asked }, now);
            ledger.handshake_failed(address, Failed::Connection, now);
        }
        let machines = ledger.machines();
        let kept = serde_json::to_vec(&machines).unwrap().len();
        let count = machines.len();
        let line =
            |machine: Machine| MachineLine { status: machine.boot_status(None, now), machine };
        let lines: Vec<_> = machines.into_iter().map(line).collect();
        let reported = serde_json::to_vec(&lines).unwrap().len();
        assert_eq!(count, most);
        [reported, kept].map(|bytes| bytes * MAX_MACHINES.get() / count)
    }

    #[test]
    fn no_machines_make_more_than_is_read() {
        let plain = Asked {
            address: Ipv6Addr::LOCALHOST.into(),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: Some(SpecVersion::V3_3),
            without_tls: false,
            answer: Err((503, "no pool has this name")),
            would_be_refused: Some("missing"),
        };
        let digest = "0".repeat(64);
        let config = "rendered-worker-0123456789abcdef0123456789abcdef";
        let served = Asked { answer: Ok((config, &digest)), ..plain };
        for plain in [plain, served] {
            let [reported, kept] = sizes(&plain, 100);
            assert!(
                (4_000_000..=reported).contains(&kept) && reported < 6_000_000,
                "{reported} {kept}"
            );
        }
        // Texts that take the most space in JSON, and a program that is in the words too.
        for worst in ["\u{1}", "\"", "\u{fffd}", "\u{1f600}", "x"] {
            let worst = worst.repeat(9_000);
            for user_agent in [&worst, &format!("Ignition/{worst}")] {
                for answer in [Ok((&*worst, &*worst)), Err((503, &*worst))] {
                    let asked = Asked { pool: &worst, user_agent, answer, ..plain };
                    let [reported, kept] = sizes(&asked, 100);
                    assert!(reported < 24_000_000 && kept < 15_000_000, "{reported} {kept}");
                }
            }
        }
        let quotes = "\"".repeat(9_000);
        let asked =
            Asked { pool: &quotes, user_agent: &quotes, answer: Err((503, &quotes)), ..plain };
        assert!(sizes(&asked, MAX_MACHINES.get())[0] < 24_000_000);
        // An overview has more than machines.
        const { assert!(24_000_000 < MAX_BYTES * 3 / 4) };
    }

    /// A server that gives this answer, or none.
    async fn server(says: Option<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            match says {
                Some(says) => stream.write_all(says.as_bytes()).await.unwrap(),
                None => std::future::pending().await,
            }
        });
        address
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_server_that_does_not_tell_is_named_with_the_reason() {
        let endless = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_owned();
        let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned();
        for (says, reason) in [
            (None, "no answer in time"),
            (Some("garbage\r\n\r\n".to_owned()), "invalid HTTP version parsed"),
            (Some(missing), "it answers with status 404"),
            (Some(endless), "too large, or cut short"),
            (Some(answer("{\"server\": 1}")), "invalid type: integer"),
            (Some(answer(&"[".repeat(1_000))), "more than 100 deep"),
        ] {
            let (mut address, mut line) = (String::new(), String::new());
            // On a busy machine, an answer can be late.
            for _ in 0..10 {
                address = server(says.clone()).await;
                let Answers { parts, silent } = ask(&address).await;
                assert!(parts.is_empty());
                let [said] = &silent[..] else { panic!("{silent:?}") };
                line.clone_from(said);
                if line.contains(reason) {
                    break;
                }
            }
            assert!(line.starts_with(&address) && line.contains(reason), "{reason:?}: {line}");
        }
        let reported = answer("{\"server\": \"a\", \"machines\": []}");
        let Answers { parts, silent } = ask(&server(Some(reported)).await).await;
        assert_eq!((parts.len(), silent.len()), (1, 0));
    }
}
