//! Flags of all servers: listeners, limits and networks.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use common::flags::{LISTENING, Switch, TLS, delay};
use model::access::{AccessMode, Allowed, MinIgnition, Network, Networks};
use model::snapshot::AccessRules;

use super::administrators::AdministratorsAddress;
use crate::server::Limits;
use crate::serving::tls::policy::{TlsPolicy, warn_ignored_suites};

const ANSWERS: &str = "Answers";
const NETWORKS: &str = "Networks";

/// Flags of all servers. Each names its heading: without one it would come under that of the previous group.
#[derive(Debug, Args)]
#[command(mut_arg("metrics_address", |arg| arg.help("Address and port for metrics; `off` for none")))]
pub(crate) struct ServingFlags {
    #[command(flatten)]
    pub(in crate::commands) listen: ListenFlags,
    /// Oldest TLS version: VersionTLS12 or VersionTLS13; VersionTLS12 by default, unless the cluster has a
    /// TLS profile
    #[arg(long, value_name = "VERSION", help_heading = TLS)]
    tls_min_version: Option<String>,
    /// Cipher suites by their IANA names; all safe ones by default
    #[arg(long, value_name = "SUITE,...", value_delimiter = ',', help_heading = TLS)]
    tls_cipher_suites: Vec<String>,
    /// Prefer the post-quantum key exchange X25519MLKEM768 if a client offers it
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = TLS)]
    tls_post_quantum: Switch,
    /// OpenShift release that this server belongs to, for the log
    #[arg(long, value_name = "VERSION", help_heading = ANSWERS)]
    payload_version: Option<String>,
    /// Send Ignition the contents of files gzipped: the same machine in fewer bytes; other clients get them
    /// uncompressed
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = ANSWERS)]
    pub(in crate::commands) compact: Switch,
    /// Oldest Ignition that machines should have. Older ones are reported, with :hold they get no config. A pool's
    /// annotation overrides it
    #[arg(long, value_name = "VERSION[:warn|:hold]", help_heading = ANSWERS)]
    min_ignition_version: Option<MinIgnition>,
    /// Take reports of machines whose first boot failed after they got their config, at /v1/node-failure
    #[arg(long, value_name = "on|off", default_value = "off", hide_possible_values = true, help_heading = ANSWERS)]
    pub(in crate::commands) failure_reports: Switch,
    /// Time to continue serving after SIGTERM, with /readyz/serving at 503, so that a load balancer sends no
    /// machine to a closed port
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = delay, help_heading = "Limits")]
    pub(in crate::commands) shutdown_delay: Duration,
    /// Network from which configs can be requested, everywhere by default; networks of a pool replace the
    /// general ones for that pool. Repeatable
    #[arg(long, value_name = "[POOL=]CIDR", help_heading = NETWORKS)]
    allow_from: Vec<Allowed>,
    /// Network of load balancers, which must send the client's address with the PROXY protocol, version 1 or
    /// 2; other clients must not. Repeatable
    #[arg(long, value_name = "CIDR", help_heading = NETWORKS)]
    pub(in crate::commands) proxy_from: Vec<Network>,
    #[command(flatten)]
    pub(in crate::commands) limits: Limits,
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

impl ServingFlags {
    /// Logs the start of the server.
    pub(crate) fn log_start(&self) {
        tracing::info!(
            version = crate::commands::version(),
            payload_version = self.payload_version.as_deref().unwrap_or("unknown"),
            "starting"
        );
    }

    /// TLS versions and cipher suites. Ignored suites are logged.
    pub(in crate::commands) fn tls_policy(&self) -> anyhow::Result<TlsPolicy> {
        let min_version = self.tls_min_version.as_deref().unwrap_or_default();
        let (policy, skipped) = TlsPolicy::new(min_version, &self.tls_cipher_suites)
            .context("--tls-min-version, --tls-cipher-suites")?;
        warn_ignored_suites(&skipped);
        Ok(policy.with_post_quantum(self.tls_post_quantum.is_on()))
    }

    /// Returns true if a cluster's TLS profile applies, which these flags override.
    pub(in crate::commands) fn follows_profile(&self) -> bool {
        self.tls_min_version.is_none() && self.tls_cipher_suites.is_empty()
    }

    /// Rules of access, with the mode of pools without an annotation.
    pub(in crate::commands) fn rules(&self, mode: AccessMode) -> AccessRules {
        let networks = Networks::new(self.allow_from.clone());
        AccessRules { mode, networks, min_ignition: self.min_ignition_version }
    }
}
