//! Where certificates, pointer configs and tokens are kept.

use std::path::PathBuf;

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
