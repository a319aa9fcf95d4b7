//! Flags that several commands share.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use ignition::SpecVersion;
use pki::Host;

use super::network_flags::NetworkFlags;
use crate::commands;
use crate::commands::administrators::AdministratorsAddress;
use crate::commands::server::{Listen, PairFiles, ServingOptions};
use crate::server::{ConnectionLimits, Limits};
use crate::serving::tls_policy::{TlsPolicy, warn_passed_over};
use crate::telemetry::Verbosity;

/// The reference server's logging flags. `--v` counts; the others are accepted, so that an
/// existing invocation works, and change nothing: log lines go to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct KlogFlags {
    /// How much to log: 0 to 3 what an administrator needs, 4 more, 8 everything
    #[arg(long = "v", short = 'v', global = true, value_name = "N", default_value_t = 0)]
    v: i32,
    #[command(flatten)]
    ignored: IgnoredKlogFlags,
}

impl KlogFlags {
    pub(super) fn verbosity(&self) -> Verbosity {
        Verbosity(self.v)
    }
}

/// Flags that take a value, and flags of Go's boolean form: `--flag`, `--flag=true`.
macro_rules! ignored_flags {
    (values { $($value:ident = $value_name:literal,)* } switches { $($switch:ident = $switch_name:literal,)* }) => {
        #[derive(Debug, Args)]
        #[allow(dead_code, reason = "accepted for the sake of existing invocations")]
        struct IgnoredKlogFlags {
            $(
                #[arg(long = $value_name, global = true, hide = true)]
                $value: Option<String>,
            )*
            $(
                #[arg(long = $switch_name, global = true, hide = true, num_args = 0..=1,
                    require_equals = true, default_missing_value = "true",
                    value_parser = BoolishValueParser::new())]
                $switch: Option<bool>,
            )*
        }
    };
}

ignored_flags! {
    values {
    log_backtrace_at = "log_backtrace_at",
    log_dir = "log_dir",
    log_file = "log_file",
    log_file_max_size = "log_file_max_size",
    log_flush_frequency = "log-flush-frequency",
    stderrthreshold = "stderrthreshold",
    vmodule = "vmodule",
    }
    switches {
    logtostderr = "logtostderr",
    alsologtostderr = "alsologtostderr",
    legacy_stderr_threshold_behavior = "legacy_stderr_threshold_behavior",
    add_dir_header = "add_dir_header",
    one_output = "one_output",
    skip_headers = "skip_headers",
    skip_log_headers = "skip_log_headers",
    }
}

/// The heading of flags that say where a command listens.
pub(super) const LISTENING: &str = "Listening";
/// The heading of flags about TLS and the serving pair.
pub(super) const TLS: &str = "TLS";
const ANSWERS: &str = "Answers";

/// Where to listen, with which certificate, within which limits. Each flag names its heading: without one it would come
/// under that of the group before it.
#[derive(Debug, Args)]
pub(super) struct ServingFlags {
    /// Port for TLS; 0 takes any free one
    #[arg(long, default_value_t = 22623, value_name = "PORT", help_heading = LISTENING)]
    secure_port: u16,
    /// Port without TLS; 0 turns it off
    #[arg(long, default_value_t = 22624, value_name = "PORT", help_heading = LISTENING)]
    insecure_port: u16,
    /// Address to listen on; all of the machine's by default
    #[arg(long, value_name = "ADDRESS", help_heading = LISTENING)]
    listen_address: Option<IpAddr>,
    /// Address and port for metrics; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8797", value_parser = metrics_address,
        help_heading = LISTENING)]
    metrics_address: MetricsAddress,
    #[command(flatten)]
    metrics_names: MetricsNames,
    /// Oldest TLS version: VersionTLS12 or VersionTLS13; VersionTLS12 where nothing else says so
    #[arg(long, value_name = "VERSION", help_heading = TLS)]
    tls_min_version: Option<String>,
    /// Cipher suites by their IANA names; all safe ones by default
    #[arg(long, value_name = "SUITE,...", value_delimiter = ',', help_heading = TLS)]
    tls_cipher_suites: Vec<String>,
    /// Prefer the key exchange that a quantum computer cannot undo (X25519MLKEM768), where a client
    /// offers it
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = TLS)]
    tls_post_quantum: Switch,
    /// The OpenShift release that this server belongs to, for the log
    #[arg(long, value_name = "VERSION", help_heading = ANSWERS)]
    payload_version: Option<String>,
    /// Whether Ignition itself gets the contents of files gzipped, the same machine in fewer bytes;
    /// others never do
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = ANSWERS)]
    compact: Switch,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    networks: NetworkFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitFlags {
    /// Time for a TLS handshake: 10s, 500ms, 1m 30s and the like, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    handshake_timeout: Duration,
    /// Time for a request's head
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    head_timeout: Duration,
    /// Time from an answer to the next request on its connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    idle_timeout: Duration,
    /// Time that a client may go without reading its answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    stall_timeout: Duration,
    /// Time to serve on when the server is told to stop, with /readyz/serving at 503, so that a balancer
    /// sends no machine to a closed port
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = delay)]
    shutdown_delay: Duration,
    /// Time for connections to finish after that
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,
    /// Largest request head in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16384,
        value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    max_head_bytes: u32,
    /// Connections at a time; past it the longest idle one goes
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Connections at a time from one IPv4 address, or one IPv6 network of 64 bits; 0 for as many as
    /// there are, where all machines come through one balancer
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    max_connections_per_source: u32,
    /// Memory in MiB that all connections together may take, what the kernel holds for their clients
    /// included; past it answers wait, and clients that do not read lose their connections
    #[arg(long, value_name = "MIB", default_value_t = 48,
        value_parser = clap::value_parser!(u32).range(8..=65_536))]
    max_connection_memory: u32,
    /// Requests on one connection
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_requests_per_connection: u32,
    /// How old a connection gets; an answer under way then has as long again
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    max_connection_age: Duration,
}

impl ServingFlags {
    /// Says in the log what is starting.
    pub(super) fn log_start(&self) {
        tracing::info!(
            version = commands::version(),
            payload_version = self.payload_version.as_deref().unwrap_or("unknown"),
            "starting"
        );
    }

    /// How configs are served. Suites that are passed over are logged.
    pub(super) fn options(self) -> anyhow::Result<ServingOptions> {
        let min_version = self.tls_min_version.as_deref().unwrap_or_default();
        let (policy, passed_over) = TlsPolicy::new(min_version, &self.tls_cipher_suites)
            .context("--tls-min-version, --tls-cipher-suites")?;
        warn_passed_over(&passed_over);
        Ok(ServingOptions {
            listen: Listen {
                address: self.listen_address,
                secure_port: self.secure_port,
                insecure_port: Some(self.insecure_port).filter(|port| *port != 0),
                administrators: self.metrics_names.at(self.metrics_address),
            },
            policy: policy.with_post_quantum(self.tls_post_quantum == Switch::On),
            // Flags go before a cluster's profile.
            follows_profile: self.tls_min_version.is_none() && self.tls_cipher_suites.is_empty(),
            shutdown_delay: self.limits.shutdown_delay,
            limits: self.limits.limits(),
            networks: self.networks.networks(),
            balancers: self.networks.balancers(),
            is_compact: self.compact == Switch::On,
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

/// A certificate file with its key's.
#[derive(Debug, Args)]
pub(super) struct PairFlags {
    /// Certificate for TLS
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt", help_heading = TLS)]
    cert: PathBuf,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key", help_heading = TLS)]
    key: PathBuf,
}

impl PairFlags {
    pub(super) fn files(self) -> PairFiles {
        PairFiles { certificate: self.cert, key: self.key }
    }
}

/// Reads an Ignition spec: `3.4` or `3.4.0`.
pub(super) fn spec(text: &str) -> Result<SpecVersion, String> {
    SpecVersion::read(text).ok_or_else(|| "expected 2.2 or one of 3.0 to 3.6".to_owned())
}

/// Where metrics are given out, `None` for nowhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetricsAddress(pub(super) Option<SocketAddr>);

/// The names of that address.
#[derive(Debug, Args)]
pub(super) struct MetricsNames {
    /// Further host name by which clients ask at the metrics address, such as a proxy's; IP addresses,
    /// localhost, this machine's own name and those of a cluster's services need none
    #[arg(long = "metrics-name", value_name = "NAME,...", value_delimiter = ',', help_heading = LISTENING)]
    names: Vec<Host>,
}

impl MetricsNames {
    /// Where administrators ask, and by which names.
    pub(super) fn at(&self, MetricsAddress(address): MetricsAddress) -> AdministratorsAddress {
        AdministratorsAddress { address, names: self.names.clone() }
    }
}

pub(super) fn metrics_address(text: &str) -> Result<MetricsAddress, String> {
    if text.is_empty() || text == "off" {
        return Ok(MetricsAddress(None));
    }
    let address = text.parse().map_err(|_| "expected ADDRESS:PORT or off".to_owned())?;
    Ok(MetricsAddress(Some(address)))
}

/// A longer time is a slip, and would overflow a timer.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Reads `10s`, `500ms`, `1m 30s` and the like, or a plain number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(
            |_| "expected a time such as 10s, 500ms, 2m, 1h or 1m 30s, or a number of seconds",
        )?,
    };
    if time.is_zero() || time > A_YEAR {
        return Err("expected more than nothing and at most a year".to_owned());
    }
    Ok(time)
}

/// The same, or none at all.
fn delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3_600)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("365d"), Ok(A_YEAR));
        for text in ["", "s", "-1s", "10 s ago", "99999999999999999999", "5 fortnights"] {
            assert!(duration(text).unwrap_err().contains("such as 10s"), "{text:?}");
        }
        for text in ["0", "0s", "366d", "31536001", "18446744073709551615"] {
            assert!(duration(text).unwrap_err().contains("at most a year"), "{text:?}");
        }
    }
}
