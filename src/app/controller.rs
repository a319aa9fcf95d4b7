//! The controllers of a cluster, of which one process is active.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use kube::Client;

use super::administrators;
use super::signals::StopSignals;
use crate::controllers::certificates::{self, CertificateController};
use crate::controllers::leader::Candidate;
use crate::controllers::registry_ca::RegistryCaController;
use crate::controllers::{Health, NAMESPACE};
use crate::kube_client;

/// The Lease of the active one.
const LEASE: &str = "machine-config-server-controller";

/// What the controllers are given.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A kubeconfig; without one, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and readiness are served, if anywhere.
    pub metrics_address: Option<SocketAddr>,
    /// What the certificates' controller is given.
    pub certificates: certificates::Settings,
}

/// Keeps a cluster in order until a signal ends it.
pub fn run(settings: Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(control(settings));
    runtime.shutdown_background();
    result
}

async fn control(settings: Settings) -> anyhow::Result<()> {
    let Settings { kubeconfig, metrics_address, certificates } = settings;
    let health = Health::default();
    let metrics = Arc::clone(&health.metrics);
    let connections = metrics.connections.clone();
    let encode = move || metrics.encode();
    let _administrators =
        administrators::listen(metrics_address, encode, &health.status, connections)?;
    let client = kube_client::connect(kubeconfig).await?;
    let identity = identity();
    let candidate =
        Candidate::new(client.clone(), NAMESPACE, LEASE, identity.clone(), health.clone());
    let mut stop = StopSignals::listen()?;
    let result = tokio::select! {
        () = stop.received() => Ok(()),
        error = lead(client, certificates, &candidate, &identity, &health) => Err(error),
    };
    health.metrics.leading.set(0);
    result?;
    tracing::info!("stopping");
    candidate.release().await.context("giving back the Lease")
}

/// Waits for the Lease, and keeps everything in order while it is held. What it returns is why it
/// could not.
async fn lead(
    client: Client,
    certificates: certificates::Settings,
    candidate: &Candidate,
    identity: &str,
    health: &Health,
) -> anyhow::Error {
    candidate.acquire().await;
    tracing::info!(identity, "active");
    health.metrics.leading.set(1);
    let registry_cas = RegistryCaController::new(client.clone(), identity, health.clone());
    let certificates = CertificateController::new(client, certificates, identity, health.clone());
    tokio::select! {
        error = certificates.run() => error.into(),
        error = registry_cas.run() => error.into(),
        () = candidate.keep() => anyhow!("the Lease was lost: another one may be active"),
    }
}

/// A name that no other process has.
fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let started = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    format!("{}_{}_{started}", host.unwrap_or_default(), std::process::id())
}
