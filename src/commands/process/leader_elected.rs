//! Runs work in one process of several, the holder of a Lease. Others wait for it, and are ready.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use axum::Router;
use controllers::NAMESPACE;
use kube::Client;
use kubernetes::Health;
use kubernetes::client;
use kubernetes::leader::LeaderElector;

use super::service_manager::{Report, feed_watchdog};
use super::signals::StopSignals;
use super::tasks::leave_to_exit;
use crate::commands::process_name;
use crate::commands::server::administrators::{self, AdministratorsAddress};

/// A process that takes part in a leader election.
pub(in crate::commands) struct LeaderElected {
    /// Path of a kubeconfig; `None` uses the pod's service account.
    pub(in crate::commands) kubeconfig: Option<PathBuf>,
    /// Listener for metrics and readiness.
    pub(in crate::commands) administrators: AdministratorsAddress,
    /// Name of the leader's Lease.
    pub(in crate::commands) lease: &'static str,
    /// Pages other than metrics and readiness.
    pub(in crate::commands) pages: Router,
    pub(in crate::commands) health: Health,
}

impl LeaderElected {
    /// Runs `work` while the Lease is held, until a signal. `work` gets the name of this process, and returns the error
    /// that ended it.
    pub(in crate::commands) fn run(
        self,
        work: impl AsyncFnOnce(Client, String) -> anyhow::Error,
    ) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let result = runtime.block_on(self.campaign(work));
        leave_to_exit(runtime);
        result
    }

    async fn campaign(
        self,
        work: impl AsyncFnOnce(Client, String) -> anyhow::Error,
    ) -> anyhow::Result<()> {
        let Self { kubeconfig, administrators, lease, pages, health } = self;
        let metrics = Arc::clone(&health.metrics);
        let connections = metrics.connections.clone();
        let encode = move || metrics.encode();
        let _administrators =
            administrators::listen(&administrators, encode, &health.status, connections, pages)?;
        let client = client::connect(kubeconfig).await?;
        let identity = process_name('_');
        let candidate =
            LeaderElector::new(client.clone(), NAMESPACE, lease, identity.clone(), health.clone());
        let mut stop = StopSignals::listen()?;
        // A candidate is ready, too: the leader of another machine may work for years.
        Report::Ready.send();
        let lead = async {
            let asked = candidate.acquire().await;
            tracing::info!(identity, "became the leader");
            health.metrics.leading.set(1);
            tokio::select! {
                error = work(client, identity.clone()) => error,
                () = candidate.hold(asked) => anyhow!("lost the Lease, another replica may be the leader \
                    now: exiting to start again as a candidate"),
            }
        };
        let result = tokio::select! {
            () = stop.received() => Ok(()),
            error = lead => Err(error),
            () = feed_watchdog() => Ok(()),
        };
        Report::Stopping.send();
        health.metrics.leading.set(0);
        result?;
        tracing::info!("shutting down");
        candidate.release().await.context("cannot release the Lease")
    }
}
