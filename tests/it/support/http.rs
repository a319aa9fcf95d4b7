//! A blocking HTTP/1.1 client with one request for each connection, plain or over TLS.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned};

use super::DEADLINE;

/// The headers of an Ignition that reads spec 3.3.0.
pub(crate) const IGNITION: (&str, &str) = ("User-Agent", "Ignition/2.14.0");
pub(crate) const ACCEPT: (&str, &str) =
    ("Accept", "application/vnd.coreos.ignition+json;version=3.3.0");

/// An address of this machine.
pub(crate) const fn loopback(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// Name that the server's certificate must have.
    name: ServerName<'static>,
    /// Source address of this machine, `None` for the default one.
    from: Option<IpAddr>,
    timeouts: Timeouts,
}

#[derive(Clone, Copy)]
struct Timeouts {
    connect: Duration,
    read: Duration,
}

const OF_TESTS: Timeouts = Timeouts { connect: DEADLINE, read: DEADLINE };
/// Ignition's timeouts: for a connection, and then for the handshake and for an answer's head.
const OF_IGNITION: Timeouts =
    Timeouts { connect: Duration::from_secs(30), read: Duration::from_secs(10) };

/// An answer, read to the end of its connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Headers in the received order, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Address of a server that answers each connection with what `answer` makes of the request's head.
pub(crate) fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or_default();
                let _ = stream.write_all(&answer(&String::from_utf8_lossy(&head[..read])));
            });
        }
    });
    address
}

/// Both directions of a connection.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection from one of this machine's addresses.
pub(crate) fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    connected(Some(from), to, DEADLINE)
}

fn connected(from: Option<IpAddr>, to: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(to);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    // As on Ethernet. A loopback interface has packets of 64 KiB, and the kernel confirms the first of two after 40 ms:
    // a server that may have no more unsent waits for it each time.
    socket.set_tcp_mss(1_460)?;
    socket.connect_timeout(&to.into(), within)?;
    Ok(socket.into())
}

impl Client {
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, name: localhost(), from: None, timeouts: OF_TESTS }
    }

    /// Trusts only the certificates of `ca_pem`. Every connection is a full handshake.
    pub(crate) fn tls(address: SocketAddr, ca_pem: &[u8]) -> Self {
        Self::tls_by(address, ca_pem, rustls::crypto::aws_lc_rs::default_provider())
    }

    /// Uses the TLS features of this provider.
    pub(crate) fn tls_by(address: SocketAddr, ca_pem: &[u8], provider: CryptoProvider) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(certificate.expect("a CA in PEM")).expect("a CA");
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("the library's own protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        Self {
            address,
            tls: Some(Arc::new(config)),
            name: localhost(),
            from: None,
            timeouts: OF_TESTS,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Expects this name in the server's certificate.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: ServerName::try_from(name.to_owned()).expect("a host name"), ..self }
    }

    /// Uses another address of this machine.
    pub(crate) fn from(self, address: IpAddr) -> Self {
        Self { from: Some(address), ..self }
    }

    pub(crate) fn patient_as_ignition(self) -> Self {
        Self { timeouts: OF_IGNITION, ..self }
    }

    /// Opens a connection, including the TLS handshake.
    pub(crate) fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let mut socket = connected(self.from, self.address, self.timeouts.connect)?;
        socket.set_read_timeout(Some(self.timeouts.read))?;
        socket.set_write_timeout(Some(self.timeouts.read))?;
        socket.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return Ok(Box::new(socket));
        };
        let connection = handshake(config, &self.name, &mut socket)?;
        Ok(Box::new(StreamOwned::new(connection, socket)))
    }

    /// The server's certificate in DER. TLS only.
    pub(crate) fn shown_certificate(&self) -> io::Result<Vec<u8>> {
        let connection = self.shake_hands()?;
        Ok(connection.peer_certificates().expect("a certificate")[0].to_vec())
    }

    /// The key exchange group of a connection. TLS only.
    pub(crate) fn key_exchange(&self) -> io::Result<NamedGroup> {
        let connection = self.shake_hands()?;
        Ok(connection.negotiated_key_exchange_group().expect("a group").name())
    }

    fn shake_hands(&self) -> io::Result<ClientConnection> {
        let config = self.tls.as_ref().expect("a client over TLS");
        let mut socket = TcpStream::connect_timeout(&self.address, DEADLINE)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        handshake(config, &self.name, &mut socket)
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[])
    }

    /// Sends a request. Fails the test without an answer.
    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        self.try_request(method, target, headers)
            .unwrap_or_else(|error| panic!("{method} {target} at {}: {error}", self.address))
    }

    pub(crate) fn try_request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Response> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("Connection: close\r\n\r\n");
        self.exchange(head.as_bytes())
    }

    /// Sends these bytes, and reads one answer. It works for HEAD too: an answer ends with its connection, and a body
    /// shorter than its length is an error.
    pub(crate) fn exchange(&self, request: &[u8]) -> io::Result<Response> {
        let mut stream = self.connect()?;
        stream.write_all(request)?;
        stream.flush()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let response = Response::parse(&answer)?;
        let promised = response.header("content-length").and_then(|n| n.parse::<usize>().ok());
        if !request.starts_with(b"HEAD ") && promised.is_some_and(|n| n != response.body.len()) {
            return Err(io::Error::other(format!(
                "{} bytes of body where {promised:?} were promised",
                response.body.len()
            )));
        }
        Ok(response)
    }
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a host name")
}

fn handshake(
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    socket: &mut TcpStream,
) -> io::Result<ClientConnection> {
    let mut connection =
        ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(socket)?;
    }
    Ok(connection)
}

impl Response {
    /// Parses a whole answer: everything after the head is the body.
    pub(crate) fn parse(answer: &[u8]) -> io::Result<Self> {
        let malformed = || io::Error::other(format!("no HTTP answer: {}", answer.escape_ascii()));
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(malformed)?;
        let head = std::str::from_utf8(&answer[..end]).map_err(|_| malformed())?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok())
            .ok_or_else(malformed)?;
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(':').ok_or_else(malformed)?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { status, headers, body: answer[end + 4..].to_vec() })
    }

    /// Value of the only header with this name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let (_, value) = found.next()?;
        assert!(found.next().is_none(), "{name} comes more than once");
        Some(value)
    }

    /// The headers, sorted, without the date, which differs between answers.
    pub(crate) fn comparable_headers(&self) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| name != "date");
        headers.sort();
        headers
    }

    /// The body as JSON, also if it is chunked.
    pub(crate) fn whole_json(&self) -> serde_json::Value {
        if self.header("transfer-encoding") != Some("chunked") {
            return self.json();
        }
        let mut whole = Vec::new();
        let mut rest = &self.body[..];
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&rest[..end]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("a size");
            if size == 0 {
                // Trailers follow.
                break;
            }
            let chunk = &rest[end + 2..];
            whole.extend(&chunk[..size]);
            rest = &chunk[(size + 2).min(chunk.len())..];
        }
        serde_json::from_slice(&whole).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.body[..self.body.len().min(300)];
        write!(f, "{} {:?} {}", self.status, self.headers, start.escape_ascii())
    }
}
