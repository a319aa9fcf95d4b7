//! Checks access before a request is handled.
//!
//! In `enforce`, all permanent refusals get the same 401; the reason is in the log, the metrics and the boot ledger. A
//! token that another server may know gets 503, so that Ignition retries. So does a source that has failed too often:
//! until it has waited, only a token with a known hash is accepted, because verifying a signed one is too expensive.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONNECTION, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method};
use model::access::approval::UnapprovedRequest;
use model::access::{self, BrokenRule, Credential, Policy, Proof, Refusal, Verdict, decide};
use model::ignition_version::IgnitionVersion;
use model::refusal::RefusalCode;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::answer;
use super::connection::Peer;
use super::connection_limiter::Transport;
use super::machine_request::MachineRequest;
use super::outcome::{AccessVerdict, Outcome, Refused};
use super::pool_name::PoolName;
use super::source_buckets::SourceBuckets;
use crate::serving::answers::Answers;
use crate::serving::named_machines::NamedMachines;
use crate::telemetry::{Metrics, PoolLabel};

/// Number of failed attempts that a source has at once.
const BURST: u32 = 100;
/// Time after which a source gets another attempt.
const REFILL: Duration = Duration::from_secs(1);

pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"machine-config-server\"");
/// Body of all permanent refusals.
const REFUSED: &str = "access to this config is restricted, and the request has no valid token";
const UNKNOWN: &str = "this server does not know the token, or not yet";
const NO_ADDRESS: &str = "the address of the client is unknown\n";
const OLD_IGNITION: &str = "the Ignition of this machine is older than its pool accepts";
const PLAIN_PORT: &str = "this pool is not served on the port without TLS";
const NOT_APPROVED: &str = "this machine waits for an administrator's approval";
const NOT_STORED: &str = "the server cannot store the use of this token";
const TOO_MANY: &str = "too many failed attempts from this address";

/// Policy in force, which can be swapped, and failed attempts.
#[derive(Debug)]
pub struct Authorizer {
    policy: Arc<ArcSwap<Policy>>,
    machines: NamedMachines,
    attempts: SourceBuckets,
}

/// State of the access check.
#[derive(Debug, Clone)]
pub(super) struct AuthState {
    pub(super) auth: Arc<Authorizer>,
    pub(super) answers: Arc<Answers>,
    pub(super) metrics: Arc<Metrics>,
}

/// Passes on requests with access.
pub(super) async fn auth(
    State(state): State<AuthState>,
    PoolName(pool): PoolName,
    mut request: Request,
    next: Next,
) -> Response {
    let AuthState { auth, answers, metrics } = &state;
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return answer::refused(RefusalCode::AddressUnknown, NO_ADDRESS.to_owned());
    };
    let is_get = request.method() == Method::GET;
    let mut verdict = auth.judge(&pool, peer, request.headers());
    let machine = auth.machine(&verdict);
    if let Some(machine) = &machine
        && let Err(refusal) = machine.check().await
    {
        verdict.judged = Err(refusal);
        auth.attempts.count(peer.address.into(), Instant::now());
    }
    let broken_rule = verdict.broken_rule;
    auth.hold_unless_approved(&mut verdict, (&pool, peer, request.headers()));
    let label = answers.label(&pool);
    let mut decided = AccessVerdict(verdict);
    let mut response = None;
    if decided.0.refusal().is_none() {
        request.extensions_mut().insert(decided.clone());
        let given = next.run(request).await;
        response = match machine.filter(|_| is_get && given.status().is_success()) {
            None => Some(given),
            Some(machine) => match machine.begin(peer.address.ip()).await {
                Ok(()) => Some(machine.following(given)),
                Err(refusal) => {
                    decided.0.judged = Err(refusal);
                    None
                }
            },
        };
    }
    let AccessVerdict(Verdict { mode, judged, .. }) = &decided;
    if *mode != access::AccessMode::Off || judged.is_err() {
        let word = judged.as_ref().map_or_else(|refusal| refusal.label(), |proof| proof.label());
        metrics.access(label.clone(), mode.label(), word);
    }
    if let Some(BrokenRule::OldIgnition { is_held }) = broken_rule {
        metrics.old_ignition(label.clone(), if is_held { "held" } else { "warned" });
    }
    let mut response = match (response, decided.0.refusal()) {
        (Some(response), _) => response,
        // Without a response there is a refusal.
        (None, refusal) => refusal_of(pool, refusal.unwrap_or(Refusal::NotRead), label, metrics),
    };
    response.extensions_mut().insert(decided);
    response
}

/// The answer to a request that is refused, with its outcome.
fn refusal_of(pool: String, refusal: Refusal, label: PoolLabel, metrics: &Metrics) -> Response {
    let (mut response, reason) = refused(refusal);
    let code = refusal.code();
    let requests = metrics.requests(label, None, code.status().as_u16());
    let given = Err(Refused::new(code, reason.to_owned()));
    response.extensions_mut().insert(Outcome { pool, version: None, given, requests });
    response
}

impl Default for Authorizer {
    /// Judges each request by a policy without restrictions.
    fn default() -> Self {
        Self::new(Arc::default(), NamedMachines::default())
    }
}

impl Authorizer {
    /// Judges each request by the present `policy`, those of single machines by the use of their tokens, and those of
    /// machines that need approval by their approval.
    #[must_use]
    pub(crate) fn new(policy: Arc<ArcSwap<Policy>>, machines: NamedMachines) -> Self {
        Self { policy, machines, attempts: SourceBuckets::new(BURST, REFILL) }
    }

    /// Holds a machine that may have its config, needs approval and has none.
    fn hold_unless_approved(
        &self,
        verdict: &mut Verdict,
        (pool, peer, headers): (&str, Peer, &HeaderMap),
    ) {
        if !verdict.needs_approval || verdict.refusal().is_some() {
            return;
        }
        let asked = UnapprovedRequest {
            pool,
            address: peer.address.ip(),
            proof: verdict.judged.as_ref().ok(),
            ignition: IgnitionVersion::of_user_agent(user_agent(headers)),
        };
        if !self.machines.approvals.admit(&asked) {
            verdict.broken_rule = Some(BrokenRule::NotApproved);
        }
    }

    /// The machine whose token a request has.
    fn machine(&self, verdict: &Verdict) -> Option<MachineRequest> {
        let Ok(Proof::Machine(name)) = &verdict.judged else { return None };
        let tokens = self.machines.tokens.clone()?;
        Some(MachineRequest { tokens, name: Arc::clone(name) })
    }

    pub(super) fn judge(&self, pool: &str, peer: Peer, headers: &HeaderMap) -> Verdict {
        let source = peer.address.into();
        let now = Instant::now();
        let values = headers.get_all(AUTHORIZATION);
        let asked = access::Request {
            pool,
            address: peer.address.ip(),
            is_private: peer.transport == Transport::Tls,
            user_agent: user_agent(headers),
            credential: Credential::of(values.iter().map(HeaderValue::as_bytes)),
            has_failed_often: self.attempts.are_used_up(source, now),
        };
        let verdict = decide(&asked, &self.policy.load(), OffsetDateTime::now_utc());
        if verdict.access_refusal().is_some() {
            self.attempts.count(source, now);
        }
        verdict
    }
}

fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

fn refused(refusal: Refusal) -> (Response, &'static str) {
    let reason = match refusal {
        Refusal::Unknown => UNKNOWN,
        Refusal::TooMany => TOO_MANY,
        Refusal::OldIgnition => OLD_IGNITION,
        Refusal::PoolPlainPort => PLAIN_PORT,
        Refusal::NotApproved => NOT_APPROVED,
        Refusal::NotStored => NOT_STORED,
        _ => REFUSED,
    };
    let mut response = answer::refused(refusal.code(), format!("{reason}\n"));
    if refusal == Refusal::TooMany {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    } else if !refusal.may_heal() {
        response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
    }
    (response, reason)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http::StatusCode;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_request_from_nowhere_is_let_in_nowhere() {
        let metrics = Arc::<Metrics>::default();
        let answers = Arc::new(Answers::new(true, Arc::clone(&metrics)));
        let state = AuthState { auth: Arc::default(), answers, metrics };
        let router = Router::new()
            .route("/config/{pool}", get(async || "a config"))
            .route_layer(from_fn_with_state(state, auth));
        let request = Request::get("/config/worker").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
