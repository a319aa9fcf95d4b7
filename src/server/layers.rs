//! Layers of requests for configs: metrics, boot ledger and log.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Method};
use http_body::Body as _;
use ignition::SpecVersion;
use model::access::{Refusal, Verdict};
use model::escape::{NAME, cut_escaped};
use model::ledger::{self, Ledger};
use time::OffsetDateTime;

use super::connection::Peer;
use super::connection_limiter::{Source, Transport};
use super::outcome::{AccessVerdict, Outcome, Refused};
use crate::telemetry::{LogRateLimiter, Metrics};

/// Maximum length of a logged header, in bytes after escaping.
const HEADER: usize = 256;

/// Counts requests and sent bytes.
pub(super) async fn count_requests(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let has_body = request.method() == Method::GET;
    let response = next.run(request).await;
    if let Some(outcome) = response.extensions().get::<Outcome>() {
        outcome.requests.inc();
        if has_body && response.status().is_success() {
            let bytes = response.body().size_hint().exact().unwrap_or_default();
            metrics.response_bytes.inc_by(bytes);
        }
    }
    response
}

/// Records the answer to each machine in the boot ledger.
pub(super) async fn remember_machines(
    State(ledger): State<Ledger>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let agent = request.headers().get(USER_AGENT).cloned();
    let response = next.run(request).await;
    if let (Some(Peer { address, transport, .. }), Some(outcome)) =
        (peer, response.extensions().get::<Outcome>())
    {
        let decided = decided(&response);
        // The answer does not contain the reason of a refusal, which administrators need.
        let refusal = decided.and_then(Verdict::refusal).map(|refusal| refusal.to_string());
        let answer = match &outcome.given {
            Ok(answer) => Ok((&*answer.configuration, answer.sha256())),
            Err(Refused { code, reason, detail }) => {
                let reason = detail.as_deref().unwrap_or(reason);
                Err((code.status().as_u16(), refusal.as_deref().unwrap_or(reason)))
            }
        };
        let agent = agent.as_ref().map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let request = ledger::Request {
            address: address.ip(),
            pool: &outcome.pool,
            user_agent: agent.as_deref().unwrap_or_default(),
            spec: outcome.version,
            without_tls: transport == Transport::Plain,
            answer,
            would_be_refused: decided.and_then(Verdict::would_be_refused).map(Refusal::label),
        };
        ledger.asked(&request, OffsetDateTime::now_utc());
    }
    response
}

fn decided(response: &Response) -> Option<&Verdict> {
    response.extensions().get::<AccessVerdict>().map(|AccessVerdict(verdict)| verdict)
}

#[derive(Debug)]
pub(super) struct RequestLog(Arc<LogRateLimiter<Source>>);

impl RequestLog {
    pub(super) fn new() -> Self {
        Self(Arc::new(LogRateLimiter::new("requests for configs")))
    }
}

/// Logs each request, with the same beginning as the reference server: installers search its log for a machine's
/// address before `User-Agent:"Ignition`.
pub(super) async fn log_requests(
    State(log): State<Arc<RequestLog>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let method = request.method().clone();
    let [agent, accept] = [USER_AGENT, ACCEPT].map(|name| request.headers().get(name).cloned());
    let response = next.run(request).await;
    let may_log = || peer.is_some_and(|peer| log.0.may_log(peer.address.into()));
    let Some(outcome) = response.extensions().get::<Outcome>().filter(|_| may_log()) else {
        return response;
    };
    let text = |value: Option<&HeaderValue>| {
        value
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default()
    };
    let (agent, accept) = (text(agent.as_ref()), text(accept.as_ref()));
    tracing::info!(
        spec = outcome.version.map_or("none", SpecVersion::as_str),
        status = response.status().as_u16(),
        access = response.extensions().get::<AccessVerdict>().and_then(AccessVerdict::words),
        %method,
        "Pool {} requested by address:\"{}\" User-Agent:\"{}\" Accept-Header: \"{}\"",
        cut_escaped(&outcome.pool, NAME),
        peer.map_or_else(String::new, |Peer { address, .. }| address.to_string()),
        cut_escaped(&agent, HEADER),
        cut_escaped(&accept, HEADER),
    );
    response
}
