//! The other servers' boot ledgers: a machine may have asked any of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use axum::body::Body;
use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

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
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(HOST, address.to_string()).body(Body::empty())?;
    // It drives the connection until the answer is there.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let answer = sender.send_request(request).await?;
    ensure!(answer.status() == StatusCode::OK, "it answers {}", answer.status());
    let bytes = axum::body::to_bytes(Body::new(answer.into_body()), LARGEST);
    bytes.await.context("its answer is too large, or cut short")
}
