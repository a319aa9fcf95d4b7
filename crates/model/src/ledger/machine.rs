//! Record of one machine.

use core::net::IpAddr;
use std::borrow::Cow;

use ignition::SpecVersion;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;

use super::failure::{BootFailure, FailureReport};
use crate::escape::{NAME, cut_for_json as cut};
use crate::ignition_version::IgnitionVersion;

/// Maximum length of a user agent. This and the other limits are in bytes of JSON, in which the ledger is stored and
/// served, so that clients cannot inflate it.
const USER_AGENT: usize = 256;
/// Maximum length of a reason.
const REASON: usize = 512;
/// Maximum length of a SHA-256 in hexadecimal, and of single words.
const SHA256: usize = 64;
/// Gap between requests that marks a new boot. Ignition retries every few seconds.
const PAUSE: Duration = Duration::hours(1);

/// A machine, or another client at its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Client's address: its own, or that of the last address translation on the way.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Time of the first request or handshake.
    #[serde(with = "time::serde::rfc3339")]
    pub first: OffsetDateTime,
    /// Time of the last request or handshake.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
    /// Requests for configs from the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Failed handshakes from the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Failed first boot that the machine reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<BootFailure>,
}

/// Requests for configs: the last one, and their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Requests {
    /// Pool of the last request.
    pub pool: String,
    /// User agent of the last request.
    pub user_agent: String,
    /// Spec that the client reads, if it requested a known one.
    #[schema(value_type = Option<String>)]
    pub spec: Option<SpecVersion>,
    /// True if the last request came by the port without TLS.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub without_tls: bool,
    /// Result of the last request.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Reason why the last request would have been refused if its pool were enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_be_refused: Option<String>,
    /// Number of requests.
    pub times: u64,
    /// Time of the first request of the last boot.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Time of the last request.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The config was sent.
    Served {
        /// Name of the MachineConfig.
        config: String,
        /// SHA-256 of the sent bytes in hexadecimal, the `ETag`.
        sha256: String,
    },
    /// No config was sent.
    Refused {
        /// HTTP status. Ignition gives up for good on 4xx, and retries after 5xx.
        status: u16,
        /// Reason, in more detail than the answer has if access was refused.
        reason: String,
    },
}

/// Failed handshakes: the last one, and their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Handshakes {
    /// Reason of the last failure.
    pub failed: Failed,
    /// Number of failed handshakes.
    pub times: u64,
    /// Time of the last failure.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

/// Reasons of a failed TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
pub enum Failed {
    /// The client reports that it does not trust the certificate.
    Untrusted,
    /// The client spoke no TLS, or no version or cipher suite that is allowed.
    Tls,
    /// The handshake timed out.
    Timeout,
    /// The connection broke.
    Connection,
}

/// A request for a config with its answer.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Client's address.
    pub address: IpAddr,
    /// Requested pool.
    pub pool: &'a str,
    /// Value of `User-Agent`.
    pub user_agent: &'a str,
    /// Requested spec, if it is a known one.
    pub spec: Option<SpecVersion>,
    /// True if it came by the port without TLS.
    pub without_tls: bool,
    /// The MachineConfig's name and the SHA-256 of the sent bytes, or the status and the reason.
    pub answer: Result<(&'a str, &'a str), (u16, &'a str)>,
    /// Reason why the request would have been refused if its pool were enforced.
    pub would_be_refused: Option<&'static str>,
}

impl Machine {
    pub(super) fn new(address: IpAddr, now: OffsetDateTime) -> Self {
        let now = now.truncate_to_second();
        Self { address, first: now, last: now, requests: None, handshakes: None, failure: None }
    }

    /// Returns `true` unless the user agent is another program than Ignition.
    pub fn is_ignition(&self) -> bool {
        self.requests.as_ref().is_none_or(Requests::is_ignitions)
    }

    /// Returns `true` if a request says nothing about the machine: Ignition has asked from its address, and the request
    /// is another program's, such as `curl` or `certs check` of an administrator.
    pub(super) fn is_visit(&self, request: &Request<'_>) -> bool {
        self.requests.as_ref().is_some_and(Requests::is_ignitions)
            && !is_ignition(request.user_agent)
    }

    /// Version of its Ignition; `None` of another program.
    pub fn ignition_version(&self) -> Option<IgnitionVersion> {
        IgnitionVersion::of_user_agent(&self.requests.as_ref()?.user_agent)
    }

    /// The last request, if it got a config.
    pub(super) fn served(&self) -> Option<&Requests> {
        let is_served = |it: &&Requests| matches!(it.outcome, Outcome::Served { .. });
        self.requests.as_ref().filter(is_served)
    }

    pub(super) fn asked(&mut self, request: &Request<'_>, now: OffsetDateTime) {
        let now = now.truncate_to_second();
        self.last = now;
        match &mut self.requests {
            Some(requests) => requests.note(request, now),
            None => self.requests = Some(Requests::first(request, now)),
        }
    }

    pub(super) fn handshake_failed(&mut self, failed: Failed, now: OffsetDateTime) {
        let now = now.truncate_to_second();
        self.last = now;
        let times = self.handshakes.as_ref().map_or(0, |handshakes| handshakes.times) + 1;
        self.handshakes = Some(Handshakes { failed, times, last: now });
    }

    pub(super) fn failed(&mut self, report: &FailureReport, now: OffsetDateTime) {
        let now = now.truncate_to_second();
        self.last = now;
        let times = self.failure.as_ref().map_or(0, |failure| failure.times) + 1;
        self.failure = Some(BootFailure::new(report, times, now));
    }

    /// Merges another record of the same machine, whose texts may be too long.
    pub(super) fn absorb(&mut self, mut other: Self) {
        if let Some(requests) = &mut other.requests {
            requests.cut();
        }
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.requests = later(self.requests.take(), other.requests, |own, other| {
            // What another program got at one server changes nothing of the machine at the other one.
            match (own.is_ignitions(), other.is_ignitions()) {
                (true, false) => return own,
                (false, true) => return other,
                _ => {}
            }
            let (times, since) = (own.times + other.times, own.since.min(other.since));
            let last = if other.last > own.last { other } else { own };
            let since = if last.last - since > PAUSE { last.since } else { since };
            Requests { times, since, ..last }
        });
        self.handshakes = later(self.handshakes.take(), other.handshakes, |own, other| {
            let times = own.times + other.times;
            Handshakes { times, ..if other.last > own.last { other } else { own } }
        });
        let reported = other.failure.map(BootFailure::bounded);
        self.failure = later(self.failure.take(), reported, |own, other| {
            let times = own.times + other.times;
            BootFailure { times, ..if other.last > own.last { other } else { own } }
        });
    }
}

fn is_ignition(user_agent: &str) -> bool {
    user_agent.starts_with("Ignition/")
}

impl Requests {
    pub(super) fn first(request: &Request<'_>, now: OffsetDateTime) -> Self {
        Self {
            pool: cut(request.pool, NAME).into_owned(),
            user_agent: cut(request.user_agent, USER_AGENT).into_owned(),
            spec: request.spec,
            without_tls: request.without_tls,
            outcome: Outcome::of(request),
            would_be_refused: request.would_be_refused.map(str::to_owned),
            times: 1,
            since: now,
            last: now,
        }
    }

    fn is_ignitions(&self) -> bool {
        is_ignition(&self.user_agent)
    }

    /// Most requests repeat the one before, so unchanged texts are not written again.
    fn note(&mut self, request: &Request<'_>, now: OffsetDateTime) {
        // The boot does not begin with another program's request.
        if now - self.last > PAUSE || !self.is_ignitions() && is_ignition(request.user_agent) {
            self.since = now;
        }
        self.times += 1;
        self.last = now;
        self.spec = request.spec;
        self.without_tls = request.without_tls;
        set(&mut self.pool, &cut(request.pool, NAME));
        set(&mut self.user_agent, &cut(request.user_agent, USER_AGENT));
        if self.would_be_refused.as_deref() != request.would_be_refused {
            self.would_be_refused = request.would_be_refused.map(str::to_owned);
        }
        match (&mut self.outcome, request.answer) {
            (Outcome::Served { config, sha256 }, Ok(answer)) => {
                set(config, &cut(answer.0, NAME));
                set(sha256, &cut(answer.1, SHA256));
            }
            (Outcome::Refused { status, reason }, Err(refusal)) => {
                *status = refusal.0;
                set(reason, &cut(refusal.1, REASON));
            }
            _ => self.outcome = Outcome::of(request),
        }
    }

    fn cut(&mut self) {
        let set = |text: &mut String, most| {
            if let Cow::Owned(short) = cut(text, most) {
                *text = short;
            }
        };
        set(&mut self.pool, NAME);
        set(&mut self.user_agent, USER_AGENT);
        if let Some(reason) = &mut self.would_be_refused {
            set(reason, SHA256);
        }
        match &mut self.outcome {
            Outcome::Served { config, sha256 } => {
                set(config, NAME);
                set(sha256, SHA256);
            }
            Outcome::Refused { reason, .. } => set(reason, REASON),
        }
    }

    /// Size of the texts in bytes.
    #[cfg(test)]
    pub(super) fn text_bytes(&self) -> usize {
        let outcome = match &self.outcome {
            Outcome::Served { config, sha256 } => config.capacity() + sha256.capacity(),
            Outcome::Refused { reason, .. } => reason.capacity(),
        };
        self.pool.capacity() + self.user_agent.capacity() + outcome
    }
}

impl Outcome {
    fn of(request: &Request<'_>) -> Self {
        match request.answer {
            Ok((config, sha256)) => {
                let (config, sha256) = (cut(config, NAME), cut(sha256, SHA256));
                Self::Served { config: config.into_owned(), sha256: sha256.into_owned() }
            }
            Err((status, reason)) => {
                Self::Refused { status, reason: cut(reason, REASON).into_owned() }
            }
        }
    }
}

fn set(text: &mut String, now: &str) {
    if text != now {
        now.clone_into(text);
    }
}

fn later<T>(own: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (own, other) {
        (Some(own), Some(other)) => Some(both(own, other)),
        (own, other) => own.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
    const REFUSED: Request<'_> = Request {
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        pool: "worker",
        user_agent: "Ignition/2.14.0",
        spec: Some(SpecVersion::V3_3),
        without_tls: false,
        answer: Err((503, "no pool has this name")),
        would_be_refused: None,
    };

    #[test]
    fn the_last_request_counts_and_a_boot_begins_after_a_pause() {
        let mut machine = Machine::new(REFUSED.address, NOON);
        machine.asked(&REFUSED, NOON);
        let served = Request { pool: "infra", answer: Ok(("rendered-infra-1", "ab")), ..REFUSED };
        machine.asked(&served, NOON + Duration::minutes(50));
        let requests = machine.requests.clone().unwrap();
        assert_eq!((&*requests.pool, requests.times, requests.since), ("infra", 2, NOON));
        assert!(matches!(requests.outcome, Outcome::Served { .. }));
        machine.asked(&REFUSED, NOON + Duration::days(3));
        let requests = machine.requests.unwrap();
        assert_eq!((requests.times, requests.since), (3, NOON + Duration::days(3)));
        assert!(matches!(requests.outcome, Outcome::Refused { status: 503, .. }));
        assert_eq!((machine.first, machine.last), (NOON, NOON + Duration::days(3)));
    }

    #[test]
    fn a_boot_begins_with_ignitions_first_request() {
        let mut machine = Machine::new(REFUSED.address, NOON);
        machine.asked(&Request { user_agent: "curl/8.0.0", ..REFUSED }, NOON);
        let later = NOON + Duration::minutes(50);
        machine.asked(&REFUSED, later);
        let requests = machine.requests.unwrap();
        assert_eq!((&*requests.user_agent, requests.since), ("Ignition/2.14.0", later));
    }

    #[test]
    fn of_two_servers_records_that_of_ignition_counts() {
        let record = |user_agent, minutes| {
            let now = NOON + Duration::minutes(minutes);
            let mut machine = Machine::new(REFUSED.address, now);
            machine.asked(&Request { user_agent, ..REFUSED }, now);
            machine
        };
        let ignition = record("Ignition/2.14.0", 0);
        let curl = record("curl/8.0.0", 5);
        for (mut own, other) in [(ignition.clone(), curl.clone()), (curl, ignition.clone())] {
            own.absorb(other);
            assert_eq!(own.requests, ignition.requests);
        }
    }

    #[test]
    fn what_a_client_sends_is_cut() {
        let long = "x".repeat(9_000);
        let mut machine = Machine::new(REFUSED.address, NOON);
        for _ in 0..2 {
            machine.asked(&Request { pool: &long, user_agent: &long, ..REFUSED }, NOON);
            let requests = machine.requests.as_ref().unwrap();
            assert!(requests.pool.chars().count() <= NAME + 1);
            assert!(requests.user_agent.chars().count() <= USER_AGENT + 1);
        }
    }

    #[test]
    fn its_json_says_what_is_known() {
        let mut machine = Machine::new(REFUSED.address, NOON);
        machine.handshake_failed(Failed::Untrusted, NOON + Duration::milliseconds(1_700));
        let json = serde_json::to_value(&machine).unwrap();
        let expected = json!({
            "address": "192.0.2.7", "first": "2026-11-21T12:00:00Z", "last": "2026-11-21T12:00:01Z",
            "handshakes": {"failed": "untrusted", "times": 1, "last": "2026-11-21T12:00:01Z"},
        });
        assert_eq!(json, expected);
        machine.asked(&REFUSED, NOON);
        let requests = serde_json::to_value(machine.requests.as_ref().unwrap()).unwrap();
        let expected = json!({
            "pool": "worker", "user_agent": "Ignition/2.14.0", "spec": "3.3.0",
            "refused": {"status": 503, "reason": "no pool has this name"},
            "times": 1, "since": "2026-11-21T12:00:00Z", "last": "2026-11-21T12:00:00Z",
        });
        assert_eq!(requests, expected);
        let read: Machine =
            serde_json::from_value(serde_json::to_value(&machine).unwrap()).unwrap();
        assert_eq!(read, machine);
    }
}
