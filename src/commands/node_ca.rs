//! `node-ca`: the registries' certificate authorities of a running node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use model::objects::SecretName;

use super::administrators::{self, AdministratorsAddress};
use super::signals::StopSignals;
use super::tasks::Tasks;
use crate::kubernetes::client;
use crate::node_agent::{self, Health, Layout, LoginKeeper, Reconciler};
use crate::source::cluster::{NamedSecret, RegistryCaMap};

/// What is to be kept.
pub struct NodeCaSettings {
    /// How to reach the API server; `None` for the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The container runtime whose files are kept.
    pub layout: Layout,
    /// Where they are; `None` for where the runtime looks for them.
    pub directory: Option<PathBuf>,
    /// How often files are read that do not seem to have changed.
    pub resync: Duration,
    /// Where metrics and readiness are served, if anywhere.
    pub administrators: AdministratorsAddress,
    /// The secret whose registry logins are kept, and the file that has them; `None` where none are.
    pub registry_credentials: Option<(SecretName, PathBuf)>,
}

/// Keeps a node's files until SIGTERM or SIGINT.
pub fn run(settings: NodeCaSettings) -> anyhow::Result<()> {
    let NodeCaSettings {
        kubeconfig,
        layout,
        directory,
        resync,
        administrators,
        registry_credentials,
    } = settings;
    let directory = directory.unwrap_or_else(|| layout.directory().into());
    tracing::info!(version = super::version(), folder = %directory.display(), "starting");
    // A node's memory is its workload's: one thread does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let health = Health::default();
        let metrics = Arc::clone(&health.metrics);
        let connections = metrics.connections.clone();
        let encode = move || metrics.encode();
        let _administrators = administrators::listen(
            &administrators,
            encode,
            &health.status,
            connections,
            Router::new(),
        )?;
        let client = client::connect(kubeconfig).await?;
        let map = RegistryCaMap::new(&client);
        let mut tasks = Tasks::default();
        if let Some((secret, path)) = registry_credentials {
            let keeper = LoginKeeper::new(&path, resync)
                .with_context(|| format!("--registry-auth-file {}: no file", path.display()))?;
            let secret = NamedSecret::new(client, secret);
            let follow = node_agent::follow_logins(keeper, secret, health.clone());
            tasks.spawn("what keeps the registry logins", follow);
        }
        let reconciler = Reconciler::new(directory, layout, resync);
        tasks.spawn("what keeps the folder", node_agent::follow(reconciler, map, health));
        tokio::select! {
            () = signals.received() => Ok(()),
            error = tasks.ended() => Err(error),
        }
    })
}
