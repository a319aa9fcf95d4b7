//! Pages for administrators, probes and Prometheus, on a separate listener.

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};

use super::answer;
use super::hosts::{HostCheck, KnownHosts, check_host};
use super::readiness::Readiness;
use super::renderings::{Renderings, share};

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Routes of `/metrics` with the output of `encode`, `/healthz`, `/livez`, and `/readyz` by `readiness`: 503 while the
/// process is not ready, otherwise 200.
pub fn router<E, R>(encode: E, readiness: R) -> Router
where
    E: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
    R: Fn() -> Readiness + Clone + Send + Sync + 'static,
{
    let health = || get(async || StatusCode::OK).fallback(answer::only_read);
    let metrics = async move || metrics(encode());
    let readiness = async move || readiness().response();
    Router::new()
        .route("/metrics", get(metrics).fallback(answer::only_read))
        .route("/healthz", health())
        .route("/livez", health())
        .route("/readyz", get(readiness).fallback(answer::only_read))
        .fallback(async || StatusCode::NOT_FOUND)
}

/// Protects pages: requests must use a name of this listener, and other sites can neither show nor embed them.
pub fn protected(pages: Router, hosts: KnownHosts) -> Router {
    let check = from_fn_with_state(HostCheck::new(hosts), check_host);
    let share = from_fn_with_state(Renderings::default(), share);
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

fn metrics(encoded: Result<String, std::fmt::Error>) -> Response {
    match encoded {
        Ok(text) => {
            let mut response = text.into_response();
            response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
            response
        }
        Err(error) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
