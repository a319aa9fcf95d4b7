//! Sources of inputs: a directory of manifests, or a cluster.
//!
//! A source reads, and sends an immutable [`Inputs`] for each change. No other part does I/O for configs; rendering is
//! a function of the value that it sends.

/// Converts an object to its value if it is of one kind, for iterators.
macro_rules! as_kind {
    ($kind:ident) => {
        |object| if let Object::$kind(value) = object { Some(value) } else { None }
    };
}

mod bootstrap;
mod butane;
pub mod cluster;
mod conversions;
mod credentials;
pub mod directory;
pub mod early_pools;
mod files;
mod last_good;
mod listing;
mod lost;
pub mod manifest;
mod merged_pools;
mod object_set;
mod place;
mod plain_configs;

use model::inputs::Inputs;
use model::objects::SecretName;
use telemetry::Reporting;
use tokio::sync::watch;

pub use self::butane::Butane;
use self::cluster::{Cluster, NamedSecret};
use self::directory::{Directory, Layout};
use self::early_pools::{EarlyPools, Opened};

#[derive(Debug)]
pub enum Settings {
    Directory(Layout),
    Cluster(cluster::Settings),
}

pub enum Source {
    Directory(Box<Directory>),
    /// A directory that is as an earlier process has served it, and is not read yet.
    Unread(Box<EarlyPools>),
    Cluster(Box<Cluster>),
}

impl Source {
    /// Opens a source. The second value is its inputs if they are known without a wait: of a directory that has changed
    /// since it was served, or never was. Must be called within a runtime.
    ///
    /// # Errors
    /// The files are unreadable and there is no earlier state, or a client for the API server cannot be created.
    pub async fn open(settings: Settings) -> anyhow::Result<(Self, Option<Inputs>)> {
        let read = |(directory, inputs)| (Self::Directory(Box::new(directory)), Some(inputs));
        Ok(match settings {
            // One bad file keeps nobody else from booting.
            Settings::Directory(layout @ Layout::Tree { .. }) => match Opened::soon(layout)? {
                Opened::Read(directory, inputs) => read((directory, inputs)),
                Opened::Unread(pools) => (Self::Unread(Box::new(pools)), None),
            },
            Settings::Directory(layout) => read(Directory::open(layout)?),
            Settings::Cluster(settings) => {
                let cluster = Cluster::connect(settings).await?;
                (Self::Cluster(Box::new(cluster)), None)
            }
        })
    }

    pub fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Directory(_) | Self::Unread(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// Follows a Secret of the cluster, if there is one.
    pub(crate) fn secret(&self, name: SecretName) -> Option<NamedSecret> {
        Some(NamedSecret::new(self.cluster()?.client(), name))
    }

    /// Sends the inputs after each change, forever. Must be spawned on a runtime with several threads.
    pub async fn follow(self, inputs: watch::Sender<Option<Inputs>>, reporting: Reporting) {
        match self {
            Self::Directory(directory) => directory.follow(inputs, reporting).await,
            Self::Unread(pools) => pools.follow(inputs, reporting).await,
            Self::Cluster(cluster) => cluster.follow(inputs, reporting).await,
        }
    }
}
