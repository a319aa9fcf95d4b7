//! The command `start`: the reference server's command line, in a running cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::access::AccessMode;
use model::access::machine::Window;
use model::objects::SecretName;
use model::registry_credentials::DEFAULT_SECRET;

use super::server::{self, AccessSettings, PairFiles, ServerSettings};
use super::serving_flags::ServingFlags;
use super::token_issuer_flags::TokenIssuerFlags;
use crate::flags::{OFF, TLS, duration, host_and_port, url};
use crate::serving::token_cache::TokenCache;
use crate::source::{self, cluster};

#[derive(Debug, Args)]
pub(crate) struct StartSettings {
    /// URL of the API server in the kubeconfig for machines
    #[arg(long, value_name = "URL", value_parser = url)]
    apiserver_url: String,
    /// Kubeconfig for this server's access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Directory with the token that machines join the cluster with, in `token`, and the API server's CAs, in
    /// `ca.crt`
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
    /// Directory for a copy of the cluster's state, without the token, so that a server that starts while the
    /// API server is unavailable can serve
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Read the pools and their images from the API server before an answer, if they were last read longer ago: for
    /// pools that must never get an older image because a watch lags. Off by default
    #[arg(long, value_name = "TIME", value_parser = duration)]
    read_live_after: Option<Duration>,
    /// Name and port of all servers' metrics addresses, such as a headless Service, so that each server shows
    /// every machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    peers: Option<String>,
    /// Access mode of pools without an annotation: off serves all clients; audit serves all and reports
    /// requests that would be refused; enforce serves clients with a token
    #[arg(long, value_name = "off|audit|enforce", default_value = OFF, help_heading = "Access")]
    access: AccessMode,
    /// Serve machines with names, by their FirstBootMachines in the namespace openshift-machine-config-operator
    #[arg(long, help_heading = "Access")]
    first_boot_machines: bool,
    /// Time for which a machine's own token opens its config after the first answer that it took whole
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, help_heading = "Access")]
    machine_token_window: Duration,
    #[command(flatten)]
    issuer: TokenIssuerFlags,
    #[command(flatten)]
    pair: PairFiles,
    /// Secret with the serving certificate, read from the API server until the files of --cert and --key exist
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = TLS)]
    pair_secret: Option<SecretName>,
    /// Give machines of enforced pools the registry credentials of this Secret, or of the pool's Secret;
    /// openshift-config/pull-secret without a name
    #[arg(long, value_name = "NAMESPACE/NAME", num_args = 0..=1, default_missing_value = DEFAULT_SECRET,
        help_heading = "Access")]
    registry_auth: Option<SecretName>,
    #[command(flatten)]
    serving: ServingFlags,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: StartSettings) -> anyhow::Result<()> {
    settings.serving.log_start();
    let ledger_directory = settings.cache_dir.clone();
    let cache = settings.cache_dir.as_deref().map(TokenCache::new);
    server::run(ServerSettings {
        source: source::Settings::Cluster(cluster::Settings {
            kubeconfig: settings.kubeconfig,
            apiserver_url: settings.apiserver_url,
            token_dir: settings.bootstrap_token_dir,
            cache_dir: settings.cache_dir,
            registry_credentials: settings.registry_auth,
            machines: settings.first_boot_machines,
        }),
        options: settings.serving.options()?,
        pair: settings.pair,
        read_live_after: settings.read_live_after,
        pair_secret: settings.pair_secret,
        access: AccessSettings { mode: settings.access, issuer: settings.issuer.issuer()?, cache },
        ledger_directory,
        peers: settings.peers,
        pointers: None,
        local: None,
        window: Window(settings.machine_token_window),
    })
}
