//! The listener for administrators, probes and Prometheus of a command that serves no machines.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;

use crate::conditions::Status;
use crate::server::readiness::Readiness;
use crate::server::{Limits, Listener, Serving, administrators};
use crate::telemetry::ConnectionMetrics;

/// Answers at `address`, if that is anywhere, these questions and those of `more`, for as long as what is returned is kept. Call it within
/// a runtime.
pub(super) fn listen<E>(
    address: Option<SocketAddr>,
    encode: E,
    status: &Status,
    connections: ConnectionMetrics,
    more: Router,
) -> anyhow::Result<Serving>
where
    E: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
{
    let status = status.clone();
    let readiness = move || Readiness {
        not_ready: status.not_ready.lines(),
        degraded: status.degraded.lines(),
    };
    let pages = administrators::router(encode, readiness).merge(more);
    let serving = Serving::new(pages, Limits::of_administrators(), connections);
    if let Some(address) = address {
        let listener = Listener::bind(address, None)
            .with_context(|| format!("--metrics-address {address}"))?;
        serving.listen(listener);
    }
    Ok(serving)
}
