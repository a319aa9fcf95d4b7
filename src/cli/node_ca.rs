//! `node-ca`: the registries' certificate authorities of a running node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use clap::Args as ClapArgs;
use tokio::signal::unix::{SignalKind, signal};

use super::flags::duration;
use super::follow::Following;
use crate::kube_client;
use crate::node_ca::{Layout, Reconciler, Report};
use crate::objects::ConfigMap;
use crate::registry_ca::{self, Entries, MANAGED_NAMESPACE, MERGED_MAP};
use crate::source::cluster::follow_registry_cas;
use crate::source::watch::{Follower, Look};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The container runtime whose files are kept
    #[arg(long, value_enum, default_value_t = Layout::Crio)]
    layout: Layout,
    /// Folder to keep; /etc/docker/certs.d, or for containerd /etc/containerd/certs.d, by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How often to read files too that do not seem to have changed
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    resync: Duration,
}

/// The entries that were read last, `None` before any were.
type Newest = Arc<Mutex<Option<Entries>>>;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = args.dir.clone().unwrap_or_else(|| args.layout.folder().into());
    tracing::info!(version = super::version(), folder = %folder.display(), "starting");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let kubeconfig = args.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty());
    let client = runtime.block_on(kube_client::connect(kubeconfig))?;

    let newest = Newest::default();
    let reconciler = Reconciler::new(folder.clone(), args.layout, args.resync);
    let keeping = Keeping { reconciler, newest: Arc::clone(&newest), problems: BTreeMap::new() };
    let (following, ended) =
        Following::start("certs-d", vec![folder.clone()], |follower| keeping.run(follower))?;
    let waker = following.waker();
    let mut refused = Vec::new();
    let tell = |map: Option<&ConfigMap>| {
        let Some(map) = map else {
            tracing::warn!(
                folder = %folder.display(),
                "ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP} is not there; what is on the node is kept"
            );
            return;
        };
        let entries = registry_ca::read(map);
        for entry in entries.refused.iter().filter(|entry| !refused.contains(*entry)) {
            let reason = entry.to_string();
            tracing::error!(place = entry.place, reason, "not used; all else in it is");
        }
        refused.clone_from(&entries.refused);
        *newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(entries);
        waker.wake();
    };
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            () = follow_registry_cas(client, tell) => {
                Err(anyhow!("what follows the config map ended unexpectedly"))
            }
            _ = ended => Err(anyhow!("what keeps the folder ended unexpectedly")),
        }
    });
    following.stop();
    result
}

/// Looks after the folder whenever it or the config map changes.
struct Keeping {
    reconciler: Reconciler,
    newest: Newest,
    /// What stood in the way at the last look.
    problems: BTreeMap<String, String>,
}

impl Keeping {
    fn run(mut self, follower: Follower) {
        follower.follow(|_| {
            let entries = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(entries) = entries {
                let report = self.reconciler.reconcile(&entries, SystemTime::now());
                self.tell(report);
            }
            Look::Settled
        });
    }

    fn tell(&mut self, report: Report) {
        let Report { written, adopted, removed, problems } = report;
        for (hosts, done) in
            [(written, "CA written"), (adopted, "CA found in place"), (removed, "CA removed")]
        {
            for host in hosts {
                tracing::info!(registry = host.as_str(), "{done}");
            }
        }
        for (path, reason) in &problems {
            if self.problems.get(path) != Some(reason) {
                tracing::error!(path, reason, "not as it should be");
            }
        }
        for path in self.problems.keys().filter(|path| !problems.contains_key(*path)) {
            tracing::info!(path, "in order again");
        }
        self.problems = problems;
    }
}
