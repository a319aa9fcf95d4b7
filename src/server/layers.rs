//! Layers of requests for configs: access, then metrics, boot ledger and log.
//!
//! In `enforce`, all permanent refusals get the same 401; the reason is in the log, the metrics and the boot ledger. A
//! token that another server may know gets 503, so that Ignition retries. So does a source that has failed too often:
//! until it has waited, only a token with a known hash is accepted, because verifying a signed one is too expensive.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, CONNECTION, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderValue, Method};
use http_body::Body as _;
use ignition::SpecVersion;
use model::access::{AccessMode, BrokenRule, Refusal, Verdict};
use model::escape::{NAME, cut_escaped};
use model::ledger::{self, Ledger};
use model::refusal::RefusalCode;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::answer;
use super::auth::CHALLENGE;
use super::connection::Peer;
use super::connection_limiter::{Source, Transport};
use super::machine_request::MachineRequest;
use super::outcome::{Outcome, Refused};
use super::pool_name::PoolName;
use super::state::Machines;
use crate::telemetry::{LogRateLimiter, Metrics, PoolLabel};

/// Maximum length of a logged header, in bytes after escaping.
const HEADER: usize = 256;

/// Body of all permanent refusals.
const REFUSED: &str = "access to this config is restricted, and the request has no valid token";
const UNKNOWN: &str = "this server does not know the token, or not yet";
const NO_ADDRESS: &str = "the address of the client is unknown\n";
const OLD_IGNITION: &str = "the Ignition of this machine is older than its pool accepts";
const PLAIN_PORT: &str = "this pool is not served on the port without TLS";
const NOT_APPROVED: &str = "this machine waits for an administrator's approval";
const NOT_STORED: &str = "the server cannot store the use of this token";
const TOO_MANY: &str = "too many failed attempts from this address";

/// Passes on requests with access.
pub(super) async fn authorize(
    State(machines): State<Arc<Machines>>,
    PoolName(pool): PoolName,
    mut request: Request,
    next: Next,
) -> Response {
    let Machines { auth, answers, metrics, .. } = &*machines;
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return answer::refused(RefusalCode::AddressUnknown, NO_ADDRESS.to_owned());
    };
    let is_get = request.method() == Method::GET;
    let mut verdict = auth.evaluate(&pool, peer, request.headers());
    let machine = auth.machine(&verdict);
    if let Some(MachineRequest { tokens, name }) = &machine
        && let Err(refusal) = tokens.check(name).await
    {
        verdict.judged = Err(refusal);
        auth.attempts.count(peer.address.into(), Instant::now());
    }
    let broken_rule = verdict.broken_rule;
    auth.require_approval(&mut verdict, (&pool, peer, request.headers()));
    let label = answers.label(&pool);
    let mut response = None;
    if verdict.refusal().is_none() {
        request.extensions_mut().insert(verdict.clone());
        let given = next.run(request).await;
        response = match machine.filter(|_| is_get && given.status().is_success()) {
            None => Some(given),
            Some(machine) => match machine.tokens.begin(&machine.name, peer.address.ip()).await {
                Ok(()) => Some(machine.track(given)),
                Err(refusal) => {
                    verdict.judged = Err(refusal);
                    None
                }
            },
        };
    }
    count_access(metrics, &label, &verdict, broken_rule);
    // Without a response there is a refusal.
    let mut response = response.unwrap_or_else(|| {
        refuse(pool, verdict.refusal().unwrap_or(Refusal::NotRead), label, metrics)
    });
    response.extensions_mut().insert(verdict);
    response
}

/// Counts a decision, and a rule that the machine broke before it was asked for its approval.
fn count_access(
    metrics: &Metrics,
    label: &PoolLabel,
    Verdict { mode, judged, .. }: &Verdict,
    broken_rule: Option<BrokenRule>,
) {
    if *mode != AccessMode::Off || judged.is_err() {
        let word = judged.as_ref().map_or_else(|refusal| refusal.label(), |proof| proof.label());
        metrics.access(label.clone(), mode.label(), word);
    }
    if let Some(BrokenRule::OldIgnition { is_held }) = broken_rule {
        metrics.old_ignition(label.clone(), if is_held { "held" } else { "warned" });
    }
}

/// The answer to a request without access, with its outcome.
fn refuse(pool: String, refusal: Refusal, label: PoolLabel, metrics: &Metrics) -> Response {
    let reason = match refusal {
        Refusal::Unknown => UNKNOWN,
        Refusal::TooMany => TOO_MANY,
        Refusal::OldIgnition => OLD_IGNITION,
        Refusal::PoolPlainPort => PLAIN_PORT,
        Refusal::NotApproved => NOT_APPROVED,
        Refusal::NotStored => NOT_STORED,
        _ => REFUSED,
    };
    let code = refusal.code();
    let mut response = answer::refused(code, format!("{reason}\n"));
    if refusal == Refusal::TooMany {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    } else if !refusal.may_heal() {
        response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
    }
    let requests = metrics.requests(label, None, code.status().as_u16());
    let given = Err(Refused::new(code, reason.to_owned()));
    response.extensions_mut().insert(Outcome { pool, version: None, given, requests });
    response
}

/// Counts each request, records it in the boot ledger, and logs it with the same beginning as the reference server:
/// installers search its log for a machine's address before `User-Agent:"Ignition`.
pub(super) async fn record(
    State((machines, log)): State<(Arc<Machines>, Arc<LogRateLimiter<Source>>)>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let method = request.method().clone();
    let [agent, accept] = [USER_AGENT, ACCEPT].map(|name| request.headers().get(name).cloned());
    let response = next.run(request).await;
    let Some(outcome) = response.extensions().get::<Outcome>() else { return response };
    outcome.requests.inc();
    if method == Method::GET && response.status().is_success() {
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        machines.metrics.response_bytes.inc_by(bytes);
    }
    let Some(peer) = peer else { return response };
    let (agent, accept) = (text(agent.as_ref()), text(accept.as_ref()));
    let verdict = response.extensions().get::<Verdict>();
    remember(&machines.ledger, peer, &agent, outcome, verdict);
    if log.may_log(peer.address.into()) {
        tracing::info!(
            spec = outcome.version.map_or("none", SpecVersion::as_str),
            status = response.status().as_u16(),
            access = verdict.and_then(access_words),
            %method,
            "Pool {} requested by address:\"{}\" User-Agent:\"{}\" Accept-Header: \"{}\"",
            cut_escaped(&outcome.pool, NAME),
            peer.address,
            cut_escaped(&agent, HEADER),
            cut_escaped(&accept, HEADER),
        );
    }
    response
}

fn text(value: Option<&HeaderValue>) -> Cow<'_, str> {
    value.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default()
}

/// Records the answer to a machine in the boot ledger.
fn remember(
    ledger: &Ledger,
    Peer { address, transport }: Peer,
    user_agent: &str,
    outcome: &Outcome,
    verdict: Option<&Verdict>,
) {
    // The answer does not contain the reason of a refusal, which administrators need.
    let refusal = verdict.and_then(Verdict::refusal).map(|refusal| refusal.to_string());
    let answer = match &outcome.given {
        Ok(answer) => Ok((&*answer.configuration, answer.sha256())),
        Err(Refused { code, reason, detail }) => {
            let reason = detail.as_deref().unwrap_or(reason);
            Err((code.status().as_u16(), refusal.as_deref().unwrap_or(reason)))
        }
    };
    let request = ledger::Request {
        address: address.ip(),
        pool: &outcome.pool,
        user_agent,
        spec: outcome.version,
        without_tls: transport == Transport::Plain,
        answer,
        would_be_refused: verdict.and_then(Verdict::would_be_refused).map(Refusal::label),
    };
    ledger.asked(&request, OffsetDateTime::now_utc());
}

/// Verdict in one or two words for the log; `None` if nothing is restricted.
fn access_words(verdict: &Verdict) -> Option<String> {
    let Verdict { mode, judged, broken_rule, .. } = verdict;
    let held = broken_rule.and_then(BrokenRule::refusal);
    if let (Some(refusal), None) = (held, verdict.access_refusal()) {
        return Some(format!("held: {refusal}"));
    }
    match (mode, judged) {
        (AccessMode::Off, Ok(_)) => None,
        (_, Ok(proof)) => Some(proof.to_string()),
        (AccessMode::Audit, Err(refusal)) => Some(format!("would be refused: {refusal}")),
        (_, Err(refusal)) => Some(format!("refused: {refusal}")),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http::StatusCode;
    use model::ledger::Ledger;
    use tower::ServiceExt as _;

    use super::*;
    use crate::server::auth::Authorizer;
    use crate::serving::answers::Answers;
    use crate::serving::named_machines::NamedMachines;
    use crate::telemetry::conditions::Status;

    #[tokio::test]
    async fn a_request_from_nowhere_is_let_in_nowhere() {
        let metrics = Arc::<Metrics>::default();
        let machines = Machines {
            answers: Arc::new(Answers::new(true, Arc::clone(&metrics))),
            named: NamedMachines::default(),
            live_reads: None,
            metrics,
            status: Status::default(),
            ledger: Ledger::default(),
            auth: Authorizer::default(),
            reports: None,
        };
        let router = Router::new()
            .route("/config/{pool}", get(async || "a config"))
            .route_layer(from_fn_with_state(Arc::new(machines), authorize));
        let request = Request::get("/config/worker").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
