//! Sources of inputs: a directory of manifests, or a cluster.
//!
//! A source reads, and sends an immutable [`Inputs`] for each change. No other part does I/O for configs; rendering is
//! a function of the value that it sends.

mod bootstrap;
pub mod cluster;
mod credentials;
pub mod directory;
mod directory_objects;
mod files;
pub mod manifest;
mod merged_pools;
mod object_set;
mod plain_configs;
mod secret_seen;

use model::inputs::Inputs;
use tokio::sync::{mpsc, watch};

use self::cluster::{Cluster, LiveRequest};
use self::directory::{Directory, Layout, OpenError};
use crate::kubernetes::client::ConnectError;
use crate::telemetry::Reporting;

pub use self::secret_seen::SecretSeen;

/// Settings of a source.
#[derive(Debug)]
pub enum Settings {
    Directory(Layout),
    /// The Kubernetes API.
    Cluster(cluster::Settings),
}

/// Reasons why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The files are unreadable, and there is no earlier state.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// A client for the API server cannot be created.
    #[error(transparent)]
    Cluster(#[from] ConnectError),
}

/// An opened source.
pub enum Source {
    Directory(Box<Directory>),
    /// The Kubernetes API.
    Cluster(Box<Cluster>),
}

impl Source {
    /// Opens a source. The second value is its inputs if they are known without a wait: a directory has been read, a
    /// cluster has not. Must be called within a runtime.
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

    /// The cluster, if the source is one.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Directory(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// Reads a cluster's pools at each of these requests.
    pub fn take_live_requests(&mut self, requests: mpsc::Receiver<LiveRequest>) {
        if let Self::Cluster(cluster) = self {
            cluster.take_live_requests(requests);
        }
    }

    /// Sends the inputs after each change, forever. Must be spawned on a runtime with several threads.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        match self {
            Self::Directory(directory) => directory.follow(inputs, reporting).await,
            Self::Cluster(cluster) => cluster.follow(inputs, reporting).await,
        }
    }
}
