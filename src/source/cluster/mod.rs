//! Inputs from a cluster.
//!
//! ```text
//!  watches ──────┐                         ┌─> inputs ──> publish
//!  fetches ──────┼─> reports ─> ClusterView┤
//!  connectivity ─┤   (values)     (pure)   └─> snapshot ─> cache
//!  token files ──┘
//! ```
//!
//! Tasks do the I/O and send reports; one loop applies them, and publishes when they pause. While the API server is
//! unavailable, the last inputs stay in use.

mod access;
mod cache;
mod configs;
mod connectivity;
mod failure_events;
mod kind;
mod kubeconfig;
mod live;
mod machine_records;
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
use model::ledger::{FailureReport, NodeIndex};
use model::objects::SecretName;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::cluster::cache::Cache;
use super::cluster::session::Session;
use super::cluster::token::TokenFiles;
use crate::kubernetes::client::{self, ConnectError};
use crate::telemetry::Reporting;

pub use super::cluster::machine_records::{MachineRecords, RecordError};
pub use super::cluster::registry_cas::{MapSeen, RegistryCaMap};
pub use super::cluster::report::LiveRequest;
pub use super::cluster::secrets::NamedSecret;

/// Quiet time before a publication, because reports come in bursts.
const QUIET: Duration = Duration::from_millis(10);
/// Maximum wait for quiet.
const BURST: Duration = Duration::from_millis(50);

/// Settings of a cluster source.
#[derive(Debug)]
pub struct Settings {
    /// Path of a kubeconfig; `None` for the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server for new machines.
    pub apiserver_url: String,
    /// Directory with the bootstrap `token` and `ca.crt`.
    pub token_dir: PathBuf,
    /// Directory of the cache, if there is one.
    pub cache_dir: Option<PathBuf>,
    /// Secret with the registry credentials for machines of all enforced pools; `None` reads no Secret.
    pub registry_credentials: Option<SecretName>,
    /// True if machines with names are served.
    pub machines: bool,
}

/// A connection to a cluster.
pub struct Cluster {
    client: Client,
    kubeconfig: Option<PathBuf>,
    apiserver_url: String,
    token: TokenFiles,
    cache: Option<Cache>,
    registry_credentials: Option<SecretName>,
    live_requests: Option<mpsc::Receiver<LiveRequest>>,
    machines: bool,
}

impl Cluster {
    /// Creates a client, and reads the token. It sends no request. Must be called within a runtime.
    pub async fn connect(settings: Settings) -> Result<Self, ConnectError> {
        Ok(Self {
            client: client::connect(settings.kubeconfig.clone()).await?,
            kubeconfig: settings.kubeconfig,
            apiserver_url: settings.apiserver_url,
            token: TokenFiles::open(settings.token_dir),
            cache: settings.cache_dir.map(Cache::new),
            registry_credentials: settings.registry_credentials,
            live_requests: None,
            machines: settings.machines,
        })
    }

    /// Reads the pools at each of these requests.
    pub(super) fn take_live_requests(&mut self, requests: mpsc::Receiver<LiveRequest>) {
        self.live_requests = Some(requests);
    }

    /// Keeps `roster` up to date with the cluster's nodes, forever.
    pub fn follow_nodes(
        &self,
        nodes: NodeIndex,
        reporting: Reporting,
    ) -> impl Future<Output = ()> + Send + use<> {
        nodes::follow(self.client.clone(), nodes, reporting)
    }

    /// Publishes reports of failed first boots as Events, until the sender is gone. `identity` is the name of this process.
    pub fn publish_failures(
        &self,
        identity: String,
        reports: mpsc::Receiver<FailureReport>,
    ) -> impl Future<Output = ()> + Send + use<> {
        failure_events::publish(self.client.clone(), identity, reports)
    }

    /// The records of uses of machines' tokens, if machines with names are served. `identity` is the name of this process.
    #[must_use]
    pub fn machine_records(&self, identity: &str) -> Option<MachineRecords> {
        self.machines.then(|| MachineRecords::new(self.client.clone(), identity))
    }

    /// Follows one Secret.
    #[must_use]
    pub fn secret(&self, name: SecretName) -> NamedSecret {
        NamedSecret::new(self.client.clone(), name)
    }

    /// Sends the records of tokens, forever. With `are_known`, a missing Secret is a lost one.
    pub fn follow_tokens(
        &self,
        are_known: bool,
        records: watch::Sender<Option<Records>>,
        reporting: Reporting,
    ) -> impl Future<Output = ()> + Send + use<> {
        access::follow(self.client.clone(), are_known, records, reporting)
    }

    /// Sends the inputs after each change, forever.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let Self { client, kubeconfig, apiserver_url, mut token, cache, machines, .. } = self;
        // Without a sender nothing comes.
        let mut live_requests = self.live_requests.unwrap_or_else(|| mpsc::channel(1).1);
        let (sender, mut reports) = mpsc::channel(256);
        let asking = connectivity::ask(client.clone(), sender.clone());
        let _asking = AbortOnDropHandle::new(tokio::spawn(asking));
        let mut session = Session::new(client, apiserver_url, sender, reporting, inputs)
            .with_registry_credentials(self.registry_credentials)
            .with_kubeconfig(kubeconfig)
            .with_machines(machines);
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
                Some(request) = live_requests.recv() => session.read_live(request),
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
