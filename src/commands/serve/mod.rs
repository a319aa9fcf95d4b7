//! The command `serve`: a server on a directory of manifests, which creates everything else that a first boot needs.

pub(crate) mod start_block;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use common::flags::{AUDIT, CertificateFlags, TokenFlags};
use common::hang::unless_hung;
use controllers::certificates::Trust;
use files::lock::LockError;
use files::shared_watch::SharedWatch;
use model::inputs::{Inputs, Problem};
use nix::ifaddrs::getifaddrs;
use pki::Host;
use telemetry::wait_until_written;
use time::OffsetDateTime;

use self::start_block::StartBlock;
use super::process::terminal;
use super::rendering::ManifestFlags;
use super::server::access_flags::AccessFlags;
use super::server::flags::ServingFlags;
use super::server::overview::{PointerVerdicts, pointer_verdicts};
use super::server::{self, ClusterFlags, Local, PairFiles, Ports, Server, ServerSettings};
use crate::serving::certificates::CertificateReconciler;
use crate::serving::pipeline::publish::{Published, Subscription};
use crate::source;
use crate::source::directory::{Layout, Memory};
use crate::store::machine_files::removed_machines;
use crate::store::state_directory::StateDirectory;

/// Maximum wait for a command, or a server that ends, which has the directory for a moment.
const OTHERS_END: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(mut_arg("access", |arg| arg.default_value(AUDIT)))]
pub(crate) struct ServeSettings {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Directory for the certificates and pointer configs, which the server makes
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// Name or address with which machines reach this server; pointer configs get the first one; this
    /// machine's names and addresses are added
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// Refuse manifests with a field without effect: an unknown one, or one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    manifests: ManifestFlags,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

/// Serves until SIGTERM or SIGINT.
#[allow(
    clippy::too_many_lines,
    reason = "the order of a start, each step with what the last has made"
)]
pub(crate) fn run(settings: ServeSettings) -> anyhow::Result<()> {
    let mut serving = settings.serving;
    let policy = serving.tls_policy()?;
    let registry_credentials = settings.access.registry_auth.clone();
    let access = settings.access.settings(None)?;
    // Names of this server for machines are also valid for administrators.
    serving.listen.administrators.names.extend_from_slice(&settings.hosts);
    let listened = serving.listen.listen_address.filter(|address| !address.is_unspecified());
    let hosts = hosts(&settings.hosts, listened, &own_hosts());
    // The best host for machines elsewhere comes first.
    let pointer_host = hosts[0].clone();
    let memory = memory(&settings.state_dir);
    check_directory(&settings.dir, &settings.state_dir, memory.last_good.is_dir())?;
    let state = StateDirectory::of_this_server(&settings.state_dir)?;
    let _lock = match state.lock_for_serving(OTHERS_END) {
        Err(error @ LockError::Served { .. }) => bail!(error),
        // As on a file system without locks. A failure must not keep machines from what is there.
        Err(error) => {
            tracing::error!(
                %error,
                fix = "run one server on a state directory; correct what the error names",
                "cannot lock the state directory"
            );
            None
        }
        Ok(lock) => Some(lock),
    };
    if let Err(error) = state.remove_leftovers() {
        tracing::warn!(
            %error,
            fix = "make the state directory writable for this server",
            "cannot remove what killed processes left"
        );
    }
    let mut certificates =
        CertificateReconciler::new(state.clone(), hosts, settings.certificates.policy());
    // A failure must not keep machines from the present certificates.
    certificates.reconcile();
    let mut files = SharedWatch::new(vec![state.path().to_owned()]);
    certificates.follow(&mut files);

    let of_pointers = state.clone();
    let judge = move |pools, now| judge_pointers(&of_pointers.clone().with_pools(pools), now);
    let manifests = settings.dir.clone();
    let server = ServerSettings {
        source: source::Settings::Directory(Layout::Tree {
            root: settings.dir,
            registry_credentials,
            is_strict: settings.strict,
            memory: Some(memory),
            butane: settings.manifests.butane(),
        }),
        serving,
        policy,
        pair: PairFiles { certificate: state.serving_path(), key: state.serving_path() },
        access,
        ledger_directory: Some(settings.state_dir),
        cluster: ClusterFlags::default(),
        pointers: Some(Box::new(judge)),
        local: Some(Local {
            state: state.clone(),
            host: pointer_host.clone(),
            tokens: settings.tokens.policy(),
            files,
        }),
    };
    server::block_on(async {
        let mut server = Server::start(server).await?;
        let announcer = Announcer { state, host: pointer_host, ports: server.ports, manifests };
        let certificates = certificates.run(server.published.clone(), server.reporting.clone());
        let announce = announcer.follow(server.published.clone());
        server.tasks.spawn("the task that prints the next steps", announce);
        server.tasks.spawn("the task that renews certificates", certificates);
        server.run().await
    })
}

/// Refuses a directory of manifests that is mistyped, before anything is made for it, and one that is the state directory.
/// One that was served may come back, also if it hangs.
fn check_directory(directory: &Path, state: &Path, was_served: bool) -> anyhow::Result<()> {
    let [directory, state] = [directory, state].map(Path::to_owned);
    let check = move || {
        match std::fs::metadata(&directory) {
            Err(error) if !was_served => bail!("{}: {error}", directory.display()),
            _ => {}
        }
        match [directory, state].map(std::fs::canonicalize) {
            [Ok(manifests), Ok(state)] if manifests == state => bail!(
                "{}: --state-dir is the directory of manifests; give another one",
                state.display()
            ),
            _ => Ok(()),
        }
    };
    unless_hung(check, || was_served.then_some(Ok(())))
}

/// Places in a state directory for the source of manifests.
pub(super) fn memory(state: &Path) -> Memory {
    Memory { last_good: state.join("last-good"), removed: removed_machines(state) }
}

/// Pointer configs with the verdict if a machine boots from them at present. Read errors are reported elsewhere.
fn judge_pointers(state: &StateDirectory, now: OffsetDateTime) -> Option<PointerVerdicts> {
    let observed = state.observe(&[]).ok()?;
    Some(pointer_verdicts(&Trust::of(&observed), now))
}

/// Prints the next steps once all is read, and warns of a directory without pools.
struct Announcer {
    state: StateDirectory,
    host: Host,
    ports: Ports,
    manifests: PathBuf,
}

impl Announcer {
    async fn follow(self, mut published: Subscription) {
        let (mut is_announced, mut was_empty) = (false, false);
        loop {
            let now = Arc::clone(&published.borrow_and_update());
            if let Some(inputs) = now.checked() {
                let is_empty = inputs.pools.is_empty();
                if is_empty && !was_empty {
                    tracing::warn!(
                        directory = %self.manifests.display(),
                        fix = "add the manifest of a MachineConfigPool to the directory",
                        "no MachineConfigPool found, serving nothing"
                    );
                }
                was_empty = is_empty;
                // The next steps are below the first warnings, where they are seen.
                if !std::mem::replace(&mut is_announced, true) {
                    self.announce(&now, inputs);
                }
            }
            if published.changed().await.is_err() {
                return;
            }
        }
    }

    fn announce(&self, published: &Published, inputs: &Inputs) {
        let problems = inputs.problems.iter();
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
            pointers: &published.pointer_configs,
            faults: &faults,
        };
        // Lines of the log are written by a thread.
        tokio::task::block_in_place(wait_until_written);
        terminal::print(&block.lines(terminal::style()));
    }
}

/// Hosts of the certificate, the one for pointer configs first: the given ones, then the only address that the server
/// listens on, if there is one, then this machine's addresses that others can reach, then its names, then those that only
/// it can reach.
fn hosts(given: &[Host], listened: Option<IpAddr>, own: &[Host]) -> Vec<Host> {
    let (listened, mut known) = (listened.map(Host::Address), BTreeSet::new());
    let all = given.iter().chain(&listened).chain(own);
    all.filter(|host| known.insert(*host)).cloned().collect()
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
    let name = super::host_name().and_then(|name| name.parse::<Host>().ok());
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
            hosts(&given, None, &own),
            [host("mcs.example.com"), host("localhost"), host("192.0.2.1")]
        );
        // Nothing listens at the others.
        let listened = "127.0.0.1".parse().ok();
        assert_eq!(
            hosts(&[], listened, &own),
            [host("127.0.0.1"), host("192.0.2.1"), host("localhost")]
        );
    }

    #[test]
    fn this_machine_reaches_itself_by_a_name_of_its_own() {
        assert!(own_hosts().contains(&Host::Name("localhost".to_owned())));
    }
}
