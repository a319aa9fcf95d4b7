//! Where inputs come from: a directory of manifests, or a cluster.
//!
//! A source reads, and sends one immutable [`Inputs`] for each change. It is the only part
//! that does I/O for what is served; all that follows is a function of the value it sent.

pub mod cluster;
mod credentials;
pub mod directory;
mod files;
pub mod manifest;
mod merged_pools;
mod plain_configs;
mod secret_seen;

use model::access::Records;
use model::inputs::Inputs;
use model::ledger::NodeIndex;
use model::objects::SecretName;
use tokio::sync::watch;

use self::cluster::{Cluster, NamedSecret};
use self::directory::{Directory, Layout, OpenError};
use crate::kubernetes::client::ConnectError;
use crate::telemetry::Reporting;

pub use self::secret_seen::SecretSeen;

/// Where to read.
#[derive(Debug)]
pub enum Settings {
    /// Files.
    Directory(Layout),
    /// The Kubernetes API.
    Cluster(cluster::Settings),
}

/// Why there is no source at all.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The files cannot be read, and there is no earlier state to fall back on.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// There is no way to the API server.
    #[error(transparent)]
    Cluster(#[from] ConnectError),
}

/// A source that can be followed.
pub enum Source {
    /// Files.
    Directory(Box<Directory>),
    /// The Kubernetes API.
    Cluster(Box<Cluster>),
}

impl Source {
    /// Opens a source. The second value is what it holds, where that can be told without waiting
    /// for anybody: a directory has been read, a cluster has not. Call it within a runtime.
    pub async fn open(settings: Settings) -> Result<(Self, Option<Inputs>), SourceError> {
        Ok(match settings {
            Settings::Directory(layout) => {
                let (directory, inputs) = Directory::open(layout)?;
                (Self::Directory(Box::new(directory)), Some(inputs))
            }
            Settings::Cluster(settings) => {
                let cluster = Cluster::connect(settings).await?;
                (Self::Cluster(Box::new(cluster)), None)
            }
        })
    }

    /// What keeps `roster` in step with a cluster's nodes, for ever; files have none.
    #[must_use]
    pub fn follow_nodes(
        &self,
        nodes: NodeIndex,
        reporting: Reporting,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        match self {
            Self::Directory(_) => None,
            Self::Cluster(cluster) => Some(cluster.follow_nodes(nodes, reporting)),
        }
    }

    /// Follows one secret of a cluster from now on. Call it within a runtime.
    #[must_use]
    pub fn secret(&self, name: SecretName) -> Option<NamedSecret> {
        match self {
            Self::Directory(_) => None,
            Self::Cluster(cluster) => Some(cluster.secret(name)),
        }
    }

    /// Sends what a cluster's servers are told of tokens, for ever; where files are served, tokens are
    /// files too. With `are_known` a list that is not there is one that was lost.
    #[must_use]
    pub fn follow_tokens(
        &self,
        are_known: bool,
        records: watch::Sender<Option<Records>>,
        reporting: Reporting,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        match self {
            Self::Directory(_) => None,
            Self::Cluster(cluster) => Some(cluster.follow_tokens(are_known, records, reporting)),
        }
    }

    /// Sends the inputs of a cluster, and each change of either, for ever. Spawn it on a runtime with
    /// several threads.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        match self {
            Self::Directory(directory) => directory.follow(inputs, reporting).await,
            Self::Cluster(cluster) => cluster.follow(inputs, reporting).await,
        }
    }
}
