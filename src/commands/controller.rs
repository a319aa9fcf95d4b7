//! The controllers of a cluster, of which one process is active.

use std::path::PathBuf;

use kube::Client;

use super::administrators::AdministratorsAddress;
use super::controller_page;
use super::leader_elected::LeaderElected;
use crate::controllers::certificates::{self, CertificateController, Observer, TrustSnapshot};
use crate::controllers::registry_ca::RegistryCaController;
use crate::controllers::tokens::{self, TokenController};
use crate::kubernetes::Health;

/// The Lease of the active one.
const LEASE: &str = "machine-config-server-controller";

/// What the controllers are given.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A kubeconfig; without one, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and readiness are served, if anywhere.
    pub administrators: AdministratorsAddress,
    /// What the certificates' controller is given.
    pub certificates: certificates::Settings,
    /// What the tokens' controller is given.
    pub access: tokens::Settings,
}

/// Keeps a cluster in order until a signal ends it.
pub fn run(settings: Settings) -> anyhow::Result<()> {
    let Settings { kubeconfig, administrators, certificates, access } = settings;
    let (health, shown) = (Health::default(), TrustSnapshot::default());
    let pages = controller_page::router(shown.clone(), health.status.clone());
    let leader_elected =
        LeaderElected { kubeconfig, administrators, lease: LEASE, pages, health: health.clone() };
    leader_elected
        .run(|client, identity| keep(client, (certificates, access), identity, health, shown))
}

/// Keeps everything in order. What it returns is why it could not.
async fn keep(
    client: Client,
    (certificates, access): (certificates::Settings, tokens::Settings),
    identity: String,
    health: Health,
    shown: TrustSnapshot,
) -> anyhow::Error {
    let registry_cas = RegistryCaController::new(client.clone(), &identity, health.clone());
    let observer = Observer::new(
        client.clone(),
        certificates.user_data_namespace.clone(),
        certificates.hosts.clone(),
    );
    let tokens = TokenController::new(client.clone(), observer, access, &identity, health.clone());
    let certificates = CertificateController::new(client, certificates, &identity, health, shown);
    tokio::select! {
        error = tokens.run() => error.into(),
        error = certificates.run() => error.into(),
        error = registry_cas.run() => error.into(),
    }
}
