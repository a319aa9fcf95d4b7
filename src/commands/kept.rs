//! What a state directory or a cluster keeps: certificates, keys and pointer configs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use kube::Client;
use model::access::rotation::Pointer;
use model::user_data::{Assessment, LeftAlone, assess, carriers};
use pki::{Asked, Certificate, CertificateState, Host, StoredPair};

use super::rendering::read_manifests;
use super::tell;
use crate::controllers::NAMESPACE;
use crate::controllers::certificates::{AUTHORITY, ClusterState, Observer, SERVING};
use crate::controllers::tokens;
use crate::kubernetes::client;
use crate::store::state_directory::StateDirectory;
use crate::store::unreadable::Unreadable;

/// Where certificates are kept.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a folder, with pointer configs.
    Directory(PathBuf),
    /// In a cluster.
    Cluster {
        /// A kubeconfig; without one, the pod's service account is used.
        kubeconfig: Option<PathBuf>,
        /// Where the secrets with user data are.
        user_data_namespace: String,
    },
}

/// What a place holds.
pub(super) struct Seen {
    pub(super) place: String,
    pub(super) observed: CertificateState,
    pub(super) pointers: Vec<(String, Vec<u8>)>,
    /// Those of them that no machine is made from, as an administrator says.
    pub(super) unused: BTreeSet<String>,
    /// Files with keys that others than their owner can read.
    pub(super) open_files: Vec<String>,
    /// The pools that have a config, empty where they are not known.
    pub(super) pools: BTreeSet<String>,
    /// What is wrong with files that the server could not read when it is started again.
    pub(super) unreadable: Vec<String>,
    /// Where the signing CA and the serving pair are.
    pub(super) files: [String; 2],
}

impl Seen {
    /// Further authorities that were the server's once.
    fn known(&self) -> Vec<Certificate> {
        let stored = self.observed.authority.iter().flat_map(StoredPair::authorities);
        let root = self.observed.root_authority.as_deref().unwrap_or_default();
        stored.chain(Certificate::read_all(root)).collect()
    }

    /// What the pointer configs carry that a rotation of tokens looks after.
    pub(super) fn carriers(&self) -> Vec<Pointer> {
        let (trusted, known) = (self.observed.trusted(), self.known());
        let used = self.pointers.iter().filter(|(name, _)| !self.unused.contains(name));
        used.flat_map(|(name, text)| carriers(name, text, &trusted, &known, true)).collect()
    }

    /// Why a pointer config that names authorities trusts none that is known to be the server's, or
    /// is not looked at.
    pub(super) fn stranger(&self, pointer: &[u8]) -> Option<LeftAlone> {
        match assess(pointer, &self.observed.trusted(), &self.known()) {
            Assessment::LeftAlone(
                reason @ (LeftAlone::Foreign | LeftAlone::NameOnly | LeftAlone::TooLarge),
            ) => Some(reason),
            _ => None,
        }
    }
}

/// What is to be served from a place.
pub(super) struct Served {
    /// What the place is called.
    pub(super) place: String,
    /// Leaf first; empty without a serving pair.
    pub(super) chain: Vec<Certificate>,
    /// The pools that have a config, empty where they are not known.
    pub(super) pools: BTreeSet<String>,
}

/// What a server would serve from a place, with the pools of `manifests` where those are given.
///
/// # Errors
/// The place cannot be read, or there is a serving pair that no server can serve.
pub(super) fn served(place: &Place, manifests: Option<&Path>) -> anyhow::Result<Served> {
    let Seen { place, observed, pools, files: [_, serving], .. } = see_by(place, manifests)?;
    let chain = observed.serving.as_ref().map(StoredPair::served_chain).transpose();
    Ok(Served { place, chain: chain.context(serving)?.unwrap_or_default(), pools })
}

pub(super) fn see(place: &Place) -> anyhow::Result<Seen> {
    see_by(place, None)
}

/// The same. The pools of a folder are those of `manifests`, where those are given.
pub(super) fn see_by(place: &Place, manifests: Option<&Path>) -> anyhow::Result<Seen> {
    match place {
        Place::Directory(directory) => {
            let inputs =
                manifests.map(|root| read_manifests(root.to_owned(), false)).transpose()?;
            see_directory(directory, inputs.map(|inputs| inputs.pools.into_keys().collect()))
        }
        Place::Cluster { kubeconfig, user_data_namespace } => {
            in_cluster(kubeconfig.as_deref(), async |client| {
                Ok(see_cluster(&client, user_data_namespace).await?.0)
            })
        }
    }
}

/// `pools` are those that have a config, where that is known.
pub(super) fn see_directory(
    directory: &Path,
    pools: Option<BTreeSet<String>>,
) -> anyhow::Result<Seen> {
    let state = open(directory)?.with_pools(pools.map(Arc::new));
    let hosts = present_hosts(&state)?;
    let pointers = state.pointers()?.into_iter();
    Ok(Seen {
        pools: state.pools()?,
        place: directory.display().to_string(),
        observed: state.observe(&hosts, &Asked::default())?,
        open_files: state.open_files().iter().map(|path| path.display().to_string()).collect(),
        unreadable: state.unreadable().iter().map(Unreadable::to_string).collect(),
        files: state.key_files(),
        pointers: pointers.map(|file| (file.path.display().to_string(), file.text)).collect(),
        unused: BTreeSet::new(),
    })
}

/// What a cluster holds, and its objects as they were read.
pub(super) async fn see_cluster(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<(Seen, ClusterState)> {
    let controller = Observer::new(client.clone(), namespace.to_owned(), Vec::new());
    let state = controller.observe_as_kept().await?;
    let observed = state.certificates(&state.user_data_duties()?, &BTreeSet::new())?;
    let title = |name: &String| format!("Secret {namespace}/{name}");
    let pointers = state.user_data.iter().filter_map(|(name, secret)| {
        let data = secret.data.as_ref()?.get("userData")?;
        Some((title(name), data.0.clone()))
    });
    let unused = state.user_data.iter().filter(|(_, secret)| tokens::is_unused(secret));
    let seen = Seen {
        pools: state.pools.iter().map(|pool| pool.name.clone()).collect(),
        place: "the cluster".to_owned(),
        pointers: pointers.collect(),
        unused: unused.map(|(name, _)| title(name)).collect(),
        open_files: Vec::new(),
        unreadable: Vec::new(),
        files: [AUTHORITY, SERVING].map(|name| format!("Secret {NAMESPACE}/{name}")),
        observed,
    };
    Ok((seen, state))
}

pub(super) fn in_cluster<T>(
    kubeconfig: Option<&Path>,
    work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client::connect(kubeconfig.map(Path::to_owned)).await?;
        work(client).await
    })
}

/// The folder, which has to be there: a slip in its name must not make a new one.
pub(super) fn open(directory: &Path) -> anyhow::Result<StateDirectory> {
    if !directory.is_dir() {
        bail!("--state-dir {}: there is no such directory", directory.display());
    }
    Ok(StateDirectory::open(directory, tell_wait)?)
}

fn tell_wait(directory: &Path) {
    tell(&format!("waiting for another process that changes {}", directory.display()));
}

/// The names of the serving certificate that is there, for one that replaces it.
pub(super) fn present_hosts(state: &StateDirectory) -> anyhow::Result<Vec<Host>> {
    let leaf = state.observe(&[], &Asked::default())?.served();
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let mut hosts: Vec<Host> = leaf.hosts.into_iter().collect();
    // The main one is the common name.
    hosts.sort_by_key(|host| host.to_string() != leaf.common_name);
    Ok(hosts)
}
