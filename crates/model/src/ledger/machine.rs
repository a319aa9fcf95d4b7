//! What is remembered of one machine.

use core::net::IpAddr;
use std::borrow::Cow;

use ignition::SpecVersion;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;

use crate::escape::{NAME, cut_for_json as cut};

/// What is enough of a user agent to recognise it. This and the others are bytes in JSON, which is how
/// a ledger is kept and given out: what strangers send makes it no larger than whoever reads it takes.
const USER_AGENT: usize = 256;
/// What is enough of a reason.
const REASON: usize = 512;
/// What a SHA-256 has in hexadecimal; a word of ours has less.
const SHA256: usize = 64;
/// Who asks again after so long is booting anew. Ignition asks every few seconds.
const PAUSE: Duration = Duration::hours(1);

/// A machine, or whatever else asks from its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Where it asks from: its own address, or that of the last device in between that has one.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// When it was noticed first.
    #[serde(with = "time::serde::rfc3339")]
    pub first: OffsetDateTime,
    /// When it was noticed last.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
    /// The requests for configs that came from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The handshakes that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
}

/// Requests for configs: the last one, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Requests {
    /// Which pool it asked for last.
    pub pool: String,
    /// What it called itself.
    pub user_agent: String,
    /// The spec that it can read, where it asked for one that there is.
    #[schema(value_type = Option<String>)]
    pub spec: Option<SpecVersion>,
    /// What it got.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Why the last one would have been refused if its pool were enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_be_refused: Option<String>,
    /// How many requests there were.
    pub times: u64,
    /// The first one of the boot that the last one is of.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The last one.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

/// What a machine got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its config.
    Served {
        /// The machine config's name.
        config: String,
        /// The SHA-256 of what was sent, in hexadecimal: the `ETag`.
        sha256: String,
    },
    /// None.
    Refused {
        /// The HTTP status. Ignition gives up for good on 4xx, and asks again after 5xx.
        status: u16,
        /// Why: what it was told, or, where its access was refused, what its answer does not say.
        reason: String,
    },
}

/// Handshakes that failed: the last one, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Handshakes {
    /// Why the last one failed.
    pub failed: Failed,
    /// How many failed.
    pub times: u64,
    /// When the last one did.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

/// Why a TLS handshake came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Failed {
    /// The client does not trust the certificate, and says so.
    Untrusted,
    /// It spoke no TLS, or none that is allowed here.
    Tls,
    /// It took too long.
    Timeout,
    /// The connection broke.
    Connection,
}

/// A request for a config and its answer, as they come by.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Where it came from.
    pub address: IpAddr,
    /// Which pool it was for.
    pub pool: &'a str,
    /// The header of this name.
    pub user_agent: &'a str,
    /// The spec that was asked for, if there is such a one.
    pub spec: Option<SpecVersion>,
    /// The machine config's name and the SHA-256 of what was sent, or the status and why there is none.
    pub answer: Result<(&'a str, &'a str), (u16, &'a str)>,
    /// Why it would have been refused if its pool were enforced.
    pub would_be_refused: Option<&'static str>,
}

impl Machine {
    /// Of which nothing is known yet but the address.
    pub(super) fn new(address: IpAddr, now: OffsetDateTime) -> Self {
        let now = whole_seconds(now);
        Self { address, first: now, last: now, requests: None, handshakes: None }
    }

    /// Returns `true` if it is a machine that boots, and no person with curl.
    #[must_use]
    pub fn is_ignition(&self) -> bool {
        self.requests.as_ref().is_none_or(|requests| requests.user_agent.starts_with("Ignition/"))
    }

    /// Returns `true` if it got a config, the last time that it asked.
    pub(super) fn is_served(&self) -> bool {
        let outcome = self.requests.as_ref().map(|requests| &requests.outcome);
        matches!(outcome, Some(Outcome::Served { .. }))
    }

    pub(super) fn asked(&mut self, request: &Request<'_>, now: OffsetDateTime) {
        let now = whole_seconds(now);
        self.last = now;
        match &mut self.requests {
            Some(requests) => requests.note(request, now),
            None => self.requests = Some(Requests::first(request, now)),
        }
    }

    pub(super) fn handshake_failed(&mut self, failed: Failed, now: OffsetDateTime) {
        let now = whole_seconds(now);
        self.last = now;
        let times = self.handshakes.as_ref().map_or(0, |handshakes| handshakes.times) + 1;
        self.handshakes = Some(Handshakes { failed, times, last: now });
    }

    /// Adds what is known of the same machine elsewhere, where it may not have been cut.
    pub(super) fn absorb(&mut self, mut other: Self) {
        if let Some(requests) = &mut other.requests {
            requests.cut();
        }
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.requests = later(self.requests.take(), other.requests, |own, other| {
            let (times, since) = (own.times + other.times, own.since.min(other.since));
            let last = if other.last > own.last { other } else { own };
            let since = if last.last - since > PAUSE { last.since } else { since };
            Requests { times, since, ..last }
        });
        self.handshakes = later(self.handshakes.take(), other.handshakes, |own, other| {
            let times = own.times + other.times;
            Handshakes { times, ..if other.last > own.last { other } else { own } }
        });
    }
}

impl Requests {
    fn first(request: &Request<'_>, now: OffsetDateTime) -> Self {
        Self {
            pool: cut(request.pool, NAME).into_owned(),
            user_agent: cut(request.user_agent, USER_AGENT).into_owned(),
            spec: request.spec,
            outcome: Outcome::of(request),
            would_be_refused: request.would_be_refused.map(str::to_owned),
            times: 1,
            since: now,
            last: now,
        }
    }

    /// Most requests are as the one before: nothing is written that is there already.
    fn note(&mut self, request: &Request<'_>, now: OffsetDateTime) {
        if now - self.last > PAUSE {
            self.since = now;
        }
        self.times += 1;
        self.last = now;
        self.spec = request.spec;
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

    /// What its texts take, in bytes.
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

/// People read these times, and a file on disk holds them.
fn whole_seconds(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time)
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
        answer: Err((503, "there is no pool of this name")),
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
            "refused": {"status": 503, "reason": "there is no pool of this name"},
            "times": 1, "since": "2026-11-21T12:00:00Z", "last": "2026-11-21T12:00:00Z",
        });
        assert_eq!(requests, expected);
        let read: Machine =
            serde_json::from_value(serde_json::to_value(&machine).unwrap()).unwrap();
        assert_eq!(read, machine);
    }
}
