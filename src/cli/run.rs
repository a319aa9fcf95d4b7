//! A server from its parts: source, answers, listeners; and its end.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail};
use arc_swap::ArcSwapOption;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use time::format_description::well_known::Rfc3339;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::flags::{PairFiles, ServingFlags};
use crate::answers::Answers;
use crate::server::listener::any_address;
use crate::server::routes::{Routes, Troubles};
use crate::server::tls::Pair;
use crate::server::tls_policy::TlsPolicy;
use crate::server::{Listener, Serving, metrics_endpoint};
use crate::source::Inputs;
use crate::source::directory::{Directory, Layout};
use crate::source::watch::{Follower, Look, Stop};
use crate::telemetry::Metrics;

/// What is to be served, checked.
pub(super) struct Plan<'a> {
    pub(super) flags: &'a ServingFlags,
    pub(super) layout: Layout,
    pub(super) policy: TlsPolicy,
    pub(super) pair: PairFiles,
    /// Called with the bound ports once everything is served, and after each change of the inputs.
    pub(super) on_change: OnChange,
}

/// Told of the inputs that are served now, and on which ports.
pub(super) type OnChange = Box<dyn FnMut(Ports, &Inputs) + Send>;

/// The ports that were bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) secure: u16,
    pub(super) insecure: Option<u16>,
}

/// Serves until SIGTERM or SIGINT.
pub(super) fn run(plan: Plan<'_>) -> anyhow::Result<()> {
    raise_file_limit();
    let metrics = Arc::new(Metrics::new());
    let mut directory = Directory::new(plan.layout);
    let inputs = first_inputs(&mut directory)?;
    let pair = Pair::read(&plan.pair.cert, &plan.pair.key, &plan.policy)?;
    let tls = Arc::new(ArcSwapOption::from_pointee(pair.config(&plan.policy)?));
    note_pair(&pair, &metrics);

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let (listeners, ports) = bind(plan.flags, &tls)?;
    let metrics_listener = match plan.flags.metrics_address.0 {
        Some(address) => {
            let bound = runtime.block_on(metrics_endpoint::bind(address));
            Some(bound.with_context(|| format!("--metrics-address {address}"))?)
        }
        None => None,
    };

    let answers = Arc::new(Answers::new(Arc::clone(&metrics)));
    answers.publish(&inputs, SystemTime::now());
    let troubles = Troubles::default();
    let routes = Arc::new(Routes {
        answers: Arc::clone(&answers),
        metrics: Arc::clone(&metrics),
        troubles: troubles.clone(),
    });
    let serving = Serving::new(routes, plan.flags.limits());
    for listener in listeners {
        serving.listen(listener);
    }

    let follow_inputs = FollowInputs {
        directory,
        answers,
        metrics: Arc::clone(&metrics),
        troubles: troubles.clone(),
        on_change: plan.on_change,
        ports,
    };
    let follow_pair = FollowPair {
        files: plan.pair,
        policy: plan.policy,
        pair,
        tls,
        metrics: Arc::clone(&metrics),
        troubles,
    };
    let (inputs_thread, inputs_stop, inputs_ended) =
        spawn("inputs", follow_inputs.directory.layout().watched(), move |follower| {
            follow_inputs.run(&inputs, follower);
        })?;
    let (pair_thread, pair_stop, pair_ended) =
        spawn("serving-pair", follow_pair.files.folders(), |follower| follow_pair.run(follower))?;
    let metrics_task =
        metrics_listener.map(|listener| tokio::spawn(metrics_endpoint::serve(listener, metrics)));

    let ended = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = inputs_ended => Err(anyhow!("the thread that follows the inputs ended unexpectedly")),
            _ = pair_ended => Err(anyhow!("the thread that follows the serving pair ended unexpectedly")),
        }
    });
    if ended.is_ok() {
        tracing::info!("stopping: finishing what is under way");
        if !runtime.block_on(serving.stop()) {
            tracing::warn!("cut off connections that were not finished in time");
        }
    }
    drop((inputs_stop, pair_stop));
    for thread in [inputs_thread, pair_thread] {
        // A thread that panicked has been reported by `ended`.
        let _ = thread.join();
    }
    if let Some(task) = metrics_task {
        task.abort();
    }
    // What was cut off must not hold up the process' end.
    runtime.shutdown_background();
    ended
}

/// The inputs at the start. There is no last good state to fall back on yet, so that what cannot
/// be read is an error.
fn first_inputs(directory: &mut Directory) -> anyhow::Result<Inputs> {
    let scan = directory.scan(SystemTime::now(), &|_| false)?;
    let inputs = scan.inputs.ok_or_else(|| anyhow!("nothing was read"))?;
    match &inputs.problems[..] {
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

/// Connections need file descriptors; a shell's default is fewer than the limit of connections.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

type Ended = oneshot::Receiver<()>;

/// A thread that follows files. The last value resolves when the thread has ended for whatever
/// reason.
fn spawn(
    name: &str,
    folders: Vec<std::path::PathBuf>,
    work: impl FnOnce(Follower) + Send + 'static,
) -> io::Result<(std::thread::JoinHandle<()>, Stop, Ended)> {
    let (alive, ended) = oneshot::channel();
    let (follower, stop) = Follower::new(folders);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        work(follower);
        drop::<oneshot::Sender<()>>(alive);
    })?;
    Ok((thread, stop, ended))
}

/// Publishes the inputs, and each change of them.
struct FollowInputs {
    directory: Directory,
    answers: Arc<Answers>,
    metrics: Arc<Metrics>,
    troubles: Troubles,
    on_change: OnChange,
    ports: Ports,
}

impl FollowInputs {
    fn run(mut self, first: &Inputs, follower: Follower) {
        self.published(first);
        let mut known = first.problems.clone();
        follower.follow(|being_written| self.look(being_written, &mut known));
    }

    fn look(
        &mut self,
        being_written: &dyn Fn(&Path) -> bool,
        known: &mut Vec<crate::source::Problem>,
    ) -> Look {
        let scan = match self.directory.scan(SystemTime::now(), being_written) {
            Ok(scan) => scan,
            Err(error) => {
                self.troubles.set("inputs", Some(error.to_string()));
                tracing::error!(%error, "cannot read the inputs; what was read before stays");
                return Look::Settled;
            }
        };
        self.troubles.set("inputs", None);
        if let Some(inputs) = scan.inputs {
            for problem in inputs.problems.iter().filter(|problem| !known.contains(problem)) {
                self.metrics.input_failures.inc();
                tracing::error!(
                    place = problem.place,
                    reason = problem.reason,
                    "cannot be used; what was read before stays"
                );
            }
            for problem in known.iter().filter(|problem| !inputs.problems.contains(problem)) {
                tracing::info!(place = problem.place, "in order again");
            }
            known.clone_from(&inputs.problems);
            self.answers.publish(&inputs, SystemTime::now());
            self.published(&inputs);
        }
        if scan.unsettled { Look::Unsettled } else { Look::Settled }
    }

    /// What can wait until the inputs are served.
    fn published(&mut self, inputs: &Inputs) {
        self.metrics.input_problems.set(inputs.problems.len().try_into().unwrap_or(i64::MAX));
        (self.on_change)(self.ports, inputs);
        self.answers.check();
        tracing::info!(
            pools = inputs.pools.len(),
            machine_configs = inputs.machine_configs.len(),
            problems = inputs.problems.len(),
            "inputs read"
        );
    }
}

/// Takes over the serving pair when its files change.
struct FollowPair {
    files: PairFiles,
    policy: TlsPolicy,
    pair: Pair,
    tls: Arc<ArcSwapOption<rustls::ServerConfig>>,
    metrics: Arc<Metrics>,
    troubles: Troubles,
}

impl FollowPair {
    fn run(mut self, follower: Follower) {
        let mut refused = None;
        follower.follow(|being_written| {
            if being_written(&self.files.cert) || being_written(&self.files.key) {
                return Look::Unsettled;
            }
            let reason = self.look().err().map(|error| error.to_string());
            if reason != refused {
                if let Some(reason) = &reason {
                    self.metrics.certificate_failures.inc();
                    tracing::error!(
                        reason,
                        "the serving pair was not taken over; the one before stays"
                    );
                }
                self.troubles.set("serving pair", reason.clone());
                refused = reason;
            }
            Look::Settled
        });
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let pair = Pair::read(&self.files.cert, &self.files.key, &self.policy)?;
        if !pair.same(&self.pair) {
            self.tls.store(Some(Arc::new(pair.config(&self.policy)?)));
            note_pair(&pair, &self.metrics);
            self.pair = pair;
        }
        Ok(())
    }
}

fn note_pair(pair: &Pair, metrics: &Metrics) {
    metrics.certificate_expires(pair.expires.unix_timestamp());
    let expires = pair.expires.format(&Rfc3339).unwrap_or_default();
    if pair.expires < SystemTime::now() {
        tracing::error!(expires, "serving a certificate that has expired");
    } else {
        tracing::info!(expires, "serving pair read");
    }
}
