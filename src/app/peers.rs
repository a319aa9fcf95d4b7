//! The other servers' boot ledgers: a machine may have asked any of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use axum::body::Body;
use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

use crate::http_client::{HttpConnection, read};
use crate::ledger::Machine;
use crate::source::manifest::check_json;

/// Where servers give out their own part of the ledger.
pub(super) const PATH: &str = "/api/v1/ledger";
/// A server that takes longer is silent: a person waits for the page.
const PATIENCE: Duration = Duration::from_secs(2);
/// 10,000 machines take some 5 MB.
const LARGEST: usize = 32 << 20;

/// One server's part of the ledger.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Which server it is, so that one that asks itself knows.
    pub(super) server: String,
    pub(super) machines: Vec<Machine>,
}

/// What the other servers have, and why some did not answer.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) parts: Vec<Part>,
    pub(super) silent: Vec<String>,
}

/// Asks all servers behind a name, `HOST:PORT`, at the same time.
pub(super) async fn ask(name: &str) -> Answers {
    let mut answers = Answers::default();
    let addresses: BTreeSet<SocketAddr> =
        match tokio::time::timeout(PATIENCE, lookup_host(name)).await {
            Ok(Ok(addresses)) => addresses.collect(),
            Ok(Err(error)) => {
                answers.silent.push(format!("{name}: {error}"));
                return answers;
            }
            Err(_) => {
                answers.silent.push(format!("{name}: the name is not resolved in time"));
                return answers;
            }
        };
    let mut asked = JoinSet::new();
    for address in addresses {
        asked.spawn(async move { (address, get(address, PATH).await) });
    }
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((_, Ok(part))) => answers.parts.push(part),
            Ok((address, Err(error))) => answers.silent.push(format!("{address}: {error:#}")),
            Err(error) => answers.silent.push(error.to_string()),
        }
    }
    answers.silent.sort();
    answers
}

/// Asks a server's listener for administrators for JSON.
pub(super) async fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(PATIENCE, exchange(address, path)).await;
    let bytes = answer.map_err(|_| anyhow!("no answer in time"))??;
    let text = str::from_utf8(&bytes).context("its answer is no text")?;
    check_json(text)?;
    Ok(serde_json::from_str(text)?)
}

async fn exchange(address: SocketAddr, path: &str) -> anyhow::Result<Bytes> {
    let mut connection = HttpConnection::new(TcpStream::connect(address).await?).await?;
    let request = Request::get(path).header(HOST, address.to_string()).body(Body::empty())?;
    let answer = connection.send(request).await?;
    ensure!(answer.status() == StatusCode::OK, "it answers {}", answer.status());
    read(answer, LARGEST).await.context("its answer is too large, or cut short")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that says this to whoever asks, or nothing.
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
            (Some(missing), "it answers 404"),
            (Some(endless), "too large, or cut short"),
            (Some(answer("{\"server\": 1}")), "invalid type: integer"),
            (Some(answer(&"[".repeat(1_000))), "more than 100 deep"),
        ] {
            let address = server(says).await;
            let Answers { parts, silent } = ask(&address).await;
            assert!(parts.is_empty());
            let [line] = &silent[..] else { panic!("{silent:?}") };
            assert!(line.starts_with(&address) && line.contains(reason), "{reason:?}: {line}");
        }
        let told = answer("{\"server\": \"a\", \"machines\": []}");
        let Answers { parts, silent } = ask(&server(Some(told)).await).await;
        assert_eq!((parts.len(), silent.len()), (1, 0));
    }
}
