//! `issuer`: certificates for others, through cert-manager, of which one process is active.

use std::path::PathBuf;

use axum::Router;

use super::administrators::AdministratorsAddress;
use super::leader_elected::LeaderElected;
use crate::controllers::issuer::IssuerController;
use crate::kubernetes::Health;

/// The Lease of the active one.
const LEASE: &str = "machine-config-server-issuer";

/// What the issuer is given.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A kubeconfig; without one, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and readiness are served, if anywhere.
    pub administrators: AdministratorsAddress,
    /// Where cluster issuers have their secrets.
    pub cluster_resource_namespace: String,
}

/// Signs until a signal ends it.
pub fn run(settings: Settings) -> anyhow::Result<()> {
    let Settings { kubeconfig, administrators, cluster_resource_namespace } = settings;
    let (health, pages) = (Health::default(), Router::new());
    let leader_elected =
        LeaderElected { kubeconfig, administrators, lease: LEASE, pages, health: health.clone() };
    leader_elected.run(async |client, _| {
        IssuerController::new(client, cluster_resource_namespace, health).run().await.into()
    })
}
