//! What administrators, probes and Prometheus ask for, on a listener of their own.

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::answer;
use super::readiness::Readiness;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// `/metrics` with what `encode` gives, `/healthz`, `/livez`, and `/readyz` with what `readiness`
/// tells: 503 while something keeps the process from being ready, else 200.
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
