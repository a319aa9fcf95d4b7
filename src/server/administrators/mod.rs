//! Pages for administrators, probes and Prometheus, on a separate listener.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use telemetry::LogRateLimiter;

use self::hosts::{KnownHosts, check_host};
use self::shared_responses::{SharedResponses, share};
use super::answer;
use super::readiness::Readiness;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Routes of `/metrics` with the output of `encode`, `/healthz`, `/livez`, and `/readyz` by `readiness`: 503 while the
/// process is not ready, otherwise 200.
pub(crate) fn router<E, R>(encode: E, readiness: R) -> Router
where
    E: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
    R: Fn() -> Readiness + Clone + Send + Sync + 'static,
{
    let health = || get(async || StatusCode::OK).fallback(answer::method_not_allowed);
    let metrics = async move || match encode() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    };
    let readiness = async move || readiness().response();
    Router::new()
        .route("/metrics", get(metrics).fallback(answer::method_not_allowed))
        .route("/healthz", health())
        .route("/livez", health())
        .route("/readyz", get(readiness).fallback(answer::method_not_allowed))
        .fallback(async || StatusCode::NOT_FOUND)
}

/// Protects pages: requests must use a name of this listener, and other sites can neither show nor embed them.
pub(crate) fn protected(pages: Router, hosts: KnownHosts) -> Router {
    let log = Arc::new(LogRateLimiter::new("requests for unknown hosts"));
    let check = from_fn_with_state((Arc::new(hosts), log), check_host);
    let share = from_fn_with_state(SharedResponses::default(), share);
    pages.layer(share).layer(check).layer(map_response(with_headers))
}

/// Headers of every answer for browsers. A page that loads resources replaces the policy.
const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

pub(crate) mod events;
pub(crate) mod hosts;
mod shared_responses;
