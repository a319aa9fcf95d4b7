//! One machine: it connects, checks the server's certificate and fetches its config, as Ignition does
//! it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// The name that the machines ask for.
pub(crate) const HOST: &str = "api-int.storm.test";

/// What Ignition calls itself, who gets the config compact from our server, and what gets it plain.
pub(crate) const IGNITION: &str = "Ignition/2.18.0";
pub(crate) const OTHER: &str = "Boot-storm/2.18.0";

/// A boot that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Room for a config and its head, so that a reused buffer doesn't grow under load.
pub(crate) const BUFFER_SIZE: usize = 512 * 1_024;

#[derive(Clone)]
pub(crate) struct Machine {
    address: SocketAddr,
    /// Where it connects from, of this computer's own addresses; any one if it is unspecified.
    source: Ipv4Addr,
    connector: TlsConnector,
    host: ServerName<'static>,
    user_agent: Arc<str>,
    request: Arc<str>,
}

impl Machine {
    /// A machine of the pool `master` that boots from `address` and trusts the CA in the file `ca`.
    pub(crate) fn new(
        address: SocketAddr,
        ca: &Path,
        user_agent: &str,
        is_post_quantum: bool,
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca)?)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider(is_post_quantum)))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // No ticket is kept: every machine is one that was never seen before.
        config.resumption = Resumption::disabled();
        Ok(Self {
            address,
            source: Ipv4Addr::UNSPECIFIED,
            connector: TlsConnector::from(Arc::new(config)),
            host: ServerName::try_from(HOST)?,
            user_agent: user_agent.into(),
            request: request("master", user_agent).into(),
        })
    }

    /// The same machine in another pool.
    pub(crate) fn of_pool(&self, pool: &str) -> Self {
        Self { request: request(pool, &self.user_agent).into(), ..self.clone() }
    }

    /// The same machine at an address of its own, by which a server tells it from others.
    pub(crate) fn at(self, source: Ipv4Addr) -> Self {
        Self { source, ..self }
    }

    /// Boots once; afterwards `buffer` holds the answer, and the range returned is the config in it.
    pub(crate) async fn boot<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        tokio::time::timeout(TIMEOUT, self.fetch(buffer)).await.context("waited too long")?
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        if self.source.is_unspecified() {
            return TcpStream::connect(self.address).await;
        }
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.source, 0).into())?;
        socket.connect(self.address).await
    }

    async fn fetch<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let stream = self.connect().await?;
        // As Go does. Else the request would wait in the kernel until the server has acknowledged the
        // handshake's last message, 40 ms later where the server has no reason to write anything.
        stream.set_nodelay(true)?;
        let mut stream = self.connector.connect(self.host.clone(), stream).await?;
        stream.write_all(self.request.as_bytes()).await?;

        buffer.clear();
        let (start, length) = loop {
            ensure!(stream.read_buf(buffer).await? > 0, "no answer");
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break (end + 4, content_length(str::from_utf8(&buffer[..end])?)?);
            }
        };
        while buffer.len() < start + length {
            let read = stream.read_buf(buffer).await?;
            ensure!(read > 0, "{} of {length} bytes", buffer.len() - start);
        }
        stream.shutdown().await?;
        Ok(&buffer[start..])
    }
}

/// What Ignition's TLS library (Go's) prefers: AES-128 before AES-256, and X25519; since Go 1.24 its
/// hybrid with ML-KEM-768 first.
fn provider(is_post_quantum: bool) -> CryptoProvider {
    use aws_lc_rs::{cipher_suite, kx_group};
    let mut kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    if is_post_quantum {
        kx_groups.insert(0, kx_group::X25519MLKEM768);
    }
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups,
        ..aws_lc_rs::default_provider()
    }
}

/// What Ignition sends for spec 3.4.
fn request(pool: &str, user_agent: &str) -> String {
    format!(
        "GET /config/{pool} HTTP/1.1\r\n\
         Host: {HOST}:22623\r\n\
         User-Agent: {user_agent}\r\n\
         Accept: application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1\r\n\
         Accept-Encoding: identity\r\n\r\n"
    )
}

fn content_length(head: &str) -> Result<usize> {
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 200 "), "{status}");
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.context("no Content-Length")?;
    Ok(length.trim().parse()?)
}
