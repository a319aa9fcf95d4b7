//! The command `node-ca`: keeps the registry CAs of a running node up to date.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use clap::Args;
use common::flags::duration;
use kubernetes::client;
use kubernetes::seen::ObjectSeen;
use model::objects::{ConfigMap, Secret, SecretName};
use model::registry_credentials::{self, DEFAULT_SECRET};
use node_agent::{Health, Layout, Reconciler, WatchedObject};

use super::process::service_manager::{Report, feed_watchdog};
use super::process::signals::StopSignals;
use super::process::tasks::Tasks;
use super::server::administrators::{self, AdministratorsAddress};
use crate::source::cluster::{NamedSecret, RegistryCaMap};

#[derive(Debug, Args)]
#[command(mut_arg("metrics_address", |arg| arg.default_value("off")))]
pub(crate) struct NodeCaSettings {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Container runtime whose files are managed
    #[arg(long, value_enum, default_value_t = Layout::Crio)]
    layout: Layout,
    /// Directory to manage; /etc/docker/certs.d, or for containerd /etc/containerd/certs.d, by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Interval for reading files that seem unchanged: 10m, 1h 30m, a number of seconds
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    resync: Duration,
    #[command(flatten)]
    administrators: AdministratorsAddress,
    /// Keep the node's registry credentials equal to those of this Secret; openshift-config/pull-secret
    /// without a name
    #[arg(long, value_name = "NAMESPACE/NAME", num_args = 0..=1, default_missing_value = DEFAULT_SECRET)]
    registry_auth: Option<SecretName>,
    /// File with the registry credentials
    #[arg(long, value_name = "FILE", default_value = registry_credentials::PATH)]
    registry_auth_file: PathBuf,
}

impl WatchedObject<Result<ConfigMap, String>> for RegistryCaMap {
    async fn changed(&mut self) -> ObjectSeen<Result<ConfigMap, String>> {
        self.changed().await
    }
}

impl WatchedObject<Secret> for NamedSecret {
    async fn changed(&mut self) -> ObjectSeen<Secret> {
        self.changed().await
    }
}

/// Keeps a node's files up to date until SIGTERM or SIGINT.
pub(crate) fn run(settings: NodeCaSettings) -> anyhow::Result<()> {
    let NodeCaSettings { layout, resync, .. } = settings;
    let directory = settings.dir.unwrap_or_else(|| layout.directory().into());
    tracing::info!(version = super::version(), folder = %directory.display(), "starting");
    // One thread saves the node's memory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let health = Health::default();
        let metrics = Arc::clone(&health.metrics);
        let connections = metrics.connections.clone();
        let encode = move || metrics.encode();
        let _administrators = administrators::listen(
            &settings.administrators,
            encode,
            &health.status,
            connections,
            Router::new(),
        )?;
        let client = client::connect(settings.kubeconfig).await?;
        let map = RegistryCaMap::new(&client);
        let mut tasks = Tasks::default();
        if let Some(secret) = settings.registry_auth {
            let path = &settings.registry_auth_file;
            let reconciler = Reconciler::of_registry_credentials(path, resync)
                .with_context(|| format!("--registry-auth-file {}: no file", path.display()))?;
            let watched = NamedSecret::new(client, secret.clone());
            let follow =
                node_agent::follow_credentials(reconciler, secret, watched, health.clone());
            tasks.spawn("the task for registry credentials", follow);
        }
        let reconciler = Reconciler::of_registry_cas(directory, layout, resync);
        tasks.spawn("the task for the directory", node_agent::follow(reconciler, map, health));
        tasks.spawn("the task that reports to the watchdog", feed_watchdog());
        Report::Ready.send();
        tokio::select! {
            () = signals.received() => {
                Report::Stopping.send();
                Ok(())
            }
            error = tasks.ended() => Err(error),
        }
    })
}
