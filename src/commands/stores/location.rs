//! Location of certificates, pointer configs and tokens.

use std::path::PathBuf;

use clap::Args;

use super::cluster::ClusterStore;
use super::directory::{DirectoryStore, open_state};
use super::state_store::StateStore;
use crate::store::state_directory::StateDirectory;

/// Flags for the state directory of `serve`, or a cluster.
#[derive(Debug, Args)]
pub(in crate::commands) struct StateFlags {
    /// Directory in which `serve` keeps its certificates and pointer configs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// Use the cluster's objects instead, with this kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(in crate::commands) kubeconfig: Option<PathBuf>,
    /// Use the cluster's objects instead, with the pod's service account
    #[arg(long, conflicts_with_all = ["state_dir", "kubeconfig"])]
    in_cluster: bool,
}

impl StateFlags {
    pub(in crate::commands) fn is_cluster(&self) -> bool {
        self.in_cluster || self.kubeconfig.is_some()
    }

    /// Connects to the cluster, if the flags name one.
    pub(in crate::commands) fn cluster(
        &self,
        user_data_namespace: &str,
    ) -> anyhow::Result<Option<ClusterStore>> {
        let connect = || ClusterStore::connect(self.kubeconfig.clone(), user_data_namespace);
        self.is_cluster().then(connect).transpose()
    }

    /// Opens an existing directory: a typo must not create a new one.
    pub(in crate::commands) fn directory(&self) -> anyhow::Result<StateDirectory> {
        open_state(&self.state_dir)
    }
}

/// Flags for a location with user data.
#[derive(Debug, Args)]
pub(crate) struct StateLocationFlags {
    #[command(flatten)]
    pub(in crate::commands) state: StateFlags,
    /// Namespace of the cluster's Secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
}

impl StateLocationFlags {
    /// Connects to the cluster that the flags name.
    pub(in crate::commands) fn cluster(&self) -> anyhow::Result<ClusterStore> {
        ClusterStore::connect(self.state.kubeconfig.clone(), &self.user_data_namespace)
    }

    /// Opens the store.
    pub(in crate::commands) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        Ok(match self.state.cluster(&self.user_data_namespace)? {
            Some(cluster) => Box::new(cluster),
            None => Box::new(DirectoryStore(self.state.directory()?)),
        })
    }
}
