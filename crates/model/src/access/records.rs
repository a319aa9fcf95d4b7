//! Records of tokens for servers: hashes that recognise a token, nothing that opens a config.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use time::serde::rfc3339;
use time::{Duration, OffsetDateTime};

use super::mode::{AccessMode, Waiting};
use super::proof::{Proof, Refusal};
use super::token::{Token, TokenHash};

/// Time for which a token is remembered after its expiry or revocation, so that its holder gets a permanent refusal.
pub(super) const REMEMBERED: Duration = Duration::days(90);

/// Beginning of the names of machines' tokens.
pub(super) const OF_MACHINE: &str = "machine ";

/// Records that servers read: hashes of tokens, and the pools that are enforced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Records {
    /// Tokens, the oldest first.
    pub tokens: Vec<Record>,
    /// Pools that are enforced if their mode is `enforce`. A pool is added when all its known pointer configs contain a
    /// token, and removed when its mode is changed.
    pub enforced: BTreeSet<String>,
    /// Pointer configs without a token by pool, one line each: the evidence that keeps a pool with mode `enforce` open.
    #[serde(rename = "lacking")]
    pub without_token: BTreeMap<String, Vec<String>>,
    /// Pools that disappeared from `enforced` with their mode unchanged: the records were lost, or restored from a
    /// backup. Evidence does not open them. Each server detects this by itself and caches it; the controller does not
    /// write it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub contested: BTreeSet<String>,
    /// Pools that may have been enforced before all lists were lost. Evidence does not open them until their mode is
    /// changed. The controller writes them.
    #[serde(rename = "unsure", skip_serializing_if = "BTreeSet::is_empty")]
    pub undetermined: BTreeSet<String>,
}

/// State of a pool with mode `enforce`, by the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforcement<'a> {
    /// The pool is enforced.
    Enforced,
    /// The pool is open because of these pointer configs.
    Open(&'a [String]),
    /// The state is unknown.
    Waiting(Waiting),
}

/// Record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Hash of the token.
    pub sha256: TokenHash,
    /// Name that its owner gave it; `None` for tokens of pointer configs, which are rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Pools that it opens.
    pub pools: BTreeSet<String>,
    /// Time of its generation.
    #[serde(with = "rfc3339")]
    pub made: OffsetDateTime,
    /// Time of its expiry, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    pub until: Option<OffsetDateTime>,
    /// Time of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    pub revoked: Option<OffsetDateTime>,
}

impl Record {
    /// Returns `true` if the token opens its pools at `now`.
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.revoked.is_none() && self.until.is_none_or(|until| now < until)
    }

    /// True for the token of a single machine, which counts in every mode. A name that an administrator gives has no
    /// space.
    pub fn is_of_machine(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.starts_with(OF_MACHINE))
    }

    /// Display name: the name, or the ID.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.sha256.id())
    }
}

impl Records {
    /// Name of the Secret with the records in a cluster, which all servers read.
    pub const SECRET: &str = "machine-config-server-access";
    /// Key in the Secret, and name of the file in a state or cache directory.
    pub const FILE: &str = "access.json";

    /// Parses the records' JSON.
    ///
    /// # Errors
    /// The JSON is malformed. Records that are not understood must not be overwritten.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        read_object(json)
    }

    /// State of a pool with mode `enforce`.
    pub(super) fn enforcement(&self, pool: &str) -> Enforcement<'_> {
        match self.without_token.get(pool) {
            _ if self.enforced.contains(pool) => Enforcement::Enforced,
            _ if self.contested.contains(pool) || self.undetermined.contains(pool) => {
                Enforcement::Waiting(Waiting::Contested)
            }
            Some(without_token) if !without_token.is_empty() => Enforcement::Open(without_token),
            _ => Enforcement::Waiting(Waiting::NotKnown),
        }
    }

    /// These records as successors of `before`, with newly contested pools. A pool whose mode was changed is not
    /// contested; a deleted one stays, since it can come back.
    #[must_use]
    pub fn following(
        mut self,
        before: Option<&Self>,
        wanted: &BTreeMap<String, AccessMode>,
    ) -> Self {
        let is_asked =
            |pool: &str| wanted.get(pool).is_none_or(|mode| *mode == AccessMode::Enforce);
        let before = before.into_iter();
        let before =
            before.flat_map(|it| [&it.enforced, &it.contested, &it.undetermined]).flatten();
        let contested = before.filter(|pool| !self.enforced.contains(*pool) && is_asked(pool));
        self.contested = contested.cloned().collect();
        self
    }

    /// The record with this hash.
    pub fn find(&self, sha256: &TokenHash) -> Option<&Record> {
        self.tokens.iter().find(|record| record.sha256 == *sha256)
    }
}

/// Parses a JSON object; serde would accept a list of the values too.
pub(super) fn read_object<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(json);
    let read = object.and_then(|object| T::deserialize(serde_json::Value::Object(object)));
    read.map_err(|error| match error.classify() {
        // The unexpected value can be a token.
        Category::Data => serde_json::Error::custom("not in the format of this version"),
        _ => error,
    })
}

/// Records of tokens, with their titles, by their hashes.
#[derive(Debug, Clone, Default)]
pub struct KnownTokens(Arc<HashMap<TokenHash, (Record, Arc<str>)>>);

impl KnownTokens {
    /// Indexes the tokens of `records`.
    pub fn new(records: &Records) -> Self {
        let indexed = |record: &Record| (record.sha256, (record.clone(), record.title().into()));
        Self(Arc::new(records.tokens.iter().map(indexed).collect()))
    }

    /// Checks that `credential` opens `pool` at `now`; `None` if it is no token of this server's kind.
    pub fn verify(
        &self,
        credential: &str,
        pool: &str,
        now: OffsetDateTime,
    ) -> Option<Result<Proof, Refusal>> {
        let token = Token::read(credential)?;
        Some(match self.0.get(&token.hash()) {
            None => Err(Refusal::Unknown),
            Some((record, _)) if record.revoked.is_some() => Err(Refusal::Revoked),
            Some((record, _)) if !record.is_valid_at(now) => Err(Refusal::Expired),
            Some((record, _)) if !record.pools.contains(pool) => Err(Refusal::OtherPool),
            Some((_, title)) => Ok(Proof::Token(Arc::clone(title))),
        })
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::rotation::Issued;
    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    #[test]
    fn a_token_opens_its_pools_until_it_ends() {
        let token = Token::new([1; 32]);
        let record = Record {
            sha256: token.hash(),
            name: None,
            pools: ["worker".to_owned()].into(),
            made: NOON,
            until: Some(NOON + Duration::HOUR),
            revoked: None,
        };
        let judge = |record: &Record, credential: &str, pool: &str, now| {
            let records = Records { tokens: vec![record.clone()], ..Records::default() };
            KnownTokens::new(&records).verify(credential, pool, now)
        };
        let id: Arc<str> = token.hash().id().into();
        let credential = token.as_str();
        let last = NOON + Duration::HOUR - Duration::NANOSECOND;
        let allowed = || Some(Ok(Proof::Token(Arc::clone(&id))));
        assert_eq!(judge(&record, credential, "worker", NOON), allowed());
        assert_eq!(judge(&record, credential, "worker", last), allowed());
        // The server's clock can be behind the issuer's.
        assert_eq!(judge(&record, credential, "worker", NOON - Duration::DAY), allowed());
        let refused = |refusal| Some(Err(refusal));
        let after = NOON + Duration::HOUR;
        assert_eq!(judge(&record, credential, "worker", after), refused(Refusal::Expired));
        assert_eq!(judge(&record, credential, "master", NOON), refused(Refusal::OtherPool));
        assert_eq!(judge(&record, credential, "", NOON), refused(Refusal::OtherPool));
        let other = Token::new([2; 32]);
        assert_eq!(judge(&record, other.as_str(), "worker", NOON), refused(Refusal::Unknown));
        assert_eq!(judge(&record, "a.b.c", "worker", NOON), None, "it is another issuer's");
        let revoked = Record { revoked: Some(NOON), ..record.clone() };
        assert_eq!(judge(&revoked, credential, "worker", NOON), refused(Refusal::Revoked));
        assert_eq!(judge(&revoked, credential, "worker", after), refused(Refusal::Revoked));
        let endless = Record { until: None, ..record };
        assert_eq!(judge(&endless, credential, "worker", NOON + Duration::days(9_999)), allowed());
    }

    #[test]
    fn an_error_shows_nothing_of_what_it_is_about() {
        let token = Token::new([1; 32]);
        for text in [
            "@",
            r#"{"tokens": @}"#,
            r#"{"tokens": [@]}"#,
            r#"{"tokens": [{@: 1}]}"#,
            r"{@: 1}",
            "[@",
        ] {
            let text = text.replace('@', &format!("{:?}", token.as_str()));
            let records = Records::read(text.as_bytes()).unwrap_err().to_string();
            let issued = Issued::read(text.as_bytes()).unwrap_err().to_string();
            assert!(!format!("{records}{issued}").contains("mcs-"), "{records}: {issued}");
        }
    }

    #[test]
    fn records_that_say_more_than_is_understood_are_not_read() {
        for (text, is_read) in [
            ("{}", true),
            (r#"{"tokens": [], "enforced": ["worker"], "lacking": {"worker": ["a"]}}"#, true),
            (r#"{"tokens": [], "banned": []}"#, false),
            (r#"{"tokens": [{"pools": ["worker"]}]}"#, false),
            ("[]", false),
            ("null", false),
        ] {
            let read = Records::read(text.as_bytes());
            assert_eq!(read.is_ok(), is_read, "{text}: {read:?}");
        }
    }
}
