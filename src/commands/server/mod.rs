//! Composes a server of source, answers and listeners, and runs it.

pub(crate) mod access_flags;
pub(crate) mod administrators;
mod allowed_networks;
pub(crate) mod flags;
pub(crate) mod overview;
pub(crate) mod pipeline;
pub(crate) mod pool_page;
pub(crate) mod settings;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use arc_swap::ArcSwapOption;
use axum::Router;
use common::parallel::processors;
use files::shared_watch::SharedWatch;
use model::history::History;
use model::inputs::Inputs;
use model::ledger::{FailureReport, Ledger, NodeIndex};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use telemetry::conditions::Status;
use telemetry::faults;
use telemetry::{Metrics, Reporting};
use time::OffsetDateTime;
use tokio::sync::mpsc;

use self::flags::ListenFlags;
use self::overview::Sources;
use self::pipeline::{PipelineParts, follow_source, local_state};
use super::process::progress::Progress;
use super::process::service_manager::{Report, feed_watchdog};
use super::process::signals::StopSignals;
use super::process::tasks::{Tasks, leave_to_exit};
use crate::server::administrators::router;
use crate::server::auth::Authorizer;
use crate::server::connections::listener::any_address;
use crate::server::machines;
use crate::server::readiness::Readiness;
use crate::server::state::{MachineRoutes, SourceReads};
use crate::server::{Balancers, Limits, Listener, Serving};
use crate::serving::answers::Answers;
use crate::serving::approvals::WaitingCount;
use crate::serving::awaited_pools::AwaitedPools;
use crate::serving::ledger::file::LedgerFile;
use crate::serving::live_reads::LiveReads;
use crate::serving::pipeline::publish::{Publisher, Subscription};
use crate::serving::single_flight::SingleFlight;
use crate::serving::tls::pair_secret::until_mounted;
use crate::serving::tls::serving_pair::{ActivePair, ServingPair};
use crate::source::cluster::{NamedSecret, failure_events, join_requests, nodes};
use crate::source::{self, Source};

pub(super) use self::settings::{
    AccessSettings, ClusterFlags, Local, PairFiles, Ports, ServerSettings, authority,
};

/// Maximum number of reports of failed first boots that wait for the API server.
const MAX_WAITING_REPORTS: usize = 64;

/// A server with bound ports and published first inputs. It answers once it runs.
pub(super) struct Server {
    pub(super) ports: Ports,
    pub(super) published: Subscription,
    pub(super) reporting: Reporting,
    /// Background tasks that run forever.
    pub(super) tasks: Tasks,
    machines: Serving,
    listeners: Vec<Listener>,
    administrators: Serving,
    metrics_listener: Option<Listener>,
    ledger_file: Option<Arc<LedgerFile>>,
    shutdown_delay: Duration,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: ServerSettings) -> anyhow::Result<()> {
    block_on(async { Server::start(settings).await?.run().await })
}

/// Runs a server on a new runtime.
pub(super) fn block_on(server: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    raise_file_limit();
    // At most one thread for each processor computes handshakes, milliseconds each with an RSA key; as many are left
    // for other work.
    let workers = 2 * processors();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    let result = runtime.block_on(server);
    leave_to_exit(runtime);
    result
}

impl Server {
    /// Binds the ports, reads the inputs and starts all tasks.
    pub(super) async fn start(settings: ServerSettings) -> anyhow::Result<Self> {
        let ServerSettings { serving: flags, policy: tls, access, cluster, .. } = settings;
        let (metrics, status) = <(Arc<Metrics>, Status)>::default();
        let reporting = Reporting { metrics: Arc::clone(&metrics), status: status.clone() };
        let (history, mut tasks) = (History::default(), Tasks::default());
        let has_secret = cluster.pair_secret.is_some();
        let (of_pair, changes) = (reporting.clone(), history.clone());
        let pair = ServingPair::read(settings.pair, has_secret, tls.clone(), of_pair, changes)?;
        let (listeners, metrics_listener, ports) = bind(&flags.listen, &pair.tls(), &status)?;

        let answers = Arc::new(Answers::new(flags.compact.is_on(), Arc::clone(&metrics)));
        let (policy, rules) = (Arc::default(), flags.rules(access.mode));
        let profile = flags.follows_profile().then(|| pair.profile_follower(tls));
        let publisher =
            Publisher::new(Arc::clone(&answers), reporting.clone(), profile, history.clone());
        let (source, first, reads) =
            open(settings.source, cluster.read_live_after, &publisher).await?;
        let (ledger, nodes) = open_ledger(&mut tasks, &source, &reporting);
        let ledger_file = store_ledger(&mut tasks, settings.ledger_directory, &ledger, &status);
        let reports = flags.failure_reports.is_on().then(|| take_reports(&mut tasks, &source));
        let authority = authority(settings.local.as_ref(), ports.secure);
        let (local, files) = local_state(settings.local, access.window, ports.secure, &publisher);
        let secret = cluster.pair_secret.and_then(|name| source.secret(name));
        let pair = follow_pair(&mut tasks, pair, files, secret, &reporting);
        let subscription = publisher.subscribe();
        let setup = PipelineParts { access, rules, local, policy: Arc::clone(&policy), publisher };
        let named = follow_source(&mut tasks, setup, source, first, &reporting);

        let sources = Arc::new(Sources {
            answers: Arc::clone(&answers),
            status: status.clone(),
            policy: Arc::clone(&policy),
            published: subscription.clone(),
            ledger: ledger.clone(),
            named: named.clone(),
            nodes,
            history,
            pair,
            pointers: settings.pointers,
            peers: cluster.peers,
            since: OffsetDateTime::now_utc(),
            authority,
            name: super::process_name('/'),
            machines_snapshot: SingleFlight::default(),
        });
        let pages = pages(Arc::clone(&metrics), sources);
        let connections = metrics.administrators.clone();
        let auth = Authorizer::new(policy);
        let of = MachineRoutes { answers, named, reads, metrics, status, ledger, auth, reports };
        Ok(Self {
            ports,
            published: subscription,
            tasks,
            machines: serving(of, flags.limits, Balancers::new(flags.proxy_from)),
            listeners,
            administrators: flags.listen.administrators.serving(pages, connections),
            metrics_listener,
            ledger_file,
            shutdown_delay: flags.shutdown_delay,
            reporting,
        })
    }

    /// Serves until SIGTERM or SIGINT, and then lets connections finish.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        for listener in self.listeners {
            self.machines.listen(listener);
        }
        if let Some(listener) = self.metrics_listener {
            self.administrators.listen(listener);
        }
        self.tasks.spawn("the task that reports readiness", report_ready(self.published));
        self.tasks.spawn("the task that reports to the watchdog", feed_watchdog());
        until_stopped(&mut self.tasks, self.shutdown_delay, &self.reporting.status).await?;
        tracing::info!("shutting down, draining connections");
        if !self.machines.stop().await {
            tracing::warn!(
                fix = "nothing needs to be done: their machines request again",
                "closed connections that did not finish in time"
            );
        }
        if let Some(file) = self.ledger_file {
            file.save();
        }
        Ok(())
    }
}

/// Reports to the service manager once the first inputs are served.
async fn report_ready(mut published: Subscription) {
    // The sender lives as long as the server.
    if published.wait_for(|now| now.inputs.is_some()).await.is_ok() {
        Report::Ready.send();
    }
    std::future::pending::<()>().await;
}

/// Opens the source, which for a directory that has changed reads all of it. With `after`, a cluster is read again before an
/// answer if it was not for this time.
async fn open(
    source: source::Settings,
    after: Option<Duration>,
    publisher: &Publisher,
) -> anyhow::Result<(Source, Option<Inputs>, SourceReads)> {
    let _progress = Progress::start("reading the inputs");
    let (mut source, first) = Source::open(source).await?;
    let mut reads = SourceReads::default();
    match &mut source {
        Source::Directory(_) => {}
        Source::Unread(pools) => {
            // Its tokens are judged once all machines are known.
            let (awaited, requests) = AwaitedPools::new(publisher.subscribe(), false);
            (reads.awaited, pools.requests) = (Some(awaited), Some(requests));
        }
        Source::Cluster(cluster) => {
            reads.live = after.map(|after| {
                let (live_reads, requests) = LiveReads::new(after, publisher.subscribe());
                cluster.live_requests = Some(requests);
                live_reads
            });
            let (awaited, requests) = AwaitedPools::new(publisher.subscribe(), true);
            (reads.awaited, cluster.awaited_pools) = (Some(awaited), Some(requests));
        }
    }
    Ok((source, first, reads))
}

/// Creates the boot ledger, and the index of the cluster's nodes, if there is a cluster: follows them, who asks to become one,
/// and whether machines can.
fn open_ledger(tasks: &mut Tasks, source: &Source, reporting: &Reporting) -> (Ledger, NodeIndex) {
    let (ledger, index) = <(Ledger, NodeIndex)>::default();
    if let Some(cluster) = source.cluster() {
        let follow = nodes::follow(cluster.client(), index.clone(), reporting.clone());
        tasks.spawn("the task that follows nodes", follow);
        let follow = join_requests::follow(cluster.client(), index.clone(), reporting.clone());
        tasks.spawn("the task that follows who asks to join", follow);
        let status = reporting.status.clone();
        let follow = cluster.token_check().follow(ledger.clone(), index.clone(), status);
        tasks.spawn("the task that checks the bootstrap token", follow);
    }
    (ledger, index)
}

/// Publishes reports of failed first boots, if there is a cluster. Returns their receiver.
fn take_reports(tasks: &mut Tasks, source: &Source) -> mpsc::Sender<FailureReport> {
    let (sender, reports) = mpsc::channel(MAX_WAITING_REPORTS);
    if let Some(cluster) = source.cluster() {
        let identity = super::process_name('_');
        let publish = failure_events::publish(cluster.client(), identity, reports);
        tasks.spawn("what publishes failed first boots", publish);
    }
    sender
}

/// Stores the boot ledger in a directory, if there is one.
fn store_ledger(
    tasks: &mut Tasks,
    directory: Option<PathBuf>,
    ledger: &Ledger,
    status: &Status,
) -> Option<Arc<LedgerFile>> {
    let file = LedgerFile::open(&directory?, ledger.clone(), status.clone());
    let file = Arc::new(file);
    let kept = Arc::clone(&file);
    tasks.spawn("the task that writes the boot ledger", async move { kept.flush().await });
    Some(file)
}

/// Follows the files of the serving certificate, with the others that `files` watches if they are in a state directory. Until
/// they exist, follows the Secret. Returns the served pair.
fn follow_pair(
    tasks: &mut Tasks,
    pair: ServingPair,
    files: Option<SharedWatch>,
    secret: Option<NamedSecret>,
    reporting: &Reporting,
) -> Arc<ActivePair> {
    let active = pair.active();
    if let Some(secret) = secret.filter(|_| !active.has_files()) {
        let follow = until_mounted(secret, Arc::clone(&active), reporting.clone());
        tasks.spawn("the task that waits for the serving certificate", follow);
    }
    let mut files = files.unwrap_or_else(|| pair.watch());
    pair.follow(&mut files);
    tasks.spawn("the task that follows files", files.follow());
    active
}

/// Waits for a signal, and then for the shutdown delay. An error is the reason why a task has ended before.
async fn until_stopped(tasks: &mut Tasks, delay: Duration, status: &Status) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    tokio::select! {
        () = signals.received() => {}
        error = tasks.ended() => return Err(error),
    }
    Report::Stopping.send();
    if delay.is_zero() {
        return Ok(());
    }
    let wait = humantime::format_duration(delay).to_string();
    tracing::info!(wait, "shutting down, serving until load balancers send no more machines");
    faults::STOPPING.report(status, Some("shutting down"));
    tokio::select! {
        () = tokio::time::sleep(delay) => Ok(()),
        // A second signal skips the delay.
        () = signals.received() => Ok(()),
        error = tasks.ended() => Err(error),
    }
}

/// Serves machines, once it listens.
fn serving(machines: MachineRoutes, mut limits: Limits, balancers: Balancers) -> Serving {
    let asked = limits.connections.all;
    if let Ok((files, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        limits.connections = limits.connections.within(files);
    }
    let max_connections = limits.connections.all;
    if max_connections < asked {
        tracing::warn!(
            max_connections,
            fix = "raise the limit of open files, by ulimit -n or LimitNOFILE= of the unit, or lower --max-connections",
            "the limit of open files allows fewer connections than --max-connections"
        );
    }
    let (connections, ledger) = (machines.metrics.connections.clone(), machines.ledger.clone());
    let router = machines::router(Arc::new(machines));
    Serving::new(router, limits, connections, Some(ledger), balancers)
}

fn pages(metrics: Arc<Metrics>, sources: Arc<Sources>) -> Router {
    let (of_metrics, of_readiness) = (Arc::clone(&sources), Arc::clone(&sources));
    let encode = move || {
        let Sources { answers, ledger, named, nodes, .. } = &*of_metrics;
        let waiting = named.approvals.count_waiting().into_iter();
        let label = |(pool, count): (Arc<str>, WaitingCount)| {
            (answers.label(&pool), count.machines, count.longest)
        };
        metrics.waiting_machines(waiting.map(label), named.approvals.discarded());
        let now = OffsetDateTime::now_utc();
        let counts = nodes.look(|nodes| ledger.count(nodes, now));
        metrics.machines(counts.into_iter().map(|(state, count)| (state.label(), count)));
        metrics.machines_discarded(ledger.discarded());
        let oldest = ledger.oldest_ignition().into_iter();
        let of_pools = oldest.filter(|(pool, _)| answers.has_pool(pool));
        metrics.oldest_ignition(of_pools.map(|(pool, it)| (answers.label(&pool), it)));
        metrics.encode(SystemTime::now())
    };
    let readiness = move || Readiness::of_server(&of_readiness.status, &of_readiness.answers);
    router(encode, readiness)
        .merge(overview::router(Arc::clone(&sources)))
        .merge(pool_page::router(sources))
}

fn bind(
    listen: &ListenFlags,
    tls: &Arc<ArcSwapOption<rustls::ServerConfig>>,
    status: &Status,
) -> anyhow::Result<(Vec<Listener>, Option<Listener>, Ports)> {
    let metrics = bind_metrics(listen.administrators.address.0, status);
    let address = listen.listen_address.unwrap_or_else(any_address);
    let bind = |flag, port, tls| {
        let address = SocketAddr::new(address, port);
        let bound = Listener::bind(address, tls);
        bound.and_then(|listener| Ok((listener.address()?.port(), listener))).map_err(|error| {
            let fix = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "; stop the program that uses it, which `ss -ltnp` shows, or choose another port"
                }
                _ => "",
            };
            anyhow!("{flag}: cannot listen on {address}: {error}{fix}")
        })
    };
    let (secure, listener) = bind("--secure-port", listen.secure_port, Some(Arc::clone(tls)))?;
    let mut listeners = vec![listener];
    let mut insecure = None;
    if listen.insecure_port != 0 {
        let (port, listener) = bind("--insecure-port", listen.insecure_port, None)?;
        listeners.push(listener);
        insecure = Some(port);
    }
    let administrators = metrics.as_ref().map(Listener::address).transpose()?;
    Ok((listeners, metrics, Ports { secure, insecure, administrators }))
}

/// Binds the listener for metrics. A failure must not keep machines from booting: on an OpenShift node another program
/// may have the default port.
fn bind_metrics(address: Option<SocketAddr>, status: &Status) -> Option<Listener> {
    let address = address?;
    match Listener::bind(address, None) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let reason = format!(
                "cannot listen on {address} (metrics and status page): {error}; use --metrics-address"
            );
            faults::METRICS_ADDRESS.of(&address.to_string()).report(status, Some(&reason));
            None
        }
    }
}

/// Raises the limit of file descriptors; a shell's default is lower than the limit of connections.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(
            %error,
            fix = "raise it before the start, by ulimit -n or LimitNOFILE= of the unit",
            "cannot raise the limit of open files"
        );
    }
}
