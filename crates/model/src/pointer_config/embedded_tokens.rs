//! Reads and writes tokens in pointer configs, for the rotation of tokens.

use pki::Certificate;
use time::OffsetDateTime;

use super::bearer::{Authorization, WrittenFetch};
use super::config::PointerConfig;
use super::trust::LeftAlone;
use crate::access::rotation::{FetchCredential, PointerToken, PointerWrite};
use crate::access::{KnownTokens, Records, Token};

impl PointerConfig<'_> {
    /// The tokens in the config `name`, by the pool of each fetch. As in [`Self::assess`], the CAs decide if it belongs
    /// to this server: fetches from other servers have none of its tokens. With `may_be_lifted`, a plain config of an
    /// old spec can have a token too.
    pub fn embedded_tokens(
        &self,
        name: &str,
        bundle: &[Certificate],
        known: &[Certificate],
        may_be_lifted: bool,
    ) -> Vec<PointerToken> {
        let cannot = |reason: LeftAlone| FetchCredential::Cannot(format!("not updated: {reason}"));
        let left_alone = match self.assess(bundle, known).left_alone() {
            Some(reason @ (LeftAlone::NameOnly | LeftAlone::OutOfReach)) => Some(cannot(reason)),
            Some(_) => return Vec::new(),
            None => None,
        };
        let can_be_lifted = may_be_lifted && self.lifted().is_some();
        let pointer = |pool: String, credential| PointerToken {
            name: name.to_owned(),
            pool,
            credential,
            waits: false,
        };
        let written = |fetch: WrittenFetch| {
            let credential =
                left_alone.clone().unwrap_or_else(|| self.credential_of(&fetch, can_be_lifted));
            pointer(fetch.pool, credential)
        };
        let mut pointers: Vec<_> = self.written_fetches().into_iter().map(written).collect();
        // A machine that fetches by a nested config is served too.
        for fetch in self.found() {
            if !pointers.iter().any(|pointer| pointer.pool == fetch.pool) {
                pointers.push(pointer(fetch.pool.clone(), cannot(LeftAlone::OutOfReach)));
            }
        }
        pointers
    }

    fn credential_of(&self, fetch: &WrittenFetch, can_be_lifted: bool) -> FetchCredential {
        match &fetch.authorization {
            Authorization::Other => FetchCredential::Other,
            Authorization::Bearer(credential) => {
                Token::read(credential).map_or(FetchCredential::Other, FetchCredential::Token)
            }
            Authorization::Missing if can_be_lifted => FetchCredential::Nothing,
            Authorization::Missing => match self.with_bearer(&fetch.pool, "") {
                Ok(_) => FetchCredential::Nothing,
                Err(reason) => FetchCredential::Cannot(reason.to_string()),
            },
        }
    }

    /// The text with the token embedded, lifted if necessary. `None` if the config has changed since it was
    /// observed.
    pub fn embed(&self, write: &PointerWrite) -> Option<Vec<u8>> {
        let lifted = self.lifted();
        let with =
            |config: &PointerConfig<'_>| config.with_bearer(&write.pool, write.token.as_str());
        lifted.map_or_else(|| with(self), |text| with(&PointerConfig::read(&text))).ok()
    }
}

/// The newest token in these pointer configs that opens a pool at `now`.
pub fn newest_embedded_token<'a>(
    pointers: &'a [PointerToken],
    pool: &str,
    records: &Records,
    now: OffsetDateTime,
) -> Option<&'a Token> {
    let known = KnownTokens::new(records);
    let opens =
        |token: &&Token| matches!(known.verify(token.as_str(), pool, now), Some(Ok(_proof)));
    let tokens = pointers.iter().filter(|pointer| pointer.pool == pool);
    let tokens = tokens.filter_map(|pointer| match &pointer.credential {
        FetchCredential::Token(token) => Some(token),
        FetchCredential::Nothing | FetchCredential::Other | FetchCredential::Cannot(_) => None,
    });
    let made = |token: &&Token| records.find(&token.hash()).map(|record| record.made);
    tokens.filter(opens).max_by_key(made)
}

#[cfg(test)]
mod tests {
    use ignition::{SpecVersion, pointer};
    use pki::issue::issue_ca;
    use pki::{KeyAlgorithm, VALIDITY};
    use time::Duration;
    use time::macros::datetime;

    use super::*;
    use crate::access::Record;

    const URL: &str = "https://api-int.example.com:22623/config/worker";

    fn ca() -> Certificate {
        let key = KeyAlgorithm::P256.generate().unwrap();
        issue_ca(&key, VALIDITY, datetime!(2026-11-21 0:00 UTC)).unwrap()
    }

    fn embedded(text: &[u8], write: &PointerWrite) -> Option<Vec<u8>> {
        PointerConfig::read(text).embed(write)
    }

    fn text(url: &str, trusts: &Certificate, version: SpecVersion) -> Vec<u8> {
        pointer(url, trusts.to_pem().as_bytes(), version).to_string().into_bytes()
    }

    #[test]
    fn what_is_ours_embeds_a_token_or_says_why_it_cannot() {
        let (ours, unrelated) = (ca(), ca());
        let bundle = std::slice::from_ref(&ours);
        let token = Token::new([7; 32]);
        let current = text(URL, &ours, SpecVersion::V3_1);
        let old = text(URL, &ours, SpecVersion::V3_0);
        let write =
            PointerWrite { name: "a".to_owned(), pool: "worker".to_owned(), token: token.clone() };
        let with = embedded(&current, &write).unwrap();
        let foreign = PointerConfig::read(&current).with_bearer("worker", "another's").unwrap();
        let spec =
            "its Ignition spec 3.0.0 has no headers; use a pointer config of spec 3.1.0 or newer";
        let cannot = |reason: &str| FetchCredential::Cannot(reason.to_owned());
        for (user_data, may_be_lifted, expected) in [
            (&current, false, Some(FetchCredential::Nothing)),
            (&with, false, Some(FetchCredential::Token(token))),
            (&foreign, false, Some(FetchCredential::Other)),
            (&old, false, Some(cannot(spec))),
            (&old, true, Some(FetchCredential::Nothing)),
            (
                &text(URL, &unrelated, SpecVersion::V3_1),
                true,
                Some(cannot(&format!("not updated: {}", LeftAlone::NameOnly))),
            ),
            (&text("https://h/other", &ours, SpecVersion::V3_1), true, None),
            (&b"#cloud-config".to_vec(), true, None),
        ] {
            let config = PointerConfig::read(user_data);
            let seen = config.embedded_tokens("a", bundle, &[], may_be_lifted);
            assert!(seen.iter().all(|pointer| pointer.name == "a" && pointer.pool == "worker"));
            assert_eq!(seen.into_iter().next().map(|pointer| pointer.credential), expected);
        }
        assert_eq!(embedded(&old, &write).unwrap(), with, "lifted, it is the same");
        assert_eq!(embedded(b"#cloud-config", &write), None);
    }

    #[test]
    fn what_is_embedded_is_the_newest_token_that_opens_the_pool() {
        let noon = datetime!(2026-11-21 12:00 UTC);
        let [old, new, revoked, named] = [1, 2, 3, 4].map(|byte| Token::new([byte; 32]));
        let pointer = |pool: &str, credential| {
            let (name, pool) = ("a".to_owned(), pool.to_owned());
            PointerToken { name, pool, credential, waits: false }
        };
        let worker = |token: &Token| pointer("worker", FetchCredential::Token(token.clone()));
        let record = |token: &Token, pool: &str, hours| Record {
            sha256: token.hash(),
            name: None,
            pools: [pool.to_owned()].into(),
            made: noon - Duration::hours(hours),
            until: Some(noon + Duration::HOUR),
            revoked: (*token == revoked).then_some(noon),
        };
        let tokens = vec![
            record(&old, "worker", 3),
            record(&new, "worker", 2),
            record(&revoked, "worker", 1),
            record(&named, "master", 0),
        ];
        let records = Records { tokens, ..Records::default() };
        let all = [&revoked, &old, &new, &named].map(worker);
        let embedded_at = |pointers: &[PointerToken], now| {
            newest_embedded_token(pointers, "worker", &records, now).cloned()
        };
        assert_eq!(embedded_at(&all, noon), Some(new));
        assert_eq!(embedded_at(&all[..2], noon), Some(old));
        assert_eq!(embedded_at(&all[..1], noon), None);
        assert_eq!(embedded_at(&all[3..], noon), None, "it opens another pool");
        assert_eq!(embedded_at(&all, noon + Duration::HOUR), None, "they have ended");
        assert_eq!(
            newest_embedded_token(&all, "worker", &Records::default(), noon),
            None,
            "none is known"
        );
        assert_eq!(
            newest_embedded_token(&all, "master", &records, noon),
            None,
            "they are another pool's"
        );
        for credential in [
            FetchCredential::Nothing,
            FetchCredential::Other,
            FetchCredential::Cannot("x".to_owned()),
        ] {
            assert_eq!(embedded_at(&[pointer("worker", credential)], noon), None);
        }
    }
}
