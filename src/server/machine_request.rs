//! A request for a config, from its verdict to its answer.
//!
//! In `enforce`, all permanent refusals get the same 401; the reason is in the log, the metrics and the boot ledger. A
//! token that another server may know gets 503, so that Ignition retries. So does a source that has failed too often:
//! until it has waited, only a token with a known hash is accepted, because verifying a signed one is too expensive.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use ignition::{Form, SpecVersion, negotiate};
use model::access::approval::UnapprovedRequest;
use model::access::{AccessMode, BrokenRule, Refusal, ShownToken, Verdict};
use model::ignition_version::IgnitionVersion;
use model::ledger;
use model::refusal::{NO_MEMORY, RefusalCode};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::answer;
use super::answer_body::{AnswerBody, End, OnEnd};
use super::auth::user_agent;
use super::connections::connection::Peer;
use super::connections::connection_limiter::Transport;
use super::connections::send_buffer_limit::{Allowance, Reserved};
use super::outcome::{Outcome, Refused};
use super::pool_name::PoolName;
use super::request_log::text;
use super::state::MachineRoutes;
use crate::serving::answers::{self, Answer, PENDING};
use crate::serving::tokens::named_machines::MachineTokens;

const NO_ADDRESS: &str = "the address of the client is unknown\n";
const NOT_MERGED: &str = "the machine's overlay cannot be merged into its config";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers a request for a config. It takes the whole request: an extractor of the headers would copy them all.
pub(super) async fn config(
    State(machines): State<Arc<MachineRoutes>>,
    PoolName(pool): PoolName,
    request: Request,
) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return answer::refused(RefusalCode::AddressUnknown, NO_ADDRESS.to_owned());
    };
    let allowance = request.extensions().get::<Arc<Allowance>>();
    let (method, headers) = (request.method(), request.headers());
    let is_get = method == Method::GET;

    let can_be_judged = match &machines.reads.awaited {
        Some(awaited) => awaited.wait_for(&pool, headers.contains_key(AUTHORIZATION)).await,
        None => true,
    };
    let (mut verdict, used) = judge(&machines, &pool, peer, headers).await;
    let (mut version, mut given) = match verdict.refusal() {
        Some(refusal) => (None, Err(Refused::access(refusal))),
        None if !can_be_judged => (None, Err(Refused::pool(&answers::Refusal::NotRead, &pool))),
        None if is_get || method == Method::HEAD => {
            answer(&machines, &pool, headers, &verdict).await
        }
        None => {
            count_access(&machines, &pool, &verdict);
            return answer::method_not_allowed().await;
        }
    };
    // Before an answer begins, its memory is reserved, and then the use of the token stored. If one of them fails, the
    // connection is closed, which frees the memory.
    let mut reserved = None;
    if let (Some(allowance), Ok(answer)) = (allowance, &given) {
        // An answer to HEAD has no body.
        let bytes = if is_get { answer.body.len() as u64 } else { 0 };
        let is_scarce = allowance.reserve_answer(bytes).await;
        reserved = Some(Reserved { is_scarce: is_scarce.unwrap_or(true) });
        if is_scarce.is_err() {
            given = Err(Refused::config(RefusalCode::Overloaded, &pool, NO_MEMORY.to_owned()));
        }
    }
    let mut used = used.filter(|_| is_get && given.is_ok());
    if let Some(used) = &mut used
        && let Err(refusal) = used.begin(peer.address.ip()).await
    {
        verdict.judged = Err(refusal);
        (version, given) = (None, Err(Refused::access(refusal)));
        reserved = reserved.map(|_| Reserved { is_scarce: true });
    }
    let outcome = Outcome { pool, verdict, version, given };
    record(&machines, peer, is_get, headers, &outcome);
    respond(outcome, used, reserved)
}

/// Judges a request by the policy, by the use of a machine's token, and by the machine's approval. With a token that is
/// accepted comes its use.
async fn judge(
    machines: &MachineRoutes,
    pool: &str,
    peer: Peer,
    headers: &HeaderMap,
) -> (Verdict, Option<TokenUse>) {
    let MachineRoutes { auth, named, .. } = machines;
    let mut verdict = auth.evaluate(pool, peer, headers);
    let mut used = TokenUse::of(machines, &verdict);
    if let Some(TokenUse { tokens, shown, .. }) = &used
        && let Err(refusal) = tokens.check(shown).await
    {
        verdict.judged = Err(refusal);
        used = None;
        auth.attempts.count(peer.address.into(), Instant::now());
    }
    if verdict.refusal() == Some(Refusal::NotApproved) {
        let asked = UnapprovedRequest {
            pool,
            address: peer.address.ip(),
            proof: verdict.judged.as_ref().ok(),
            ignition: IgnitionVersion::of_user_agent(user_agent(headers)),
        };
        verdict.needs_approval = !named.approvals.admit(&asked);
    }
    (verdict, used)
}

/// The answer to a request with access, and its version.
async fn answer(
    machines: &MachineRoutes,
    pool: &str,
    headers: &HeaderMap,
    verdict: &Verdict,
) -> (Option<SpecVersion>, Result<Arc<Answer>, Refused>) {
    if let Some(live) = &machines.reads.live {
        live.confirm().await;
    }
    match negotiate(accept(headers).as_deref()) {
        Err(error) => {
            let code = RefusalCode::VersionNotServed;
            (None, Err(Refused::config(code, pool, error.to_string())))
        }
        Ok(version) => {
            let variant = (version, Form::of(user_agent(headers), version));
            (Some(version), in_variant(machines, pool, variant, verdict).await)
        }
    }
}

/// The answer of a pool in a version and form, with the overlay of the machine whose token the request has.
async fn in_variant(
    machines: &MachineRoutes,
    pool: &str,
    variant @ (version, form): (SpecVersion, Form),
    verdict: &Verdict,
) -> Result<Arc<Answer>, Refused> {
    let answer = machines.answers.answer(pool, version, form).await;
    let answer = answer.map_err(|refusal| Refused::pool(&refusal, pool))?;
    // The pool may have been restricted since the verdict.
    if answer.is_restricted && !verdict.is_proven() {
        let reason = "access to its config has just changed".to_owned();
        return Err(Refused::config(RefusalCode::AccessUndecided, pool, reason));
    }
    let (Some(overlays), Some(shown)) = (&machines.named.overlays, verdict.machine_token()) else {
        return Ok(answer);
    };
    overlays.answer(&shown.machine, answer, variant).await.map_err(|detail| Refused {
        reason: format!("{NOT_MERGED}: {detail}"),
        ..Refused::config(RefusalCode::NotRenderable, pool, NOT_MERGED.to_owned())
    })
}

/// All Accept headers joined, by RFC 9110 section 5.3.
fn accept(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = values.next()?;
    Some(
        values.fold(Cow::Borrowed(first), |joined, value| Cow::Owned(format!("{joined}, {value}"))),
    )
}

/// Counts a request, and records it in the boot ledger.
fn record(
    machines: &MachineRoutes,
    peer: Peer,
    is_get: bool,
    headers: &HeaderMap,
    outcome: &Outcome,
) {
    let MachineRoutes { answers, metrics, ledger, .. } = machines;
    let Outcome { pool, verdict, version, given } = outcome;
    count_access(machines, pool, verdict);
    let answer = match given {
        Ok(answer) => {
            answer.requests.inc();
            if is_get {
                metrics.response_bytes.inc_by(answer.body.len() as u64);
            }
            Ok((&*answer.configuration, answer.sha256()))
        }
        Err(refused) => {
            let status = refused.code.status().as_u16();
            metrics.requests(answers.label(pool), *version, status).inc();
            Err((status, &*refused.reason))
        }
    };
    let request = ledger::Request {
        address: peer.address.ip(),
        pool,
        user_agent: &text(headers.get(USER_AGENT)),
        spec: *version,
        without_tls: peer.transport == Transport::Plain,
        answer,
        would_be_refused: verdict.would_be_refused().map(Refusal::label),
    };
    ledger.asked(&request, OffsetDateTime::now_utc());
}

fn count_access(
    MachineRoutes { answers, metrics, .. }: &MachineRoutes,
    pool: &str,
    verdict: &Verdict,
) {
    let Verdict { mode, judged, broken_rule, .. } = verdict;
    if *mode != AccessMode::Off || judged.is_err() {
        let word = judged.as_ref().map_or_else(|refusal| refusal.label(), |proof| proof.label());
        metrics.access(answers.label(pool), mode.label(), word);
    }
    if let Some(BrokenRule::OldIgnition { is_held }) = *broken_rule {
        metrics.old_ignition(answers.label(pool), if is_held { "held" } else { "warned" });
    }
}

/// The response, with its outcome for the log.
fn respond(outcome: Outcome, used: Option<TokenUse>, reserved: Option<Reserved>) -> Response {
    let mut response = match &outcome.given {
        Ok(answer) => {
            let body = AnswerBody { body: answer.body.body(), on_end: used };
            let mut response = Response::new(Body::new(body));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, JSON);
            headers.insert(CONTENT_LENGTH, answer.length.clone());
            headers.insert(ETAG, answer.etag.clone());
            if let Some(pending) = &answer.pending {
                headers.insert(PENDING, pending.clone());
            }
            response
        }
        Err(refused) => answer::refused(refused.code, refused.line.clone()),
    };
    response.extensions_mut().insert(outcome);
    if let Some(reserved) = reserved {
        response.extensions_mut().insert(reserved);
    }
    response
}

/// Use of the token of a single machine.
struct TokenUse {
    tokens: MachineTokens,
    shown: ShownToken,
    /// Time since the start of the process at which the answer began.
    began: Duration,
}

impl TokenUse {
    fn of(machines: &MachineRoutes, verdict: &Verdict) -> Option<Self> {
        let shown = verdict.machine_token()?.clone();
        Some(Self { tokens: machines.named.tokens.clone()?, shown, began: Duration::ZERO })
    }

    /// Records that the answer begins.
    async fn begin(&mut self, address: IpAddr) -> Result<(), Refusal> {
        self.began = self.tokens.begin(&self.shown, address).await?;
        Ok(())
    }
}

impl OnEnd for Option<TokenUse> {
    fn ended(&self, end: End) {
        if let (Some(used), End::Delivered) = (self, end) {
            used.tokens.mark_delivered(&used.shown, used.began);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use axum::Router;
    use axum::routing::any;
    use http::StatusCode;
    use model::inputs::ServingMode;
    use model::ledger::Ledger;
    use serde_json::json;
    use telemetry::Metrics;
    use telemetry::conditions::Status;
    use tower::ServiceExt as _;

    use super::*;
    use crate::server::auth::Authorizer;
    use crate::server::connections::send_buffer_limit::tests::allowances;
    use crate::server::state::SourceReads;
    use crate::serving::answers::Answers;
    use crate::serving::answers::tests::inputs;
    use crate::serving::tokens::named_machines::NamedMachines;

    fn machines() -> MachineRoutes {
        let metrics = Arc::<Metrics>::default();
        MachineRoutes {
            answers: Arc::new(Answers::new(true, Arc::clone(&metrics))),
            named: NamedMachines::default(),
            reads: SourceReads::default(),
            metrics,
            status: Status::default(),
            ledger: Ledger::default(),
            auth: Authorizer::default(),
            reports: None,
        }
    }

    async fn ask(machines: MachineRoutes, prepare: impl FnOnce(&mut Request)) -> Response {
        let router =
            Router::new().route("/config/{pool}", any(config)).with_state(Arc::new(machines));
        let mut request = Request::get("/config/worker").body(Body::empty()).unwrap();
        prepare(&mut request);
        router.oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn a_request_without_an_address_gets_no_config() {
        let machines = machines();
        let ledger = machines.ledger.clone();
        let response = ask(machines, |_| ()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(RefusalCode::of(response.headers()), Some(RefusalCode::AddressUnknown));
        assert!(ledger.machines().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_memory_for_it_is_recorded_as_refused() {
        let machines = machines();
        let source = "data:,".to_owned() + &"a".repeat(64 << 10);
        let file = json!({"path": "/a", "contents": {"source": source}});
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
        let inputs = inputs(ServingMode::Manifests, "rendered", &config);
        machines.answers.replace(&inputs, SystemTime::UNIX_EPOCH);
        machines.answers.refresh();
        let ledger = machines.ledger.clone();
        let allowance = allowances(100 << 10);
        let other = allowance();
        other.reserve_answer(90 << 10).await.unwrap();
        let response = ask(machines, |request| {
            let address = "127.0.0.1:1".parse().unwrap();
            request.extensions_mut().insert(Peer { address, transport: Transport::Tls });
            request.extensions_mut().insert(Arc::new(allowance()));
        });
        let response = response.await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(RefusalCode::of(response.headers()), Some(RefusalCode::Overloaded));
        assert!(response.extensions().get::<Outcome>().unwrap().given.is_err());
        let recorded = serde_json::to_value(ledger.machines()).unwrap().to_string();
        assert!(recorded.contains(NO_MEMORY), "{recorded}");
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
