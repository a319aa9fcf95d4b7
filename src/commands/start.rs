//! The command `start`: the reference server's command line, in a running cluster.

use clap::Args;

use super::server::access_flags::AccessFlags;
use super::server::flags::ServingFlags;
use super::server::{self, ClusterFlags, PairFiles, ServerSettings};
use crate::serving::tokens::cache::TokenCache;
use crate::source::{self, cluster};

#[derive(Debug, Args)]
pub(crate) struct StartSettings {
    #[command(flatten)]
    source: cluster::Settings,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    pair: PairFiles,
    #[command(flatten)]
    serving: ServingFlags,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: StartSettings) -> anyhow::Result<()> {
    let StartSettings { mut source, cluster, access, pair, serving } = settings;
    serving.log_start();
    source.registry_credentials.clone_from(&access.registry_auth);
    let ledger_directory = source.cache_dir.clone();
    let cache = source.cache_dir.as_deref().map(TokenCache::new);
    server::run(ServerSettings {
        source: source::Settings::Cluster(source),
        policy: serving.tls_policy()?,
        serving,
        pair,
        access: access.settings(cache)?,
        ledger_directory,
        cluster,
        pointers: None,
        local: None,
    })
}
