//! `node-ca`: the registries' certificate authorities of a running node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::administrators;
use super::signals::StopSignals;
use super::tasks::Tasks;
use crate::kube_client;
use crate::node_ca::{self, Health, Layout, Reconciler};
use crate::source::cluster::RegistryCaMap;

/// What is to be kept.
pub struct NodeCaSettings {
    /// How to reach the API server; `None` for the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The container runtime whose files are kept.
    pub layout: Layout,
    /// Where they are; `None` for where the runtime looks for them.
    pub folder: Option<PathBuf>,
    /// How often files are read that do not seem to have changed.
    pub resync: Duration,
    /// Where metrics and readiness are served, if anywhere.
    pub metrics_address: Option<SocketAddr>,
}

/// Keeps a node's files until SIGTERM or SIGINT.
pub fn run(settings: NodeCaSettings) -> anyhow::Result<()> {
    let NodeCaSettings { kubeconfig, layout, folder, resync, metrics_address } = settings;
    let folder = folder.unwrap_or_else(|| layout.folder().into());
    tracing::info!(version = super::version(), folder = %folder.display(), "starting");
    // A node's memory is its workload's: one thread does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let health = Health::default();
        let metrics = Arc::clone(&health.metrics);
        let connections = metrics.connections.clone();
        let encode = move || metrics.encode();
        let _administrators =
            administrators::listen(metrics_address, encode, &health.status, connections)?;
        let map = RegistryCaMap::new(kube_client::connect(kubeconfig).await?);
        let mut tasks = Tasks::default();
        let reconciler = Reconciler::new(folder, layout, resync);
        tasks.spawn("what keeps the folder", node_ca::follow(reconciler, map, health));
        tokio::select! {
            () = signals.received() => Ok(()),
            error = tasks.ended() => Err(error),
        }
    })
}
