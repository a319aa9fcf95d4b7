//! Sends CMPv2 messages over HTTP (RFC 6712, RFC 9811), with a connection for each, because answers can be hours apart.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use cmp::{Client, Transport, TransportError};
use common::backoff::Backoff;
use common::http_client::{HttpConnection, read};
use http::uri::{InvalidUri, Scheme};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use model::escape::{NAME, cut};
use pki::Certificate;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// Media type of messages.
const TYPE: HeaderValue = HeaderValue::from_static("application/pkixcmp");
/// Maximum size of an answer in bytes: a dozen certificates with the largest keys, and room.
const MAX_BYTES: usize = 256 << 10;
/// Maximum time from name resolution to the last byte.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of concurrent exchanges with a server; further requests wait.
const AT_ONCE: usize = 8;

/// Waits after failures, each randomly up to twice as long: a server that is back after a month is used within ten
/// minutes.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Creates the waits between attempts to reach a server.
pub fn tries() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

/// Reasons why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{0:?} is not a URL: expected http:// or https://, a host, and optionally a path")]
    Url(String),
    #[error("{0} is plain HTTP, which only --allow-http (allowHTTP) allows")]
    Plain(Uri),
    #[error("{0} is HTTPS: --cacert (cacertRef) must name the CA of the server")]
    NoCa(Uri),
    #[error("cannot use a CA certificate for HTTPS: {0}")]
    Ca(rustls::Error),
}

#[derive(Clone)]
pub struct Server {
    url: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    turns: Arc<Semaphore>,
}

impl Server {
    /// Creates a server for `url`, whose HTTPS certificate must lead to one of `authorities`. `ca_name` is the last
    /// segment of the path, by which servers distinguish several CAs.
    pub fn new(
        url: &str,
        ca_name: Option<&str>,
        cas: &[Certificate],
        allow_http: bool,
    ) -> Result<Self, ServerError> {
        let invalid = || ServerError::Url(url.to_owned());
        let whole = match ca_name {
            Some(name) => format!("{}/{name}", url.trim_end_matches('/')),
            None => url.to_owned(),
        };
        let url: Uri = whole.parse().map_err(|_: InvalidUri| invalid())?;
        let host = url.host().filter(|host| !host.is_empty()).ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (default, tls) = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => {
                if cas.is_empty() {
                    return Err(ServerError::NoCa(url));
                }
                let name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
                (443, Some((tls_by(cas).map_err(ServerError::Ca)?, name)))
            }
            Some(scheme) if *scheme == Scheme::HTTP && allow_http => (80, None),
            Some(scheme) if *scheme == Scheme::HTTP => return Err(ServerError::Plain(url)),
            _ => return Err(invalid()),
        };
        let port = url.port_u16().unwrap_or(default);
        Ok(Self { url, host, port, tls, turns: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// A client of this server with this machine's clock and randomness.
    pub fn client(&self) -> Client<'_, Self> {
        Client { transport: self, random, clock: OffsetDateTime::now_utc }
    }

    async fn try_exchange(&self, message: Vec<u8>) -> Result<Bytes, TransportError> {
        let url = &self.url;
        let failed =
            |error: anyhow::Error| TransportError::Absent(format!("{url}: {error:#}").into());
        let stream = self.connect().await.map_err(failed)?;
        let mut connection = HttpConnection::new(stream).await.map_err(failed)?;
        let request = self.request(message).map_err(|error| failed(error.into()))?;
        let response = connection.send(request).await.map_err(failed)?;
        let status = response.status();
        let text = |name| {
            let value = response.headers().get(name);
            value.map(|value: &HeaderValue| {
                cut(&String::from_utf8_lossy(value.as_bytes()), NAME).into_owned()
            })
        };
        let found = text(header::CONTENT_TYPE).unwrap_or_default();
        let is_message = found.split(';').next().is_some_and(|it| TYPE == it.trim());
        // A refusal can be a message all the same (RFC 9811 section 3.3).
        if status != StatusCode::OK && (!is_message || status.is_redirection()) {
            let location = text(header::LOCATION)
                .map(|location| format!(" to {location:?}, which is not followed"));
            let error = format!("{url} answers {status}{}", location.unwrap_or_default()).into();
            // Proxies report that the server does not answer.
            let is_absent = matches!(status.as_u16(), 502..=504);
            return Err(if is_absent {
                TransportError::Absent(error)
            } else {
                TransportError::NoMessage(error)
            });
        }
        if !is_message {
            let error = format!("{url} answers with {found:?}, which is not a CMP message");
            return Err(TransportError::NoMessage(error.into()));
        }
        read(response, MAX_BYTES).await.map_err(failed)
    }

    async fn connect(&self) -> anyhow::Result<Either<TlsStream<TcpStream>, TcpStream>> {
        let socket = TcpStream::connect((&self.host[..], self.port)).await?;
        let Some((connector, name)) = &self.tls else { return Ok(Either::Right(socket)) };
        Ok(Either::Left(connector.connect(name.clone(), socket).await?))
    }

    fn request(&self, message: Vec<u8>) -> http::Result<Request<Body>> {
        let host = self.url.authority().map_or("", http::uri::Authority::as_str);
        Request::post(self.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str))
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, TYPE)
            .header(header::CACHE_CONTROL, "no-cache")
            .header(header::CONNECTION, "close")
            .body(Body::from(message))
    }
}

impl Transport for Server {
    async fn exchange(&self, message: Vec<u8>) -> Result<Vec<u8>, TransportError> {
        // The semaphore is never closed.
        let _permit = self.turns.acquire().await.ok();
        let answer = timeout(TIMEOUT, self.try_exchange(message)).await.map_err(|_| {
            let error = format!("{}: no answer within {} s", self.url, TIMEOUT.as_secs());
            TransportError::Absent(error.into())
        })?;
        Ok(answer?.into())
    }

    async fn wait(&self, time: Duration) {
        sleep(time).await;
    }

    fn retries(&self) -> impl Iterator<Item = Duration> + Send {
        let mut tries = tries();
        core::iter::from_fn(move || Some(tries.next()))
    }
}

fn random() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}

/// TLS with the program's usual settings, and only these CAs.
fn tls_by(cas: &[Certificate]) -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        roots.add(CertificateDer::from(ca.der()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
