//! Settings of a server, which the commands make of their flags.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::access::machine::Window;
use model::access::rotation::RotationPolicy;
use model::access::{AccessMode, MinIgnition, Networks};
use model::objects::SecretName;
use model::snapshot::AccessRules;
use pki::Host;

use super::administrators::AdministratorsAddress;
use super::overview::JudgePointers;
use crate::flags::LISTENING;
use crate::server::{Balancers, Limits};
use crate::serving::tls_policy::TlsPolicy;
use crate::serving::token_cache::TokenCache;
use crate::serving::token_issuer::TokenIssuer;
use crate::source;
use crate::store::state_directory::StateDirectory;

pub(crate) use crate::serving::serving_pair::PairFiles;

pub(crate) struct ServingOptions {
    /// Listen addresses and ports.
    pub listen: ListenFlags,
    /// TLS versions and cipher suites.
    pub policy: TlsPolicy,
    /// True if the cluster's TLS profile overrides the policy.
    pub follows_profile: bool,
    /// Limits of clients.
    pub limits: Limits,
    /// Delay between SIGTERM and closing the listeners: a balancer learns later that this server stops.
    pub shutdown_delay: Duration,
    /// Networks that may request configs.
    pub networks: Networks,
    /// Oldest Ignition of pools without an annotation.
    pub min_ignition: Option<MinIgnition>,
    /// Networks of balancers, which send PROXY headers.
    pub balancers: Balancers,
    /// True if Ignition gets compact configs.
    pub is_compact: bool,
    /// True if machines can report failed first boots.
    pub takes_reports: bool,
}

impl ServingOptions {
    /// Rules of access, with the mode of pools without an annotation.
    pub(super) fn rules(&self, mode: AccessMode) -> AccessRules {
        let (networks, min_ignition) = (self.networks.clone(), self.min_ignition);
        AccessRules { mode, networks, min_ignition }
    }
}

pub(crate) struct ServerSettings {
    /// Source of the inputs.
    pub source: source::Settings,
    pub options: ServingOptions,
    /// Files of the serving certificate.
    pub pair: PairFiles,
    /// Age of what a cluster's watches reported after which it is confirmed before an answer; `None` for no bound.
    pub read_live_after: Option<Duration>,
    /// Secret of the cluster with the serving certificate, used until the files exist.
    pub pair_secret: Option<SecretName>,
    pub access: AccessSettings,
    /// Directory of the boot ledger, if it is stored.
    pub ledger_directory: Option<PathBuf>,
    /// Name of the cluster's other servers, with the port of their administrators' listener.
    pub peers: Option<String>,
    /// Judge of the known pointer configs.
    pub pointers: Option<JudgePointers>,
    /// State that this process manages, if it has a state directory.
    pub local: Option<Local>,
    /// Time for which a machine's token stays open after its first use, and for which an approval holds.
    pub window: Window,
}

/// State directory of a server.
pub(crate) struct Local {
    pub state: StateDirectory,
    /// Host in its pointer configs.
    pub host: Host,
    pub tokens: RotationPolicy,
}

#[derive(Default)]
pub(crate) struct AccessSettings {
    /// Mode of pools that have no annotation.
    pub mode: AccessMode,
    /// Another issuer of accepted tokens.
    pub issuer: Option<TokenIssuer>,
    /// Cache of the records of tokens, if there is one.
    pub cache: Option<TokenCache>,
}

/// Listen addresses and ports.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListenFlags {
    /// Port with TLS; 0 for any free one
    #[arg(long, default_value_t = 22623, value_name = "PORT", help_heading = LISTENING)]
    pub secure_port: u16,
    /// Port without TLS; 0 for none
    #[arg(long, default_value_t = 22624, value_name = "PORT", help_heading = LISTENING)]
    pub insecure_port: u16,
    /// Address to listen on; all addresses of the machine by default
    #[arg(long, value_name = "ADDRESS", help_heading = LISTENING)]
    pub listen_address: Option<IpAddr>,
    #[command(flatten)]
    pub administrators: AdministratorsAddress,
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
