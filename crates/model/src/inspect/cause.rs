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
    /// No pool has this name.
    PoolUnknown(String),
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
            Self::PoolUnknown(_) => "pool-unknown",
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
                "renew it with `certs rotate`; if that fails, `certs check` has the reason"
            }
            Self::WrongClock { .. } => "set the machine's clock",
            Self::Refused(_) => "run `certs check --pointer FILE --connect HOST:PORT` for details",
            Self::AccessRefused(_) => {
                "allow the machine's network, or give it a token for this pool"
            }
            Self::PoolUnknown(_) => "check the name of the pool in the URL of the pointer config",
            Self::NoConfigYet(_) => {
                "correct the MachineConfigs that /readyz names; in a cluster also see `oc get mcp`"
            }
            Self::NotInSpec { .. } => {
                "boot a newer image, or remove the named part from the config"
            }
            Self::InvalidConfig { .. } => {
                "correct the MachineConfig: the server's log names the place"
            }
            Self::NotNow { .. } => "check /readyz and the log of the server for what it waits for",
            Self::GivenUp { .. } => "correct it, then boot the machine again",
            Self::Redirected(_) => "use that URL: a machine follows it, if it trusts that server",
            Self::NoAnswer(_) => {
                "check which program listens there, and the load balancer in front of it"
            }
        }
    }
}

impl fmt::Display for Cause {
    /// Formats the cause as one line. Foreign text in it is not escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameUnknown(reported) => write!(f, "the name does not resolve: {reported}"),
            Self::ServerDown(reported) => write!(f, "the server is down: {reported}"),
            Self::NoTls(reported) => write!(f, "there is no TLS: {reported}"),
            Self::UnknownCa(reported) => {
                write!(f, "certificate signed by unknown authority: {reported}")
            }
            Self::WrongName { asked, named } => write!(
                f,
                "the name is not in the certificate: it is for {}, not {asked}",
                if named.is_empty() { "no name".to_owned() } else { named.join(", ") },
            ),
            Self::ServingPairExpired(reported) => {
                write!(f, "the serving certificate expired: {reported}")
            }
            Self::WrongClock { machine, right, reported } => write!(
                f,
                "the machine's clock is wrong: it shows {} instead of {}; therefore {reported}",
                date(*machine),
                date(*right),
            ),
            Self::Refused(reported) => write!(f, "the certificate is refused: {reported}"),
            Self::AccessRefused(status) => write!(f, "refused by access rules: {status}"),
            Self::PoolUnknown(pool) => write!(f, "the pool is unknown: there is no pool {pool}"),
            Self::NoConfigYet(reported) => write!(f, "the pool has no config yet: {reported}"),
            Self::NotInSpec { asked, served, reported, .. } => {
                write!(f, "the config cannot be expressed in the machine's spec {asked}")?;
                if !reported.is_empty() {
                    write!(f, ": {reported}")?;
                }
                if let (Some(first), Some(last)) = (served.first(), served.last()) {
                    write!(f, ": it is served in {first} to {last}")?;
                }
                Ok(())
            }
            Self::InvalidConfig { reported, .. } => write!(f, "the config is invalid: {reported}"),
            Self::NotNow { status, reported } => {
                write!(f, "the server cannot answer now: {status}: {reported}")
            }
            Self::GivenUp { status, reported } => {
                write!(f, "the server refuses for good: {status}: {reported}")
            }
            Self::Redirected(url) => write!(f, "the answer is elsewhere: {url}"),
            Self::NoAnswer(reported) => write!(f, "there is no answer: {reported}"),
        }
    }
}

/// Formats a time to the second.
pub(super) fn date(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
