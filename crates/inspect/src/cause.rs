//! Causes why a machine does not come up, in the words that people search for.

use ignition::SpecVersion;
use model::objects::is_misspelt;
use model::recovery::Recovery;
use model::render::FETCHES_FOREVER;
use pki::Host;
use strum::{IntoStaticStr, VariantNames};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Cause why a machine does not come up, as far as it is visible from outside, in one line. Foreign text in it is not
/// escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Cause {
    /// The host name does not resolve.
    #[error("the host name does not resolve: {0}")]
    NameUnknown(String),
    /// The connection is refused: a server, or a balancer in front of it, is down.
    #[error("the server is down: {0}")]
    ServerDown(String),
    /// The port answers without TLS.
    #[error("the port answers without TLS: {0}")]
    NoTls(String),
    /// The served chain leads to no CA that the machine trusts.
    #[error("certificate signed by unknown authority: {0}")]
    #[strum(serialize = "unknown-authority")]
    UnknownCa(String),
    /// The serving certificate lacks the requested name, and has these.
    #[error("the name {0} is not in the serving certificate, which {named}", named = named(.1))]
    WrongName(Host, Vec<String>),
    /// The serving certificate has expired.
    #[error("the serving certificate {0}")]
    ServingPairExpired(String),
    /// The machine's clock is wrong, and the certificates are valid by the server's.
    #[error(
        "the machine's clock is wrong: it shows {} instead of {}; therefore {reported}",
        date(*machine),
        date(*right)
    )]
    WrongClock {
        /// Time of the machine's clock.
        machine: OffsetDateTime,
        /// Correct time.
        right: OffsetDateTime,
        /// Reason why the machine refuses the certificates.
        reported: String,
    },
    /// The certificates are refused for another reason.
    #[error("the machine refuses the serving certificate: {0}")]
    #[strum(serialize = "certificate-refused")]
    Refused(String),
    /// Access is refused, with this HTTP status.
    #[error("the server's access rules refuse the machine: status {0}")]
    AccessRefused(u16),
    /// No pool has the requested name, but these, if they are known.
    #[error("no pool has the name {0}{known}", known = known(.0, .1))]
    PoolUnknown(String, Vec<String>),
    /// The pool has no rendered config yet.
    #[error("the pool has no config yet: {0}")]
    NoConfigYet(String),
    /// The config fetches itself, directly or by configs of other pools: who fetches what.
    #[error("{0}")]
    FetchesForever(String),
    /// The config cannot be expressed in the requested spec.
    #[error(
        "the config cannot be expressed in the machine's spec {requested}{}{}",
        after_colon(reported),
        served_specs(served)
    )]
    NotInSpec {
        /// Requested spec.
        requested: SpecVersion,
        /// Specs in which the config is served.
        served: Vec<SpecVersion>,
        /// Reason, if it is known.
        reported: String,
        /// True if the machine receives the config and gives up.
        is_received: bool,
    },
    /// Ignition would refuse the config, or it cannot be rendered.
    #[error("the config is invalid: {reported}")]
    InvalidConfig {
        /// Fault of the config.
        reported: String,
        /// True if the machine receives the config and gives up.
        is_received: bool,
    },
    /// The server cannot answer at present: status and text of its answer.
    #[error("the server has no answer now: status {0}: {1}")]
    NotNow(u16, String),
    /// The machine gives up at this answer: its status and text.
    #[error("the server refuses the request: status {0}: {1}")]
    GivenUp(u16, String),
    /// The answer is a redirect to this URL.
    #[error("the server redirects the request to {0}")]
    Redirected(String),
    /// The server accepts the connection and sends no readable answer.
    #[error("the server sends no valid answer: {0}")]
    NoAnswer(String),
}

impl Cause {
    /// Names of all causes.
    pub const LABELS: &[&str] = <Self as VariantNames>::VARIANTS;

    /// Name in JSON output and in the runbook.
    pub fn label(&self) -> &'static str {
        self.into()
    }

    /// Returns `true` if a machine retries until the cause is gone; otherwise it gives up, and must be booted again.
    pub fn is_retried(&self) -> bool {
        !matches!(
            self,
            Self::GivenUp(..)
                | Self::AccessRefused(_)
                | Self::Redirected(_)
                | Self::InvalidConfig { is_received: true, .. }
                | Self::NotInSpec { is_received: true, .. }
        )
    }

    /// Needs of a machine in addition to the [remedy](Self::remedy): Ignition reads its pointer config once, and never
    /// sets a clock.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::NoTls(_) | Self::UnknownCa(_) | Self::PoolUnknown(..) | Self::Redirected(_) => {
                Recovery::NewUserData
            }
            Self::WrongClock { .. } => Recovery::Restart,
            cause if cause.is_retried() => Recovery::Retry,
            _ => Recovery::Restart,
        }
    }

    /// Action for the administrator.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NameUnknown(_) => "check the DNS entry, and the name in the pointer config",
            Self::ServerDown(_) => "start the server, or check the load balancer and the firewall",
            Self::NoTls(_) => "use port 22623, which has TLS; port 22624 has none",
            Self::UnknownCa(_) => {
                "give the machine the newest pointer config: its present one trusts other CAs"
            }
            Self::WrongName(..) => {
                "add the name to --host of the server, or use a name of the certificate"
            }
            Self::ServingPairExpired(_) => {
                "renew the serving certificate with `certs rotate`; if that fails, run `certs check` for the reason"
            }
            Self::WrongClock { .. } => {
                "compare the machine's clock and the server's with a third one, and set the wrong one"
            }
            Self::Refused(_) => "run `certs check --pointer FILE --connect HOST:PORT` for details",
            Self::AccessRefused(_) => {
                "allow the machine's network, or give it a token for this pool"
            }
            Self::PoolUnknown(..) => "check the name of the pool in the URL of the pointer config",
            Self::NoConfigYet(_) => {
                "correct the MachineConfigs that /readyz names; in a cluster, also run `oc get mcp`"
            }
            Self::FetchesForever(_) => FETCHES_FOREVER,
            Self::NotInSpec { .. } => {
                "boot the machine from a newer image, or remove what its spec cannot express from the config"
            }
            Self::InvalidConfig { .. } => {
                "correct the MachineConfig; the server's log names the field"
            }
            Self::NotNow(..) => "read the reason in /readyz or in the log of the server",
            Self::GivenUp(..) => "correct what the answer names",
            Self::Redirected(_) => {
                "use that URL in the pointer config, if the machine trusts that server"
            }
            Self::NoAnswer(_) => {
                "check which program listens on that port, and the load balancer in front of it"
            }
        }
    }
}

fn named(names: &[String]) -> String {
    if names.is_empty() { "has no name".to_owned() } else { format!("is for {}", names.join(", ")) }
}

fn known(name: &str, pools: &[String]) -> String {
    if pools.is_empty() {
        return String::new();
    }
    let meant = pools.iter().find(|pool| is_misspelt(name, pool));
    let meant = meant.map(|pool| format!(", did you mean {pool}?")).unwrap_or_default();
    format!("{meant}; known pools: {}", pools.join(", "))
}

fn after_colon(reported: &str) -> String {
    if reported.is_empty() { String::new() } else { format!(": {reported}") }
}

fn served_specs(served: &[SpecVersion]) -> String {
    match (served.first(), served.last()) {
        (Some(first), Some(last)) if first != last => {
            format!("; it is served in {first} to {last}")
        }
        (Some(only), _) => format!("; it is served in {only}"),
        _ => String::new(),
    }
}

/// The time of a certificate or a token, to the second.
pub fn date(time: OffsetDateTime) -> String {
    let time = time.truncate_to_second();
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

#[cfg(test)]
mod tests {
    use model::recovery::Recovery::{NewUserData, Restart, Retry};
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_machine_that_reads_a_pointer_config_once_is_not_said_to_boot_by_itself() {
        let text = || "text".to_owned();
        let clock = Cause::WrongClock {
            machine: datetime!(2020-01-01 0:00 UTC),
            right: datetime!(2026-11-21 0:00 UTC),
            reported: text(),
        };
        let invalid = |is_received| Cause::InvalidConfig { reported: text(), is_received };
        for (cause, expected) in [
            (Cause::NameUnknown(text()), Retry),
            (Cause::ServerDown(text()), Retry),
            (Cause::NoTls(text()), NewUserData),
            (Cause::UnknownCa(text()), NewUserData),
            (Cause::ServingPairExpired(text()), Retry),
            (clock, Restart),
            (Cause::AccessRefused(401), Restart),
            (Cause::PoolUnknown(text(), Vec::new()), NewUserData),
            (Cause::NoConfigYet(text()), Retry),
            (Cause::FetchesForever(text()), Retry),
            (invalid(false), Retry),
            (invalid(true), Restart),
            (Cause::NotNow(503, text()), Retry),
            (Cause::GivenUp(404, text()), Restart),
            (Cause::Redirected(text()), NewUserData),
            (Cause::NoAnswer(text()), Retry),
        ] {
            assert_eq!(cause.recovery(), expected, "{cause}");
            let row = match expected {
                Retry => "| retries, and boots |",
                Restart => "| must be booted again |",
                NewUserData => "| needs new user data, and must be booted again |",
            };
            let book = include_str!("../../../docs/src/runbook/machines.md");
            let row =
                book.lines().find(|line| line.starts_with(row)).expect("a row of the runbook");
            assert!(row.contains(&format!("`{}`", cause.label())), "{cause}: {row}");
            let boots_by_itself = cause.recovery().sentence().contains("retries, and boots");
            assert_eq!(boots_by_itself, expected == Retry, "{cause}");
        }
    }
}
