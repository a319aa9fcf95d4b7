//! Routes for machines: the HTTP contract of the ports that they use.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, ETAG, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use ignition::{Form, SpecVersion, negotiate};
use model::access::Proof;
use model::escape::{NAME, cut_escaped};
use model::ledger::{FailureReport, Ledger};
use model::refusal::RefusalCode;

use tokio::sync::mpsc;

use super::answer;
use super::auth::{AuthState, Authorizer, auth};
use super::layers::{RequestLog, count_requests, log_requests, remember_machines};
use super::node_failure::{self, ReportState};
use super::outcome::{AccessVerdict, Outcome, Refused};
use super::pool_name::PoolName;
use super::readiness::Readiness;
use crate::serving::answers::{Answer, Answers, PENDING, Refusal};
use crate::serving::live_reads::LiveReads;
use crate::serving::named_machines::NamedMachines;
use crate::telemetry::Metrics;
use crate::telemetry::conditions::Status;

const NOT_MERGED: &str = "the machine's overlay cannot be merged into its config";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// State of the routes.
#[derive(Debug)]
pub struct Machines {
    /// Configs of the pools.
    pub answers: Arc<Answers>,
    pub named: NamedMachines,
    /// Bound for the age of what is served, if there is one.
    pub live_reads: Option<LiveReads>,
    pub metrics: Arc<Metrics>,
    /// Conditions for readiness, such as a faulty serving certificate.
    pub status: Status,
    /// Ledger of machines.
    pub ledger: Ledger,
    /// Access check.
    pub auth: Arc<Authorizer>,
    /// Receiver of reports of failed first boots; `None` if machines cannot send any.
    pub reports: Option<mpsc::Sender<FailureReport>>,
}

pub fn router(machines: Arc<Machines>) -> Router {
    let log = Arc::new(RequestLog::new());
    let state = AuthState {
        auth: Arc::clone(&machines.auth),
        answers: Arc::clone(&machines.answers),
        metrics: Arc::clone(&machines.metrics),
    };
    let config = || -> MethodRouter<Arc<Machines>> { get(config).fallback(other_method) };
    let health = || get(async || StatusCode::OK).fallback(answer::only_read);
    let reports = machines.reports.clone().map(|reports| {
        let Machines { answers, metrics, ledger, auth, .. } = &*machines;
        let route = post(node_failure::report).fallback(node_failure::only_post);
        Router::new().route("/v1/node-failure", route).with_state(ReportState {
            answers: Arc::clone(answers),
            metrics: Arc::clone(metrics),
            ledger: ledger.clone(),
            auth: Arc::clone(auth),
            reports,
            received: Arc::default(),
        })
    });
    let router = Router::new()
        .route("/config/{pool}", config())
        .route("/config/{pool}/", config())
        .route_layer(from_fn_with_state(state, auth))
        .route_layer(from_fn_with_state(Arc::clone(&machines.metrics), count_requests))
        .route_layer(from_fn_with_state(machines.ledger.clone(), remember_machines))
        .route_layer(from_fn_with_state(log, log_requests))
        .route("/healthz", health())
        .route("/livez", health())
        .route("/readyz", get(readiness).fallback(answer::only_read))
        .route("/readyz/serving", get(in_service).fallback(answer::only_read))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(machines);
    match reports {
        Some(reports) => router.merge(reports),
        None => router,
    }
}

async fn other_method(_: PoolName) -> Response {
    answer::only_read().await
}

/// Takes the whole request: an extractor of the headers would copy them all.
async fn config(
    State(machines): State<Arc<Machines>>,
    PoolName(pool): PoolName,
    request: Request,
) -> Response {
    let Machines { answers, metrics, live_reads, .. } = &*machines;
    if let Some(live_reads) = live_reads {
        live_reads.confirm().await;
    }
    let (version, given) = match negotiate(accept(request.headers()).as_deref()) {
        Err(error) => (None, Err(Refused::new(RefusalCode::VersionNotServed, error.to_string()))),
        Ok(version) => {
            let form = form(request.headers(), version);
            let refused = |refusal: Refusal| Refused::new(refusal.code(), refusal.to_string());
            let given = answers.answer(&pool, version, form).await.map_err(refused);
            let given = given.and_then(|answer| unless_restricted(answer, &request));
            let given = match (given, machine(&request)) {
                (Ok(answer), Some(name)) => machines.merged(name, answer, (version, form)).await,
                (given, _) => given,
            };
            (Some(version), given)
        }
    };
    let (mut response, requests) = match &given {
        Ok(answer) => (ready(answer), answer.requests.clone()),
        Err(refusal) => {
            let status = refusal.code.status().as_u16();
            let counter = metrics.requests(answers.label(&pool), version, status);
            (refused(&pool, refusal), counter)
        }
    };
    response.extensions_mut().insert(Outcome { pool, version, given, requests });
    response
}

/// Refuses a restricted answer to a request without a proof, even if the access check has just decided that none is
/// needed.
fn unless_restricted(answer: Arc<Answer>, request: &Request) -> Result<Arc<Answer>, Refused> {
    let decided = request.extensions().get::<AccessVerdict>();
    let is_proven = decided.is_some_and(|AccessVerdict(verdict)| verdict.is_proven());
    if answer.is_restricted && !is_proven {
        let reason = "access to its config has just changed".to_owned();
        return Err(Refused::new(RefusalCode::AccessUndecided, reason));
    }
    Ok(answer)
}

/// The machine whose token came with a request.
fn machine(request: &Request) -> Option<&Arc<str>> {
    match &request.extensions().get::<AccessVerdict>()?.0.judged {
        Ok(Proof::Machine(name)) => Some(name),
        _ => None,
    }
}

impl Machines {
    /// The answer for a machine with a name, made of its pool's.
    async fn merged(
        &self,
        name: &Arc<str>,
        of_pool: Arc<Answer>,
        variant: (SpecVersion, Form),
    ) -> Result<Arc<Answer>, Refused> {
        let Some(overlays) = &self.named.overlays else { return Ok(of_pool) };
        overlays.answer(name, of_pool, variant).await.map_err(|detail| Refused {
            code: RefusalCode::NotRenderable,
            reason: NOT_MERGED.to_owned(),
            detail: Some(format!("{NOT_MERGED}: {detail}")),
        })
    }
}

fn ready(answer: &Answer) -> Response {
    let mut response = Response::new(Body::new(answer.body.body()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CONTENT_LENGTH, answer.length.clone());
    headers.insert(ETAG, answer.etag.clone());
    if let Some(pending) = &answer.pending {
        headers.insert(PENDING, pending.clone());
    }
    response
}

async fn in_service(State(machines): State<Arc<Machines>>) -> Response {
    Readiness::in_service(&machines.status, &machines.answers).response()
}

async fn readiness(State(machines): State<Arc<Machines>>) -> Response {
    Readiness::to_strangers(&machines.status, &machines.answers).response()
}

/// All Accept headers joined, by RFC 9110 section 5.3.
fn accept(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = values.next()?;
    Some(
        values.fold(Cow::Borrowed(first), |joined, value| Cow::Owned(format!("{joined}, {value}"))),
    )
}

fn form(headers: &HeaderMap, version: SpecVersion) -> Form {
    let user_agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    Form::of(user_agent, version)
}

/// An answer without a config. For a temporary cause it names the pool, and asks to retry.
fn refused(pool: &str, Refused { code, reason, .. }: &Refused) -> Response {
    let line = if code.status().is_server_error() {
        format!("pool {}: {reason}\n", cut_escaped(pool, NAME))
    } else {
        format!("{reason}\n")
    };
    answer::refused(*code, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_accept_headers_count_as_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(accept(&headers), None);
        headers.append(ACCEPT, HeaderValue::from_static("a/b"));
        headers.append(ACCEPT, HeaderValue::from_static("c/d;q=0.1"));
        assert_eq!(accept(&headers).as_deref(), Some("a/b, c/d;q=0.1"));
    }
}
