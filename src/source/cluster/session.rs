//! Handles reports: starts watches and fetches, updates the view, and sends inputs.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use common::backoff::Backoff;
use kube::api::ListParams;
use kube::{Api, Client};
use kubernetes::client::{found, reason};
use kubernetes::seen::{Cause, Failure, ObjectSeen};
use model::inputs::Inputs;
use model::objects::{Secret, SecretName};
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::cache::{Cache, Loaded, Snapshot};
use super::connectivity::{Connectivity, Transition};
use super::kind::{Kind, RawObject};
use super::kubeconfig;
use super::live;
use super::report::{Change, LiveList, LiveRequest, Report, WatchedObject};
use super::secrets;
use super::settings::Settings;
use super::token::BootstrapTokenState;
use super::view::ClusterView;
use crate::source::cluster::watching;

/// Maximum number of concurrent fetches of MachineConfigs.
const FETCHES: usize = 8;
/// Waits after failed fetches: they grow from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Name of Secrets in metrics of failed watches.
const SECRETS: &str = "secrets";

pub(super) struct Session {
    client: Client,
    apiserver_url: String,
    sender: mpsc::Sender<Report>,
    view: ClusterView,
    token: BootstrapTokenState,
    connectivity: Connectivity,
    fetches: HashMap<String, AbortOnDropHandle<()>>,
    fetching: Arc<Semaphore>,
    /// Places for fetches that machines wait for.
    hurrying: Arc<Semaphore>,
    watches: JoinSet<()>,
    /// Fetches of pools that machines wait for.
    pool_fetches: JoinSet<()>,
    /// Kubeconfig of the reads on request; `None` for the pod's service account.
    kubeconfig: Option<PathBuf>,
    /// The last read on request; one is under way at a time.
    live_read: Option<AbortOnDropHandle<()>>,
    /// Watches of Secrets with registry credentials.
    secrets: HashMap<SecretName, AbortOnDropHandle<()>>,
    /// Kinds that the cluster lacks, as it can.
    absent: BTreeSet<Kind>,
    cache: Option<watch::Sender<Arc<Snapshot>>>,
    reporting: Reporting,
    inputs: watch::Sender<Option<Inputs>>,
    /// True if the inputs may have changed.
    is_changed: bool,
    kinds: Vec<Kind>,
}

impl Session {
    /// Creates a session. Its tasks send reports to `sender`, for [`take`].
    ///
    /// [`take`]: Self::take
    pub(super) fn new(
        client: Client,
        settings: Settings,
        sender: mpsc::Sender<Report>,
        reporting: Reporting,
        inputs: watch::Sender<Option<Inputs>>,
    ) -> Self {
        let Settings { kubeconfig, apiserver_url, registry_credentials, machines, .. } = settings;
        let (mut view, mut kinds) = (ClusterView::new(registry_credentials), Kind::ALL.to_vec());
        if !machines {
            kinds.retain(|kind| *kind != Kind::FirstBootMachine);
            view.absent(Kind::FirstBootMachine);
        }
        Self {
            client,
            apiserver_url,
            sender,
            view,
            token: BootstrapTokenState::default(),
            connectivity: Connectivity::new(SystemTime::now()),
            fetches: HashMap::new(),
            fetching: Arc::new(Semaphore::new(FETCHES)),
            hurrying: Arc::new(Semaphore::new(FETCHES)),
            watches: JoinSet::new(),
            pool_fetches: JoinSet::new(),
            kubeconfig,
            live_read: None,
            secrets: HashMap::new(),
            absent: BTreeSet::new(),
            cache: None,
            reporting,
            inputs,
            is_changed: true,
            kinds,
        }
    }

    /// Restarts all watches, each with a list.
    pub(super) fn start_watches(&mut self) {
        self.secrets.clear();
        self.watches.abort_all();
        self.watches = JoinSet::new();
        for &kind in &self.kinds {
            self.watches.spawn(watching::watch(kind, self.client.clone(), self.sender.clone()));
        }
    }

    pub(super) fn take(&mut self, report: Report) {
        match report {
            Report::Change(kind, change) => {
                // A kind that the cluster lacks is looked up again and again, and each time a list begins.
                self.is_changed |= !matches!(change, Change::ListBegins);
                if matches!(change, Change::ListEnds) {
                    self.recovered(kind);
                }
                self.view.apply(kind, change);
            }
            Report::Failed(kind, failure) => self.failed(kind, failure),
            Report::Secret(name, seen) => self.take_secret(name, seen),
            Report::Fetched(name, item) => {
                self.is_changed = true;
                self.fetches.remove(&name);
                self.fetch_condition(&name, None);
                self.view.configs.fetched(&name, item);
            }
            // The pool may have another one meanwhile.
            Report::FetchFailed(name, _) if !self.fetches.contains_key(&name) => {}
            Report::FetchFailed(name, reason) => self.fetch_condition(&name, Some(&reason)),
            Report::PoolFetched(pool) => {
                self.is_changed = true;
                self.view.pool_fetched(pool);
            }
            Report::Connectivity(answer) => self.take_answer(answer),
            Report::Live(read, request) => self.take_live(read, request),
        }
    }

    /// Reports why a MachineConfig cannot be fetched; `None` if it can.
    fn fetch_condition(&self, name: &str, failure: Option<&str>) {
        let Reporting { metrics, status } = &self.reporting;
        let failures = failure.map(|_| metrics.watch_failures(Kind::MachineConfig.name()));
        faults::MACHINE_CONFIG_UNFETCHED
            .of(&Kind::MachineConfig.describe(name))
            .counted_by(failures.as_ref())
            .report(status, failure);
    }

    /// Reads the pool that a machine asks for ahead of the others, while not all are read.
    pub(super) fn await_pool(&mut self, name: String) {
        self.is_changed = true;
        if self.view.await_pool(&name) {
            let api = Kind::MachineConfigPool.api::<RawObject>(&self.client);
            let (places, sender) = (Arc::clone(&self.hurrying), self.sender.clone());
            self.pool_fetches.spawn(async move {
                let _place = places.acquire().await;
                // A list by name: the server has no right to get pools.
                let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
                // The list of all has the pool too: what cannot be fetched comes with that.
                if let Ok(found) = api.list(&by_name).await {
                    let pool = found.items.into_iter().next().map(WatchedObject::from);
                    let _ = sender.send(Report::PoolFetched(pool)).await;
                }
            });
        }
    }

    /// Reads the objects that choose configs.
    pub(super) fn read_live(&mut self, request: LiveRequest) {
        let work = live::read(self.kubeconfig.clone(), request, self.sender.clone());
        self.live_read = Some(AbortOnDropHandle::new(tokio::spawn(work)));
    }

    fn take_live(&mut self, read: Result<Vec<LiveList>, String>, request: LiveRequest) {
        let failure = read.as_ref().err().map(String::as_str);
        faults::LIVE_READS.report(&self.reporting.status, failure);
        let Ok(lists) = read else { return };
        self.is_changed |= self.view.read_live(lists);
        // The machine that asked may be gone.
        let _ = request.send(self.view.live_reads());
    }

    /// Applies a report about a Secret. Late reports about Secrets that are not needed are dropped.
    fn take_secret(&mut self, name: SecretName, seen: ObjectSeen<Secret>) {
        if !self.secrets.contains_key(&name) {
            return;
        }
        let secret = name.to_string();
        let metrics = &self.reporting.metrics;
        let failures = seen.is_failed().then(|| metrics.watch_failures(SECRETS));
        let unusable = self.view.credentials.seen(name, seen);
        faults::REGISTRY_CREDENTIALS
            .of(&secret)
            .counted_by(failures.as_ref())
            .report(&self.reporting.status, unusable.as_deref());
        self.is_changed = true;
    }

    /// Watches the Secrets that pools need, and no others.
    pub(super) fn watch_secrets(&mut self) {
        let wanted = self.view.wanted_secrets();
        let status = &self.reporting.status;
        self.secrets.retain(|name, _| {
            let is_wanted = wanted.contains(name);
            if !is_wanted {
                faults::REGISTRY_CREDENTIALS.of(&name.to_string()).clear(status);
            }
            is_wanted
        });
        for name in wanted {
            let (client, sender) = (self.client.clone(), self.sender.clone());
            self.secrets.entry(name).or_insert_with_key(|name| {
                let work = secrets::watch(name.clone(), client, sender);
                AbortOnDropHandle::new(tokio::spawn(work))
            });
        }
    }

    /// Applies the bootstrap token, or its problem.
    pub(super) fn take_token(&mut self, token: BootstrapTokenState) {
        self.is_changed = true;
        if token.problem.is_none() {
            tracing::info!("read the bootstrap token");
        }
        faults::BOOTSTRAP_TOKEN.report(&self.reporting.status, token.problem.as_deref());
        self.token = token;
    }

    fn take_answer(&mut self, answer: Result<(), String>) {
        let Reporting { metrics, status } = &self.reporting;
        let news = match &answer {
            Ok(()) => self.connectivity.answered(SystemTime::now()),
            Err(_) => self.connectivity.failed(),
        };
        match (news, answer) {
            (Some(Transition::Lost(since)), Err(reason)) => {
                let time = OffsetDateTime::from(since).format(&Rfc3339).unwrap_or_default();
                let reason = format!("since {time} ({reason}); serving what was read last");
                metrics.stale_since(Some(since));
                faults::API_SERVER_LOST.report(status, Some(&reason));
            }
            (Some(Transition::Restored), _) => {
                metrics.stale_since(None);
                faults::API_SERVER_LOST.report(status, None);
                // Some watches may wait for a retry, others may hang.
                self.start_watches();
            }
            _ => {}
        }
    }

    fn failed(&mut self, kind: Kind, failure: Failure) {
        let fix = failure.fix();
        let Failure { reason, cause } = failure;
        if cause == Cause::NoSuchKind && kind.may_be_absent() {
            faults::KIND_UNWATCHED.of(kind.name()).clear(&self.reporting.status);
            if self.absent.insert(kind) {
                tracing::info!(kind = kind.name(), "the API server does not have this kind");
            }
            // The kind is looked up periodically, mostly without a change.
            self.is_changed |= self.view.absent(kind);
            return;
        }
        faults::KIND_UNWATCHED
            .of(kind.name())
            .with_fix(fix)
            .counted_by(&self.reporting.metrics.watch_failures(kind.name()))
            .report(&self.reporting.status, Some(&reason));
    }

    fn recovered(&mut self, kind: Kind) {
        if self.absent.remove(&kind) {
            tracing::info!(kind = kind.name(), "the API server has this kind now");
        }
        faults::KIND_UNWATCHED.of(kind.name()).report(&self.reporting.status, None);
    }

    /// Starts the needed fetches of MachineConfigs, and cancels others.
    pub(super) fn fetch(&mut self) {
        let needed = self.view.needed_configs();
        let configs = &self.view.configs;
        let status = &self.reporting.status;
        self.fetches.retain(|name, _| {
            let is_wanted = configs.is_wanted(name);
            if !is_wanted {
                let name = Kind::MachineConfig.describe(name);
                faults::MACHINE_CONFIG_UNFETCHED.of(&name).clear(status);
            }
            is_wanted
        });
        let needed = needed.into_iter().map(|name| (name, &self.fetching));
        // One that waits for its place is begun again.
        let hurried = self.view.hurried_configs().into_iter().map(|name| (name, &self.hurrying));
        for (name, places) in needed.chain(hurried) {
            let api = Kind::MachineConfig.api::<RawObject>(&self.client);
            let work = fetch(name.clone(), api, Arc::clone(places), self.sender.clone());
            self.fetches.insert(name, AbortOnDropHandle::new(tokio::spawn(work)));
        }
    }

    /// Sends the inputs to the pipeline and to the cache, if they may have changed.
    pub(super) fn send_inputs(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let kubeconfig = self.kubeconfig();
        let Some(inputs) = self.view.inputs(kubeconfig.as_ref()) else {
            let missing = self.view.missing().join(", ");
            faults::CLUSTER_UNREAD.report(&self.reporting.status, Some(&missing));
            return;
        };
        faults::CLUSTER_UNREAD.clear(&self.reporting.status);
        self.inputs.send_replace(Some(inputs));
        if let Some(cache) = &self.cache
            && self.view.missing().is_empty()
        {
            cache.send_replace(Arc::new(self.view.snapshot()));
        }
    }

    fn kubeconfig(&self) -> Option<Bytes> {
        let token = self.token.last_good.as_ref()?;
        let cas = self.view.cas().or(token.cas.as_deref())?;
        Some(kubeconfig::bootstrap_kubeconfig(&self.apiserver_url, cas, &token.token))
    }

    /// Restores an earlier server's inputs, and starts caching.
    pub(super) fn restore(&mut self, mut cache: Cache) {
        match cache.load() {
            Ok(Some(Loaded { mut snapshot, unread })) => {
                for error in unread {
                    self.reporting.metrics.cache_failures.inc();
                    tracing::error!(
                        %error,
                        fix = "make the file readable, or remove it; its pools wait for the API server",
                        "cannot read a cached MachineConfig, using the others"
                    );
                }
                snapshot.objects.retain(|kind, _| self.kinds.contains(kind));
                tracing::info!(
                    machine_configs = snapshot.machine_configs.len(),
                    "serving from the cache until the cluster is read"
                );
                self.view.restore(snapshot);
            }
            Ok(None) => {}
            Err(error) => {
                self.reporting.metrics.cache_failures.inc();
                tracing::error!(
                    %error,
                    fix = "empty the directory of --cache-dir, or make it readable",
                    "cannot use the cache, continuing without it"
                );
            }
        }
        let (sender, snapshots) = watch::channel(Arc::<Snapshot>::default());
        tokio::spawn(cache.flush(snapshots, self.reporting.clone()));
        self.cache = Some(sender);
    }
}

/// Fetches a MachineConfig, with retries.
async fn fetch(
    name: String,
    api: Api<RawObject>,
    places: Arc<Semaphore>,
    reports: mpsc::Sender<Report>,
) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut is_first = true;
    loop {
        let result = {
            // The semaphore is never closed.
            let _place = places.acquire().await;
            found(api.get(&name).await)
        };
        match result {
            Ok(found) => {
                let item = found.map(WatchedObject::from);
                // The receiver is gone when the server ends.
                let _ = reports.send(Report::Fetched(name, item)).await;
                return;
            }
            Err(error) => {
                if std::mem::take(&mut is_first) {
                    let failed = Report::FetchFailed(name.clone(), reason(&error));
                    let _ = reports.send(failed).await;
                }
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::conditions::Status;

    use super::*;

    /// A session that sends no request, and its inputs.
    fn session() -> (Session, watch::Receiver<Option<Inputs>>) {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:9"));
        let client = Client::try_from(config).unwrap();
        let (sender, _reports) = mpsc::channel(1);
        let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
        let (inputs, published) = watch::channel(None);
        let settings = Settings { machines: true, ..Settings::default() };
        (Session::new(client, settings, sender, reporting, inputs), published)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn inputs_are_published_when_something_was_seen_and_not_because_the_api_server_answers() {
        let (mut session, mut published) = session();
        let mut is_published = |session: &mut Session| {
            session.send_inputs();
            published.has_changed().unwrap() && published.borrow_and_update().is_some()
        };
        assert!(!is_published(&mut session), "nothing was read yet");
        for &kind in Kind::ALL {
            session.take(Report::Change(kind, Change::ListBegins));
            session.take(Report::Change(kind, Change::ListEnds));
        }
        assert!(is_published(&mut session), "all was read");
        for _ in 0..3 {
            session.take(Report::Connectivity(Ok(())));
            assert!(!is_published(&mut session), "the API server answers");
        }
        for _ in 0..3 {
            let reason = "404 page not found".to_owned();
            let failure = Failure { reason, cause: Cause::NoSuchKind };
            session.take(Report::Change(Kind::Route, Change::ListBegins));
            session.take(Report::Failed(Kind::Route, failure));
            assert!(!is_published(&mut session), "a kind is still absent");
        }
        session.take(Report::Change(Kind::Service, Change::Deleted("registry".to_owned())));
        assert!(is_published(&mut session), "a service is gone");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_machine_config_that_cannot_be_fetched_is_reported_until_it_is_or_no_pool_has_it() {
        let (mut session, _published) = session();
        let failure = || Report::FetchFailed("a".to_owned(), "forbidden".to_owned());
        let fetch = |session: &mut Session, name: &str| {
            session.view.configs.want(&[name.to_owned()].into());
            session.fetch();
        };
        let lines = |session: &Session| session.reporting.status.degraded.lines();
        session.take(failure());
        assert_eq!(lines(&session), [""; 0], "no pool has it");
        fetch(&mut session, "a");
        session.take(failure());
        let counted = session.reporting.metrics.watch_failures("machineconfigs").get();
        assert_eq!(lines(&session), ["MachineConfig a: cannot be fetched: forbidden"]);
        assert_eq!(counted, 1);
        session.take(Report::Fetched("a".to_owned(), None));
        assert_eq!(lines(&session), [""; 0], "it is fetched");
        fetch(&mut session, "b");
        session.take(Report::FetchFailed("b".to_owned(), "forbidden".to_owned()));
        fetch(&mut session, "c");
        assert_eq!(lines(&session), [""; 0], "the pool has another one");
    }
}
