//! The command `issuer`: signs certificate requests, through cert-manager; one process is active.

use std::path::PathBuf;

use axum::Router;
use clap::Args;
use controllers::{NAMESPACE, run_controller};
use issuer::IssuerController;
use kubernetes::Health;

use super::process::leader_elected::LeaderElected;
use super::server::administrators::AdministratorsAddress;

/// Name of the leader's Lease.
const LEASE: &str = "machine-config-server-issuer";

#[derive(Debug, Clone, Args)]
#[command(mut_arg("metrics_address", |arg| arg.default_value("127.0.0.1:8800")))]
pub(crate) struct Settings {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets that a ClusterIssuer names
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    cluster_resource_namespace: String,
    #[command(flatten)]
    administrators: AdministratorsAddress,
}

/// Signs until a signal.
pub(crate) fn run(settings: Settings) -> anyhow::Result<()> {
    tracing::info!(version = super::version(), "starting");
    let Settings { kubeconfig, administrators, cluster_resource_namespace } = settings;
    let (health, pages) = (Health::default(), Router::new());
    let leader_elected =
        LeaderElected { kubeconfig, administrators, lease: LEASE, pages, health: health.clone() };
    leader_elected.run(async |client, _| {
        let namespace = cluster_resource_namespace;
        let issuer = IssuerController::new(client.clone(), namespace, health.clone());
        run_controller(issuer, &client, &health).await.into()
    })
}
