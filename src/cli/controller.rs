//! `controller`: the certificates and the user data of a cluster, kept in order.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use tokio::signal::unix::{SignalKind, signal};

use super::certs::CertificateFlags;
use super::flags::{MetricsAddress, metrics_address};
use crate::controllers::leader::Candidate;
use crate::controllers::registry_ca::RegistryCas;
use crate::controllers::{Controller, ControllerMetrics, NAMESPACE, Settings};
use crate::kube_client;
use crate::pki::Host;
use crate::server::metrics_endpoint;

/// The Lease of the active one.
const LEASE: &str = "machine-config-server-controller";

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
    /// Name or address of the server beside those that the cluster tells; without any of those, the
    /// first one goes into the pointer configs
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<Host>,
    #[command(flatten)]
    certificates: CertificateFlags,
    /// Address and port for metrics and /healthz; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8798", value_parser = metrics_address)]
    metrics_address: MetricsAddress,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    tracing::info!(version = crate::app::version(), "starting");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(control(args));
    runtime.shutdown_background();
    result
}

async fn control(args: &Args) -> anyhow::Result<()> {
    let metrics = Arc::new(ControllerMetrics::default());
    if let Some(address) = args.metrics_address.0 {
        let listener = metrics_endpoint::bind(address)
            .await
            .with_context(|| format!("--metrics-address {address}"))?;
        let metrics = Arc::clone(&metrics);
        tokio::spawn(metrics_endpoint::serve(listener, move || metrics.encode().ok()));
    }
    let client = kube_client::connect(args.kubeconfig.clone()).await?;
    let identity = identity();
    let candidate = Candidate::new(client.clone(), NAMESPACE, LEASE, identity.clone());
    let settings = Settings {
        user_data_namespace: args.user_data_namespace.clone(),
        hosts: args.hosts.clone(),
        policy: args.certificates.policy(),
        identity: identity.clone(),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        lost = async {
            candidate.acquire().await;
            tracing::info!(identity, "active");
            metrics.leading.set(1);
            let registry_cas = RegistryCas::new(client.clone(), &identity, Arc::clone(&metrics));
            let controller = Controller::new(client, settings, Arc::clone(&metrics));
            tokio::select! {
                () = controller.run() => "the controller ended unexpectedly",
                () = registry_cas.run() => "the merging of registry CAs ended unexpectedly",
                () = candidate.keep() => "the Lease was lost: another one may be active",
            }
        } => Err(lost),
    };
    metrics.leading.set(0);
    match result {
        Ok(()) => {
            tracing::info!("stopping");
            candidate.release().await.context("giving back the Lease")
        }
        Err(reason) => bail!("{reason}"),
    }
}

/// A name that no other process has.
fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let started = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    format!("{}_{}_{started}", host.unwrap_or_default(), std::process::id())
}
