//! Causes why a machine does not come up, in the words that people search for.

use std::fmt;

use ignition::SpecVersion;
use pki::Host;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Cause why a machine does not come up, as far as it is visible from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The host name does not resolve.
    NameUnknown(String),
    /// The connection is refused: a server, or a balancer in front of it, is down.
    ServerDown(String),
    /// The port answers without TLS.
    NoTls(String),
    /// The served chain leads to no CA that the machine trusts.
    UnknownCa(String),
    /// The serving certificate lacks the requested name.
    WrongName {
        /// Requested host.
        asked: Host,
        /// Names in the certificate.
        named: Vec<String>,
    },
    /// The serving certificate has expired.
    ServingPairExpired(String),
    /// The machine's clock is wrong, and the certificates are valid by the server's.
    WrongClock {
        /// Time of the machine's clock.
        machine: OffsetDateTime,
        /// Correct time.
        right: OffsetDateTime,
        /// Reason why the machine refuses the certificates.
        reported: String,
    },
    /// The certificates are refused for another reason.
    Refused(String),
    /// Access is refused, with this HTTP status.
    AccessRefused(u16),
    /// No pool has the requested name.
    PoolUnknown {
        /// Requested pool.
        pool: String,
        /// Pools that exist, if they are known.
        known: Vec<String>,
    },
    /// The pool has no rendered config yet.
    NoConfigYet(String),
    /// The config cannot be expressed in the requested spec.
    NotInSpec {
        /// Requested spec.
        asked: SpecVersion,
        /// Specs in which the config is served.
        served: Vec<SpecVersion>,
        /// Reason, if it is known.
        reported: String,
        /// True if the machine receives the config and gives up.
        is_received: bool,
    },
    /// Ignition would refuse the config, or it cannot be rendered.
    InvalidConfig {
        /// Fault of the config.
        reported: String,
        /// True if the machine receives the config and gives up.
        is_received: bool,
    },
    /// The server cannot answer at present.
    NotNow {
        /// HTTP status.
        status: u16,
        /// Text of the answer.
        reported: String,
    },
    /// The machine gives up at this status.
    GivenUp {
        /// HTTP status.
        status: u16,
        /// Text of the answer.
        reported: String,
    },
    /// The answer is a redirect to this URL.
    Redirected(String),
    /// The server accepts the connection and sends no readable answer.
    NoAnswer(String),
}

impl Cause {
    /// Name in JSON output and in the runbook.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NameUnknown(_) => "name-unknown",
            Self::ServerDown(_) => "server-down",
            Self::NoTls(_) => "no-tls",
            Self::UnknownCa(_) => "unknown-authority",
            Self::WrongName { .. } => "wrong-name",
            Self::ServingPairExpired(_) => "serving-pair-expired",
            Self::WrongClock { .. } => "wrong-clock",
            Self::Refused(_) => "certificate-refused",
            Self::AccessRefused(_) => "access-refused",
            Self::PoolUnknown { .. } => "pool-unknown",
            Self::NoConfigYet(_) => "no-config-yet",
            Self::NotInSpec { .. } => "not-in-spec",
            Self::InvalidConfig { .. } => "invalid-config",
            Self::NotNow { .. } => "not-now",
            Self::GivenUp { .. } => "given-up",
            Self::Redirected(_) => "redirected",
            Self::NoAnswer(_) => "no-answer",
        }
    }

    /// Returns `true` if a machine retries until the cause is gone; otherwise it gives up, and must be booted again.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        !matches!(
            self,
            Self::GivenUp { .. }
                | Self::AccessRefused(_)
                | Self::Redirected(_)
                | Self::InvalidConfig { is_received: true, .. }
                | Self::NotInSpec { is_received: true, .. }
        )
    }

    /// Action for the administrator.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NameUnknown(_) => "check the DNS entry, and the name in the pointer config",
            Self::ServerDown(_) => "start the server, or check the load balancer and the firewall",
            Self::NoTls(_) => "use port 22623, which has TLS; port 22624 has none",
            Self::UnknownCa(_) => {
                "give the machine the newest pointer config: its present one trusts other CAs"
            }
            Self::WrongName { .. } => {
                "add the name to --host of the server, or use a name of the certificate"
            }
            Self::ServingPairExpired(_) => {
                "renew the serving certificate with `certs rotate`; if that fails, run `certs check` for the reason"
            }
            Self::WrongClock { .. } => "set the machine's clock",
            Self::Refused(_) => "run `certs check --pointer FILE --connect HOST:PORT` for details",
            Self::AccessRefused(_) => {
                "allow the machine's network, or give it a token for this pool"
            }
            Self::PoolUnknown { .. } => {
                "check the name of the pool in the URL of the pointer config"
            }
            Self::NoConfigYet(_) => {
                "correct the MachineConfigs that /readyz names; in a cluster, also run `oc get mcp`"
            }
            Self::NotInSpec { .. } => {
                "boot the machine from a newer image, or remove what its spec cannot express from the config"
            }
            Self::InvalidConfig { .. } => {
                "correct the MachineConfig; the server's log names the field"
            }
            Self::NotNow { .. } => "read the reason in /readyz or in the log of the server",
            Self::GivenUp { .. } => "correct what the answer names",
            Self::Redirected(_) => {
                "use that URL in the pointer config, if the machine trusts that server"
            }
            Self::NoAnswer(_) => {
                "check which program listens on that port, and the load balancer in front of it"
            }
        }
    }
}

impl fmt::Display for Cause {
    /// Formats the cause as one line. Foreign text in it is not escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameUnknown(reported) => write!(f, "the host name does not resolve: {reported}"),
            Self::ServerDown(reported) => write!(f, "the server is down: {reported}"),
            Self::NoTls(reported) => write!(f, "the port answers without TLS: {reported}"),
            Self::UnknownCa(reported) => {
                write!(f, "certificate signed by unknown authority: {reported}")
            }
            Self::WrongName { asked, named } if named.is_empty() => {
                write!(f, "the name {asked} is not in the serving certificate, which has no name")
            }
            Self::WrongName { asked, named } => write!(
                f,
                "the name {asked} is not in the serving certificate, which is for {}",
                named.join(", "),
            ),
            Self::ServingPairExpired(reported) => write!(f, "the serving certificate {reported}"),
            Self::WrongClock { machine, right, reported } => write!(
                f,
                "the machine's clock is wrong: it shows {} instead of {}; therefore {reported}",
                date(*machine),
                date(*right),
            ),
            Self::Refused(reported) => {
                write!(f, "the machine refuses the serving certificate: {reported}")
            }
            Self::AccessRefused(status) => {
                write!(f, "the server's access rules refuse the machine: status {status}")
            }
            Self::PoolUnknown { pool, known } if known.is_empty() => {
                write!(f, "no pool has the name {pool}")
            }
            Self::PoolUnknown { pool, known } => {
                write!(f, "no pool has the name {pool}; known pools: {}", known.join(", "))
            }
            Self::NoConfigYet(reported) => write!(f, "the pool has no config yet: {reported}"),
            Self::NotInSpec { asked, served, reported, .. } => {
                write!(f, "the config cannot be expressed in the machine's spec {asked}")?;
                if !reported.is_empty() {
                    write!(f, ": {reported}")?;
                }
                match (served.first(), served.last()) {
                    (Some(first), Some(last)) if first != last => {
                        write!(f, "; it is served in {first} to {last}")
                    }
                    (Some(only), _) => write!(f, "; it is served in {only}"),
                    _ => Ok(()),
                }
            }
            Self::InvalidConfig { reported, .. } => write!(f, "the config is invalid: {reported}"),
            Self::NotNow { status, reported } => {
                write!(f, "the server has no answer now: status {status}: {reported}")
            }
            Self::GivenUp { status, reported } => {
                write!(f, "the server refuses the request: status {status}: {reported}")
            }
            Self::Redirected(url) => write!(f, "the server redirects the request to {url}"),
            Self::NoAnswer(reported) => write!(f, "the server sends no valid answer: {reported}"),
        }
    }
}

/// Formats a time to the second.
pub(super) fn date(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
