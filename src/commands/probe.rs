//! Probes a running server as a machine would: its certificates, and the status of its answer.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::body::Body;
use common::http_client::HttpConnection;
use http::request::Builder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use ignition::SpecVersion;
use inspect::{ServerAnswer, ServerEvidence};
use model::pointer_config::{Fetch, accept};
use pki::{Certificate, Host};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Ignition's timeout for the head of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    host: Host,
    port: u16,
}

impl FromStr for Address {
    type Err = &'static str;

    /// Parses `HOST:PORT`, with an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected HOST:PORT, with an IPv6 address in brackets";
        let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(EXPECTED);
        }
        let host = host.parse().map_err(|_| EXPECTED)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(EXPECTED)?;
        Ok(Self { host, port })
    }
}

impl Address {
    /// Host in the resolver's form, and port.
    pub(super) fn parts(&self) -> (String, u16) {
        (self.host.bare(), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Connects to `address` as a machine would for `fetch`, accepts any certificates, and requests the config by HEAD if
/// `is_trusted` accepts them: credentials are only sent to a trusted server.
pub(crate) async fn ask(
    address: &Address,
    fetch: &Fetch,
    is_trusted: impl Fn(&ServerEvidence) -> bool,
) -> anyhow::Result<ServerEvidence> {
    let asked = async {
        let socket = TcpStream::connect(address.parts()).await?;
        let stream = handshake(socket, &fetch.host).await.context("TLS")?;
        let sent = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let read = |der: &CertificateDer<'_>| {
            Certificate::parse(der)
                .context("the server sends a certificate that machines cannot read")
        };
        let mut shown = ServerEvidence::chain(sent.iter().map(read).collect::<Result<_, _>>()?);
        if is_trusted(&shown) {
            let (status, headers) = head(stream, fetch).await?;
            shown.answer = Some(ServerAnswer::new(status, &headers, "", &fetch.pool));
        }
        Ok(shown)
    };
    let timed_out = || anyhow!("no answer within {} s", TIMEOUT.as_secs());
    tokio::time::timeout(TIMEOUT, asked).await.map_err(|_| timed_out())?
}

/// Accepts any certificates for `host`.
pub(super) async fn handshake(
    socket: TcpStream,
    host: &Host,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.clone())?,
        Host::Address(address) => ServerName::from(*address),
    };
    Ok(TlsConnector::from(Arc::new(config)).connect(name, socket).await?)
}

/// Returns `true` if a handshake failed because the server does not speak TLS.
pub(super) fn is_no_tls(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let error = error.and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidMessage(_)))
}

/// Parameters and certificates of a handshake, one line each, and the parsed chain; `None` if one is unreadable.
pub(super) fn shown(stream: &TlsStream<TcpStream>) -> (Vec<String>, Option<Vec<Certificate>>) {
    let connection = stream.get_ref().1;
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => "TLS",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
    let mut lines = vec![format!("{version}, {}", suite.unwrap_or_default())];
    let sent = connection.peer_certificates().unwrap_or_default();
    let chain: Option<Vec<_>> = sent.iter().map(|der| Certificate::from_der(der)).collect();
    for (index, certificate) in chain.iter().flatten().enumerate() {
        let hosts: Vec<_> = certificate.hosts.iter().map(Host::to_string).collect();
        let names = if index == 0 { format!(" for {}", hosts.join(", ")) } else { String::new() };
        let until = certificate.not_after.format(&Rfc3339).unwrap_or_default();
        lines.push(format!(
            "\"{}\"{names}, by \"{}\", until {until}",
            certificate.common_name, certificate.issuer
        ));
    }
    (lines, chain)
}

async fn head(
    stream: TlsStream<TcpStream>,
    fetch: &Fetch,
) -> anyhow::Result<(StatusCode, HeaderMap)> {
    let mut request = config_request(fetch, Method::HEAD, fetch.spec, "machine-config-server")?;
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let answer = HttpConnection::new(stream).await?.send(request).await?;
    let (head, _) = answer.into_parts();
    Ok((head.status, head.headers))
}

/// A request for the config of `fetch` in `spec`, with the credentials.
pub(super) fn config_request(
    fetch: &Fetch,
    method: Method,
    spec: SpecVersion,
    user_agent: &str,
) -> anyhow::Result<Request<Body>> {
    let target = fetch.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = request(&fetch.url, method, target, user_agent)
        .header(header::ACCEPT, accept(spec))
        .body(Body::empty())?;
    for (name, value) in &fetch.headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes())?);
    }
    Ok(request)
}

/// A request to the server of `url`, without credentials.
pub(super) fn request(url: &Uri, method: Method, target: &str, user_agent: &str) -> Builder {
    let host = url.authority().map_or("", http::uri::Authority::as_str);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, host)
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, user_agent)
}

/// Accepts every certificate; trust is judged later. The server must still prove to have its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in ["localhost:22623", "192.0.2.1:1", "[2001:db8::1]:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", ":1", "a:", "a:0", "a:65536", "::1", "2001:db8::1:1", "a b:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_request_names_the_host_alone_and_headers_of_a_pointer_config_replace_others() {
        let fetch = Fetch {
            url: "https://user:password@192.0.2.1:22623/config/worker".parse().unwrap(),
            host: "192.0.2.1".parse().unwrap(),
            pool: "worker".to_owned(),
            headers: vec![("user-agent".to_owned(), "theirs".to_owned())],
            spec: SpecVersion::V3_4,
            trusted: Vec::new(),
        };
        let request = config_request(&fetch, Method::GET, SpecVersion::V3_3, "ours").unwrap();
        let headers = request.headers();
        assert_eq!(*request.uri(), "/config/worker");
        assert_eq!(headers[header::HOST], "192.0.2.1:22623");
        assert_eq!(headers[header::ACCEPT], accept(SpecVersion::V3_3));
        assert_eq!(headers.get_all(header::USER_AGENT).iter().collect::<Vec<_>>(), ["theirs"]);
    }
}
