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

pub(crate) mod access;
mod cache;
mod configs;
mod connectivity;
pub(crate) mod failure_events;
pub(crate) mod join_requests;
mod kind;
mod kubeconfig;
mod live;
mod machine_records;
pub(crate) mod nodes;
mod registry_cas;
mod report;
mod secrets;
mod session;
mod settings;
mod token;
pub(crate) mod token_check;
mod view;
mod watching;

use std::path::Path;
use std::time::Duration;

use kube::Client;
use kubernetes::client::{self, ConnectError};
use model::inputs::Inputs;
use telemetry::Reporting;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::cluster::cache::Cache;
use super::cluster::session::Session;
use super::cluster::token::TokenFiles;
use super::cluster::token_check::TokenCheck;

pub use super::cluster::machine_records::{MachineRecords, RecordError};
pub use super::cluster::registry_cas::RegistryCaMap;
pub use super::cluster::report::LiveRequest;
pub use super::cluster::secrets::NamedSecret;
pub use super::cluster::settings::Settings;

/// Quiet time before a publication, because reports come in bursts.
const QUIET: Duration = Duration::from_millis(10);
/// Maximum wait for quiet.
const BURST: Duration = Duration::from_millis(50);

pub struct Cluster {
    client: Client,
    settings: Settings,
    token: TokenFiles,
    /// Requests to read the pools.
    pub live_requests: Option<mpsc::Receiver<LiveRequest>>,
    /// Names of pools that machines ask for before all are read.
    pub awaited_pools: Option<mpsc::Receiver<String>>,
}

impl Cluster {
    /// Creates a client, and reads the token. It sends no request. Must be called within a runtime.
    pub async fn connect(settings: Settings) -> Result<Self, ConnectError> {
        let client = client::connect(settings.kubeconfig.clone()).await?;
        let token = TokenFiles::open(settings.token_dir.clone());
        Ok(Self { client, settings, token, live_requests: None, awaited_pools: None })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The records of uses of machines' tokens, if machines with names are served. `identity` is the name of this process.
    pub fn machine_records(&self, identity: &str) -> Option<MachineRecords> {
        self.settings.machines.then(|| MachineRecords::new(self.client.clone(), identity))
    }

    /// The check whether machines can join by the bootstrap token.
    pub(crate) fn token_check(&self) -> TokenCheck {
        let Settings { kubeconfig, token_dir, .. } = self.settings.clone();
        TokenCheck { kubeconfig, token_dir }
    }

    /// Directory of what outlives the process, if there is one.
    pub fn cache_dir(&self) -> Option<&Path> {
        self.settings.cache_dir.as_deref()
    }

    /// Sends the inputs after each change, forever.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        let Self { client, settings, mut token, live_requests, awaited_pools } = self;
        // Without a sender nothing comes.
        let mut live_requests = live_requests.unwrap_or_else(|| mpsc::channel(1).1);
        let mut awaited_pools = awaited_pools.unwrap_or_else(|| mpsc::channel(1).1);
        let (sender, mut reports) = mpsc::channel(256);
        let asking = connectivity::ask(client.clone(), sender.clone());
        let _asking = AbortOnDropHandle::new(tokio::spawn(asking));
        let cache = settings.cache_dir.clone().map(Cache::new);
        let mut session = Session::new(client, settings, sender, reporting, inputs);
        if let Some(cache) = cache {
            session.restore(cache);
        }
        session.start_watches();
        session.take_token(token.state().clone());
        session.send_inputs();

        loop {
            tokio::select! {
                Some(report) = reports.recv() => session.take(report),
                () = token.changed() => session.take_token(token.state().clone()),
                Some(request) = live_requests.recv() => session.read_live(request),
                Some(pool) = awaited_pools.recv() => session.await_pool(pool),
            }
            // The MachineConfig that a pool has now comes before the burst is over.
            session.fetch();
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
            session.send_inputs();
        }
    }
}
