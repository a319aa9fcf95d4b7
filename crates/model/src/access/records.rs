//! What servers know of tokens: enough to recognise one, nothing that opens a config.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use time::OffsetDateTime;

use super::mode::{AccessMode, Waiting};
use super::proof::{Proof, Refusal, Verifier};
use super::token::{Token, TokenHash};

/// What servers are told: the tokens' hashes, and where enforcing may begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The tokens, the oldest first.
    #[serde(default)]
    pub tokens: Vec<Record>,
    /// The pools that are enforced where that is asked for. One enters when all pointer configs that
    /// are known carry a token, and leaves when nobody asks for it any more.
    #[serde(default)]
    pub enforced: BTreeSet<String>,
    /// What is known of pointer configs without a token, by pool, one line each: the evidence on which
    /// a pool that is to be enforced stays open.
    #[serde(default)]
    pub lacking: BTreeMap<String, Vec<String>>,
    /// Pools that were enforced, and left `enforced` although nobody asked for less: a list of before was
    /// restored, or one was lost and made anew. Evidence opens none of them. Each server finds that out by
    /// itself, and keeps it in its cache; what keeps the tokens writes none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub contested: BTreeSet<String>,
    /// Pools that may have been enforced, which nothing says any more since all lists were lost. Evidence
    /// opens none of them either, until less is asked. What keeps the tokens writes them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unsure: BTreeSet<String>,
}

/// What records say of a pool that is to be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing<'a> {
    /// It is enforced.
    Enforced,
    /// It stays open, because of these pointer configs.
    Open(&'a [String]),
    /// Neither is known.
    Waiting(Waiting),
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What it is recognised by.
    pub sha256: TokenHash,
    /// What its owner calls it. Without a name it is one that pointer configs carry, made anew from time
    /// to time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pools that it opens.
    pub pools: BTreeSet<String>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub made: OffsetDateTime,
    /// When it ends, if that is known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub until: Option<OffsetDateTime>,
    /// When it was revoked.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub revoked: Option<OffsetDateTime>,
}

impl Record {
    /// Returns `true` if it opens anything at `now`.
    #[must_use]
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.revoked.is_none() && self.until.is_none_or(|until| now < until)
    }

    /// How people name it.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.sha256.id())
    }
}

impl Records {
    /// The secret that holds them in a cluster, for all servers.
    pub const SECRET: &str = "machine-config-server-access";
    /// The key of that, and the file of a state or cache folder.
    pub const FILE: &str = "access.json";

    /// Reads what was written as JSON.
    ///
    /// # Errors
    /// What is wrong with it. What is not understood is not to be written anew.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        read_object(json)
    }

    /// What is known of a pool that is to be enforced.
    pub(super) fn standing(&self, pool: &str) -> Standing<'_> {
        match self.lacking.get(pool) {
            _ if self.enforced.contains(pool) => Standing::Enforced,
            _ if self.contested.contains(pool) || self.unsure.contains(pool) => {
                Standing::Waiting(Waiting::Contested)
            }
            Some(lacking) if !lacking.is_empty() => Standing::Open(lacking),
            _ => Standing::Waiting(Waiting::NotKnown),
        }
    }

    /// These records after those `before` them, with the pools that are contested since. A pool for which
    /// less is asked is not; one that is gone may come back.
    #[must_use]
    pub fn following(
        mut self,
        before: Option<&Self>,
        wanted: &BTreeMap<String, AccessMode>,
    ) -> Self {
        let is_asked =
            |pool: &str| wanted.get(pool).is_none_or(|mode| *mode == AccessMode::Enforce);
        let before = before.into_iter();
        let before = before.flat_map(|it| [&it.enforced, &it.contested, &it.unsure]).flatten();
        let contested = before.filter(|pool| !self.enforced.contains(*pool) && is_asked(pool));
        self.contested = contested.cloned().collect();
        self
    }

    /// The record of a token.
    #[must_use]
    pub fn find(&self, sha256: &TokenHash) -> Option<&Record> {
        self.tokens.iter().find(|record| record.sha256 == *sha256)
    }
}

/// Reads a JSON object; serde takes a list of the values for one as well.
pub(super) fn read_object<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(json);
    object.and_then(|object| T::deserialize(serde_json::Value::Object(object))).map_err(untold)
}

/// An error without what stands where something else should: that may be a token.
fn untold(error: serde_json::Error) -> serde_json::Error {
    if error.classify() == Category::Data {
        serde_json::Error::custom("it is not as this version writes it")
    } else {
        error
    }
}

/// Tokens by their hashes, as requests are judged by them.
#[derive(Debug, Default)]
pub struct KnownTokens(HashMap<TokenHash, Known>);

#[derive(Debug)]
struct Known {
    record: Record,
    title: Arc<str>,
}

impl KnownTokens {
    /// Those of `records`.
    #[must_use]
    pub fn new(records: &Records) -> Self {
        let known = records.tokens.iter().map(|record| {
            let title = record.title().into();
            (record.sha256, Known { record: record.clone(), title })
        });
        Self(known.collect())
    }
}

impl Verifier for KnownTokens {
    fn verify(
        &self,
        credential: &str,
        pool: &str,
        now: OffsetDateTime,
    ) -> Option<Result<Proof, Refusal>> {
        let token = Token::read(credential)?;
        let Some(Known { record, title }) = self.0.get(&token.hash()) else {
            return Some(Err(Refusal::Unknown));
        };
        Some(if record.revoked.is_some() {
            Err(Refusal::Revoked)
        } else if !record.is_valid_at(now) {
            Err(Refusal::Expired)
        } else if !record.pools.contains(pool) {
            Err(Refusal::OtherPool)
        } else {
            Ok(Proof::Token(Arc::clone(title)))
        })
    }

    fn is_cheap(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
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
        // A server's clock may be behind that of whoever made it.
        assert_eq!(judge(&record, credential, "worker", NOON - Duration::DAY), allowed());
        let refused = |refusal| Some(Err(refusal));
        let after = NOON + Duration::HOUR;
        assert_eq!(judge(&record, credential, "worker", after), refused(Refusal::Expired));
        assert_eq!(judge(&record, credential, "master", NOON), refused(Refusal::OtherPool));
        assert_eq!(judge(&record, credential, "", NOON), refused(Refusal::OtherPool));
        let other = Token::new([2; 32]);
        assert_eq!(judge(&record, other.as_str(), "worker", NOON), refused(Refusal::Unknown));
        assert_eq!(judge(&record, "a.b.c", "worker", NOON), None, "it is somebody else's");
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
