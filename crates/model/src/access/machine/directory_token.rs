//! The stored record of a machine's token.

use serde::{Deserialize, Serialize};
use time::serde::rfc3339;
use time::{Duration, OffsetDateTime};

use super::super::records::{OF_MACHINE, REMEMBERED, Record, read_object};
use super::super::token::{Token, TokenHash};
use super::arming::{RearmRequests, TokenStep};
use super::in_use::TokenInUse;
use super::usage::{ClockReading, Stage, Usage, Window};

/// Time for which the revocation of a token is taken back if the machine's object is back.
const RETURNS_WITHIN: Duration = Duration::HOUR;
/// Maximum number of earlier tokens of a name that are remembered, so that their holders are refused for good.
const MAX_EARLIER: usize = 8;

/// Token of a machine, with its use. Readable only by the server that keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryToken {
    /// Token in plain text, which the machine's pointer config contains.
    pub token: Token,
    /// Pool that it opens.
    pub pool: String,
    /// Time of its generation.
    #[serde(with = "rfc3339")]
    pub made: OffsetDateTime,
    /// Requests to arm it that were followed.
    #[serde(default)]
    pub armed: RearmRequests,
    /// Use since it was armed.
    #[serde(default)]
    pub usage: Usage,
    /// Time of its revocation: the machine's object is gone.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    pub revoked: Option<OffsetDateTime>,
    /// Hashes of earlier tokens of this name, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<TokenHash>,
}

impl DirectoryToken {
    /// Parses the JSON of a record.
    ///
    /// # Errors
    /// It is malformed. A record that is not understood must not be overwritten.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        read_object(json)
    }

    /// The record as a new process finds it.
    #[must_use]
    pub fn found(self) -> Self {
        Self { usage: self.usage.found(), ..self }
    }

    /// A new token for a machine of `pool`. Requests to arm it that are known already count as followed.
    pub fn new(token: Token, pool: &str, armed: RearmRequests, now: OffsetDateTime) -> Self {
        Self {
            token,
            pool: pool.to_owned(),
            made: now,
            armed,
            usage: Usage::default(),
            revoked: None,
            earlier: Vec::new(),
        }
    }

    /// The record of a machine's object that is there: with a `fresh` token if it has none that opens the object's pool,
    /// and armed again if `requests` have a new one.
    pub fn following(
        known: Option<&Self>,
        pool: &str,
        requests: &RearmRequests,
        fresh: &Token,
        now: OffsetDateTime,
    ) -> Self {
        let usable = known.filter(|known| !known.is_gone_for_good(now));
        let step = TokenStep::due(usable.map(|it| (&*it.pool, &it.armed)), pool, requests);
        match (known, step) {
            (None, _) => Self::new(fresh.clone(), pool, requests.clone(), now),
            (Some(known), Some(TokenStep::Make)) => {
                let armed = known.armed.clone().with(requests);
                let earlier = known.with_earlier();
                Self { earlier, ..Self::new(fresh.clone(), pool, armed, now) }
            }
            (Some(known), Some(TokenStep::Arm)) => Self {
                revoked: None,
                usage: Usage::default(),
                armed: known.armed.clone().with(requests),
                ..known.clone()
            },
            (Some(known), None) => Self { revoked: None, ..known.clone() },
        }
    }

    /// Returns `true` if the token was revoked, too long ago to be taken back.
    fn is_gone_for_good(&self, now: OffsetDateTime) -> bool {
        self.revoked.is_some_and(|at| now - at >= RETURNS_WITHIN)
    }

    /// The record after the machine was removed for good: its object, once it is back, gets the `fresh` token.
    #[must_use]
    pub fn removed(&self, fresh: &Token, now: OffsetDateTime) -> Self {
        let earlier = self.with_earlier();
        let fresh = Self::new(fresh.clone(), &self.pool, self.armed.clone(), now);
        Self { earlier, revoked: Some(now), ..fresh }
    }

    /// Hashes of earlier tokens, and of this one.
    fn with_earlier(&self) -> Vec<TokenHash> {
        let mut earlier = [&*self.earlier, &[self.token.hash()]].concat();
        earlier.drain(..earlier.len().saturating_sub(MAX_EARLIER));
        earlier
    }

    /// The record once the machine's object is gone; `None` once it can be discarded.
    #[must_use]
    pub fn revoked(&self, now: OffsetDateTime) -> Option<Self> {
        let at = self.revoked.unwrap_or(now);
        (now - at < REMEMBERED).then(|| Self { revoked: Some(at), ..self.clone() })
    }

    /// The record as those of other tokens, for people and for checks of pointer configs.
    ///
    /// A spent token ended at its last use, and at least a minute ago: the caller's own reading of the clock can be older
    /// than `now`.
    pub fn record(&self, name: &str, window: Window, now: ClockReading) -> Record {
        let ended = || self.usage.last_use().unwrap_or(self.made).min(now.wall - Duration::MINUTE);
        let is_spent = self.usage.stage(window, now) == Stage::Spent;
        Record {
            sha256: self.token.hash(),
            name: Some(format!("{OF_MACHINE}{name}")),
            pools: [self.pool.clone()].into(),
            made: self.made,
            until: is_spent.then(ended),
            revoked: self.revoked,
        }
    }
}

impl TokenInUse for DirectoryToken {
    fn sha256(&self) -> TokenHash {
        self.token.hash()
    }

    fn pool(&self) -> &str {
        &self.pool
    }

    fn usage(&self) -> &Usage {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    fn is_revoked(&self) -> bool {
        self.revoked.is_some()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn requests(annotation: Option<&str>, command: Option<&str>) -> RearmRequests {
        RearmRequests {
            annotation: annotation.map(str::to_owned),
            command: command.map(str::to_owned),
        }
    }

    fn used(token: &DirectoryToken) -> DirectoryToken {
        let mut used = token.clone();
        used.usage.spend();
        used
    }

    #[test]
    fn each_new_request_arms_a_token_once() {
        let [token, fresh] = [1, 2].map(|byte| Token::new([byte; 32]));
        let first =
            DirectoryToken::following(None, "worker", &requests(Some("a"), None), &token, NOON);
        assert_eq!((&first.token, &first.earlier[..]), (&token, &[][..]));
        let mut known = used(&first);
        for (request, is_armed) in [
            (requests(Some("a"), None), false),
            (requests(None, None), false),
            (requests(Some("a"), None), false),
            (requests(Some("b"), None), true),
            (requests(Some("b"), Some("1")), true),
            (requests(Some("b"), Some("1")), false),
            (requests(None, Some("1")), false),
            (requests(Some("c"), Some("2")), true),
        ] {
            let next = DirectoryToken::following(Some(&known), "worker", &request, &fresh, NOON);
            assert_eq!(next.usage == Usage::default(), is_armed, "{request:?}");
            assert_eq!(next.token, token);
            known = used(&next);
        }
    }

    #[test]
    fn an_object_that_is_back_within_an_hour_has_its_token_with_its_use() {
        let [token, fresh] = [1, 2].map(|byte| Token::new([byte; 32]));
        let none = RearmRequests::default();
        let known = used(&DirectoryToken::following(None, "worker", &none, &token, NOON));
        let gone = known.revoked(NOON).unwrap();
        let back = |gone: &DirectoryToken, now| {
            DirectoryToken::following(Some(gone), "worker", &none, &fresh, now)
        };
        let last = NOON + RETURNS_WITHIN - Duration::SECOND;
        assert_eq!(back(&gone, last), known);
        // A clock that was set back does not end the hour.
        assert_eq!(back(&gone, NOON - Duration::DAY), known);
        assert_eq!(back(&gone, NOON + RETURNS_WITHIN).token, fresh);
        // Removed for good, the old token opens nothing.
        let removed = known.removed(&fresh, NOON);
        let returned = back(&removed, NOON);
        assert_eq!((&returned.token, returned.usage == Usage::default()), (&fresh, true));
        assert!(returned.earlier.contains(&token.hash()));
    }

    #[test]
    fn an_object_that_comes_back_late_or_moves_gets_another_token() {
        let tokens: Vec<_> = (0..20).map(|byte| Token::new([byte; 32])).collect();
        let mut known =
            DirectoryToken::following(None, "worker", &RearmRequests::default(), &tokens[0], NOON);
        for (number, fresh) in tokens.iter().enumerate().skip(1) {
            if number % 2 == 0 {
                known = known.revoked(NOON - RETURNS_WITHIN).unwrap();
            }
            let pool = if number % 2 == 0 { known.pool.clone() } else { format!("p{number}") };
            known = DirectoryToken::following(
                Some(&known),
                &pool,
                &RearmRequests::default(),
                fresh,
                NOON,
            );
            assert_eq!((&known.token, known.revoked), (fresh, None));
            assert!(known.earlier.contains(&tokens[number - 1].hash()));
        }
        assert_eq!(known.earlier.len(), MAX_EARLIER);
    }

    #[test]
    fn a_machine_that_is_gone_is_remembered_for_a_while() {
        let token = DirectoryToken::following(
            None,
            "worker",
            &RearmRequests::default(),
            &Token::new([1; 32]),
            NOON,
        );
        let gone = token.revoked(NOON).unwrap();
        assert_eq!(gone.revoked, Some(NOON));
        let last = NOON + REMEMBERED - Duration::SECOND;
        assert_eq!(gone.revoked(last), Some(gone.clone()));
        assert_eq!(gone.revoked(NOON + REMEMBERED), None);
        assert_eq!(gone.revoked(NOON - Duration::days(9_999)), Some(gone.clone()));
    }

    #[test]
    fn a_record_is_read_as_it_is_written_and_shows_no_token_in_an_error() {
        let token = DirectoryToken::following(
            None,
            "worker",
            &requests(Some("a"), None),
            &Token::new([1; 32]),
            NOON,
        );
        let json = serde_json::to_vec(&token).unwrap();
        assert_eq!(DirectoryToken::read(&json).unwrap(), token);
        let text = String::from_utf8(json).unwrap();
        for bad in
            [text.replace("\"pool\"", "\"pol\""), text.replace("\"pool\":\"worker\"", "\"pool\":1")]
        {
            let error = DirectoryToken::read(bad.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("mcs-"), "{error}");
        }
        assert!(DirectoryToken::read(b"[]").is_err());
    }
}
