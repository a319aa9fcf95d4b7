//! The command `start`: the reference server's command line, in a running cluster.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use model::access::AccessMode;
use model::objects::SecretName;

use super::access_flags::IssuerFlags;
use super::registry_auth::RegistryCredentialsFlags;
use crate::commands::server::{self, AccessSettings, PairFiles, ServerSettings};
use crate::commands::serving_flags::ServingFlags;
use crate::flags::{OFF, TLS, host_and_port, url};
use crate::serving::token_cache::TokenCache;
use crate::source::{self, cluster};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The API server's URL in the kubeconfig that machines get
    #[arg(long, value_name = "URL", value_parser = url)]
    apiserver_url: String,
    /// Kubeconfig for this server's own access to the API server; the pod's service account by
    /// default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Directory with the token that machines join with, in `token`, and the API server's
    /// certificate authorities, in `ca.crt`
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
    /// Directory to keep the cluster's state in, never the token, so that a server that is started
    /// while the API server is away serves too
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Name and port of all servers' administrators' listeners, such as a headless service, so that
    /// each can tell of every machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    peers: Option<String>,
    /// Who gets configs where a pool does not say so itself: off everybody, audit everybody, telling who
    /// would be refused, enforce who has a token
    #[arg(long, value_name = "off|audit|enforce", default_value = OFF, help_heading = "Access")]
    access: AccessMode,
    #[command(flatten)]
    issuer: IssuerFlags,
    #[command(flatten)]
    pair: PairFiles,
    /// Secret with that pair, which is read from the API server for as long as --cert and --key are not
    /// there yet
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = TLS)]
    pair_secret: Option<SecretName>,
    #[command(flatten)]
    registry_auth: RegistryCredentialsFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    args.serving.log_start();
    let ledger_directory = args.cache_dir.clone();
    let cache = args.cache_dir.as_deref().map(TokenCache::new);
    server::run(ServerSettings {
        source: source::Settings::Cluster(cluster::Settings {
            kubeconfig: args.kubeconfig,
            apiserver_url: args.apiserver_url,
            token_dir: args.bootstrap_token_dir,
            cache_dir: args.cache_dir,
            registry_credentials: args.registry_auth.secret(),
        }),
        options: args.serving.options()?,
        pair: args.pair,
        pair_secret: args.pair_secret,
        access: AccessSettings { mode: args.access, issuer: args.issuer.issuer()?, cache },
        ledger_directory,
        peers: args.peers,
        pointers: None,
        local: None,
    })
}
