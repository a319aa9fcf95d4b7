//! Location of certificates, pointer configs and tokens.

use std::path::PathBuf;

use clap::Args;

use super::cluster_store::ClusterStore;
use super::directory_store::DirectoryStore;
use super::state_store::StateStore;

/// A state directory or a cluster, not opened yet.
#[derive(Debug, Clone)]
pub(crate) enum StateLocation {
    Directory(PathBuf),
    Cluster {
        /// Path of a kubeconfig; `None` uses the pod's service account.
        kubeconfig: Option<PathBuf>,
        user_data_namespace: String,
    },
}

impl StateLocation {
    /// Opens the store.
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        Ok(match self {
            Self::Directory(path) => Box::new(DirectoryStore::open(path)?),
            Self::Cluster { kubeconfig, user_data_namespace } => {
                Box::new(ClusterStore::connect(kubeconfig.clone(), user_data_namespace)?)
            }
        })
    }
}

/// Flags for a location.
#[derive(Debug, Args)]
pub(crate) struct StateLocationFlags {
    /// Directory in which `serve` keeps its certificates and pointer configs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// Use the cluster's certificates instead, with this kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    kubeconfig: Option<PathBuf>,
    /// Use the cluster's certificates instead, with the pod's service account
    #[arg(long, conflicts_with_all = ["state_dir", "kubeconfig"])]
    in_cluster: bool,
    /// Namespace of the cluster's Secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
}

impl StateLocationFlags {
    /// Opens the store.
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        self.location().open()
    }

    pub(crate) fn location(&self) -> StateLocation {
        let Self { state_dir, kubeconfig, in_cluster, user_data_namespace } = self;
        match (kubeconfig, in_cluster) {
            (None, false) => StateLocation::Directory(state_dir.clone()),
            (kubeconfig, _) => StateLocation::Cluster {
                kubeconfig: kubeconfig.clone(),
                user_data_namespace: user_data_namespace.clone(),
            },
        }
    }
}
