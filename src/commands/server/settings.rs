//! Settings of a server, which the commands make of their flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use common::flags::{TLS, duration, host_and_port};
use files::shared_watch::SharedWatch;
use model::access::AccessMode;
use model::access::machine::Window;
use model::access::rotation::RotationPolicy;
use model::objects::SecretName;
use pki::Host;

use super::flags::ServingFlags;
use super::overview::JudgePointers;
use crate::serving::tls::policy::TlsPolicy;
use crate::serving::tokens::cache::TokenCache;
use crate::serving::tokens::issuer::TokenIssuer;
use crate::source;
use crate::store::state_directory::StateDirectory;

pub(crate) use crate::serving::tls::serving_pair::PairFiles;

pub(crate) struct ServerSettings {
    /// Source of the inputs.
    pub source: source::Settings,
    pub serving: ServingFlags,
    /// TLS versions and cipher suites.
    pub policy: TlsPolicy,
    /// Files of the serving certificate.
    pub pair: PairFiles,
    pub access: AccessSettings,
    /// Directory of the boot ledger, if it is stored.
    pub ledger_directory: Option<PathBuf>,
    pub cluster: ClusterFlags,
    /// Judge of the known pointer configs.
    pub pointers: Option<JudgePointers>,
    /// State that this process manages, if it has a state directory.
    pub local: Option<Local>,
}

/// Host and port of the listener with TLS, as in a URL.
pub(crate) fn authority(local: Option<&Local>, port: u16) -> String {
    match local {
        Some(Local { host, .. }) => format!("{host}:{port}"),
        None => format!("HOST:{port}"),
    }
}

/// State directory of a server.
pub(crate) struct Local {
    pub state: StateDirectory,
    /// Host in its pointer configs.
    pub host: Host,
    pub tokens: RotationPolicy,
    /// Watch of the directory, also of the serving certificate.
    pub files: SharedWatch,
}

#[derive(Default)]
pub(crate) struct AccessSettings {
    /// Mode of pools that have no annotation.
    pub mode: AccessMode,
    /// Time for which a machine's token stays open after its first use, and for which an approval holds.
    pub window: Window,
    /// Another issuer of accepted tokens.
    pub issuer: Option<TokenIssuer>,
    /// Cache of the records of tokens, if there is one.
    pub cache: Option<TokenCache>,
}

/// Flags of a server in a cluster.
#[derive(Debug, Default, Args)]
pub(crate) struct ClusterFlags {
    /// Read the pools and their images from the API server before an answer, if they were last read longer ago: for
    /// pools that must never get an older image because a watch lags. Off by default
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub read_live_after: Option<Duration>,
    /// Name and port of all servers' metrics addresses, such as a headless Service, so that each server shows
    /// every machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub peers: Option<String>,
    /// Secret with the serving certificate, read from the API server until the files of --cert and --key exist
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = TLS)]
    pub pair_secret: Option<SecretName>,
}

/// Ports that were bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    /// Port for TLS.
    pub secure: u16,
    /// Port without TLS, if there is one.
    pub insecure: Option<u16>,
    /// Address of the status page and the metrics, if they are served.
    pub administrators: Option<SocketAddr>,
}
