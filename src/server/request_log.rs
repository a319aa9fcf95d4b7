//! Logs each request for a config with the same beginning as the reference server: installers search its log for a
//! machine's address before `User-Agent:"Ignition`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::header::{ACCEPT, USER_AGENT};
use ignition::SpecVersion;
use model::access::{AccessMode, Verdict};
use model::escape::{NAME, cut_escaped};
use telemetry::LogRateLimiter;

use super::connections::connection::Peer;
use super::connections::connection_limiter::Source;
use super::outcome::Outcome;

/// Maximum length of a logged header, in bytes after escaping.
const HEADER: usize = 256;

/// Logs a request by the outcome in the extensions of its answer.
pub(super) async fn log(
    State(limiter): State<Arc<LogRateLimiter<Source>>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let method = request.method().clone();
    let [agent, accept] = [USER_AGENT, ACCEPT].map(|name| request.headers().get(name).cloned());
    let response = next.run(request).await;
    if let (Some(peer), Some(outcome)) = (peer, response.extensions().get::<Outcome>())
        && limiter.may_log(peer.address.into())
    {
        tracing::info!(
            spec = outcome.version.map_or("none", SpecVersion::as_str),
            status = response.status().as_u16(),
            access = access_words(&outcome.verdict),
            %method,
            "Pool {} requested by address:\"{}\" User-Agent:\"{}\" Accept-Header: \"{}\"",
            cut_escaped(&outcome.pool, NAME),
            peer.address,
            cut_escaped(&text(agent.as_ref()), HEADER),
            cut_escaped(&text(accept.as_ref()), HEADER),
        );
    }
    response
}

/// Text of a header, empty without one.
pub(super) fn text(value: Option<&HeaderValue>) -> Cow<'_, str> {
    value.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default()
}

/// Verdict in one or two words for the log; `None` if nothing is restricted.
fn access_words(verdict: &Verdict) -> Option<String> {
    if let (None, Some(refusal)) = (verdict.access_refusal(), verdict.refusal()) {
        return Some(format!("held: {refusal}"));
    }
    match (verdict.mode, &verdict.judged) {
        (AccessMode::Off, Ok(_)) => None,
        (_, Ok(proof)) => Some(proof.to_string()),
        (AccessMode::Audit, Err(refusal)) => Some(format!("would be refused: {refusal}")),
        (_, Err(refusal)) => Some(format!("refused: {refusal}")),
    }
}
