//! A server from its parts: source, answers, listeners; and its end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use arc_swap::{ArcSwap, ArcSwapOption};
use axum::Router;
use model::access::{self, Networks};
use model::inputs::Inputs;
use model::ledger::{Ledger, NodeIndex};
use model::objects::SecretName;
use model::overview::History;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use time::OffsetDateTime;

use super::administrators::AdministratorsAddress;
use super::signals::StopSignals;
use super::tasks::Tasks;
use crate::commands::overview::{self, Sources};
use crate::server::administrators::router;
use crate::server::auth::Authorizer;
use crate::server::listener::{any_address, processors};
use crate::server::machines::{self, Machines};
use crate::server::readiness::Readiness;
use crate::server::{Balancers, Limits, Listener, Serving};
use crate::serving::access::{AccessSettings, Gate};
use crate::serving::answers::Answers;
use crate::serving::latest::Latest;
use crate::serving::ledger_file::LedgerFile;
use crate::serving::pair_secret::until_mounted;
use crate::serving::publish::Publisher;
use crate::serving::serving_pair::ServingPair;
use crate::serving::tls_policy::TlsPolicy;
use crate::serving::token_issuer::TokenIssuer;
use crate::source::{self, Source};
use crate::telemetry::Metrics;
use crate::telemetry::Reporting;
use crate::telemetry::conditions::{Conditions, Status};

pub use crate::commands::overview::JudgePointers;
pub use crate::serving::publish::{OnChange, Ports};
pub use crate::serving::serving_pair::PairFiles;

/// What is to be served.
pub struct ServerSettings {
    /// Where the inputs come from.
    pub source: source::Settings,
    /// Where to listen.
    pub listen: Listen,
    /// Which TLS is spoken.
    pub policy: TlsPolicy,
    /// Whether the TLS profile of the inputs goes before it.
    pub follows_profile: bool,
    /// With which certificate.
    pub pair: PairFiles,
    /// The cluster's secret with the same, for as long as these files are not there yet.
    pub pair_secret: Option<SecretName>,
    /// What clients may do.
    pub limits: Limits,
    /// How long it serves on when it is told to stop: whoever sends machines here hears of that later.
    pub shutdown_delay: Duration,
    /// From where configs may be asked for.
    pub networks: Networks,
    /// Who says whom it connects.
    pub balancers: Balancers,
    /// Whether Ignition itself gets compact configs.
    pub compact: bool,
    /// Who gets configs.
    pub access: AccessSettings,
    /// Called once everything is served, and after each change of the inputs.
    pub on_change: OnChange,
    /// What runs beside the server for ever.
    pub beside: Vec<BackgroundTask>,
    /// Where the boot ledger is kept, if anywhere.
    pub ledger_directory: Option<PathBuf>,
    /// The other servers of the cluster, a name and the port of their administrators' listener.
    pub peers: Option<String>,
    /// Judges the pointer configs that this server knows.
    pub pointers: Option<JudgePointers>,
}

/// A task that goes on as long as the server does.
pub struct BackgroundTask {
    /// What it is, as in "… ended unexpectedly".
    pub what: &'static str,
    /// The task, from where it reports to, and who has to know of tokens.
    pub task: Box<dyn FnOnce(Reporting, Arc<Gate>) -> Task>,
}

/// What goes on for ever.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where to listen; port 0 takes any free one.
#[derive(Debug, Clone)]
pub struct Listen {
    /// `None` for all of the machine's addresses.
    pub address: Option<IpAddr>,
    /// Port for TLS.
    pub secure_port: u16,
    /// Port without TLS, `None` for no such port.
    pub insecure_port: Option<u16>,
    /// Where administrators ask.
    pub administrators: AdministratorsAddress,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(settings: ServerSettings) -> anyhow::Result<()> {
    raise_file_limit();
    // At most one thread a processor computes handshakes, milliseconds each with an RSA key; as many are left
    // for everything else.
    let workers = 2 * processors();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    let served = runtime.block_on(serve(settings));
    // What was cut off must not hold up the process' end.
    runtime.shutdown_background();
    served
}

async fn serve(settings: ServerSettings) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    let status = Status::default();
    let reporting = Reporting { metrics: Arc::clone(&metrics), status: status.clone() };
    let policy = settings.policy;
    let history = History::default();
    let pair = ServingPair::read(
        settings.pair,
        settings.pair_secret.is_some(),
        policy.clone(),
        reporting.clone(),
        history.clone(),
    )?;
    let metrics_listener = bind_metrics(settings.listen.administrators.address, &status);
    let (listeners, ports) = bind(&settings.listen, metrics_listener.as_ref(), &pair.tls())?;

    let answers = Arc::new(Answers::new(settings.compact, Arc::clone(&metrics)));
    let mut publisher = Publisher::new(Arc::clone(&answers), Arc::clone(&metrics), history.clone());
    let inputs = publisher.inputs();
    let mut tasks = Tasks::default();
    let after_changes = publisher.after_changes(ports, settings.on_change);
    tasks.spawn("what follows a change of the inputs", after_changes);
    let (source, first) = Source::open(settings.source).await?;
    let mut follow_profile = settings.follows_profile.then(|| pair.follow_profile(policy));
    let publish = move |inputs: &Inputs| {
        publisher.publish(inputs);
        if let Some(follow) = &mut follow_profile {
            follow(inputs.tls_profile.as_ref());
        }
    };
    let access_policy = Arc::<ArcSwap<access::Policy>>::default();
    let issuer = settings.access.issuer.clone();
    let token_cache = settings.access.cache.clone();
    let gate = Arc::new(Gate::new(
        settings.access,
        settings.networks,
        Arc::clone(&access_policy),
        &reporting,
        history.clone(),
        Box::new(publish),
    ));
    // Whoever connects first finds the answers there.
    if let Some(inputs) = first {
        gate.take_inputs(&inputs);
    }
    let (ledger, nodes) = (Ledger::default(), NodeIndex::default());
    if let Some(follow) = source.follow_nodes(nodes.clone(), reporting.clone()) {
        tasks.spawn("what follows the nodes", follow);
    }
    if let Some(cache) = token_cache {
        tasks.spawn("what keeps tokens", cache.keep(gate.known_tokens(), reporting.clone()));
    }
    follow_proofs(&mut tasks, &source, issuer, &gate, &reporting);
    let ledger_file = keep_ledger(&mut tasks, settings.ledger_directory, &ledger, &status);
    let chain = pair.shown_chain();
    let of_inputs = Arc::clone(&gate);
    let publish = move |inputs: &Inputs| of_inputs.take_inputs(inputs);
    follow_pair(&mut tasks, pair, settings.pair_secret, &source, &reporting);
    tasks.spawn("what follows the inputs", source.follow(publish, reporting.clone()));
    for BackgroundTask { what, task } in settings.beside {
        tasks.spawn(what, task(reporting.clone(), Arc::clone(&gate)));
    }
    let pages = pages(&answers, &metrics, &status, &ledger).merge(overview::router(Sources {
        answers: Arc::clone(&answers),
        status: status.clone(),
        policy: Arc::clone(&access_policy),
        inputs,
        ledger: ledger.clone(),
        nodes,
        history,
        chain,
        pointers: settings.pointers,
        peers: settings.peers,
        since: OffsetDateTime::now_utc(),
        name: super::process_name('/'),
        gathered: Latest::default(),
    }));
    let out_of_service = status.out_of_service.clone();
    let connections = [metrics.connections.clone(), metrics.administrators.clone()];
    let [of_machines, of_administrators] = connections;
    let machines = Machines {
        answers,
        metrics,
        status,
        ledger: ledger.clone(),
        auth: Arc::new(Authorizer::new(access_policy)),
    };
    let machines = machines::router(Arc::new(machines));
    let serving = Serving::new(machines, settings.limits, of_machines)
        .with_ledger(ledger)
        .with_balancers(settings.balancers);
    for listener in listeners {
        serving.listen(listener);
    }
    let administrators = settings.listen.administrators.serving(pages, of_administrators);
    if let Some(listener) = metrics_listener {
        administrators.listen(listener);
    }

    until_stopped(&mut tasks, settings.shutdown_delay, &out_of_service).await?;
    tracing::info!("stopping: finishing what is under way");
    if !serving.stop().await {
        tracing::warn!("cut off connections that were not finished in time");
    }
    if let Some(file) = ledger_file {
        file.save();
    }
    Ok(())
}

/// Keeps the boot ledger in a folder, if it is kept.
fn keep_ledger(
    tasks: &mut Tasks,
    directory: Option<PathBuf>,
    ledger: &Ledger,
    status: &Status,
) -> Option<Arc<LedgerFile>> {
    let file = LedgerFile::open(&directory?, ledger.clone(), status.degraded.clone());
    let file = Arc::new(file);
    let kept = Arc::clone(&file);
    tasks.spawn("what keeps the boot ledger", async move { kept.keep().await });
    Some(file)
}

/// Keeps the serving pair in step with its files, and with the cluster's secret until they are there.
fn follow_pair(
    tasks: &mut Tasks,
    pair: ServingPair,
    secret: Option<SecretName>,
    source: &Source,
    reporting: &Reporting,
) {
    let secret = secret.filter(|_| !pair.shown().has_files());
    if let Some(secret) = secret.and_then(|name| source.secret(name)) {
        let follow = until_mounted(secret, pair.shown(), reporting.clone());
        tasks.spawn("what waits for the serving pair", follow);
    }
    tasks.spawn("what follows the serving pair", pair.follow());
}

/// Waits for the order to stop, and then for as long as machines may still be sent here. An error is why
/// a task has ended before.
async fn until_stopped(
    tasks: &mut Tasks,
    delay: Duration,
    out_of_service: &Conditions,
) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    tokio::select! {
        () = signals.received() => {}
        error = tasks.ended() => return Err(error),
    }
    if delay.is_zero() {
        return Ok(());
    }
    let wait = humantime::format_duration(delay).to_string();
    tracing::info!(wait, "stopping: serving on until no machine is sent here any more");
    out_of_service.set("server", Some("it is stopping".to_owned()));
    tokio::select! {
        () = tokio::time::sleep(delay) => Ok(()),
        // Who asks twice does not want to wait.
        () = signals.received() => Ok(()),
        error = tasks.ended() => Err(error),
    }
}

/// Keeps `gate` in step with another issuer's keys, and with the tokens of a cluster once they matter.
fn follow_proofs(
    tasks: &mut Tasks,
    source: &Source,
    issuer: Option<TokenIssuer>,
    gate: &Arc<Gate>,
    reporting: &Reporting,
) {
    if let Some(issuer) = issuer {
        let of_keys = Arc::clone(gate);
        let take = move |keys| of_keys.take_signed(keys);
        let follow = issuer.follow(take, reporting.status.degraded.clone());
        tasks.spawn("what follows the keys of signed tokens", follow);
    }
    let of_tokens = Arc::clone(gate);
    let take = move |records| tokio::task::block_in_place(|| of_tokens.take_records(records));
    let Some(follow) = source.follow_tokens(gate.knows_tokens(), take, reporting.clone()) else {
        return;
    };
    let mut needs_tokens = gate.needs_tokens();
    tasks.spawn("what follows the tokens", async move {
        // The gate lives as long as the server does.
        let _ = needs_tokens.wait_for(|needs| *needs).await;
        follow.await;
    });
}

/// What administrators are told.
fn pages(
    answers: &Arc<Answers>,
    metrics: &Arc<Metrics>,
    status: &Status,
    ledger: &Ledger,
) -> Router {
    let (answers, metrics, status) = (Arc::clone(answers), Arc::clone(metrics), status.clone());
    let ledger = ledger.clone();
    let encode = move || {
        metrics.machines_forgotten(ledger.forgotten());
        metrics.encode(SystemTime::now())
    };
    let readiness = move || {
        let mut not_ready = status.out_of_service.lines();
        not_ready.extend(status.not_ready.lines());
        not_ready.extend(answers.unready());
        let mut degraded = status.degraded.lines();
        degraded.extend(answers.exposed());
        degraded.extend(answers.warnings());
        Readiness { not_ready, degraded }
    };
    router(encode, readiness)
}

fn bind(
    listen: &Listen,
    metrics: Option<&Listener>,
    tls: &Arc<ArcSwapOption<rustls::ServerConfig>>,
) -> anyhow::Result<(Vec<Listener>, Ports)> {
    let address = listen.address.unwrap_or_else(any_address);
    let bind = |flag, port, tls| {
        let address = SocketAddr::new(address, port);
        Listener::bind(address, tls)
            .and_then(|listener| Ok((listener.port()?, listener)))
            .with_context(|| format!("{flag}: cannot listen on {address}"))
    };
    let (secure, listener) = bind("--secure-port", listen.secure_port, Some(Arc::clone(tls)))?;
    let mut listeners = vec![listener];
    let mut insecure = None;
    if let Some(port) = listen.insecure_port {
        let (port, listener) = bind("--insecure-port", port, None)?;
        listeners.push(listener);
        insecure = Some(port);
    }
    let administrators = metrics.map(Listener::address).transpose()?;
    Ok((listeners, Ports { secure, insecure, administrators }))
}

/// The listener for metrics. That there is none must not keep machines from booting: on an
/// OpenShift node another program may have the default port already.
fn bind_metrics(address: Option<SocketAddr>, status: &Status) -> Option<Listener> {
    let address = address?;
    match Listener::bind(address, None) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let reason = format!(
                "cannot listen on {address} (metrics and status page): {error}; use --metrics-address"
            );
            tracing::error!("{reason}");
            status.degraded.set("metrics", Some(reason));
            None
        }
    }
}

/// Connections need file descriptors; a shell's default is fewer than the limit of connections.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
