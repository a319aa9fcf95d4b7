//! Inputs from a cluster.
//!
//! ```text
//!  watches ──────┐                         ┌─> inputs ──> publish
//!  fetches ──────┼─> reports ─> ClusterView┤
//!  connectivity ─┤   (values)     (pure)   └─> snapshot ─> cache
//!  token files ──┘
//! ```
//!
//! Tasks do the I/O and report what they see; one loop takes the reports in, and publishes when
//! they pause. While the API server is away, what was seen last goes on being served.

mod access;
mod cache;
mod configs;
mod connectivity;
mod kind;
mod kubeconfig;
mod nodes;
mod registry_cas;
mod report;
mod secrets;
mod session;
mod token;
mod view;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use model::access::Records;
use model::inputs::Inputs;
use model::ledger::NodeIndex;
use model::objects::SecretName;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::cluster::cache::Cache;
use super::cluster::session::Session;
use super::cluster::token::TokenFiles;
use crate::kubernetes::client::{self, ConnectError};
use crate::telemetry::Reporting;

pub use super::cluster::registry_cas::{MapSeen, RegistryCaMap};
pub use super::cluster::secrets::NamedSecret;

/// Reports come in bursts; publishing waits for this much quiet,
const QUIET: Duration = Duration::from_millis(10);
/// but no longer than this.
const BURST: Duration = Duration::from_millis(50);

/// Where the cluster is, and what the server itself brings.
#[derive(Debug)]
pub struct Settings {
    /// How to reach the API server; `None` for the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The API server as new machines reach it.
    pub apiserver_url: String,
    /// Files `token` and `ca.crt`.
    pub token_dir: PathBuf,
    /// Where the inputs are kept on disk, if anywhere.
    pub cache_dir: Option<PathBuf>,
    /// The secret with the registry logins for machines of all enforced pools; `None` where nobody
    /// gets any, and no secret is read.
    pub registry_credentials: Option<SecretName>,
}

/// A way to a cluster.
pub struct Cluster {
    client: Client,
    apiserver_url: String,
    token: TokenFiles,
    cache: Option<Cache>,
    registry_credentials: Option<SecretName>,
}

impl Cluster {
    /// Prepares a client, and reads the token; nothing is asked of the API server yet. Call it
    /// within a runtime.
    pub async fn connect(settings: Settings) -> Result<Self, ConnectError> {
        Ok(Self {
            client: client::connect(settings.kubeconfig).await?,
            apiserver_url: settings.apiserver_url,
            token: TokenFiles::open(settings.token_dir),
            cache: settings.cache_dir.map(Cache::new),
            registry_credentials: settings.registry_credentials,
        })
    }

    /// Keeps `roster` in step with the cluster's nodes, for ever.
    pub fn follow_nodes(
        &self,
        nodes: NodeIndex,
        reporting: Reporting,
    ) -> impl Future<Output = ()> + Send + use<> {
        nodes::follow(self.client.clone(), nodes, reporting)
    }

    /// Follows one secret.
    #[must_use]
    pub fn secret(&self, name: SecretName) -> NamedSecret {
        NamedSecret::new(self.client.clone(), name)
    }

    /// Sends what the controller tells servers of tokens, for ever. With `are_known` a secret that is not
    /// there is one that was lost.
    pub fn follow_tokens(
        &self,
        are_known: bool,
        records: watch::Sender<Option<Records>>,
        reporting: Reporting,
    ) -> impl Future<Output = ()> + Send + use<> {
        access::follow(self.client.clone(), are_known, records, reporting)
    }

    /// Sends the inputs, and each change of them, for ever.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let Self { client, apiserver_url, mut token, cache, registry_credentials } = self;
        let (sender, mut reports) = mpsc::channel(256);
        let asking = connectivity::ask(client.clone(), sender.clone());
        let _asking = AbortOnDropHandle::new(tokio::spawn(asking));
        let mut session = Session::new(client, apiserver_url, sender, reporting, inputs)
            .with_registry_credentials(registry_credentials);
        if let Some(cache) = cache {
            session.restore(cache);
        }
        session.start_watches();
        session.take_token(token.state().clone());
        session.publish();

        loop {
            tokio::select! {
                Some(report) = reports.recv() => session.take(report),
                () = token.changed() => session.take_token(token.state().clone()),
            }
            let burst = Instant::now() + BURST;
            loop {
                let pause = burst.min(Instant::now() + QUIET);
                match tokio::time::timeout_at(pause, reports.recv()).await {
                    Ok(Some(report)) => session.take(report),
                    Ok(None) | Err(_) => break,
                }
            }
            session.fetch();
            session.watch_secrets();
            session.publish();
        }
    }
}
