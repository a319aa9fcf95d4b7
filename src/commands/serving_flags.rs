//! Flags of all servers: listeners, limits and networks.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use model::access::{Allowed, MinIgnition, Network, Networks};

use super::server::{ListenFlags, ServingOptions};
use crate::flags::{Switch, TLS, delay, duration};
use crate::server::{Balancers, ConnectionLimits, Limits};
use crate::serving::tls_policy::{TlsPolicy, warn_ignored_suites};

const ANSWERS: &str = "Answers";

/// Flags of all servers. Each names its heading: without one it would come under that of the previous group.
#[derive(Debug, Args)]
#[command(mut_arg("metrics_address", |arg| arg.help("Address and port for metrics; `off` for none")))]
pub(crate) struct ServingFlags {
    #[command(flatten)]
    listen: ListenFlags,
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
    compact: Switch,
    /// Oldest Ignition that machines should have. Older ones are reported, with :hold they get no config. A pool's
    /// annotation overrides it
    #[arg(long, value_name = "VERSION[:warn|:hold]", help_heading = ANSWERS)]
    min_ignition_version: Option<MinIgnition>,
    /// Take reports of machines whose first boot failed after they got their config, at /v1/node-failure
    #[arg(long, value_name = "on|off", default_value = "off", hide_possible_values = true, help_heading = ANSWERS)]
    failure_reports: Switch,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    networks: NetworkFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitFlags {
    /// Time for a TLS handshake: 10s, 500ms, 1m 30s, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    handshake_timeout: Duration,
    /// Time for a request's head
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    head_timeout: Duration,
    /// Time from an answer to the next request on its connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    idle_timeout: Duration,
    /// Time without progress after which a client that does not read its answer is disconnected
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    stall_timeout: Duration,
    /// Time to continue serving after SIGTERM, with /readyz/serving at 503, so that a load balancer sends no
    /// machine to a closed port
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = delay)]
    shutdown_delay: Duration,
    /// Time for open connections to finish after that
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,
    /// Largest request head in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16384,
        value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    max_head_bytes: u32,
    /// Maximum number of connections; above it, the server closes the connection that was idle longest
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Maximum number of connections from one IPv4 address, or one IPv6 network of 64 bits; 0 for no limit,
    /// if all machines come through one load balancer
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    max_connections_per_source: u32,
    /// Memory in MiB for all connections together, including the kernel's buffers; past it answers wait, and
    /// clients that do not read are disconnected
    #[arg(long, value_name = "MIB", default_value_t = 48,
        value_parser = clap::value_parser!(u32).range(8..=65_536))]
    max_connection_memory: u32,
    /// Maximum number of requests on one connection
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_requests_per_connection: u32,
    /// Maximum age of a connection; an answer in progress then gets the same time again
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    max_connection_age: Duration,
}

impl ServingFlags {
    /// Logs the start of the server.
    pub(crate) fn log_start(&self) {
        tracing::info!(
            version = super::version(),
            payload_version = self.payload_version.as_deref().unwrap_or("unknown"),
            "starting"
        );
    }

    /// Converts the flags to options. Ignored cipher suites are logged.
    pub(crate) fn options(self) -> anyhow::Result<ServingOptions> {
        let min_version = self.tls_min_version.as_deref().unwrap_or_default();
        let (policy, passed_over) = TlsPolicy::new(min_version, &self.tls_cipher_suites)
            .context("--tls-min-version, --tls-cipher-suites")?;
        warn_ignored_suites(&passed_over);
        Ok(ServingOptions {
            listen: self.listen,
            policy: policy.with_post_quantum(self.tls_post_quantum == Switch::On),
            // Flags override a cluster's profile.
            follows_profile: self.tls_min_version.is_none() && self.tls_cipher_suites.is_empty(),
            shutdown_delay: self.limits.shutdown_delay,
            limits: self.limits.limits(),
            networks: Networks::new(self.networks.allow_from),
            min_ignition: self.min_ignition_version,
            balancers: Balancers::new(self.networks.proxy_from),
            is_compact: self.compact == Switch::On,
            takes_reports: self.failure_reports == Switch::On,
        })
    }
}

impl LimitFlags {
    fn limits(&self) -> Limits {
        Limits {
            handshake: self.handshake_timeout,
            head: self.head_timeout,
            idle: self.idle_timeout,
            stall: self.stall_timeout,
            drain: self.drain_timeout,
            head_bytes: self.max_head_bytes as usize,
            age: self.max_connection_age,
            requests: self.max_requests_per_connection,
            connections: ConnectionLimits {
                all: self.max_connections as usize,
                source: Some(self.max_connections_per_source as usize).filter(|most| *most != 0),
                bytes: u64::from(self.max_connection_memory) << 20,
            },
        }
    }
}

/// Networks of clients and balancers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Networks")]
struct NetworkFlags {
    /// Network from which configs can be requested, everywhere by default; networks of a pool replace the
    /// general ones for that pool. Repeatable
    #[arg(long, value_name = "[POOL=]CIDR")]
    allow_from: Vec<Allowed>,
    /// Network of load balancers, which must send the client's address with the PROXY protocol, version 1 or
    /// 2; other clients must not. Repeatable
    #[arg(long, value_name = "CIDR")]
    proxy_from: Vec<Network>,
}
