//! Routes for machines: the HTTP contract of the ports that they use.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, get};
use http::StatusCode;
use telemetry::LogRateLimiter;

use super::answer;
use super::machine_request::config;
use super::node_failure;
use super::readiness::Readiness;
use super::request_log::log;
use super::state::MachineRoutes;

/// Routes of `/config`, health and readiness, and of reports if there is a receiver.
pub fn router(machines: Arc<MachineRoutes>) -> Router {
    let limiter = Arc::new(LogRateLimiter::new("requests for configs"));
    let health = || get(async || StatusCode::OK).fallback(answer::method_not_allowed);
    let router = Router::new()
        // Any method: without access, a client does not even see which one is allowed.
        .route("/config/{pool}", any(config))
        .route("/config/{pool}/", any(config))
        .route_layer(from_fn_with_state(limiter, log))
        .route("/healthz", health())
        .route("/livez", health())
        .route("/readyz", get(readiness).fallback(answer::method_not_allowed))
        .route("/readyz/serving", get(in_service).fallback(answer::method_not_allowed))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(Arc::clone(&machines));
    if machines.reports.is_some() { router.merge(node_failure::router(machines)) } else { router }
}

async fn in_service(State(machines): State<Arc<MachineRoutes>>) -> Response {
    Readiness::in_service(&machines.status, &machines.answers).response()
}

async fn readiness(State(machines): State<Arc<MachineRoutes>>) -> Response {
    Readiness::for_unauthenticated(&machines.status, &machines.answers).response()
}
