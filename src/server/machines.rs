//! Routes for machines: the HTTP contract of the ports that they use.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, ETAG, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use ignition::{Form, SpecVersion, negotiate};
use model::access::{Proof, Verdict};
use model::escape::{NAME, cut_escaped};
use model::refusal::RefusalCode;

use super::answer;
use super::layers::{authorize, record};
use super::node_failure;
use super::outcome::{Outcome, Refused};
use super::pool_name::PoolName;
use super::readiness::Readiness;
use super::state::Machines;
use crate::serving::answers::{Answer, PENDING, Refusal};
use crate::telemetry::LogRateLimiter;

const NOT_MERGED: &str = "the machine's overlay cannot be merged into its config";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Routes of `/config`, health and readiness, and of reports if there is a receiver.
pub fn router(machines: Arc<Machines>) -> Router {
    let log = Arc::new(LogRateLimiter::new("requests for configs"));
    let config =
        || -> MethodRouter<Arc<Machines>> { get(config).fallback(answer::method_not_allowed) };
    let health = || get(async || StatusCode::OK).fallback(answer::method_not_allowed);
    let router = Router::new()
        .route("/config/{pool}", config())
        .route("/config/{pool}/", config())
        .route_layer(from_fn_with_state(Arc::clone(&machines), authorize))
        .route_layer(from_fn_with_state((Arc::clone(&machines), log), record))
        .route("/healthz", health())
        .route("/livez", health())
        .route("/readyz", get(readiness).fallback(answer::method_not_allowed))
        .route("/readyz/serving", get(in_service).fallback(answer::method_not_allowed))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(Arc::clone(&machines));
    if machines.reports.is_some() { router.merge(node_failure::router(machines)) } else { router }
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
                (Ok(answer), Some(name)) => {
                    with_overlay(&machines, name, answer, (version, form)).await
                }
                (given, _) => given,
            };
            (Some(version), given)
        }
    };
    let (mut response, requests) = match &given {
        Ok(answer) => (config_response(answer), answer.requests.clone()),
        Err(refusal) => {
            let status = refusal.code.status().as_u16();
            let counter = metrics.requests(answers.label(&pool), version, status);
            (refusal_response(&pool, refusal), counter)
        }
    };
    response.extensions_mut().insert(Outcome { pool, version, given, requests });
    response
}

/// Refuses a restricted answer to a request without a proof, even if the access check has just decided that none is
/// needed.
fn unless_restricted(answer: Arc<Answer>, request: &Request) -> Result<Arc<Answer>, Refused> {
    let is_proven = request.extensions().get().is_some_and(Verdict::is_proven);
    if answer.is_restricted && !is_proven {
        let reason = "access to its config has just changed".to_owned();
        return Err(Refused::new(RefusalCode::AccessUndecided, reason));
    }
    Ok(answer)
}

/// The machine whose token came with a request.
fn machine(request: &Request) -> Option<&Arc<str>> {
    match &request.extensions().get::<Verdict>()?.judged {
        Ok(Proof::Machine(name)) => Some(name),
        _ => None,
    }
}

/// The answer for a machine with a name, made of its pool's.
async fn with_overlay(
    machines: &Machines,
    name: &Arc<str>,
    of_pool: Arc<Answer>,
    variant: (SpecVersion, Form),
) -> Result<Arc<Answer>, Refused> {
    let Some(overlays) = &machines.named.overlays else { return Ok(of_pool) };
    overlays.answer(name, of_pool, variant).await.map_err(|detail| Refused {
        code: RefusalCode::NotRenderable,
        reason: NOT_MERGED.to_owned(),
        detail: Some(format!("{NOT_MERGED}: {detail}")),
    })
}

fn config_response(answer: &Answer) -> Response {
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
fn refusal_response(pool: &str, Refused { code, reason, .. }: &Refused) -> Response {
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
