//! `serve`: a server on a directory of manifests, with everything made that a first boot needs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use model::access::rotation::RotationPolicy;
use model::inputs::Inputs;
use model::objects::SecretName;
use nix::ifaddrs::getifaddrs;
use pki::{Asked, Host, Policy, Warning};
use time::{Duration, OffsetDateTime};
use tokio::sync::watch;

use super::certs::{located, log_left_out, log_step};
use super::print_line;
use super::server::{
    self, AccessSettings, Local, PairFiles, Ports, Server, ServerSettings, ServingOptions,
};
use crate::commands::overview::{Judged, judged};
use crate::serving::publish::Served;
use crate::source;
use crate::source::directory::Layout;
use crate::store::state_directory::{Stamps, StateDirectory};
use crate::telemetry::{Reporting, log_attention};

/// How soon and how late the certificates are checked again.
const SHORTEST_WAIT: Duration = Duration::seconds(10);
const LONGEST_WAIT: Duration = Duration::hours(1);
/// How often the files are checked in between, so that readiness agrees with the page.
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_secs(5);

/// What is to be served.
pub struct ServeSettings {
    /// The top of the manifests' tree.
    pub manifests: PathBuf,
    /// Where the certificates and pointer configs are made and kept.
    pub state: PathBuf,
    /// Names and addresses that machines reach this server by, beside this machine's own.
    pub hosts: Vec<Host>,
    /// How certificates are made.
    pub certificates: Policy,
    /// How configs are served.
    pub options: ServingOptions,
    /// The secret among the manifests with registry logins for machines of enforced pools, if any is
    /// to be read.
    pub registry_credentials: Option<SecretName>,
    /// Whether manifests with something that has no effect are refused.
    pub is_strict: bool,
    /// Who gets configs.
    pub access: AccessSettings,
    /// How tokens are made.
    pub tokens: RotationPolicy,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(mut settings: ServeSettings) -> anyhow::Result<()> {
    // A name by which machines reach this server is one of this server.
    settings.options.listen.administrators.names.extend_from_slice(&settings.hosts);
    let hosts = hosts(&settings.hosts, &own_hosts());
    // The host that a machine elsewhere reaches this one by comes first.
    let pointer_host = hosts[0].clone();
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
    // What cannot be brought in order must not keep machines from what is there.
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
        pair_secret: None,
        access: settings.access,
        ledger_directory: Some(settings.state),
        peers: None,
        pointers: Some(Box::new(move |now| {
            judge_pointers(&of_pointers.clone().with_pools(pools.borrow().clone()), now)
        })),
        local: Some(local),
    };
    server::block_on(async {
        let mut server = Server::start(server).await?;
        let announcer =
            Announcer { state, host: pointer_host, ports: server.ports, manifests, known_pools };
        let renewal = renewal.keep(requeue_at, server.reporting.clone());
        let announce = announcer.follow(server.served.clone());
        server.tasks.spawn("what follows the pools", announce);
        server.tasks.spawn("what renews the certificates", renewal);
        server.run().await
    })
}

/// Which of the pointer configs boot a machine now. That they cannot be read is told elsewhere.
fn judge_pointers(state: &StateDirectory, now: OffsetDateTime) -> Option<Judged> {
    let seen = state.observe(&[], &Asked::default()).ok()?;
    let holders: Vec<_> =
        seen.pointers.iter().flat_map(|pointer| pointer.holders.clone()).collect();
    let faults: Vec<_> =
        seen.pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned()).collect();
    Some(judged(&seen.chain(), &holders, &faults, now))
}

/// Follows which pools are served, and says once what a person needs next.
struct Announcer {
    state: StateDirectory,
    host: Host,
    ports: Ports,
    /// The directory of manifests.
    manifests: PathBuf,
    /// Pools that have a config, for those that judge pointer configs by them.
    known_pools: watch::Sender<Option<Arc<BTreeSet<String>>>>,
}

impl Announcer {
    async fn follow(self, mut served: watch::Receiver<Option<Arc<Served>>>) {
        let mut is_announced = false;
        loop {
            if let Some(served) = served.borrow_and_update().as_ref() {
                self.tell_pools(&served.inputs);
                if !std::mem::replace(&mut is_announced, true) {
                    announce(&self.state, &self.host, self.ports, &served.pointer_configs);
                }
            }
            if served.changed().await.is_err() {
                return;
            }
        }
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
                "no MachineConfigPool found: nothing is served until a manifest of one is there"
            );
        }
    }
}

/// Keeps the certificates and pointer configs in order while the server runs. It may end at any
/// moment with the process: whatever it does is whole at every step.
struct Renewal {
    state: StateDirectory,
    /// The pools that have a config, once that is known.
    pools: watch::Receiver<Option<Arc<BTreeSet<String>>>>,
    hosts: Vec<Host>,
    policy: Policy,
    /// What was told to be out of order.
    attention: Vec<Warning>,
    /// Stamps of the files at the last look.
    stamps: Option<Stamps>,
    /// Why the last try failed.
    failure: Option<String>,
    /// When the last look was, by both clocks.
    looked: (OffsetDateTime, Instant),
}

impl Renewal {
    /// Does what is due, tells what cannot be done, and when something will be due again.
    fn reconcile(&mut self) -> OffsetDateTime {
        let generate = &mut |_| self.policy.algorithm.generate();
        self.looked = (OffsetDateTime::now_utc(), Instant::now());
        let (now, _) = self.looked;
        let asked = Asked::default();
        let state = self.state.clone().with_pools(self.pools.borrow_and_update().clone());
        match state.reconcile(&self.hosts, asked, &self.policy, now, generate) {
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
                    tracing::error!(error, "the certificates are not in order; trying again");
                }
                self.failure = Some(error);
                now
            }
        }
    }

    /// Checks the files that changed, and writes none: an administrator may be putting them in place.
    fn look(&mut self) {
        let stamps = self.state.stamps().ok();
        if stamps.is_some() && stamps == self.stamps {
            return;
        }
        let state = self.state.clone().with_pools(self.pools.borrow().clone());
        let looked = state.attention(&self.hosts, &self.policy, OffsetDateTime::now_utc());
        // Where it failed, as with another command at work, the next look tries again.
        if let Ok(attention) = looked {
            self.stamps = stamps;
            if let Some(attention) = attention {
                self.take(attention);
            }
        }
    }

    /// Logs what is new of it.
    fn take(&mut self, attention: Vec<Warning>) {
        let new = attention.iter().filter(|it| !self.attention.contains(it));
        let files = self.state.key_files();
        new.for_each(|it| log_attention(it, &located(it, &files)));
        self.attention = attention;
    }

    /// Updates readiness and metrics.
    fn report(&self, reporting: &Reporting) {
        let failure = self.failure.as_ref().map(|_| "they cannot be brought in order".into());
        let told = failure.or_else(|| Warning::summary(&self.attention));
        reporting.status.degraded.set("certificates", told);
        reporting.metrics.certificates_attention(&Warning::counts(&self.attention));
    }

    async fn keep(mut self, mut requeue_at: OffsetDateTime, reporting: Reporting) {
        loop {
            // Not restarted by a look: it compares the clocks only every 10 s.
            let mut due = pin!(wait_until(requeue_at, self.looked));
            loop {
                self.report(&reporting);
                tokio::select! {
                    () = &mut due => break,
                    // Pointer configs are judged by other pools.
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

/// Waits until the certificates are to be checked again. A file may be restored, so one wait is never
/// trusted for years; and where the clock is set, as it is just after a start without a battery,
/// what was made by the one before may have to be mended at once.
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

/// What a person needs next.
fn announce(state: &StateDirectory, host: &Host, ports: Ports, pointers: &[(String, PathBuf)]) {
    let Ports { secure, insecure, administrators } = ports;
    print_line(&format!("Serving {} pools on https://{host}:{secure}", pointers.len()));
    if let Some(insecure) = insecure {
        print_line(&format!("and without TLS on http://{host}:{insecure}"));
    }
    if let Some(address) = administrators {
        print_line(&format!("Status page: http://{}/", reachable(address)));
    }
    print_line("");
    for (pool, path) in pointers {
        print_line(&format!("  pool {pool}: https://{host}:{secure}/config/{pool}"));
        print_line(&format!("    give its machines this pointer config: {}", path.display()));
    }
    if let Some((pool, path)) = pointers.first() {
        print_line("");
        print_line("To see what a machine with Ignition spec 3.4 would get:");
        // By the token in its pointer config, which is read when the line is run, and not given as an
        // argument: other users of this machine see those. Where there is none, no header is sent.
        print_line(&format!(
            "  sed -n 's/.*\"\\(Bearer [^\"]*\\)\".*/Authorization: \\1/p' {} | curl --cacert {} -H @- \
             -H 'Accept: application/vnd.coreos.ignition+json;version=3.4.0' {}",
            shell_word(&path.display().to_string()),
            shell_word(&state.bundle_path().display().to_string()),
            shell_word(&format!("https://{host}:{secure}/config/{pool}")),
        ));
    }
}

/// An address that a browser on this machine reaches: one for all addresses is reached by the loopback one.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// A word as a shell takes it.
fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

/// The hosts of the certificate, the one for pointer configs first: those given, then this
/// machine's addresses that others can reach, then its names, then those that only it can reach.
fn hosts(given: &[Host], own: &[Host]) -> Vec<Host> {
    let mut hosts = Vec::new();
    for host in given.iter().chain(own) {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

/// This machine's own names and addresses. The loopback ones are always among them.
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
    fn what_a_shell_would_take_apart_is_quoted() {
        for (text, word) in [
            ("certs/user-data/worker.ign", "certs/user-data/worker.ign"),
            ("https://h:22623/config/worker", "https://h:22623/config/worker"),
            ("https://[::1]:22623/config/a", "'https://[::1]:22623/config/a'"),
            ("/my certs/$(id)", "'/my certs/$(id)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn this_machine_reaches_itself_by_a_name_of_its_own() {
        assert!(own_hosts().contains(&Host::Name("localhost".to_owned())));
    }
}
