//! Parsers of flag values, and groups of flags that several commands share.
//!
//! Each struct of settings derives `clap::Args` where it is used, so a new flag is a field there. Files are read and
//! names resolved by the code that uses the settings.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use ignition::SpecVersion;
use model::access::AccessMode;
use model::access::rotation::RotationPolicy;
use pki::{KeyAlgorithm, Policy};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

/// Heading of flags for listen addresses.
pub const LISTENING: &str = "Listening";
/// Heading of flags about TLS and the serving certificate.
pub const TLS: &str = "TLS";

/// Default access modes of flags.
pub const OFF: &str = "off";
pub const AUDIT: &str = "audit";

/// The values of a flag that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Flags about issued certificates.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Certificates")]
pub struct CertificateFlags {
    /// Kind of new keys: p256, p384, p521, rsa2048, rsa3072, rsa4096
    #[arg(long, value_name = "KIND", default_value = "p256", value_parser = key_algorithm)]
    key_algorithm: KeyAlgorithm,
}

impl CertificateFlags {
    pub fn policy(&self) -> Policy {
        Policy { algorithm: self.key_algorithm, ..Policy::default() }
    }
}

/// Parses an algorithm of keys.
pub fn key_algorithm(text: &str) -> Result<KeyAlgorithm, String> {
    let found = KeyAlgorithm::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        let names = KeyAlgorithm::ALL.map(|(name, _)| name);
        format!("expected one of {}", names.join(", "))
    })
}

/// Flags about tokens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub struct TokenFlags {
    /// Time after which pointer configs get a new token, such as 7d or 12h
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = span)]
    token_period: time::Duration,
    /// Time that a replaced token stays valid
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = span)]
    token_overlap: time::Duration,
}

impl TokenFlags {
    pub fn policy(&self) -> RotationPolicy {
        RotationPolicy { period: self.token_period, overlap: self.token_overlap }
    }
}

/// A parser whose values shells offer. It takes other texts too, and refuses them by its own message.
#[derive(Clone)]
struct Offered<P> {
    parser: P,
    values: &'static [&'static str],
}

impl<P: TypedValueParser> TypedValueParser for Offered<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().map(PossibleValue::new)))
    }
}

/// Parser of an access mode.
pub fn access_mode() -> impl TypedValueParser<Value = AccessMode> {
    Offered { parser: |text: &str| text.parse::<AccessMode>(), values: &[OFF, AUDIT, "enforce"] }
}

/// Parser of an Ignition spec: `3.4` or `3.4.0`.
pub fn spec() -> impl TypedValueParser<Value = SpecVersion> {
    let read = |text: &str| {
        SpecVersion::read(text).ok_or_else(|| "expected 2.2 or one of 3.0 to 3.6".to_owned())
    };
    Offered { parser: read, values: &["2.2", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6"] }
}

/// Maximum time: a longer one is a mistake, and would overflow a timer.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Parses `10s`, `500ms`, `1m 30s` and the like, or a plain number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
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

/// Parses a duration for calculations with dates. A plain number is refused: it would be seconds where days are meant.
fn span(text: &str) -> Result<time::Duration, String> {
    if text.parse::<u64>().is_ok() {
        return Err(format!("expected a unit: {text}d for days, {text}s for seconds"));
    }
    duration(text)?.try_into().map_err(|_| "expected at most a year".to_owned())
}

/// Parses a duration or zero.
pub fn delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

/// Parses a date, which begins at midnight in UTC, or a time of RFC 3339.
pub fn date_or_time(text: &str) -> Option<OffsetDateTime> {
    let day = format_description!("[year]-[month]-[day]");
    let date = || Date::parse(text, day).map(|date| date.midnight().assume_utc());
    OffsetDateTime::parse(text, &Rfc3339).or_else(|_| date()).ok()
}

/// Parses `HOST:PORT`, with a name or an address.
pub fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT".to_owned()),
    }
}

/// Parses a URL that kubelet accepts for an API server.
pub fn url(text: &str) -> Result<String, String> {
    let is_url = text.parse::<http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("https" | "http"))
            && url.host().is_some_and(|host| !host.is_empty())
    });
    if is_url { Ok(text.to_owned()) } else { Err("expected https://HOST:PORT".to_owned()) }
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

    #[test]
    fn a_period_of_tokens_has_a_unit() {
        assert_eq!(span("7d"), Ok(time::Duration::days(7)));
        assert_eq!(span("7s"), Ok(time::Duration::seconds(7)));
        assert_eq!(span("7").unwrap_err(), "expected a unit: 7d for days, 7s for seconds");
    }

    #[test]
    fn peers_are_a_host_and_a_port() {
        assert!(host_and_port("servers.example:8797").is_ok());
        assert!(host_and_port("[2001:db8::1]:8797").is_ok());
        for text in ["", "servers.example", ":8797", "servers.example:", "a:0", "a:70000"] {
            assert!(host_and_port(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_api_servers_url_has_a_scheme_and_a_host() {
        assert!(url("https://api-int.example.com:6443").is_ok());
        assert!(url("https://[2001:db8::1]:6443").is_ok());
        for text in ["", "api-int.example.com:6443", "api-int", "ftp://a", "https://"] {
            assert!(url(text).is_err(), "{text:?}");
        }
    }
}
