//! The command `serve`: a server on a directory of manifests, which creates everything else that a first boot needs.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use model::access::machine::Window;
use model::access::rotation::RotationPolicy;
use model::inputs::{Inputs, Problem};
use model::objects::SecretName;
use nix::ifaddrs::getifaddrs;
use pki::{Host, Policy, RotationRequest, Warning};
use time::{Duration, OffsetDateTime};
use tokio::sync::watch;

use super::certs::{log_left_out, log_step};
use super::server::{
    self, AccessSettings, Local, PairFiles, Ports, Server, ServerSettings, ServingOptions,
};
use super::start_block::StartBlock;
use super::terminal;
use crate::commands::overview::{PointerVerdicts, judged};
use crate::serving::publish::Served;
use crate::source;
use crate::source::directory::Layout;
use crate::store::state_directory::{Stamps, StateDirectory, StateError};
use crate::telemetry::conditions::Condition;
use crate::telemetry::{Reporting, log_attention, wait_until_written};

/// Waits between two checks of the certificates: the shortest and the longest.
const SHORTEST_WAIT: Duration = Duration::seconds(10);
const LONGEST_WAIT: Duration = Duration::hours(1);
/// Interval between checks of the files, so that readiness agrees with the page.
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_secs(5);

pub struct ServeSettings {
    /// Top directory of the manifests.
    pub manifests: PathBuf,
    /// State directory for certificates and pointer configs.
    pub state: PathBuf,
    /// Names and addresses that machines reach this server by, in addition to this machine's own.
    pub hosts: Vec<Host>,
    /// Settings of issued certificates.
    pub certificates: Policy,
    pub options: ServingOptions,
    /// Secret among the manifests with registry credentials for machines of enforced pools.
    pub registry_credentials: Option<SecretName>,
    /// True if manifests with parts without effect are refused.
    pub is_strict: bool,
    pub access: AccessSettings,
    pub tokens: RotationPolicy,
    /// Time for which a machine's token stays open after its first use.
    pub window: Window,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(mut settings: ServeSettings) -> anyhow::Result<()> {
    // Names of this server for machines are also valid for administrators.
    settings.options.listen.administrators.names.extend_from_slice(&settings.hosts);
    let hosts = hosts(&settings.hosts, &own_hosts());
    // The best host for machines elsewhere comes first.
    let pointer_host = hosts[0].clone();
    // Nothing is made for a directory that is mistyped.
    if let Err(error) = std::fs::metadata(&settings.manifests) {
        bail!("{}: {error}", settings.manifests.display());
    }
    let state = StateDirectory::of_this_server(&settings.state)?;
    let (known_pools, pools) = watch::channel(None);
    let mut renewal = Renewal {
        state: state.clone(),
        pools: pools.clone(),
        hosts,
        policy: settings.certificates,
        attention: Vec::new(),
        stamps: None,
        failure: None,
        looked: (OffsetDateTime::now_utc(), Instant::now()),
    };
    // A failure must not keep machines from the present certificates.
    let requeue_at = renewal.reconcile();

    let of_pointers = state.clone();
    let pair = PairFiles { certificate: state.serving_path(), key: state.serving_path() };
    let local = Local { state: state.clone(), host: pointer_host.clone(), tokens: settings.tokens };
    let manifests = settings.manifests.clone();
    let server = ServerSettings {
        source: source::Settings::Directory(Layout::Tree {
            root: settings.manifests,
            registry_credentials: settings.registry_credentials,
            is_strict: settings.is_strict,
        }),
        options: settings.options,
        pair,
        read_live_after: None,
        pair_secret: None,
        access: settings.access,
        ledger_directory: Some(settings.state),
        peers: None,
        pointers: Some(Box::new(move |now| {
            judge_pointers(&of_pointers.clone().with_pools(pools.borrow().clone()), now)
        })),
        local: Some(local),
        window: settings.window,
    };
    server::block_on(async {
        let mut server = Server::start(server).await?;
        let announcer =
            Announcer { state, host: pointer_host, ports: server.ports, manifests, known_pools };
        let renewal = renewal.keep(requeue_at, server.reporting.clone());
        let announce = announcer.follow(server.served.clone(), server.checked.clone());
        server.tasks.spawn("the task that follows pools", announce);
        server.tasks.spawn("the task that renews certificates", renewal);
        server.run().await
    })
}

/// Pointer configs with the verdict if a machine boots from them at present. Read errors are reported elsewhere.
fn judge_pointers(state: &StateDirectory, now: OffsetDateTime) -> Option<PointerVerdicts> {
    let seen = state.observe(&[], &RotationRequest::default()).ok()?;
    let holders: Vec<_> =
        seen.pointers.iter().flat_map(|pointer| pointer.holders.clone()).collect();
    let faults: Vec<_> =
        seen.pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned()).collect();
    Some(judged(&seen.chain(), &holders, &faults, now))
}

/// Follows the served pools, and prints the next steps once.
struct Announcer {
    state: StateDirectory,
    host: Host,
    ports: Ports,
    manifests: PathBuf,
    /// Sends the pools that have a config, for judging pointer configs.
    known_pools: watch::Sender<Option<Arc<BTreeSet<String>>>>,
}

impl Announcer {
    async fn follow(
        self,
        served: watch::Receiver<Option<Arc<Served>>>,
        mut checked: watch::Receiver<Option<Arc<Served>>>,
    ) {
        // The next steps are below the first warnings, where they are seen.
        let announce = async {
            let first = checked.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
            first.inspect(|served| self.announce(served));
        };
        tokio::join!(announce, self.follow_pools(served));
    }

    async fn follow_pools(&self, mut served: watch::Receiver<Option<Arc<Served>>>) {
        loop {
            if let Some(served) = served.borrow_and_update().as_ref() {
                self.tell_pools(&served.inputs);
            }
            if served.changed().await.is_err() {
                return;
            }
        }
    }

    fn announce(&self, served: &Served) {
        let problems = served.inputs.problems.iter();
        let of_pool = |it: &Problem| {
            Some((it.place.strip_prefix("MachineConfigPool ")?.to_owned(), it.reason.clone()))
        };
        let faults: Vec<_> = problems.filter_map(of_pool).collect();
        let program = std::env::args().next();
        let block = StartBlock {
            program: program.as_deref().unwrap_or(env!("CARGO_PKG_NAME")),
            manifests: &self.manifests,
            host: &self.host,
            ports: self.ports,
            bundle: &self.state.bundle_path(),
            pointers: &served.pointer_configs,
            faults: &faults,
        };
        // Lines of the log are written by a thread.
        tokio::task::block_in_place(wait_until_written);
        terminal::print(&block.lines(terminal::look()));
    }

    fn tell_pools(&self, inputs: &Inputs) {
        let pools: BTreeSet<String> = inputs.pools.keys().cloned().collect();
        self.known_pools.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&pools);
            *known = Some(Arc::new(pools));
            is_new
        });
        if inputs.pools.is_empty() {
            tracing::warn!(
                directory = %self.manifests.display(),
                fix = "add the manifest of a MachineConfigPool to the directory",
                "no MachineConfigPool found, serving nothing"
            );
        }
    }
}

/// Manages certificates and pointer configs while the server runs. Every step is atomic, so that the process can end at
/// any time.
struct Renewal {
    state: StateDirectory,
    /// Pools that have a config, once they are known.
    pools: watch::Receiver<Option<Arc<BTreeSet<String>>>>,
    hosts: Vec<Host>,
    policy: Policy,
    /// Reported warnings.
    attention: Vec<Warning>,
    /// Stamps of the files at the last look.
    stamps: Option<Stamps>,
    /// Reason why the last attempt failed.
    failure: Option<String>,
    /// Time of the last look, by wall clock and monotonic clock.
    looked: (OffsetDateTime, Instant),
}

impl Renewal {
    /// Applies due steps, reports faults, and returns the time of the next due step.
    fn reconcile(&mut self) -> OffsetDateTime {
        self.looked = (OffsetDateTime::now_utc(), Instant::now());
        let (now, _) = self.looked;
        let wanted = || Ok::<_, StateError>((self.hosts.clone(), RotationRequest::default()));
        let state = self.state.clone().with_pools(self.pools.borrow_and_update().clone());
        match state.reconcile(wanted, &self.policy, now) {
            Ok(done) => {
                done.steps.iter().for_each(log_step);
                log_left_out(&done.left_out);
                self.take(done.attention);
                self.failure = None;
                done.requeue_at
            }
            Err(error) => {
                let error = error.to_string();
                if self.failure.as_ref() != Some(&error) {
                    tracing::error!(
                        error,
                        fix = "correct what the error names; `machine-config-server certs check` \
                            shows the state",
                        "cannot keep the certificates up to date, retrying"
                    );
                }
                self.failure = Some(error);
                now
            }
        }
    }

    /// Checks changed files without writing any: an administrator may be replacing them.
    fn look(&mut self) {
        let stamps = self.state.stamps().ok();
        if stamps.is_some() && stamps == self.stamps {
            return;
        }
        let state = self.state.clone().with_pools(self.pools.borrow().clone());
        let looked = state.attention(&self.hosts, &self.policy, OffsetDateTime::now_utc());
        // After a failure, as during another command, the next look retries.
        if let Ok(attention) = looked {
            self.stamps = stamps;
            if let Some(attention) = attention {
                self.take(attention);
            }
        }
    }

    /// Logs new warnings.
    fn take(&mut self, attention: Vec<Warning>) {
        let new = attention.iter().filter(|it| !self.attention.contains(it));
        let [ca, serving] = self.state.key_files();
        new.for_each(|it| log_attention(it, it.object(&ca, &serving)));
        self.attention = attention;
    }

    fn report(&self, reporting: &Reporting) {
        let failure = self
            .failure
            .as_ref()
            .map(|_| "cannot be kept up to date; the log has the reason".into());
        let reported = failure.or_else(|| Warning::summary(&self.attention));
        Condition::new("certificates", reported).note(&reporting.status.degraded);
        reporting.metrics.certificates_attention(&Warning::counts(&self.attention));
    }

    async fn keep(mut self, mut requeue_at: OffsetDateTime, reporting: Reporting) {
        loop {
            // A look does not restart this wait, which compares the clocks only every 10 s.
            let mut due = pin!(wait_until(requeue_at, self.looked));
            loop {
                self.report(&reporting);
                tokio::select! {
                    () = &mut due => break,
                    // Other pools change the verdicts on pointer configs.
                    Ok(()) = self.pools.changed() => break,
                    () = tokio::time::sleep(BETWEEN_LOOKS) => {
                        tokio::task::block_in_place(|| self.look());
                    }
                }
            }
            requeue_at = tokio::task::block_in_place(|| self.reconcile());
        }
    }
}

/// Waits for the next check of the certificates. A file can be restored, so a wait never lasts for years. If the clock
/// is set, as after a start without a battery, certificates of the earlier time may need an immediate repair.
async fn wait_until(time: OffsetDateTime, (since, started): (OffsetDateTime, Instant)) {
    let wait = (time - since).clamp(SHORTEST_WAIT, LONGEST_WAIT).unsigned_abs();
    while let Some(left) = wait.checked_sub(started.elapsed()) {
        tokio::time::sleep(left.min(SHORTEST_WAIT.unsigned_abs())).await;
        let set_by = OffsetDateTime::now_utc() - (since + started.elapsed());
        if set_by.abs() > SHORTEST_WAIT {
            return;
        }
    }
}

/// Hosts of the certificate, the one for pointer configs first: the given ones, then this machine's addresses that
/// others can reach, then its names, then those that only it can reach.
fn hosts(given: &[Host], own: &[Host]) -> Vec<Host> {
    let mut hosts = Vec::new();
    for host in given.iter().chain(own) {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

/// Names and addresses of this machine, loopback ones included.
fn own_hosts() -> Vec<Host> {
    let mut addresses: Vec<IpAddr> = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        })
        .collect();
    addresses.sort();
    let addresses = addresses.into_iter().map(Host::Address);
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = name.and_then(|name| name.parse::<Host>().ok());
    let local = [
        Host::Name("localhost".to_owned()),
        Host::Address(Ipv4Addr::LOCALHOST.into()),
        Host::Address(Ipv6Addr::LOCALHOST.into()),
    ];
    addresses.chain(name).chain(local).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_given_comes_first_and_none_comes_twice() {
        let host = |text: &str| text.parse::<Host>().unwrap();
        let given = [host("mcs.example.com"), host("localhost")];
        let own = [host("192.0.2.1"), host("localhost")];
        assert_eq!(
            hosts(&given, &own),
            [host("mcs.example.com"), host("localhost"), host("192.0.2.1")]
        );
    }

    #[test]
    fn this_machine_reaches_itself_by_a_name_of_its_own() {
        assert!(own_hosts().contains(&Host::Name("localhost".to_owned())));
    }
}
