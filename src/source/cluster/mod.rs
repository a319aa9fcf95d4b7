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

mod cache;
mod configs;
mod connectivity;
mod kind;
mod kubeconfig;
mod registry_cas;
mod token;
mod view;
mod watching;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kube::{Api, Client};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::cache::{Cache, Snapshot};
use self::connectivity::{Connectivity, Transition};
use self::kind::{Kind, Raw};
use self::token::TokenState;
use self::view::ClusterView;
use self::watching::{Change, Failure, Item};
use crate::conditions::Conditions;
use crate::inputs::Inputs;
use crate::kube_client::{self, ConnectError, reason};
use crate::telemetry::Metrics;

pub use self::registry_cas::follow_registry_cas;
pub use self::token::FollowToken;

/// Reports come in bursts; publishing waits for this much quiet,
const QUIET: Duration = Duration::from_millis(10);
/// but no longer than this.
const BURST: Duration = Duration::from_millis(50);
/// Machine configs that are fetched at a time.
const FETCHES: usize = 8;
/// The waits after a fetch that failed, doubled from the one to the other.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The least time from one write of the cache to the next.
const CACHE_PAUSE: Duration = Duration::from_secs(1);

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
}

/// A way to a cluster.
pub struct Cluster {
    client: Client,
    apiserver_url: String,
    token: watch::Receiver<TokenState>,
    cache: Option<Cache>,
}

/// What the source tells beside the inputs.
#[derive(Debug)]
pub struct Surroundings {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is out of step, with the reason.
    pub degraded: Conditions,
}

enum Report {
    Change(Kind, Change),
    Failed(Kind, Failure),
    /// A machine config was fetched; `None` where there is none of this name.
    Fetched(String, Option<Item>),
    FetchFailed(String, String),
    Connectivity(Result<(), String>),
}

impl Cluster {
    /// Prepares a client, and reads the token; nothing is asked of the API server yet. Call it
    /// within a runtime.
    pub async fn connect(settings: Settings) -> Result<(Self, FollowToken), ConnectError> {
        let client = kube_client::connect(settings.kubeconfig).await?;
        let (state, token) = watch::channel(TokenState::default());
        let cluster = Self {
            client,
            apiserver_url: settings.apiserver_url,
            token,
            cache: settings.cache_dir.map(Cache::new),
        };
        let token = FollowToken { directory: settings.token_dir, state };
        token.look();
        Ok((cluster, token))
    }

    /// Publishes the inputs, and each change of them, for ever. `publish` may block.
    pub async fn follow(self, publish: impl FnMut(&Inputs) + Send, surroundings: Surroundings) {
        let (sender, mut reports) = mpsc::channel(256);
        let mut session = Session {
            client: self.client,
            apiserver_url: self.apiserver_url,
            sender,
            view: ClusterView::default(),
            token: TokenState::default(),
            connectivity: Connectivity::new(SystemTime::now()),
            fetches: HashMap::new(),
            fetching: Arc::new(Semaphore::new(FETCHES)),
            watches: JoinSet::new(),
            failing: BTreeSet::new(),
            absent: BTreeSet::new(),
            cache: None,
            surroundings,
            publish,
        };
        if let Some(cache) = self.cache {
            session.restore(cache);
        }
        session.start_watches();
        let asking = connectivity::ask(session.client.clone(), session.sender.clone());
        let _asking = AbortOnDropHandle::new(tokio::spawn(asking));
        let mut token = self.token;
        session.take_token(token.borrow_and_update().clone());
        session.publish();

        loop {
            tokio::select! {
                Some(report) = reports.recv() => session.take(report),
                Ok(()) = token.changed() => session.take_token(token.borrow_and_update().clone()),
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
            session.publish();
        }
    }
}

struct Session<P> {
    client: Client,
    apiserver_url: String,
    sender: mpsc::Sender<Report>,
    view: ClusterView,
    token: TokenState,
    connectivity: Connectivity,
    fetches: HashMap<String, AbortOnDropHandle<()>>,
    fetching: Arc<Semaphore>,
    watches: JoinSet<()>,
    failing: BTreeSet<Kind>,
    /// Kinds that the API server does not have, and need not have.
    absent: BTreeSet<Kind>,
    cache: Option<watch::Sender<Snapshot>>,
    surroundings: Surroundings,
    publish: P,
}

impl<P: FnMut(&Inputs) + Send> Session<P> {
    /// Starts all watches anew: each begins with a list.
    fn start_watches(&mut self) {
        self.watches.abort_all();
        self.watches = JoinSet::new();
        for kind in Kind::ALL {
            self.watches.spawn(watching::watch(kind, self.client.clone(), self.sender.clone()));
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Change(kind, change) => {
                if matches!(change, Change::ListEnds) {
                    self.in_order(kind);
                }
                self.view.apply(kind, change);
            }
            Report::Failed(kind, failure) => self.failed(kind, failure),
            Report::Fetched(name, item) => {
                self.fetches.remove(&name);
                self.view.configs.fetched(&name, item);
            }
            Report::FetchFailed(name, reason) => {
                self.surroundings.metrics.watch_failed(Kind::MachineConfig.name());
                tracing::warn!(machine_config = name, reason, "cannot be fetched; trying again");
            }
            Report::Connectivity(answer) => self.take_answer(answer),
        }
    }

    fn take_token(&mut self, token: TokenState) {
        if let Some(problem) = &token.problem {
            tracing::error!(reason = problem, "the bootstrap token cannot be read");
        } else {
            tracing::info!("bootstrap token read");
        }
        self.surroundings.degraded.set("bootstrap token", token.problem.clone());
        self.token = token;
    }

    fn take_answer(&mut self, answer: Result<(), String>) {
        let Surroundings { metrics, degraded } = &self.surroundings;
        let news = match &answer {
            Ok(()) => self.connectivity.answered(SystemTime::now()),
            Err(_) => self.connectivity.failed(),
        };
        match (news, answer) {
            (Some(Transition::Lost(since)), Err(reason)) => {
                let time = OffsetDateTime::from(since).format(&Rfc3339).unwrap_or_default();
                let text = format!("away since {time} ({reason}); what was read last is served");
                degraded.set("API server", Some(text));
                metrics.stale_since(Some(since));
                tracing::error!(since = time, reason, "the API server is away");
            }
            (Some(Transition::Restored), _) => {
                degraded.set("API server", None);
                metrics.stale_since(None);
                tracing::info!("the API server is back");
                // Some watches may be waiting for their next try, others may hang.
                self.start_watches();
            }
            _ => {}
        }
    }

    fn failed(&mut self, kind: Kind, failure: Failure) {
        let Failure { reason, is_absent } = failure;
        if is_absent && kind.may_be_absent() {
            if self.failing.remove(&kind) {
                self.surroundings.degraded.set(kind.name(), None);
            }
            if self.absent.insert(kind) {
                tracing::info!(kind = kind.name(), "the API server does not have this kind");
            }
            self.view.absent(kind);
            return;
        }
        self.surroundings.metrics.watch_failed(kind.name());
        if self.failing.insert(kind) {
            tracing::error!(kind = kind.name(), reason, "cannot be watched; trying again");
        }
        self.surroundings.degraded.set(kind.name(), Some(format!("cannot be watched: {reason}")));
    }

    fn in_order(&mut self, kind: Kind) {
        if self.absent.remove(&kind) {
            tracing::info!(kind = kind.name(), "the API server has this kind now");
        }
        if self.failing.remove(&kind) {
            tracing::info!(kind = kind.name(), "watched again");
            self.surroundings.degraded.set(kind.name(), None);
        }
    }

    /// Sends for the machine configs that are needed, and calls back what is not any more.
    fn fetch(&mut self) {
        let configs = &mut self.view.configs;
        self.fetches.retain(|name, _| configs.is_wanted(name));
        for name in configs.take_needed() {
            let api = Kind::MachineConfig.api::<Raw>(&self.client);
            let work = fetch(name.clone(), api, Arc::clone(&self.fetching), self.sender.clone());
            self.fetches.insert(name, AbortOnDropHandle::new(tokio::spawn(work)));
        }
    }

    fn publish(&mut self) {
        let kubeconfig = self.kubeconfig();
        let Some(inputs) = self.view.inputs(kubeconfig.as_ref()) else {
            let missing = self.view.missing().join(", ");
            self.surroundings.degraded.set("cluster", Some(format!("not read yet: {missing}")));
            return;
        };
        self.surroundings.degraded.set("cluster", None);
        tokio::task::block_in_place(|| (self.publish)(&inputs));
        if let Some(cache) = &self.cache
            && self.view.missing().is_empty()
        {
            cache.send_replace(self.view.snapshot());
        }
    }

    fn kubeconfig(&self) -> Option<Bytes> {
        let token = self.token.last_good.as_ref()?;
        let authorities = self.view.authorities().or(token.authorities.as_deref())?;
        Some(kubeconfig::bootstrap_kubeconfig(&self.apiserver_url, authorities, &token.token))
    }

    /// Takes in what an earlier server kept, and starts to keep what this one sees.
    fn restore(&mut self, cache: Cache) {
        match cache.load() {
            Ok(Some(snapshot)) => {
                tracing::info!(
                    machine_configs = snapshot.machine_configs.len(),
                    "serving what was cached until the cluster is read"
                );
                self.view.restore(snapshot);
            }
            Ok(None) => {}
            Err(error) => {
                self.surroundings.metrics.cache_failures.inc();
                tracing::error!(%error, "the cache cannot be used; going on without it");
            }
        }
        let (sender, snapshots) = watch::channel(Snapshot::default());
        let metrics = Arc::clone(&self.surroundings.metrics);
        let degraded = self.surroundings.degraded.clone();
        tokio::spawn(keep(cache, snapshots, metrics, degraded));
        self.cache = Some(sender);
    }
}

/// Fetches a machine config, however often it takes.
async fn fetch(name: String, api: Api<Raw>, places: Arc<Semaphore>, reports: mpsc::Sender<Report>) {
    let mut wait = FIRST_WAIT;
    loop {
        let result = {
            // The semaphore is never closed.
            let _place = places.acquire().await;
            api.get_opt(&name).await
        };
        match result {
            Ok(found) => {
                let item = found.map(Item::from);
                // Nobody receives any more when the server ends.
                let _ = reports.send(Report::Fetched(name, item)).await;
                return;
            }
            Err(error) => {
                if wait == FIRST_WAIT {
                    let failed = Report::FetchFailed(name.clone(), reason(&error));
                    let _ = reports.send(failed).await;
                }
                tokio::time::sleep(wait).await;
                wait = LONGEST_WAIT.min(wait * 2);
            }
        }
    }
}

/// Writes the newest snapshot to the cache, again and again.
async fn keep(
    mut cache: Cache,
    mut snapshots: watch::Receiver<Snapshot>,
    metrics: Arc<Metrics>,
    degraded: Conditions,
) {
    while snapshots.changed().await.is_ok() {
        let result = tokio::task::block_in_place(|| cache.save(&snapshots.borrow_and_update()));
        let reason = result.err().map(|error| error.to_string());
        if reason.is_some() {
            metrics.cache_failures.inc();
        }
        if degraded.set("cache", reason.clone())
            && let Some(reason) = reason
        {
            tracing::error!(reason, "the cache cannot be written");
        }
        tokio::time::sleep(CACHE_PAUSE).await;
    }
}
