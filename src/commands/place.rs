//! Where certificates, pointer configs and tokens are kept.

use std::path::PathBuf;

use clap::Args;

use super::cluster_store::ClusterStore;
use super::directory_store::DirectoryStore;
use super::state_store::StateStore;

/// A state directory or a cluster, not looked at yet.
#[derive(Debug, Clone)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A cluster.
    Cluster {
        /// A kubeconfig; without one, the pod's service account is used.
        kubeconfig: Option<PathBuf>,
        /// Where the secrets with user data are.
        user_data_namespace: String,
    },
}

impl Place {
    /// What is kept there.
    ///
    /// # Errors
    /// There is no such directory, or no configuration to reach the cluster by.
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        Ok(match self {
            Self::Directory(path) => Box::new(DirectoryStore::open(path)?),
            Self::Cluster { kubeconfig, user_data_namespace } => {
                Box::new(ClusterStore::connect(kubeconfig.clone(), user_data_namespace)?)
            }
        })
    }
}

/// Flags that say where.
#[derive(Debug, Args)]
pub struct PlaceFlags {
    /// Where `serve` keeps its certificates and pointer configs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// The cluster's certificates instead, reached by this kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    kubeconfig: Option<PathBuf>,
    /// The cluster's certificates instead, reached by the pod's service account
    #[arg(long, conflicts_with_all = ["state_dir", "kubeconfig"])]
    in_cluster: bool,
    /// Namespace of the cluster's secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
}

impl PlaceFlags {
    /// What is kept there.
    ///
    /// # Errors
    /// As those of [`Place::open`].
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        self.place().open()
    }

    /// The place that they name.
    pub(crate) fn place(&self) -> Place {
        let Self { state_dir, kubeconfig, in_cluster, user_data_namespace } = self;
        match (kubeconfig, in_cluster) {
            (None, false) => Place::Directory(state_dir.clone()),
            (kubeconfig, _) => Place::Cluster {
                kubeconfig: kubeconfig.clone(),
                user_data_namespace: user_data_namespace.clone(),
            },
        }
    }
}
