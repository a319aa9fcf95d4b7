//! The listener for administrators, probes and Prometheus.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use pki::Host;

use crate::server::administrators::{self, protected};
use crate::server::hosts::KnownHosts;
use crate::server::readiness::Readiness;
use crate::server::{Limits, Listener, Serving};
use crate::telemetry::ConnectionMetrics;
use crate::telemetry::conditions::Status;

/// Where administrators ask.
#[derive(Debug, Clone, Default)]
pub struct AdministratorsAddress {
    /// Where to listen, `None` for nowhere.
    pub address: Option<SocketAddr>,
    /// Names of the listener beside this machine's own.
    pub names: Vec<Host>,
}

/// Answers at `address`, if that is anywhere, these questions and those of `more`, for as long as what is
/// returned is kept; of a command that serves no machines. Call it within a runtime.
pub(super) fn listen<E>(
    address: &AdministratorsAddress,
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
    let serving = address.serving(pages, connections);
    if let Some(address) = address.address {
        let listener = Listener::bind(address, None).with_context(|| {
            format!("cannot listen on {address} (metrics); use --metrics-address")
        })?;
        serving.listen(listener);
    }
    Ok(serving)
}

impl AdministratorsAddress {
    /// What answers there, and listens nowhere yet.
    pub(super) fn serving(&self, pages: Router, connections: ConnectionMetrics) -> Serving {
        let machine = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let pages = protected(pages, KnownHosts::new(machine, &self.names));
        Serving::new(pages, Limits::of_administrators(), connections)
    }
}
