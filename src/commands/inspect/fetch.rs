//! Fetches a config as a machine does, and records each step: name, connection, TLS, answer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use axum::body::Body;
use bytes::Bytes;
use common::http_client::{HttpConnection, read};
use http::{HeaderMap, Method, Request, StatusCode, header};
use ignition::SpecVersion;
use inspect::{
    Cause, Clocks, Judgement, Outcome, ServerAnswer, ServerEvidence, Step, Trace, bytes, judge,
};
use model::pointer_config::Fetch;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::commands::probe::{self, Address};
use crate::serving::answers::PENDING;

/// Maximum size of a config, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum size of an answer without a config, in bytes.
const MAX_REASON: usize = 4 << 10;
/// Maximum time to connect, for all addresses together.
const CONNECT: Duration = Duration::from_secs(4);
/// Ignition's timeout for a handshake, and for the head of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum time for a whole config.
const BODY: Duration = Duration::from_secs(120);

/// A fetch with its judge's inputs.
#[derive(Debug, Clone)]
pub(in crate::commands) struct FetchRequest {
    /// Fetch of the machine, in the spec that it reads.
    pub(in crate::commands) fetch: Fetch,
    /// Source of the machine's trusted CAs; `None` if they are unknown.
    pub(in crate::commands) trusted_by: Option<String>,
    /// Address to connect to instead of the URL's.
    pub(in crate::commands) connect: Option<Address>,
    /// Time of the machine's clock.
    pub(in crate::commands) at: OffsetDateTime,
    /// Time of this machine's clock.
    pub(in crate::commands) now: OffsetDateTime,
}

impl FetchRequest {
    fn is_tls(&self) -> bool {
        self.fetch.url.scheme() != Some(&http::uri::Scheme::HTTP)
    }

    fn address(&self) -> (String, u16) {
        if let Some(address) = &self.connect {
            return address.parts();
        }
        let default = if self.is_tls() { 443 } else { 80 };
        let port = self.fetch.url.port_u16().unwrap_or(default);
        (self.fetch.host.bare(), port)
    }
}

/// Fetches once: the trace, and the text of the config if the answer has one. A failure is a result, not an error.
pub(super) async fn fetch(request: &FetchRequest) -> (Trace, Option<Bytes>) {
    let mut fetcher = Fetcher { request, steps: Vec::new(), shown: ServerEvidence::default() };
    let result = fetcher.go().await;
    let Fetcher { mut steps, .. } = fetcher;
    if let (Err(_), Some(last)) = (&result, steps.last_mut()) {
        last.outcome = Outcome::Failed;
    }
    let (body, cause) = match result {
        Ok(body) => (Some(body), None),
        Err(cause) => (None, Some(cause)),
    };
    (Trace { url: request.fetch.url.to_string(), steps, cause }, body)
}

/// Connects as the machine does, and judges the certificates: the cause of a failed boot, if it shows by then. No config
/// is requested, so that the server has no request of a machine that does not exist.
pub(in crate::commands) async fn shake_hands(request: &FetchRequest) -> Option<Cause> {
    let mut fetcher = Fetcher { request, steps: Vec::new(), shown: ServerEvidence::default() };
    fetcher.reach().await.err()
}

type Stream = Either<TlsStream<TcpStream>, TcpStream>;

struct Fetcher<'a> {
    request: &'a FetchRequest,
    steps: Vec<Step>,
    shown: ServerEvidence,
}

impl Fetcher<'_> {
    async fn go(&mut self) -> Result<Bytes, Cause> {
        let (address, stream) = self.reach().await?;
        self.ask(address, stream).await
    }

    /// Name, connection, TLS.
    async fn reach(&mut self) -> Result<(SocketAddr, Stream), Cause> {
        let addresses = self.resolve().await?;
        let (address, socket) = self.connect(&addresses).await?;
        let stream = if self.request.is_tls() {
            Either::Left(self.tls(address, socket).await?)
        } else {
            Either::Right(socket)
        };
        Ok((address, stream))
    }

    fn step(&mut self, name: &'static str, seen: Vec<String>, since: Instant) {
        let took = Some(since.elapsed());
        self.steps.push(Step { name, outcome: Outcome::Fine, seen, took });
    }

    /// Records a step that failed because of `cause`.
    fn failed<T>(
        &mut self,
        name: &'static str,
        seen: String,
        since: Instant,
        cause: Cause,
    ) -> Result<T, Cause> {
        self.step(name, vec![seen], since);
        Err(cause)
    }

    async fn resolve(&mut self) -> Result<Vec<SocketAddr>, Cause> {
        let since = Instant::now();
        let (name, port) = self.request.address();
        let (seen, reported) =
            match timeout(CONNECT, tokio::net::lookup_host((&name[..], port))).await {
                Ok(Ok(found)) => {
                    let found: Vec<_> = found.collect();
                    if !found.is_empty() {
                        let texts: Vec<_> = found.iter().map(|it| it.ip().to_string()).collect();
                        self.step("name", vec![format!("{name} is {}", texts.join(", "))], since);
                        return Ok(found);
                    }
                    (format!("{name}: no address"), format!("{name} has no address"))
                }
                Ok(Err(error)) => (format!("{name}: {error}"), format!("{name}: {error}")),
                Err(_) => {
                    let seen = format!("{name}: no answer");
                    (seen.clone(), seen + " from the name server")
                }
            };
        self.failed("name", seen, since, Cause::NameUnknown(reported))
    }

    /// Tries one address after the other, each for its share of the time.
    async fn connect(
        &mut self,
        addresses: &[SocketAddr],
    ) -> Result<(SocketAddr, TcpStream), Cause> {
        let since = Instant::now();
        let mut seen = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let left = CONNECT.saturating_sub(since.elapsed());
            let share = left / u32::try_from(addresses.len() - index).unwrap_or(1);
            let reason = match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => {
                    seen.push(format!("{address} accepts the connection"));
                    self.step("connect", seen, since);
                    return Ok((*address, socket));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:.1} s", share.as_secs_f64()),
            };
            seen.push(format!("{address}: {reason}"));
        }
        let reported = seen.join("; ");
        self.step("connect", seen, since);
        Err(Cause::ServerDown(reported))
    }

    async fn tls(
        &mut self,
        address: SocketAddr,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Cause> {
        let since = Instant::now();
        let shaken = timeout(ANSWER, probe::handshake(socket, &self.request.fetch.host)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let is_no_tls = probe::is_no_tls(&error);
                let cause = if is_no_tls { Cause::NoTls } else { Cause::NoAnswer };
                let seen = format!("{error:#}");
                let reported = format!("{address}: {seen}");
                return self.failed("TLS", seen, since, cause(reported));
            }
            Err(_) => {
                let reported = format!("{address}: no handshake within {} s", ANSWER.as_secs());
                return self.failed("TLS", reported.clone(), since, Cause::NoAnswer(reported));
            }
        };
        let took = since.elapsed();
        let (mut seen, chain) = probe::shown(&stream);
        let Some(chain) = chain else {
            self.step("TLS", seen, since);
            return Err(Cause::Refused("it cannot be read".to_owned()));
        };
        self.shown = ServerEvidence::chain(chain);
        let request = self.request;
        // Another clock than the machine's: this one, or if that is the machine's, the server's.
        let mut judged = self.judge(&self.shown, request.now);
        if judged.cause.is_some()
            && request.at == request.now
            && let Some(right) = self.server_time(address).await
        {
            judged = self.judge(&self.shown, right);
        }
        let outcome = match (&judged.cause, judged.voucher, &request.trusted_by) {
            // The cause is reported at the end.
            (Some(_), ..) => Outcome::Fine,
            (None, Some(ca), Some(place)) => {
                seen.push(format!("verified by \"{}\" of {place}", ca.common_name));
                Outcome::Fine
            }
            (None, ..) => {
                seen.push(
                    "the CAs that the machine trusts are not known, and nothing verifies the server: name them with --pointer or --ca".to_owned(),
                );
                Outcome::Noted
            }
        };
        self.steps.push(Step { name: "TLS", outcome, seen, took: Some(took) });
        judged.cause.map_or(Ok(stream), Err)
    }

    /// Judges with `right`, the time of another clock than the machine's.
    fn judge(&self, shown: &ServerEvidence, right: OffsetDateTime) -> Judgement {
        let FetchRequest { fetch, trusted_by, at, .. } = self.request;
        let clocks = Clocks { machine: *at, right };
        match (trusted_by, &shown.chain) {
            // Without known CAs, only names and times are judged.
            (None, Some(chain)) => {
                judge(&Fetch { trusted: chain.clone(), ..fetch.clone() }, shown, clocks)
            }
            _ => judge(fetch, shown, clocks),
        }
    }

    /// Time of an untrusted server, by a request without credentials.
    async fn server_time(&self, address: SocketAddr) -> Option<OffsetDateTime> {
        let asked = async {
            let socket = TcpStream::connect(address).await.ok()?;
            let stream = probe::handshake(socket, &self.request.fetch.host).await.ok()?;
            let mut connection = HttpConnection::new(stream).await.ok()?;
            let Fetch { url, spec, .. } = &self.request.fetch;
            let request = probe::request(url, Method::HEAD, "/healthz", user_agent(*spec));
            let response = connection.send(request.body(Body::empty()).ok()?).await.ok()?;
            let date = response.headers().get(header::DATE)?.to_str().ok()?;
            OffsetDateTime::parse(&date.replace("GMT", "+0000"), &Rfc2822).ok()
        };
        timeout(CONNECT, asked).await.ok()?
    }

    fn request(&self, method: Method, spec: SpecVersion) -> anyhow::Result<Request<Body>> {
        probe::config_request(&self.request.fetch, method, spec, user_agent(spec))
    }

    async fn ask(&mut self, address: SocketAddr, stream: Stream) -> Result<Bytes, Cause> {
        let since = Instant::now();
        let Fetch { spec, pool, .. } = &self.request.fetch;
        let asked = async {
            let mut connection = HttpConnection::new(stream).await?;
            let response = connection.send(self.request(Method::GET, *spec)?).await?;
            anyhow::Ok((connection, response))
        };
        // The body is received while the connection is held.
        let (_connection, response) = match timeout(ANSWER, asked).await {
            Ok(Ok(answer)) => answer,
            other => {
                let reported = match other {
                    Ok(Err(error)) => format!("{address}: {error:#}"),
                    _ => format!("{address}: no answer within {} s", ANSWER.as_secs()),
                };
                return self.failed("answer", reported.clone(), since, Cause::NoAnswer(reported));
            }
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let most = if status == StatusCode::OK { MAX_BYTES } else { MAX_REASON };
        let timed_out = |_| anyhow!("not complete within {} s", BODY.as_secs());
        let body = timeout(BODY, read(response, most)).await.map_err(timed_out).flatten();
        let mut seen = vec![answer_line(status, &headers)];
        if status == StatusCode::OK {
            let pending = headers.get(&PENDING);
            // It is no fault of the way, and must not look like one more step that went well.
            let outcome = if pending.is_some() { Outcome::Noted } else { Outcome::Fine };
            if let Some(pending) = pending {
                let pending = String::from_utf8_lossy(pending.as_bytes());
                seen.push(format!(
                    "an older config, because the pool's present one, {pending}, cannot be rendered; \
                        the server's log has the reason"
                ));
            }
            seen.push(match &body {
                Ok(body) => bytes(body.len()),
                Err(error) => error.to_string(),
            });
            self.steps.push(Step { name: "answer", outcome, seen, took: Some(since.elapsed()) });
            return body.map_err(|error| Cause::NoAnswer(error.to_string()));
        }
        let text = body.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let answered = ServerAnswer::new(status, &headers, &text, pool);
        seen.extend(Some(answered.line.clone()).filter(|line| !line.is_empty()));
        self.step("answer", seen, since);
        if answered.may_depend_on_spec() {
            self.shown.served = self.served(address).await;
        }
        self.shown.answer = Some(answered);
        let cause = self.judge(&self.shown, self.request.now).cause;
        Err(cause.unwrap_or_else(|| Cause::NoAnswer("cannot be read".to_owned())))
    }

    /// Specs in which the server answers, oldest first.
    async fn served(&self, address: SocketAddr) -> Vec<SpecVersion> {
        let mut served = Vec::new();
        let asking = async {
            let socket = TcpStream::connect(address).await?;
            let stream = if self.request.is_tls() {
                let stream = probe::handshake(socket, &self.request.fetch.host).await?;
                // Another server may answer this connection.
                let shown = ServerEvidence::chain(probe::shown(&stream).1.unwrap_or_default());
                let cause = self.judge(&shown, self.request.now).cause;
                cause.map_or(Ok(()), |cause| Err(anyhow!("{cause}")))?;
                Either::Left(stream)
            } else {
                Either::Right(socket)
            };
            let mut connection = HttpConnection::new(stream).await?;
            let requested = self.request.fetch.spec;
            for spec in SpecVersion::ALL.into_iter().filter(|spec| *spec != requested) {
                let response = connection.send(self.request(Method::HEAD, spec)?).await?;
                if response.status() == StatusCode::OK {
                    served.push(spec);
                }
            }
            anyhow::Ok(())
        };
        // Answers until the timeout count.
        let _ = timeout(CONNECT, asking).await;
        served
    }
}

fn answer_line(status: StatusCode, headers: &HeaderMap) -> String {
    let mut line = status.to_string();
    for name in [header::RETRY_AFTER, header::LOCATION, header::SERVER] {
        if let Some(value) = headers.get(&name) {
            line = format!("{line}, {name} {}", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    line
}

/// User agent of the first Ignition that reads a spec (its page "Configuration specifications").
fn user_agent(spec: SpecVersion) -> &'static str {
    match spec {
        SpecVersion::V2_2 => "Ignition/0.22.0",
        SpecVersion::V3_0 => "Ignition/2.0.0",
        SpecVersion::V3_1 => "Ignition/2.3.0",
        SpecVersion::V3_2 => "Ignition/2.7.0",
        SpecVersion::V3_3 => "Ignition/2.11.0",
        SpecVersion::V3_4 => "Ignition/2.15.0",
        SpecVersion::V3_5 => "Ignition/2.20.0",
        SpecVersion::V3_6 => "Ignition/2.24.0",
    }
}
