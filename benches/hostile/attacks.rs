//! What hostile clients do, from addresses that are not the machines'.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

/// Where attackers come from.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Bytes that a slow reader takes at a time, and how long it waits before it takes more.
const SLOWLY: (usize, Duration) = (60 << 10, Duration::from_secs(3));
/// Machines that the boot ledger remembers.
const MACHINES: u32 = 10_000;
/// Before a client that was refused comes again.
const AGAIN: Duration = Duration::from_secs(1);
/// Memory that the kernel takes on the attacker's side of a connection is not the server's.
const RECEIVE_BUFFER: u32 = 4 << 10;

/// A way to be hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Attack {
    /// None, for comparison.
    None,
    /// 10,050 connections without TLS that ask for `/livez` every 40 s.
    Idle,
    /// 300 clients that ask for a config a thousand times at once and read nothing.
    Pipelining,
    /// 2,000 clients that send a head a byte a second.
    SlowHeads,
    /// 2,000 connections to the port with TLS that say nothing.
    HalfOpen,
    /// 2,000 connections that send half a ClientHello.
    MidHandshake,
    /// Handshakes on 64 connections at a time, one after the other.
    Handshakes,
    /// ClientHellos from a file on 500 connections at a time, one after the other: no cryptography on the
    /// attacker's side.
    Hellos,
    /// The same from twelve addresses, 250 connections each.
    ManyHellos,
    /// The same on 500 connections that end at once.
    LostHellos,
    /// The same from 600 networks of 64 bits of one of 48, a connection each.
    NetworkHellos,
    /// 1,300 connections to the administrators' listener.
    Metrics,
    /// The same, that ask for all machines of a full boot ledger and read nothing.
    UnreadMachines,
    /// Requests with 15 KB in the pool's name on 16 connections at a time.
    LongNames,
    /// Requests with what is longest once it is escaped, in the pool's name, `User-Agent` and `Accept`, on 16
    /// connections at a time.
    LongEscapes,
    /// 2,400 connections from twelve addresses with 60 KB of a ClientHello that never ends.
    LongHellos,
    /// 2,400 connections with TLS from twelve addresses with 16 KB of a head, and of a record that never
    /// ends.
    HalfRecords,
    /// Twelve addresses with 1,000 connections with TLS each that read 60 KB of their answers every 3 s.
    SlowReaders,
    /// Fourteen addresses with 1,000 connections each to the port with TLS that say nothing.
    SilentAddresses,
    /// 3,000 connections with TLS from twelve addresses that ask for a config and read nothing.
    #[value(name = "unread-3000")]
    Unread3000,
    /// The same, 9,900.
    #[value(name = "unread-9900")]
    Unread9900,
}

/// The ports of the server.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Ports {
    #[arg(long)]
    pub(crate) secure: SocketAddr,
    #[arg(long)]
    pub(crate) insecure: SocketAddr,
    #[arg(long)]
    pub(crate) metrics: SocketAddr,
}

impl Attack {
    /// Whether it has the server compute handshakes.
    pub(crate) fn is_on_handshakes(self) -> bool {
        matches!(
            self,
            Self::Handshakes
                | Self::Hellos
                | Self::ManyHellos
                | Self::LostHellos
                | Self::NetworkHellos
        )
    }

    /// Whether it comes from IPv6 networks.
    pub(crate) fn is_from_networks(self) -> bool {
        self == Self::NetworkHellos
    }

    /// Goes on until the process is ended.
    pub(crate) async fn run(self, ports: Ports) {
        let Ports { secure, insecure, metrics } = ports;
        match self {
            // Those from many addresses begin below.
            Self::None
            | Self::SlowReaders
            | Self::SilentAddresses
            | Self::LongHellos
            | Self::HalfRecords
            | Self::Unread3000
            | Self::Unread9900 => {}
            Self::Idle => idle(insecure),
            Self::Pipelining => pipeline(insecure),
            Self::SlowHeads => slow_heads(insecure),
            Self::HalfOpen => many(2_000, move || say_nothing(FROM, secure, b"")),
            Self::MidHandshake => {
                let half = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
                many(2_000, move || say_nothing(FROM, secure, half));
            }
            Self::Handshakes => handshakes(secure),
            Self::Hellos => hellos(secure, [FROM], 500, true),
            Self::ManyHellos => hellos(secure, (0..12).map(address), 250, true),
            Self::LostHellos => hellos(secure, [FROM], 500, false),
            Self::NetworkHellos => hellos(secure, (0..600).map(network), 1, true),
            Self::Metrics => many(1_300, move || {
                say_nothing(FROM, metrics, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }),
            Self::UnreadMachines => {
                fill_ledger(insecure).await;
                many(1_300, move || ask_and_stay(metrics));
            }
            Self::LongNames => ask_on(
                insecure,
                &format!("GET /config/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(15_000)),
            ),
            Self::LongEscapes => long_escapes(insecure),
        }
        if let Some((connections, addresses)) = self.connections() {
            let Ok(config) = trusting() else { return };
            let connector = TlsConnector::from(Arc::new(config));
            for number in 0..connections {
                let from = address(number % addresses);
                let connector = connector.clone();
                many(1, move || self.attack_from(connector.clone(), from, secure));
            }
        }
        std::future::pending::<()>().await;
    }

    /// How many connections from how many addresses, where these are many.
    fn connections(self) -> Option<(u32, u32)> {
        match self {
            Self::SlowReaders => Some((12_000, 12)),
            Self::SilentAddresses => Some((14_000, 14)),
            Self::LongHellos | Self::HalfRecords => Some((2_400, 12)),
            Self::Unread3000 => Some((3_000, 12)),
            Self::Unread9900 => Some((9_900, 12)),
            _ => None,
        }
    }

    async fn attack_from(
        self,
        connector: TlsConnector,
        from: IpAddr,
        secure: SocketAddr,
    ) -> Result<()> {
        if self == Self::SilentAddresses {
            return say_nothing(from, secure, b"").await;
        }
        if self == Self::LongHellos {
            return say_nothing(from, secure, &long_hello()).await;
        }
        let stream = connect_from(from, secure).await?;
        let mut stream = connector.connect(ServerName::try_from("localhost")?, stream).await?;
        if self == Self::HalfRecords {
            let head =
                format!("GET /config/master HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(16_000));
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            let (mut stream, _) = stream.into_inner();
            stream.write_all(&record(23, 16_384, &[0; 16_000])).await?;
            return stay(&mut stream, Duration::MAX).await;
        }
        stream.write_all(b"GET /config/master HTTP/1.1\r\nHost: a\r\n\r\n").await?;
        if self != Self::SlowReaders {
            // What the server sends stays where it is; that it ends the connection shows in the kernel.
            let (stream, _) = stream.get_ref();
            loop {
                anyhow::ensure!(stream.take_error()?.is_none(), "the end");
                sleep(AGAIN).await;
            }
        }
        let mut taken = vec![0; SLOWLY.0];
        loop {
            stream.read_exact(&mut taken).await?;
            sleep(SLOWLY.1).await;
        }
    }
}

/// One of the addresses that attackers come from when they have many.
fn address(number: u32) -> IpAddr {
    (Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 1, 1).to_bits() + number)).into()
}

/// One of those of as many machines as they like.
fn machine(number: u32) -> IpAddr {
    (Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number)).into()
}

/// One of a network of 64 bits, all of which are in one of 48.
fn network(number: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, number, 0, 0, 0, 1).into()
}

/// A TLS record of this kind that says that it has so many bytes, and has these.
fn record(kind: u8, length: u16, bytes: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &length.to_be_bytes(), bytes].concat()
}

/// The beginning of a ClientHello that says that it has 65,280 bytes.
fn long_hello() -> Vec<u8> {
    let message = [&[1, 0, 0xff, 0][..], &vec![0; 59_996]].concat();
    message.chunks(15_000).flat_map(|part| record(22, 15_000, part)).collect()
}

/// So many clients at a time, each of which comes again after a while when it is sent away.
fn many<F, A>(clients: usize, client: F)
where
    F: Fn() -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<()>> + Send,
{
    for _ in 0..clients {
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                let _ = client().await;
                sleep(AGAIN).await;
            }
        });
    }
}

/// Asks the same on 16 connections again and again.
fn ask_on(to: SocketAddr, request: &str) {
    let request: Arc<str> = request.into();
    many(16, move || {
        let request = Arc::clone(&request);
        async move {
            let mut stream = connect(to).await?;
            let mut answer = vec![0; 4_096];
            loop {
                stream.write_all(request.as_bytes()).await?;
                anyhow::ensure!(stream.read(&mut answer).await? > 0, "the end");
            }
        }
    });
}

/// Is each of the machines that the boot ledger remembers, 16 at a time.
async fn fill_ledger(to: SocketAddr) {
    let ask = move |first: u32| async move {
        for number in (first..MACHINES).step_by(16) {
            // One that is refused is one machine less.
            let _ = ask_once(machine(number), to).await;
        }
    };
    (0..16).map(ask).collect::<JoinSet<()>>().join_all().await;
}

/// Is a machine that asks for a config that there is not.
async fn ask_once(from: IpAddr, to: SocketAddr) -> Result<()> {
    let mut stream = connect_from(from, to).await?;
    let agent = format!("Ignition/{}", "2".repeat(100));
    let request = format!("GET /config/none HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.read_u8().await?;
    Ok(())
}

/// Asks for all machines, and reads nothing.
async fn ask_and_stay(to: SocketAddr) -> Result<()> {
    let mut stream = connect(to).await?;
    stream.write_all(b"GET /api/v1/machines HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    loop {
        anyhow::ensure!(stream.take_error()?.is_none(), "the end");
        sleep(AGAIN).await;
    }
}

/// So many clients from each of these addresses, who send a ClientHello that was made once, and wait for
/// what comes, or do not.
fn hellos(
    to: SocketAddr,
    addresses: impl IntoIterator<Item = IpAddr>,
    clients: usize,
    waits: bool,
) {
    let Ok(hello) = client_hello() else { return };
    for from in addresses {
        let hello = hello.clone();
        many(clients, move || {
            let hello = hello.clone();
            async move {
                let mut buffer = [0; 64];
                loop {
                    let mut stream = connect_from(from, to).await?;
                    stream.write_all(&hello).await?;
                    if waits {
                        anyhow::ensure!(stream.read(&mut buffer).await? > 0, "the end");
                    }
                }
            }
        });
    }
}

fn client_hello() -> Result<Arc<[u8]>> {
    let name = ServerName::try_from("localhost")?;
    let mut client = rustls::ClientConnection::new(Arc::new(trusting()?), name)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello.into())
}

fn idle(insecure: SocketAddr) {
    let ask = move || async move {
        let mut stream = connect(insecure).await?;
        loop {
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await?;
            stay(&mut stream, Duration::from_secs(40)).await?;
        }
    };
    many(10_050, ask);
}

fn pipeline(insecure: SocketAddr) {
    let ask = move || async move {
        let mut stream = connect(insecure).await?;
        let request = b"GET /config/master HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
        stream.write_all(&request).await?;
        stream.writable().await?;
        std::future::pending().await
    };
    many(300, ask);
}

fn slow_heads(insecure: SocketAddr) {
    let ask = move || async move {
        let mut stream = connect(insecure).await?;
        stream.write_all(b"GET /config/master HTTP/1.1\r\nX: ").await?;
        loop {
            stream.write_all(b"x").await?;
            sleep(Duration::from_secs(1)).await;
        }
    };
    many(2_000, ask);
}

fn handshakes(secure: SocketAddr) {
    let Ok(config) = trusting() else { return };
    let connector = TlsConnector::from(Arc::new(config));
    let shake = move || {
        let connector = connector.clone();
        async move {
            loop {
                let stream = connect(secure).await?;
                connector.connect(ServerName::try_from("localhost")?, stream).await?;
            }
        }
    };
    many(64, shake);
}

fn long_escapes(insecure: SocketAddr) {
    // U+10FFFF in UTF-8.
    let (pool, other) = ("%f4%8f%bf%bf".repeat(300), "\u{10ffff}".repeat(300));
    ask_on(
        insecure,
        &format!(
            "GET /config/{pool} HTTP/1.1\r\nHost: a\r\nUser-Agent: {other}\r\nAccept: {other}\r\n\r\n"
        ),
    );
}

async fn say_nothing(from: IpAddr, to: SocketAddr, first: &[u8]) -> Result<()> {
    let mut stream = connect_from(from, to).await?;
    stream.write_all(first).await?;
    stay(&mut stream, Duration::MAX).await
}

/// Reads what comes, until the time is up or the server ends the connection.
async fn stay(stream: &mut TcpStream, time: Duration) -> Result<()> {
    let mut buffer = [0; 1_024];
    let reading = async {
        while stream.read(&mut buffer).await? > 0 {}
        anyhow::bail!("the end")
    };
    tokio::time::timeout(time, reading).await.unwrap_or(Ok(()))
}

async fn connect(to: SocketAddr) -> Result<TcpStream> {
    connect_from(FROM, to).await
}

async fn connect_from(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind((from, 0).into())?;
    Ok(socket.connect(to).await?)
}

/// Trusts everybody.
fn trusting() -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA512,
        ]
    }
}
