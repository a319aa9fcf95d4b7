//! Which request gets which answer: the HTTP contract, apart from any connection.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG, RETRY_AFTER, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::percent_decode_str;

use super::timeout_stream::SharedPhase;
use crate::answers::{Answers, Refusal};
use crate::conditions::Status;
use crate::ignition::{Form, SpecVersion, negotiate};
use crate::telemetry::Metrics;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const READ_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");
/// When a client that is no Ignition should ask again, in seconds. Ignition has its own schedule.
const SOON: HeaderValue = HeaderValue::from_static("5");

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/config/POOL`
    Config(Cow<'a, str>),
    /// `/healthz`, `/livez`
    Health,
    /// `/readyz`
    Readiness,
    /// Anything else.
    Nothing,
}

/// Reads a path. A pool's name is one segment, which an encoded slash does not lengthen.
#[must_use]
pub fn target(path: &str) -> Target<'_> {
    match path {
        "/healthz" | "/livez" => return Target::Health,
        "/readyz" => return Target::Readiness,
        _ => {}
    }
    let Some(name) = path.strip_prefix("/config/") else { return Target::Nothing };
    let name = name.strip_suffix('/').unwrap_or(name);
    match percent_decode_str(name).decode_utf8() {
        Ok(pool) if !pool.is_empty() && !pool.contains('/') => Target::Config(pool),
        _ => Target::Nothing,
    }
}

/// What all requests are answered from.
#[derive(Debug)]
pub struct Routes {
    /// The pools' configs.
    pub answers: Arc<Answers>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What else readiness tells, such as a serving pair that was refused.
    pub status: Status,
}

impl Routes {
    /// Answers one request.
    pub async fn respond(
        &self,
        request: &Parts,
        peer: SocketAddr,
        phase: &SharedPhase,
    ) -> Response<Payload> {
        let target = target(request.uri.path());
        let reading = request.method == Method::GET || request.method == Method::HEAD;
        let response = match target {
            Target::Nothing => plain(StatusCode::NOT_FOUND, Bytes::new()),
            _ if !reading => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
                response.headers_mut().insert(ALLOW, READ_METHODS);
                response
            }
            Target::Config(pool) => self.config(&pool, request, peer).await,
            Target::Health => plain(StatusCode::OK, Bytes::new()),
            Target::Readiness => self.readiness(),
        };
        let without_body = request.method == Method::HEAD;
        response.map(|bytes| Payload::new((!without_body).then_some(bytes), phase.clone()))
    }

    async fn config(&self, pool: &str, request: &Parts, peer: SocketAddr) -> Response<Bytes> {
        let (response, version) = match negotiate(accept(&request.headers).as_deref()) {
            Err(error) => {
                let response = plain(StatusCode::BAD_REQUEST, line(&error.to_string()));
                (response, None)
            }
            Ok(version) => match self.answers.answer(pool, version, form(request, version)).await {
                Ok(answer) => {
                    answer.requests.inc();
                    if request.method == Method::GET {
                        self.metrics.response_bytes.inc_by(answer.body.len() as u64);
                    }
                    log(request, peer, pool, Some(version), StatusCode::OK);
                    let mut response = Response::new(answer.body.clone());
                    let headers = response.headers_mut();
                    headers.insert(CONTENT_TYPE, JSON);
                    headers.insert(CONTENT_LENGTH, answer.length.clone());
                    headers.insert(ETAG, answer.etag.clone());
                    return response;
                }
                Err(refusal) => (unavailable(pool, &refusal), Some(version)),
            },
        };
        let label = self.answers.label(pool);
        self.metrics.requests(label, version, response.status().as_u16()).inc();
        log(request, peer, pool, version, response.status());
        response
    }

    fn readiness(&self) -> Response<Bytes> {
        let mut lines = self.status.not_ready.lines();
        lines.extend(self.answers.unready());
        let is_ready = lines.is_empty();
        lines.extend(self.status.degraded.lines());
        let text = if lines.is_empty() { Bytes::new() } else { line(&lines.join("\n")) };
        if is_ready {
            return plain(StatusCode::OK, text);
        }
        let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
        response.headers_mut().insert(RETRY_AFTER, SOON);
        response
    }
}

/// All Accept headers as one, as RFC 9110 section 5.3 joins them.
fn accept(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = values.next()?;
    Some(
        values.fold(Cow::Borrowed(first), |joined, value| Cow::Owned(format!("{joined}, {value}"))),
    )
}

fn form(request: &Parts, version: SpecVersion) -> Form {
    let user_agent = request.headers.get(USER_AGENT);
    Form::of(user_agent.and_then(|value| value.to_str().ok()), version)
}

fn unavailable(pool: &str, refusal: &Refusal) -> Response<Bytes> {
    let text = format!("pool {}: {refusal}", pool.escape_default());
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, line(&text));
    response.headers_mut().insert(RETRY_AFTER, SOON);
    response
}

fn line(text: &str) -> Bytes {
    Bytes::from(format!("{text}\n"))
}

fn plain(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let length = HeaderValue::from(response.body().len());
    if !response.body().is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, TEXT);
    }
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

fn log(
    request: &Parts,
    peer: SocketAddr,
    pool: &str,
    version: Option<SpecVersion>,
    status: StatusCode,
) {
    let header = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
    tracing::info!(
        pool,
        spec = version.map_or("none", SpecVersion::as_str),
        status = status.as_u16(),
        %peer,
        user_agent = header(USER_AGENT).unwrap_or_default(),
        method = %request.method,
        "config requested"
    );
}

/// A body that is there whole, or not at all. When it is gone the client's answer is complete.
#[derive(Debug)]
pub struct Payload {
    bytes: Option<Bytes>,
    phase: SharedPhase,
}

impl Payload {
    fn new(bytes: Option<Bytes>, phase: SharedPhase) -> Self {
        Self { bytes: bytes.filter(|bytes| !bytes.is_empty()), phase }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.phase.idle();
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pools_name_is_one_segment() {
        for (path, pool) in [
            ("/config/master", "master"),
            ("/config/master/", "master"),
            ("/config/%6daster", "master"),
            ("/config/a%20b", "a b"),
        ] {
            assert_eq!(target(path), Target::Config(pool.into()), "{path}");
        }
        for path in [
            "/config",
            "/config/",
            "/config//",
            "/config//master",
            "/config/a/master",
            "/config/a%2fmaster",
            "/config/..%2Fmaster",
            "/config/master//",
            "/CONFIG/master",
            "/config/%ff",
            "/",
            "",
            "/healthz/",
            "/metrics",
        ] {
            assert_eq!(target(path), Target::Nothing, "{path}");
        }
    }

    #[test]
    fn several_accept_headers_count_as_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(accept(&headers), None);
        headers.append(ACCEPT, HeaderValue::from_static("a/b"));
        headers.append(ACCEPT, HeaderValue::from_static("c/d;q=0.1"));
        assert_eq!(accept(&headers).as_deref(), Some("a/b, c/d;q=0.1"));
    }
}
