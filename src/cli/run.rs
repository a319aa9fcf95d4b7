//! A server from its parts: source, answers, listeners; and its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail};
use arc_swap::ArcSwapOption;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::flags::{PairFiles, ServingFlags};
use super::follow::{FollowDirectory, FollowPair, Following, note_pair};
use super::publish::{OnChange, Ports, Publisher};
use crate::answers::Answers;
use crate::conditions::Status;
use crate::inputs::Inputs;
use crate::server::listener::any_address;
use crate::server::routes::Routes;
use crate::server::tls::Pair;
use crate::server::tls_policy::TlsPolicy;
use crate::server::{Listener, Serving, metrics_endpoint};
use crate::source::cluster::{Cluster, Settings, Surroundings};
use crate::source::directory::{Directory, Layout};
use crate::telemetry::Metrics;

/// What is to be served, checked.
pub(super) struct ServerSettings<'a> {
    pub(super) flags: &'a ServingFlags,
    pub(super) source: Source,
    pub(super) policy: TlsPolicy,
    pub(super) pair: PairFiles,
    /// Called with the bound ports once everything is served, and after each change of the inputs.
    pub(super) on_change: OnChange,
}

/// Where the inputs come from.
pub(super) enum Source {
    Directory(Layout),
    Cluster(Settings),
}

/// Serves until SIGTERM or SIGINT.
pub(super) fn run(settings: ServerSettings<'_>) -> anyhow::Result<()> {
    raise_file_limit();
    let metrics = Arc::new(Metrics::new());
    let status = Status::default();
    let pair = Pair::read(&settings.pair.cert, &settings.pair.key, &settings.policy)?;
    let tls = Arc::new(ArcSwapOption::from_pointee(pair.config(&settings.policy)?));
    note_pair(&pair, &metrics);

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let (listeners, ports) = bind(settings.flags, &tls)?;
    let metrics_listener = bind_metrics(settings.flags, &runtime, &status);

    let answers = Arc::new(Answers::new(Arc::clone(&metrics)));
    let publisher =
        Publisher::new(Arc::clone(&answers), Arc::clone(&metrics), ports, settings.on_change)?;
    let sourcing = start_source(settings.source, publisher, &metrics, &status)?;
    let routes = Routes { answers, metrics: Arc::clone(&metrics), status: status.clone() };
    let serving = Serving::new(Arc::new(routes), settings.flags.limits());
    for listener in listeners {
        serving.listen(listener);
    }

    let follow_pair = FollowPair {
        files: settings.pair,
        policy: settings.policy,
        pair,
        tls,
        metrics: Arc::clone(&metrics),
        status,
    };
    let (following_pair, pair_ended) =
        Following::start("serving-pair", follow_pair.files.folders(), |follower| {
            follow_pair.run(follower);
        })?;
    let encode = move || metrics.encode(SystemTime::now()).ok();
    let metrics_task =
        metrics_listener.map(|listener| tokio::spawn(metrics_endpoint::serve(listener, encode)));

    let ended = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = sourcing.ended => Err(anyhow!("what follows the inputs ended unexpectedly")),
            _ = pair_ended => Err(anyhow!("what follows the serving pair ended unexpectedly")),
        }
    });
    if ended.is_ok() {
        tracing::info!("stopping: finishing what is under way");
        if !runtime.block_on(serving.stop()) {
            tracing::warn!("cut off connections that were not finished in time");
        }
    }
    if let Some(following) = sourcing.files {
        following.stop();
    }
    following_pair.stop();
    if let Some(task) = metrics_task {
        task.abort();
    }
    // What was cut off must not hold up the process' end.
    runtime.shutdown_background();
    ended
}

/// A source at work.
struct Sourcing {
    /// The files that it follows, if any.
    files: Option<Following>,
    /// Resolves when it has ended for whatever reason.
    ended: oneshot::Receiver<()>,
}

fn start_source(
    source: Source,
    mut publisher: Publisher,
    metrics: &Arc<Metrics>,
    status: &Status,
) -> anyhow::Result<Sourcing> {
    match source {
        Source::Directory(layout) => {
            let mut directory = Directory::new(layout);
            publisher.publish(&first_inputs(&mut directory)?);
            let folders = directory.layout().watched();
            let follow = FollowDirectory { directory, publisher, status: status.clone() };
            let (files, ended) =
                Following::start("inputs", folders, |follower| follow.run(follower))?;
            Ok(Sourcing { files: Some(files), ended })
        }
        Source::Cluster(settings) => {
            let (alive, ended) = oneshot::channel::<()>();
            let (cluster, token) = Handle::current().block_on(Cluster::connect(settings))?;
            let (files, token_ended) =
                Following::start("bootstrap-token", token.folders(), |follower| {
                    token.follow(follower);
                })?;
            let surroundings =
                Surroundings { metrics: Arc::clone(metrics), degraded: status.degraded.clone() };
            let publish = move |inputs: &Inputs| publisher.publish(inputs);
            tokio::spawn(async move {
                tokio::select! {
                    () = cluster.follow(publish, surroundings) => {}
                    _ = token_ended => {}
                }
                drop(alive);
            });
            Ok(Sourcing { files: Some(files), ended })
        }
    }
}

/// The inputs at the start. There is no last good state to fall back on yet, so that what cannot
/// be read is an error. One bad entry of an object is none: all else in it can be used.
fn first_inputs(directory: &mut Directory) -> anyhow::Result<Inputs> {
    let scan = directory.scan(SystemTime::now(), &|_| false)?;
    let inputs = scan.inputs.ok_or_else(|| anyhow!("nothing was read"))?;
    let problems: Vec<_> = inputs.problems.iter().filter(|problem| !problem.is_partial).collect();
    match &problems[..] {
        [] => Ok(inputs),
        [problem] => bail!("{problem}"),
        [problem, others @ ..] => bail!("{problem} (and {} more)", others.len()),
    }
}

fn bind(
    flags: &ServingFlags,
    tls: &Arc<ArcSwapOption<rustls::ServerConfig>>,
) -> anyhow::Result<(Vec<Listener>, Ports)> {
    let address = flags.listen_address.unwrap_or_else(any_address);
    let listen = |flag, port, tls| {
        let address = SocketAddr::new(address, port);
        Listener::bind(address, tls)
            .and_then(|listener| Ok((listener.port()?, listener)))
            .with_context(|| format!("{flag}: cannot listen on {address}"))
    };
    let (secure, listener) = listen("--secure-port", flags.secure_port, Some(Arc::clone(tls)))?;
    let mut listeners = vec![listener];
    let mut insecure = None;
    if flags.insecure_port != 0 {
        let (port, listener) = listen("--insecure-port", flags.insecure_port, None)?;
        listeners.push(listener);
        insecure = Some(port);
    }
    Ok((listeners, Ports { secure, insecure }))
}

/// The listener for metrics. That there is none must not keep machines from booting: on an
/// OpenShift node another program may have the default port already.
fn bind_metrics(flags: &ServingFlags, runtime: &Runtime, status: &Status) -> Option<TcpListener> {
    let address = flags.metrics_address.0?;
    match runtime.block_on(metrics_endpoint::bind(address)) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let reason = format!("--metrics-address {address}: {error}");
            tracing::error!(reason, "there are no metrics");
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
