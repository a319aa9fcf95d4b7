//! The listener for administrators, probes and Prometheus.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::Context as _;
use axum::Router;
use clap::Args;
use common::flags::LISTENING;
use pki::Host;
use telemetry::ConnectionMetrics;
use telemetry::conditions::Status;

use crate::server::administrators::hosts::KnownHosts;
use crate::server::administrators::{self, protected};
use crate::server::readiness::Readiness;
use crate::server::{Balancers, Limits, Listener, Serving};

/// Address and names of the listener for administrators. The default port depends on the command.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdministratorsAddress {
    /// Address and port for metrics, /healthz and /readyz; `off` for none
    #[arg(id = "metrics_address", long = "metrics-address", value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8797", help_heading = LISTENING)]
    pub address: MetricsAddress,
    /// Further host name with which clients use the metrics address, such as a proxy's; IP addresses,
    /// localhost, this machine's name and names of a cluster's Services work without it
    #[arg(long = "metrics-name", value_name = "NAME,...", value_delimiter = ',', help_heading = LISTENING)]
    pub names: Vec<Host>,
}

/// Address of the listener, `None` for no listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricsAddress(pub Option<SocketAddr>);

impl FromStr for MetricsAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text == "off" {
            return Ok(Self(None));
        }
        text.parse().map(|address| Self(Some(address))).map_err(|_| "expected ADDRESS:PORT or off")
    }
}

/// Serves metrics, readiness and `more` at `address`, if there is one, while the result is held, for a command that
/// serves no machines. Must be called within a runtime.
pub(in crate::commands) fn listen(
    address: &AdministratorsAddress,
    encode: impl Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
    status: &Status,
    connections: ConnectionMetrics,
    more: Router,
) -> anyhow::Result<Serving> {
    let status = status.clone();
    let readiness = move || Readiness::of_status(&status);
    let pages = administrators::router(encode, readiness).merge(more);
    let serving = address.serving(pages, connections);
    if let MetricsAddress(Some(address)) = address.address {
        let listener = Listener::bind(address, None).with_context(|| {
            format!("cannot listen on {address} (metrics); use --metrics-address")
        })?;
        serving.listen(listener);
    }
    Ok(serving)
}

impl AdministratorsAddress {
    /// The server for these pages, without a listener.
    pub(in crate::commands) fn serving(
        &self,
        pages: Router,
        connections: ConnectionMetrics,
    ) -> Serving {
        let pages = protected(pages, KnownHosts::new(crate::commands::host_name(), &self.names));
        let limits = Limits::of_administrators();
        Serving::new(pages, limits, connections, None, Balancers::default())
    }
}
